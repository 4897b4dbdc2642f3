//! The state of a simulated network: the calendar of arrivals and all data that determines their
//! order.
//!
//! Invariants:
//!
//! - The calendar is processed by time, then by order of entry.
//! - An entry whose lane was purged, or whose receiver no longer exists, is dropped without
//!   advancing the clock.
//! - A link exists until both of its sides have left it.
//! - If the connect request can no longer reach an acceptor, the link is treated as if it had no
//!   acceptor.

use std::collections::{BTreeMap, VecDeque};

use super::lane::{Lane, Side};
use super::packet::{Cause, Greeting, Packet};
use super::random::Random;
use super::{Fault, NetworkConfig, Statistics, TraceEntry};
use crate::BreakReason;

/// The state of a network, shared by all handles.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: NetworkConfig,
    pub(crate) random: Random,
    pub(crate) now_ns: u64,
    /// The number of calendar entries made, which orders entries of the same time.
    entries: u64,
    pub(crate) calendar: BTreeMap<(u64, u64), Entry>,
    pub(crate) links: BTreeMap<u64, Link>,
    links_made: u64,
    listeners_made: u64,
    pub(crate) nodes: BTreeMap<u32, Node>,
    pub(crate) statistics: Statistics,
    pub(crate) faults_done: u64,
    /// The faults injected by the driver, each with the number of packets to skip before it.
    pub(crate) orders: Vec<(Fault, u64)>,
    /// The number of registrations of each device.
    pub(crate) registrations: BTreeMap<u32, usize>,
    /// The STag that was given to a registration most recently.
    pub(crate) names_given: u32,
    pub(crate) trace_hash: u64,
    pub(crate) trace: VecDeque<TraceEntry>,
}

/// One connection of the network.
#[derive(Debug)]
pub(crate) struct Link {
    /// The lane from side 0, and the lane from side 1.
    pub(crate) lanes: [Lane; 2],
    /// The initiator, and the acceptor.
    pub(crate) sides: [Side; 2],
    /// The port that was connected to.
    pub(crate) port: u16,
    /// True if the connect request has reached a listener.
    pub(crate) is_offered: bool,
    /// True if the acceptor has replied, or the connect has ended in another way.
    pub(crate) answered: bool,
    /// The arrivals held back by a partition, oldest first.
    pub(crate) held: Vec<Arrival>,
    /// The number of times that `held` was emptied.
    pub(crate) holds: u64,
}

/// The state of a node, created when a call first names the node.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) down: bool,
    pub(crate) isolated: bool,
    /// The number of the device that the node's connections use.
    pub(crate) device: Option<u32>,
    /// The node's listeners, by port.
    pub(crate) listeners: BTreeMap<u16, Backlog>,
}

/// The connections at a listener that no interface has taken yet.
#[derive(Debug)]
pub(crate) struct Backlog {
    generation: u64,
    pub(crate) requests: VecDeque<(u64, Greeting)>,
}

/// An event that is due at some time.
#[derive(Debug)]
pub(crate) enum Entry {
    Arrival(Arrival),
    /// The timeout of a connect.
    ConnectOver {
        link: u64,
    },
    /// The timeout of a connection across a partition.
    HoldOver {
        link: u64,
        holds: u64,
    },
}

/// A packet about to arrive at side `to` of a link.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) link: u64,
    pub(crate) to: usize,
    pub(crate) epoch: u64,
    pub(crate) packet: Packet,
    pub(crate) fault: Option<Fault>,
}

impl State {
    pub(crate) fn new(config: NetworkConfig) -> Self {
        Self {
            random: Random::new(config.seed),
            config,
            now_ns: 0,
            entries: 0,
            calendar: BTreeMap::new(),
            links: BTreeMap::new(),
            links_made: 0,
            listeners_made: 0,
            nodes: BTreeMap::new(),
            statistics: Statistics::default(),
            faults_done: 0,
            orders: Vec::new(),
            registrations: BTreeMap::new(),
            names_given: 0,
            trace_hash: HASH_START,
            trace: VecDeque::new(),
        }
    }

