//! Two interfaces in one thread, and a record of everything they report.
//!
//! Invariant: a side keeps every event in order and every posted context. So a test can assert that
//! nothing is missing, duplicated or late.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use dafs_dat::{
    Address, Completion, CompletionStatus, Domain, EndpointConfig, EndpointId, Event, Gather,
    Inbox, InboxSlot, Interface, LocalSegment, Operation, PendingId, Region, RemoteSegment, Rights,
    SendOptions, Signal, Stag,
};
use dafs_memory::{Memory, Pages};
use dafs_types::Random;

use crate::fixture::{Fixture, World};

/// One interface, with the endpoint that the test uses.
pub(crate) struct Side {
    pub interface: Interface,
    current: Option<EndpointId>,
    pub events: Vec<Event>,
    posted: Vec<Posted>,
    regions: Vec<Region>,
    /// The names of this side's and of the other side's regions on their connections.
    names: Names,
    peer_names: Names,
    /// The inbox in which messages arrive, if the test reads them there, and the arrived messages.
    pub inbox: Option<Inbox>,
    pub messages: Vec<(InboxSlot, u32)>,
}

/// The names of regions for peers, by their local names. On some transports they differ.
type Names = Rc<RefCell<HashMap<u32, Stag>>>;

#[derive(Clone, Copy)]
struct Posted {
    endpoint: EndpointId,
    context: u64,
    operation: Operation,
    signal: Signal,
}

/// The two sides of a connection.
pub(crate) struct Pair {
    pub initiator: Side,
    pub acceptor: Side,
    pub world: World,
}

/// A registered piece of memory.
pub(crate) struct Buffer {
    pub memory: Memory,
    pub region: Region,
}

impl Buffer {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.memory.to_vec(0, self.memory.length())
    }

    pub(crate) fn whole(&self) -> LocalSegment {
        self.region.local(0, u32::try_from(self.region.length).unwrap())
    }

    pub(crate) fn all_remote(&self) -> RemoteSegment {
        self.region.remote(0, u32::try_from(self.region.length).unwrap())
    }
}

impl Side {
    fn new(config: dafs_dat::InterfaceConfig) -> Self {
        let interface = Interface::new(config).expect("an interface");
        let (events, posted, messages) = (Vec::new(), Vec::new(), Vec::new());
        let (regions, names) = (Vec::new(), Names::default());
        let peer_names = Names::default();
        Self {
            interface,
            current: None,
            events,
            posted,
            regions,
            names,
            peer_names,
            inbox: None,
            messages,
        }
    }

    /// Learns the names that peers have for this side's regions.
    fn note_names(&mut self) {
        let Some(endpoint) = self.current else { return };
        for region in &self.regions {
            let named = self.interface.remote(endpoint, region, 0, 0).stag;
            self.names.borrow_mut().insert(region.stag.0, named);
        }
    }

    /// Returns this side's name of a region of the other side. If `stag` differs from a region's
    /// local name in the last byte, the result differs in the same way.
    fn peer_name(&self, stag: Stag) -> Stag {
        let names = self.peer_names.borrow();
        let alike = |own: &&u32| **own == stag.0;
        let close = |own: &&u32| **own >> 8 == stag.0 >> 8;
        let own = names.keys().find(alike).or_else(|| names.keys().find(close));
        own.map_or(stag, |own| Stag(names[own].0 ^ own ^ stag.0))
    }

    fn named(&self, remote: RemoteSegment) -> RemoteSegment {
        RemoteSegment { stag: self.peer_name(remote.stag), ..remote }
    }

    /// Returns the endpoint that the test uses.
    pub(crate) fn endpoint(&self) -> EndpointId {
        self.current.expect("connected before")
    }

    pub(crate) fn set_endpoint(&mut self, endpoint: EndpointId) {
        self.current = Some(endpoint);
    }

    // ---- memory ---------------------------------------------------------------

    pub(crate) fn buffer(&mut self, length: usize, rights: Rights) -> Buffer {
        let memory = Memory::shared(length, Pages::Small).unwrap();
        self.register(memory, rights)
    }

    pub(crate) fn register(&mut self, memory: Memory, rights: Rights) -> Buffer {
        let region = self.interface.register(&memory, DOMAIN, rights).expect("a free slot");
        if rights.is_remote() {
            self.regions.push(region);
            self.note_names();
        }
        Buffer { memory, region }
    }

    /// Returns a registered buffer that contains `bytes`.
    pub(crate) fn filled(&mut self, bytes: &[u8], rights: Rights) -> Buffer {
        let buffer = self.buffer(bytes.len().max(1), rights);
        buffer.memory.write(0, bytes);
        buffer
    }

    // ---- work -----------------------------------------------------------------

    fn record(&mut self, context: u64, operation: Operation, signal: Signal) {
        let endpoint = self.endpoint();
        self.posted.push(Posted { endpoint, context, operation, signal });
    }

    pub(crate) fn receive(&mut self, context: u64, scatter: &[LocalSegment]) {
        self.interface.post_receive(self.endpoint(), context, scatter).expect("a posted receive");
        self.record(context, Operation::Receive, Signal::Always);
    }

    pub(crate) fn send(&mut self, context: u64, bytes: &[u8]) {
        self.gather(context, &[Gather::Bytes(bytes)], SendOptions::default());
    }

    pub(crate) fn gather(&mut self, context: u64, gather: &[Gather<'_>], options: SendOptions) {
        let invalidate = options.invalidate.map(|stag| self.peer_name(stag));
        let options = SendOptions { invalidate, ..options };
        self.interface.post_send(self.endpoint(), context, gather, options).expect("a posted send");
        self.record(context, Operation::Send, options.signal);
    }

    pub(crate) fn write(&mut self, context: u64, local: &[LocalSegment], remote: RemoteSegment) {
        self.write_signal(context, local, remote, Signal::Always);
    }

    /// Writes without posting, if the transport can.
    pub(crate) fn write_now(&mut self, local: &[LocalSegment], remote: RemoteSegment) -> bool {
        let (endpoint, remote) = (self.endpoint(), self.named(remote));
        self.interface.rdma_write_now(endpoint, local, remote)
    }

    /// Reads without posting, if the transport can.
    pub(crate) fn read_now(&mut self, local: &[LocalSegment], remote: RemoteSegment) -> bool {
        let (endpoint, remote) = (self.endpoint(), self.named(remote));
        self.interface.rdma_read_now(endpoint, local, remote)
    }

    pub(crate) fn write_signal(
        &mut self,
        context: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
        signal: Signal,
    ) {
        let remote = self.named(remote);
        self.interface
            .post_rdma_write(self.endpoint(), context, local, remote, signal)
            .expect("a posted write");
        self.record(context, Operation::RdmaWrite, signal);
    }

    pub(crate) fn read(&mut self, context: u64, local: &[LocalSegment], remote: RemoteSegment) {
        let remote = self.named(remote);
        self.interface
            .post_rdma_read(self.endpoint(), context, local, remote)
            .expect("a posted read");
        self.record(context, Operation::RdmaRead, Signal::Always);
    }

    // ---- what was reported ----------------------------------------------------

    pub(crate) fn collect(&mut self) {
        loop {
            let length = self.interface.first_completion().map_or(0, |first| first.length);
            let slot = self.inbox.as_mut().and_then(|inbox| self.interface.pass_message(inbox));
            match slot {
                Some(slot) => self.messages.push((slot, length)),
                None => match self.interface.next_event() {
                    Some(event) => self.events.push(event),
                    None => return,
                },
            }
        }
    }

    /// Creates an inbox and posts all of its slots.
    pub(crate) fn open_inbox(&mut self, slots: u16) {
        let mut inbox = Inbox::new(&mut self.interface, DOMAIN, slots, 256).expect("an inbox");
        let endpoint = self.endpoint();
        while inbox.post(&mut self.interface, endpoint) {}
        self.inbox = Some(inbox);
    }

    pub(crate) fn completions(&self) -> impl Iterator<Item = &Completion> {
        self.events.iter().filter_map(|event| match event {
            Event::Completion(completion) => Some(completion),
            _ => None,
        })
    }

    pub(crate) fn done(&self, operation: Operation) -> Vec<Completion> {
        self.completions().filter(|c| c.operation == operation).copied().collect()
    }

    pub(crate) fn received(&self) -> Vec<Completion> {
        self.done(Operation::Receive)
    }

    /// Returns the only completion of a context, if it has arrived.
    pub(crate) fn completion(&self, context: u64) -> Option<Completion> {
        let mut found = self.completions().filter(|c| c.cookie == context);
        let first = found.next().copied();
        assert!(found.next().is_none(), "context {context} completed twice");
        first
    }

    pub(crate) fn is_established(&self) -> bool {
        let ours = self.endpoint();
        self.events.iter().any(|event| match event {
            Event::Established { endpoint, .. } => *endpoint == ours,
            _ => false,
        })
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.breaks_of(self.endpoint()) > 0
    }

    pub(crate) fn breaks_of(&self, wanted: EndpointId) -> usize {
        let broken = |event: &&Event| match event {
            Event::Broken { endpoint, .. } => *endpoint == wanted,
            _ => false,
        };
        self.events.iter().filter(broken).count()
    }

    pub(crate) fn pending(&self) -> Option<(PendingId, Box<[u8]>)> {
        self.events.iter().find_map(|event| match event {
            Event::ConnectionRequest { pending, private_data, .. } => {
                Some((*pending, private_data.clone()))
            }
            _ => None,
        })
    }

    /// Checks that all work posted on the endpoint has completed, each once, before the only
    /// `Broken` event, and that no event followed it.
    pub(crate) fn assert_ended(&self, name: &str) {
        self.assert_endpoint_ended(name, self.endpoint());
    }

    pub(crate) fn assert_endpoint_ended(&self, name: &str, wanted: EndpointId) {
        assert_eq!(self.breaks_of(wanted), 1, "{name}: one Broken: {:?}", self.events);
        let mut over = false;
        for event in &self.events {
            match event {
                Event::Broken { endpoint, .. } if *endpoint == wanted => over = true,
                Event::Completion(c) if c.endpoint == wanted => {
                    assert!(!over, "{name}: {c:?} after Broken");
                }
                _ => {}
            }
        }
        self.assert_once(name, wanted, true);
    }

    /// Checks that no context has completed twice, that each was posted, and, if `all`, that none
    /// is missing.
    pub(crate) fn assert_once(&self, name: &str, wanted: EndpointId, all: bool) {
        let mut counts: HashMap<(u64, Operation), usize> = HashMap::new();
        for completion in self.completions().filter(|c| c.endpoint == wanted) {
            *counts.entry((completion.cookie, completion.operation)).or_default() += 1;
        }
        for posted in self.posted.iter().filter(|p| p.endpoint == wanted) {
            let key = (posted.context, posted.operation);
            let count = counts.remove(&key).unwrap_or(0);
            let silent = posted.signal == Signal::OnError || !all;
            assert!(count == 1 || count == 0 && silent, "{name}: {key:?} completed {count} times");
        }
        assert!(counts.is_empty(), "{name}: completed but never posted: {counts:?}");
    }
}

impl Pair {
    /// Creates a connected pair.
    pub(crate) fn new(fixture: &dyn Fixture) -> Self {
        Self::seeded(fixture, 1)
    }