    // ---- listeners ------------------------------------------------------------

    /// Makes `node` listen on a port. Returns `None` if a listener already has the port or the node
    /// is killed.
    pub(crate) fn bind(&mut self, node: u32, port: u16) -> Option<u64> {
        let node = self.nodes.entry(node).or_default();
        if node.down || node.listeners.contains_key(&port) {
            return None;
        }
        self.listeners_made += 1;
        let generation = self.listeners_made;
        node.listeners.insert(port, Backlog { generation, requests: VecDeque::new() });
        Some(generation)
    }

    pub(crate) fn unbind(&mut self, node: u32, port: u16, generation: u64) {
        if self.backlog(node, port, generation).is_none() {
            return;
        }
        let listeners = self.nodes.get_mut(&node).map(|node| &mut node.listeners);
        if let Some(backlog) = listeners.and_then(|listeners| listeners.remove(&port)) {
            self.refuse_all(backlog);
        }
    }

    /// Returns the backlog of a listener; `None` if the listener no longer exists, even if another
    /// listener now uses its port.
    fn backlog(&mut self, node: u32, port: u16, generation: u64) -> Option<&mut Backlog> {
        let backlog = self.nodes.get_mut(&node)?.listeners.get_mut(&port)?;
        (backlog.generation == generation).then_some(backlog)
    }

    pub(crate) fn refuse_all(&mut self, backlog: Backlog) {
        for (link, _) in backlog.requests {
            self.leave(link, 1, Cause::Orderly);
        }
    }

    /// Removes and returns the oldest connection that waits at a listener.
    pub(crate) fn take_request(
        &mut self,
        node: u32,
        port: u16,
        generation: u64,
    ) -> Option<(u64, Greeting)> {
        self.backlog(node, port, generation)?.requests.pop_front()
    }

    // ---- what endpoints do ----------------------------------------------------

    /// Opens a link to a node's port and sends the connect request.
    pub(crate) fn connect(&mut self, (to, port): (u32, u16), greeting: Greeting) -> u64 {
        self.links_made += 1;
        let link = self.links_made;
        let from = greeting.node;
        let sides = [Side::new(from), Side::new(to)];
        let lanes = [Lane::default(), Lane::default()];
        self.links.insert(
            link,
            Link {
                lanes,
                sides,
                port,
                is_offered: false,
                answered: false,
                held: Vec::new(),
                holds: 0,
            },
        );
        if self.is_down(from) {
            self.refuse(link, "this node is down");
            return link;
        }
        self.transmit(link, 0, Packet::Connect(greeting));
        if let Some(at) = self.moment_after(self.config.connect_ns_max) {
            self.enter(at, Entry::ConnectOver { link });
        }
        link
    }

    /// Sends a packet from `side`, unless the lane is cut.
    pub(crate) fn transmit(&mut self, id: u64, side: usize, packet: Packet) {
        if self.links.get(&id).is_none_or(|link| link.lanes[side].cut) {
            return;
        }
        let fault = if packet.carries_data() { self.draw_fault() } else { None };
        let mut latency = self.draw_latency();
        if fault == Some(Fault::Delay) {
            self.statistics.delays += 1;
            latency += self.random.between(1, self.config.faults.delay_ns_max);
        }
        let at = self.now_ns.saturating_add(latency);
        let Some(link) = self.links.get_mut(&id) else { return };
        let lane = &mut link.lanes[side];
        lane.in_flight += usize::from(packet.is_work());
        let at = lane.schedule(&packet, at);
        let epoch = lane.epoch;
        self.enter(at, Entry::Arrival(Arrival { link: id, to: 1 - side, epoch, packet, fault }));
    }

    /// Returns true if `side` may have another work request in flight.
    pub(crate) fn has_room(&self, link: u64, side: usize) -> bool {
        self.links
            .get(&link)
            .is_some_and(|link| link.lanes[side].in_flight < self.config.in_flight_max)
    }