    pub(crate) fn seeded(fixture: &dyn Fixture, seed: u64) -> Self {
        let world = fixture.world(seed);
        let config = world.endpoint.clone();
        Self::over(world, &config, &config)
    }

    /// Creates a pair whose endpoints have these limits.
    pub(crate) fn limited(fixture: &dyn Fixture, change: impl Fn(&mut EndpointConfig)) -> Self {
        let world = fixture.world(1);
        let mut config = world.endpoint.clone();
        change(&mut config);
        Self::over(world, &config, &config)
    }

    pub(crate) fn over(
        world: World,
        initiator: &EndpointConfig,
        acceptor: &EndpointConfig,
    ) -> Self {
        let mut pair = Self::apart(world);
        pair.join(initiator, acceptor);
        pair
    }

    /// Creates two interfaces without a connection; the acceptor listens.
    pub(crate) fn apart(mut world: World) -> Self {
        let mut initiator = Side::new(world.initiator.clone());
        let mut acceptor = Side::new(world.acceptor.clone());
        initiator.peer_names = Rc::clone(&acceptor.names);
        acceptor.peer_names = Rc::clone(&initiator.names);
        let listener = acceptor.interface.listen(&world.address).expect("a listener");
        world.address = acceptor.interface.listener_address(listener).expect("its address");
        if let (Some(seed), Address::Tcp(address)) = (world.dribbles, &world.address) {
            world.address = Address::Tcp(crate::proxy::before(*address, seed));
        }
        Self { initiator, acceptor, world }
    }

    /// Makes another connection. The test then uses its endpoints.
    pub(crate) fn join(&mut self, initiator: &EndpointConfig, acceptor: &EndpointConfig) {
        self.connect(initiator, b"hello");
        let pending = self.request();
        let endpoint = self.acceptor.interface.accept(pending, DOMAIN, acceptor, b"hi");
        self.acceptor.set_endpoint(endpoint);
        self.until("both sides are established", |pair| {
            pair.initiator.is_established() && pair.acceptor.is_established()
        });
        self.initiator.note_names();
        self.acceptor.note_names();
    }

    pub(crate) fn connect(&mut self, config: &EndpointConfig, private_data: &[u8]) {
        let address = &self.world.address;
        let begun = self.initiator.interface.connect(address, DOMAIN, config, private_data);
        self.initiator.set_endpoint(begun.expect("a connect begun"));
    }

    /// Makes another connection, which the test then uses, and returns its two ends.
    pub(crate) fn another(&mut self) -> (EndpointId, EndpointId) {
        let config = self.world.endpoint.clone();
        self.initiator.events.clear();
        self.acceptor.events.clear();
        self.join(&config, &config);
        (self.initiator.endpoint(), self.acceptor.endpoint())
    }

    /// Waits for a connection request and removes it from the record.
    pub(crate) fn request(&mut self) -> PendingId {
        self.until("a connection request", |pair| pair.acceptor.pending().is_some());
        let (pending, _) = self.acceptor.pending().unwrap();
        self.acceptor.events.retain(|event| !matches!(event, Event::ConnectionRequest { .. }));
        pending
    }

    // ---- progress -------------------------------------------------------------

    /// Lets both sides make progress once. Virtual time advances only if neither has anything to
    /// report. Returns false if a simulated network is quiet.
    pub(crate) fn turn(&mut self) -> bool {
        let mut moved = false;
        for side in [&mut self.initiator, &mut self.acceptor] {
            moved |= side.interface.poll() > 0;
            side.collect();
        }
        match &self.world.network {
            Some(network) => moved || network.advance(),
            None => true,
        }
    }

    /// Takes turns until `condition` is true.
    pub(crate) fn until(&mut self, what: &str, mut condition: impl FnMut(&Pair) -> bool) {
        let start = Instant::now();
        let mut quiet = 0;
        for turn in 1u64.. {
            if condition(self) {
                return;
            }
            quiet = if self.turn() { 0 } else { quiet + 1 };
            let hung = quiet > QUIET_TURNS || turn % 1024 == 0 && start.elapsed() > HANG;
            if hung {
                panic!(
                    "waited in vain: {what}\ninitiator: {:?}\nacceptor: {:?}",
                    tail(&self.initiator.events),
                    tail(&self.acceptor.events)
                );
            }
            if self.world.network.is_none() && turn > EAGER_TURNS {
                std::thread::yield_now();
            }
        }
    }

    /// Takes turns until nothing more can happen.
    pub(crate) fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < QUIET_TURNS {
            let before = self.initiator.events.len() + self.acceptor.events.len();
            let moved = self.turn() && self.world.network.is_some();
            let after = self.initiator.events.len() + self.acceptor.events.len();
            quiet = if moved || before != after { 0 } else { quiet + 1 };
        }
    }

    pub(crate) fn until_broken(&mut self) {
        self.until("both sides are broken", |pair| {
            pair.initiator.is_broken() && pair.acceptor.is_broken()
        });
        self.settle();
        self.initiator.assert_ended("initiator");
        self.acceptor.assert_ended("acceptor");
    }

    /// Sends a message of one byte from the acceptor and waits for it. Then everything that the
    /// acceptor wrote before is placed.
    pub(crate) fn fence(&mut self, context: u64) {
        let buffer = self.initiator.buffer(1, Rights::LOCAL);
        self.initiator.receive(context, &[buffer.whole()]);
        self.acceptor.send(context, b"!");
        self.until("the fence", |pair| {
            pair.initiator.received().iter().any(|c| c.cookie == context)
        });
        let arrived = self.initiator.received().into_iter().find(|c| c.cookie == context);
        assert_eq!(arrived.map(|c| c.status), Some(CompletionStatus::Success));
    }

    /// Checks that both sides still work, by a message in each direction.
    pub(crate) fn assert_alive(&mut self, context: u64) {
        self.fence(context);
        let buffer = self.acceptor.buffer(4, Rights::LOCAL);
        self.acceptor.receive(context + 1, &[buffer.whole()]);
        self.initiator.send(context + 1, b"ping");
        self.until("a message back", |pair| {
            pair.acceptor.received().iter().any(|c| c.cookie == context + 1)
        });
        assert_eq!(buffer.bytes(), b"ping");
    }
}

fn tail(events: &[Event]) -> &[Event] {
    &events[events.len().saturating_sub(8)..]
}

/// Returns bytes that depend on a seed and on their position.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    Random::new(seed).bytes(length)
}

/// The protection domain of all tests, except those about domains.
pub(crate) const DOMAIN: Domain = Domain(7);
/// The number of turns without an event after which no more events can come.
const QUIET_TURNS: u32 = 64;
/// The number of turns before the thread yields the core.
const EAGER_TURNS: u64 = 64;
/// A limit that only detects hanging. No test depends on time.
const HANG: Duration = Duration::from_secs(20);