    /// Removes and returns the oldest packet that has arrived at `side`.
    pub(crate) fn take(&mut self, link: u64, side: usize) -> Option<Packet> {
        let link = self.links.get_mut(&link)?;
        let packet = link.sides[side].inbox.pop_front()?;
        let lane = &mut link.lanes[1 - side];
        lane.in_flight = lane.in_flight.saturating_sub(usize::from(packet.is_work()));
        Some(packet)
    }

    /// Sends the acceptor's reply. Returns `None` if the initiator has already left.
    pub(crate) fn answer(&mut self, id: u64, packet: Packet) -> Option<()> {
        let link = self.links.get_mut(&id)?;
        if link.sides[1].ended {
            return None;
        }
        link.answered = true;
        self.transmit(id, 1, packet);
        Some(())
    }

    /// Makes `side` leave the link, and reports `cause` to its peer.
    pub(crate) fn leave(&mut self, id: u64, side: usize, cause: Cause) {
        let orderly = matches!(cause, Cause::Orderly);
        let lossy = orderly && self.random.chance(self.config.faults.close_loses_ppm);
        let Some(link) = self.links.get_mut(&id) else { return };
        if std::mem::replace(&mut link.sides[side].gone, true) {
            return;
        }
        link.answered |= side == 0;
        link.sides[side].inbox.clear();
        link.sides[side].exposed.clear();
        let lane = &mut link.lanes[side];
        if lossy && !lane.cut && lane.in_flight > 0 {
            lane.purge();
            self.statistics.lossy_closes += 1;
        }
        self.fetch_lent(id, side);
        self.transmit(id, side, Packet::Close(cause));
        if let Some(link) = self.links.get_mut(&id) {
            link.lanes[side].cut = true;
        }
        self.forget_left(id);
    }

    /// Removes a link that both sides have left.
    pub(crate) fn forget_left(&mut self, id: u64) {
        let is_left = self.links.get(&id).is_some_and(|link| {
            let [initiator, acceptor] = &link.sides;
            let never_comes = !link.is_offered && link.lanes[0].epoch > 0;
            initiator.gone && (acceptor.gone || never_comes)
        });
        if is_left {
            self.links.remove(&id);
        }
    }

    /// Fetches the data that `side` has in flight, so that the side may use its memory again.
    fn fetch_lent(&mut self, id: u64, side: usize) {
        let held = self.links.get_mut(&id).into_iter().flat_map(|link| link.held.iter_mut());
        let under_way = self.calendar.values_mut().filter_map(|entry| match entry {
            Entry::Arrival(arrival) => Some(arrival),
            Entry::ConnectOver { .. } | Entry::HoldOver { .. } => None,
        });
        for arrival in held.chain(under_way).filter(|a| a.link == id && a.to != side) {
            if let Some(payload) = arrival.packet.payload_mut() {
                payload.fetch();
            }
        }
    }

    // ---- time -----------------------------------------------------------------

    /// Returns the time that is `span_ns` from now; `None` for a span that never ends.
    pub(crate) fn moment_after(&self, span_ns: u64) -> Option<u64> {
        (span_ns != u64::MAX).then(|| self.now_ns.saturating_add(span_ns))
    }

    /// Returns the time of the next event.
    pub(crate) fn next_ns(&mut self) -> Option<u64> {
        while let Some(((at, _), entry)) = self.calendar.first_key_value() {
            if !self.is_stale(entry) {
                return Some(*at);
            }
            self.calendar.pop_first();
        }
        None
    }

    /// Advances the clock to the next event and executes it.
    pub(crate) fn advance(&mut self) -> bool {
        let Some(at) = self.next_ns() else { return false };
        let Some((_, entry)) = self.calendar.pop_first() else { return false };
        self.now_ns = self.now_ns.max(at);
        match entry {
            Entry::Arrival(arrival) => self.arrive(arrival),
            Entry::ConnectOver { link } => {
                self.note("connect-over", link, 0, 0);
                self.refuse(link, "timed out while connecting");
            }
            Entry::HoldOver { link, .. } => {
                self.note("hold-over", link, 0, 0);
                let reason = || BreakReason::System("partitioned for too long".into());
                self.sever(link, [true, true], [true, true], [reason(), reason()]);
            }
        }
        true
    }

    fn is_stale(&self, entry: &Entry) -> bool {
        let link = |id| self.links.get(id);
        match entry {
            Entry::Arrival(arrival) => link(&arrival.link).is_none_or(|link| {
                let to = &link.sides[arrival.to];
                to.gone || to.ended || link.lanes[1 - arrival.to].epoch != arrival.epoch
            }),
            Entry::ConnectOver { link: id } => link(id).is_none_or(|link| link.answered),
            Entry::HoldOver { link: id, holds } => {
                link(id).is_none_or(|link| link.held.is_empty() || link.holds != *holds)
            }
        }
    }

    fn arrive(&mut self, mut arrival: Arrival) {
        let (id, to) = (arrival.link, arrival.to);
        let lost = matches!(arrival.packet, Packet::Lost(_));
        if !lost && self.is_parted(id) {
            self.hold(arrival);
            return;
        }
        if let Some(payload) = arrival.packet.payload_mut() {
            payload.fetch();
        }
        let (what, length) = arrival.packet.label();
        self.note(what, id, to, length);
        if self.strike_before(&mut arrival) {
            return;
        }
        self.statistics.arrivals += 1;
        if let Packet::Connect(greeting) = arrival.packet {
            self.arrive_request(id, greeting);
            return;
        }
        if let Some(link) = self.links.get_mut(&id) {
            link.sides[to].push(arrival.packet);
        }
        self.strike_after(arrival.fault, id, to);
    }

    fn arrive_request(&mut self, link: u64, greeting: Greeting) {
        let to = self.links.get(&link).map(|link| (link.sides[1].node, link.port));
        let Some((to, port)) = to else { return };
        if self.is_down(to) {
            // The killed or missing node sends no reply, so the initiator times out.
            return;
        }
        let backlog = self.nodes.get_mut(&to).and_then(|node| node.listeners.get_mut(&port));
        match backlog.filter(|backlog| backlog.requests.len() < BACKLOG_MAX) {
            Some(backlog) => {
                backlog.requests.push_back((link, greeting));
                if let Some(link) = self.links.get_mut(&link) {
                    link.is_offered = true;
                }
            }
            None => self.refuse(link, "nothing listens there"),
        }
    }

    /// Ends a connect that no acceptor has received or will reply to.
    pub(crate) fn refuse(&mut self, link: u64, why: &str) {
        let reason = || BreakReason::Unreachable(why.into());
        self.sever(link, [true, true], [true, true], [reason(), reason()]);
    }

    pub(crate) fn enter(&mut self, at: u64, entry: Entry) {
        self.entries += 1;
        self.calendar.insert((at, self.entries), entry);
    }

    pub(crate) fn draw_latency(&mut self) -> u64 {
        self.random.between(self.config.latency_ns_min, self.config.latency_ns_max)
    }

    /// Adds an event to the trace.
    pub(crate) fn note(&mut self, what: &'static str, link: u64, to: usize, length: u64) {
        let at_ns = self.now_ns;
        for word in [at_ns, what.len() as u64, link, to as u64, length] {
            self.mix(word);
        }
        for byte in what.bytes() {
            self.mix(u64::from(byte));
        }
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(TraceEntry { at_ns, what, connection: link, to, length });
    }

    fn mix(&mut self, word: u64) {
        self.trace_hash = (self.trace_hash ^ word).wrapping_mul(HASH_PRIME).rotate_left(23);
    }

    pub(crate) fn is_down(&self, node: u32) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.down)
    }
}

/// The limit for the number of connections that wait at one listener.
const BACKLOG_MAX: usize = 1024;
/// The limit for the number of events that [`super::Network::trace`] keeps.
const TRACE_MAX: usize = 4096;
/// The start value of the hash FNV-1a, here applied to words.
const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;
/// The factor by which FNV-1a multiplies the hash after each word.
const HASH_PRIME: u64 = 0x0000_0100_0000_01b3;
