//! One thread's transport: listeners, endpoints, regions, events.
//!
//! Invariant: an endpoint index in `hot` is polled and not armed; every other
//! established polled endpoint is armed, so that its peer wakes us. A flushed
//! endpoint is not in `dirty`.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use dafs_memory::Memory;

use crate::connection::{Connection, Context, EventQueue, Poller, Readiness, Token};
use crate::region::{RegionEntry, RegionTable};
use crate::wait::{WaitPolicy, Waiter};
use crate::{
    Address, AddressError, BreakReason, Domain, EndpointId, Event, Gather, ListenerId, LocalKey,
    LocalSegment, PendingId, PostError, Region, RegionPath, RemoteSegment, Rights, SendOptions,
    Signal, Waker, shm, sim, tcp,
};

/// Limits and habits of an interface.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// When to spin and when to sleep.
    pub wait: WaitPolicy,
    /// Most endpoints, pending ones included.
    pub endpoints_max: usize,
    /// Longest time a connect or an accept may take.
    pub connect_timeout: Duration,
    /// The simulated network, for [`Address::Sim`].
    pub sim: Option<sim::Network>,
}

impl Default for InterfaceConfig {
    fn default() -> Self {
        Self {
            wait: WaitPolicy::default(),
            endpoints_max: 16_384,
            connect_timeout: Duration::from_secs(10),
            sim: None,
        }
    }
}

/// Limits of one endpoint.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Longest message, sent or received, in octets.
    pub message_bytes_max: u32,
    /// Most posted receives.
    pub receives_max: u32,
    /// Most outstanding sends, writes and reads together.
    pub work_max: u32,
    /// Most RDMA reads under way at once, in either direction.
    pub read_depth: u16,
    /// Whether iWARP frames carry a CRC (either side's wish decides).
    pub crc: bool,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            message_bytes_max: 64 * 1024,
            receives_max: 512,
            work_max: 4096,
            read_depth: 64,
            crc: false,
        }
    }
}

/// One thread's access to all transports.
pub struct Interface {
    config: InterfaceConfig,
    slots: Vec<Slot>,
    free: Vec<u32>,
    live: usize,
    listeners: Vec<Option<Listener>>,
    regions: RegionTable,
    events: EventQueue,
    poller: Poller,
    hot: Vec<u32>,
    dirty: Vec<u32>,
    /// Endpoints whose connect or accept is not finished.
    unfinished: Vec<u32>,
    ready: Vec<(Token, Readiness)>,
    /// Waits that memory alone satisfied since sockets were last looked at.
    turns_without_sockets: u32,
    waiter: Waiter,
    waker: Waker,
}

struct Slot {
    generation: u32,
    domain: Domain,
    connection: Option<Box<dyn Connection>>,
    hot: bool,
    dirty: bool,
}

enum Listener {
    Shm(shm::Listener),
    Tcp(tcp::Listener),
    Sim(sim::Listener),
}

impl Interface {
    /// An interface with nothing in it.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn new(config: InterfaceConfig) -> io::Result<Self> {
        let waiter = Waiter::new(config.wait);
        let (poller, waker) = (Poller::new()?, Waker::new()?);
        poller.add(waker.fd(), Token::Waker, crate::connection::Interest::ReadEdge)?;
        Ok(Self {
            config,
            slots: Vec::new(),
            free: Vec::new(),
            live: 0,
            listeners: Vec::new(),
            regions: RegionTable::default(),
            events: EventQueue::default(),
            poller,
            hot: Vec::new(),
            dirty: Vec::new(),
            unfinished: Vec::new(),
            ready: Vec::new(),
            turns_without_sockets: 0,
            waiter,
            waker,
        })
    }

    // ---- connections ----------------------------------------------------------

    /// Starts listening; requests come as [`Event::ConnectionRequest`].
    ///
    /// # Errors
    /// [`AddressError`] with the address and the system's reason.
    pub fn listen(&mut self, address: &Address) -> Result<ListenerId, AddressError> {
        let listener = match address {
            Address::Shm(path) => Listener::Shm(shm::Listener::bind(path)?),
            Address::Tcp(socket) => Listener::Tcp(tcp::Listener::bind(*socket)?),
            Address::Sim(node) => {
                Listener::Sim(sim::Listener::bind(self.network(address)?, *node)?)
            }
        };
        let index = u32::try_from(self.listeners.len()).unwrap_or(u32::MAX);
        if let Some(fd) = listener.fd() {
            self.poller
                .add(fd, Token::Listener(index), crate::connection::Interest::Read)
                .map_err(|source| AddressError::System { address: address.clone(), source })?;
        }
        self.listeners.push(Some(listener));
        Ok(ListenerId(index))
    }

    /// The address a listener really has (a TCP port of 0 is chosen by the system).
    #[must_use]
    pub fn listener_address(&self, listener: ListenerId) -> Option<Address> {
        self.listeners.get(listener.0 as usize)?.as_ref().map(Listener::address)
    }

    /// Stops listening; established connections stay.
    pub fn unlisten(&mut self, listener: ListenerId) {
        if let Some(slot) = self.listeners.get_mut(listener.0 as usize) {
            *slot = None;
        }
    }

    /// Begins to connect; ends with [`Event::Established`], [`Event::Rejected`] or
    /// [`Event::Broken`]. Receives may be posted at once.
    ///
    /// # Errors
    /// [`AddressError`] if it could not even begin.
    pub fn connect(
        &mut self,
        address: &Address,
        domain: Domain,
        config: &EndpointConfig,
        private_data: &[u8],
    ) -> Result<EndpointId, AddressError> {
        let deadline = Instant::now() + self.config.connect_timeout;
        let connection: Box<dyn Connection> = match address {
            Address::Shm(path) => {
                Box::new(shm::Connection::connect(path, config, private_data, deadline)?)
            }
            Address::Tcp(socket) => {
                Box::new(tcp::Connection::connect(*socket, config, private_data, deadline)?)
            }
            Address::Sim(node) => {
                let network = self.network(address)?;
                Box::new(sim::Connection::connect(network, *node, config, private_data)?)
            }
        };
        let endpoint = self.insert(connection, domain)?;
        self.start(endpoint);
        Ok(endpoint)
    }

    /// Accepts an inbound connection; [`Event::Established`] follows.
    /// A pending connection that has vanished meanwhile ends as [`Event::Broken`].
    pub fn accept(
        &mut self,
        pending: PendingId,
        domain: Domain,
        config: &EndpointConfig,
        private_data: &[u8],
    ) -> EndpointId {
        let endpoint = pending.0;
        if let Some(slot) = self.slot_mut(endpoint) {
            slot.domain = domain;
        }
        self.with(endpoint, |connection, context| connection.accept(context, config, private_data));
        self.after_event(endpoint);
        endpoint
    }

    /// Rejects an inbound connection.
    pub fn reject(&mut self, pending: PendingId, private_data: &[u8]) {
        self.with(pending.0, |connection, context| {
            connection.reject(context, private_data);
            Ok(())
        });
        self.release(pending.0);
    }

    /// Breaks a connection; its outstanding work completes as flushed, then
    /// [`Event::Broken`] with [`BreakReason::Local`].
    pub fn disconnect(&mut self, endpoint: EndpointId) {
        if self.slot_mut(endpoint).is_some() {
            self.break_endpoint(endpoint, BreakReason::Local);
        }
    }

    /// Forgets an endpoint; breaks it first without a word if it still stands.
    pub fn release(&mut self, endpoint: EndpointId) {
        let Some(slot) = self.slot_mut(endpoint) else { return };
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.connection = None;
        slot.hot = false;
        slot.dirty = false;
        let index = endpoint.index;
        self.hot.retain(|hot| *hot != index);
        self.dirty.retain(|dirty| *dirty != index);
        self.unfinished.retain(|unfinished| *unfinished != index);
        self.free.push(index);
        self.live -= 1;
    }

    /// Endpoints that are not released, pending ones included.
    #[must_use]
    pub fn endpoint_count(&self) -> usize {
        self.live
    }

    // ---- regions --------------------------------------------------------------

    /// Registers memory for one domain. `None` if the table is full.
    pub fn register(&mut self, memory: &Memory, domain: Domain, rights: Rights) -> Option<Region> {
        let region = self.regions.insert(memory.clone(), domain, rights)?;
        if rights.is_remote() {
            for endpoint in self.established_of(domain) {
                self.expose(endpoint, region.key);
            }
        }
        Some(region)
    }

    /// Takes a registration back. Work that still uses it completes or fails; a
    /// peer that uses it afterwards breaks its connection.
    pub fn deregister(&mut self, key: LocalKey) {
        let Some(entry) = self.regions.remove(key) else { return };
        if entry.rights.is_remote() {
            self.withdraw(&entry);
        }
    }

    /// Takes a region from every peer of its domain.
    fn withdraw(&mut self, entry: &RegionEntry) {
        for endpoint in self.established_of(entry.domain) {
            if let Some(connection) = self.slot_mut(endpoint).and_then(|s| s.connection.as_mut()) {
                connection.withdraw(entry);
            }
        }
    }

    /// How bytes get to a region over an endpoint.
    #[must_use]
    pub fn region_path(&self, endpoint: EndpointId, key: LocalKey) -> Option<RegionPath> {
        let slot = self.slots.get(endpoint.index())?;
        let entry = self.regions.get(key)?;
        slot.connection.as_ref().map(|connection| connection.path(entry))
    }

    // ---- work -----------------------------------------------------------------

    /// Posts a receive into `scatter`.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued then.
    #[inline]
    pub fn post_receive(
        &mut self,
        endpoint: EndpointId,
        cookie: u64,
        scatter: &[LocalSegment],
    ) -> Result<(), PostError> {
        let (connection, mut context) = self.lend(endpoint).ok_or(PostError::NotConnected)?;
        connection.post_receive(&mut context, cookie, scatter)
    }

    /// Posts a send of one message.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued then.
    #[inline]
    pub fn post_send(
        &mut self,
        endpoint: EndpointId,
        cookie: u64,
        gather: &[Gather<'_>],
        options: SendOptions,
    ) -> Result<(), PostError> {
        let (connection, mut context) = self.lend(endpoint).ok_or(PostError::NotConnected)?;
        connection.post_send(&mut context, cookie, gather, options)?;
        self.mark_dirty(endpoint);
        Ok(())
    }

    /// Posts an RDMA write; `remote.length` is the sum of the local lengths.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued then.
    #[inline]
    pub fn post_rdma_write(
        &mut self,
        endpoint: EndpointId,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
        signal: Signal,
    ) -> Result<(), PostError> {
        let (connection, mut context) = self.lend(endpoint).ok_or(PostError::NotConnected)?;
        connection.post_rdma_write(&mut context, cookie, local, remote, signal)?;
        self.mark_dirty(endpoint);
        Ok(())
    }

    /// Posts an RDMA read; `remote.length` is the sum of the local lengths.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued then.
    #[inline]
    pub fn post_rdma_read(
        &mut self,
        endpoint: EndpointId,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
    ) -> Result<(), PostError> {
        let (connection, mut context) = self.lend(endpoint).ok_or(PostError::NotConnected)?;
        connection.post_rdma_read(&mut context, cookie, local, remote)?;
        self.mark_dirty(endpoint);
        Ok(())
    }

    /// Hints that the peer will likely write `writes` and then send a message of
    /// `message_length` octets; lets a socket transport place the bytes with one
    /// system call. In the order the requests were posted.
    #[inline]
    pub fn expect(&mut self, endpoint: EndpointId, writes: &[RemoteSegment], message_length: u32) {
        if let Some((connection, _)) = self.lend(endpoint) {
            connection.expect(writes, message_length);
        }
    }

    // ---- progress -------------------------------------------------------------

    /// Makes all posted work visible to the peers.
    #[inline]
    pub fn flush(&mut self) {
        while let Some(index) = self.dirty.pop() {
            let endpoint = self.slots[index as usize].clear_dirty(index);
            self.with(endpoint, |connection, context| connection.flush(context));
        }
    }

    /// Takes in what has arrived for connections that show it in memory, and what
    /// sockets hold, without waiting. Returns the number of events queued.
    pub fn poll(&mut self) -> usize {
        self.flush();
        self.turn_sim();
        self.poll_hot();
        if self.events.len() == 0 {
            self.sleep(Some(Duration::ZERO));
            self.poll_hot();
        }
        self.events.len()
    }

    /// Waits until `threshold` events are queued, any event other than a completion
    /// is, or the time is over. Returns the number queued.
    /// A [`Waker`] ends it early.
    pub fn wait(&mut self, threshold: usize, timeout: Option<Duration>) -> usize {
        let count = self.wait_for(threshold, timeout);
        self.waker.take();
        count
    }

    fn wait_for(&mut self, threshold: usize, timeout: Option<Duration>) -> usize {
        self.flush();
        if let Some(network) = self.config.sim.clone() {
            return self.wait_sim(&network, threshold, timeout);
        }
        self.poll_hot();
        if self.satisfied(threshold) {
            self.turns_without_sockets += 1;
            if self.turns_without_sockets >= TURNS_PER_SOCKET_LOOK {
                self.sleep(Some(Duration::ZERO));
            }
            return self.events.len();
        }
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if self.spin(threshold, deadline) || self.doze(threshold, deadline) {
                break;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.heat_all();
                self.poll_hot();
                return self.events.len();
            }
        }
        self.events.len()
    }

    /// Something that ends this interface's waits from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The next event, oldest first.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// A descriptor that becomes readable when [`Interface::poll`] would find
    /// something, once [`Interface::arm`] said that it may be waited for.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.fd()
    }

    /// Prepares for waiting on [`Interface::as_fd`]. False if events are queued or
    /// work has arrived already: poll instead.
    pub fn arm(&mut self) -> bool {
        self.flush();
        self.events.len() == 0 && self.arm_hot(1)
    }

    // ---- inside ---------------------------------------------------------------

    /// Takes in what the simulated network has brought: connection requests, answers
    /// to connects, then work. No descriptor tells of these.
    #[inline]
    fn turn_sim(&mut self) {
        if self.config.sim.is_none() {
            return;
        }
        for index in 0..self.listeners.len() {
            if matches!(self.listeners[index], Some(Listener::Sim(_))) {
                self.accept_ready(u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
        for index in self.unfinished.clone() {
            self.start(self.id_of(index));
        }
        self.poll_hot();
        self.flush();
    }

    /// Waits in virtual time: moves the network's clock instead of sleeping, and
    /// returns early when the network is quiet.
    fn wait_sim(
        &mut self,
        network: &sim::Network,
        threshold: usize,
        timeout: Option<Duration>,
    ) -> usize {
        let until_ns = timeout.map(|timeout| {
            let span_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            network.now_ns().saturating_add(span_ns)
        });
        loop {
            self.turn_sim();
            if self.satisfied(threshold) {
                break;
            }
            let Some(next_ns) = network.next_ns() else { break };
            if let Some(until_ns) = until_ns
                && next_ns > until_ns
            {
                network.advance_to(until_ns);
                break;
            }
            network.advance();
        }
        self.events.len()
    }

    #[inline]
    fn satisfied(&self, threshold: usize) -> bool {
        self.events.len() >= threshold.max(1) || self.events.has_others() || self.waker.is_woken()
    }

    /// Spins within the learned budget. True when satisfied.
    fn spin(&mut self, threshold: usize, deadline: Option<Instant>) -> bool {
        if self.hot.is_empty() {
            return false;
        }
        let start = Instant::now();
        let budget = self.waiter.budget(start);
        if budget.is_zero() {
            return false;
        }
        let mut last = start;
        let mut until = start + budget;
        loop {
            for _ in 0..SPINS_PER_CLOCK {
                let moved = self.poll_hot();
                if (moved || self.waker.is_woken()) && self.satisfied(threshold) {
                    self.waiter.paid();
                    return true;
                }
                if moved {
                    until = last + budget;
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            if self.waiter.was_preempted(now - last, now) {
                return false;
            }
            if now >= until {
                self.waiter.vain();
                return false;
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return false;
            }
            last = now;
        }
    }

    /// Arms everything and sleeps until a descriptor is ready. True when satisfied.
    fn doze(&mut self, threshold: usize, deadline: Option<Instant>) -> bool {
        let missing = threshold.saturating_sub(self.events.len()).max(1);
        if self.arm_hot(missing) {
            let mut timeout = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if let Some(first) = self.first_deadline() {
                let left = first.saturating_duration_since(Instant::now());
                timeout = Some(timeout.map_or(left, |t| t.min(left)));
            }
            self.sleep(timeout);
        }
        if missing > 1 {
            self.heat_all();
        }
        self.poll_hot();
        self.satisfied(threshold)
    }

    /// One epoll call and what follows from it.
    fn sleep(&mut self, timeout: Option<Duration>) {
        self.turns_without_sockets = 0;
        let mut ready = std::mem::take(&mut self.ready);
        if let Err(error) = self.poller.wait(&mut ready, timeout) {
            // Only our own misuse of the descriptor can lead here.
            unreachable!("epoll_wait failed: {error}");
        }
        for (token, readiness) in ready.drain(..) {
            match token {
                Token::Listener(index) => self.accept_ready(index),
                // Ended the wait by being there; `wait` takes it.
                Token::Waker => {}
                Token::Endpoint { endpoint, which } => {
                    self.with(endpoint, |c, context| c.ready(context, which, readiness));
                    self.after_event(endpoint);
                }
            }
        }
        self.ready = ready;
        self.expire();
        self.flush();
    }

    /// Polls every hot endpoint once. True if anything moved.
    #[inline]
    fn poll_hot(&mut self) -> bool {
        let mut moved = false;
        let mut position = 0;
        while let Some(index) = self.hot.get(position).copied() {
            let endpoint = self.id_of(index);
            let before = self.hot.len();
            let mut here = false;
            self.with(endpoint, |connection, context| {
                here = connection.progress(context)?;
                Ok(())
            });
            moved |= here;
            // A broken endpoint has left the list; its place holds the next one.
            position += usize::from(self.hot.len() == before);
        }
        moved
    }

    fn arm_hot(&mut self, threshold: usize) -> bool {
        while let Some(index) = self.hot.last().copied() {
            let slot = &mut self.slots[index as usize];
            if let Some(connection) = slot.connection.as_mut()
                && !connection.arm(threshold)
            {
                connection.disarm();
                return false;
            }
            slot.hot = false;
            self.hot.pop();
        }
        true
    }

    fn heat(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if slot.hot {
            return;
        }
        if let Some(connection) = slot.connection.as_mut()
            && connection.is_polled()
            && connection.is_established()
        {
            connection.disarm();
            slot.hot = true;
            self.hot.push(index);
        }
    }

    fn heat_all(&mut self) {
        for index in 0..self.slots.len() {
            self.heat(u32::try_from(index).unwrap_or(u32::MAX));
        }
    }

    #[inline]
    fn mark_dirty(&mut self, endpoint: EndpointId) {
        let slot = &mut self.slots[endpoint.index()];
        if !slot.dirty {
            slot.dirty = true;
            self.dirty.push(endpoint.index);
        }
        if !slot.hot {
            self.heat(endpoint.index);
        }
    }

    fn accept_ready(&mut self, index: u32) {
        let timeout = self.config.connect_timeout;
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(Some(listener)) = self.listeners.get_mut(index as usize) else { return };
            let id = ListenerId(index);
            let Some(connection) = listener.accept(id, Instant::now() + timeout) else { return };
            // Beyond the limit the connection is dropped, which closes it.
            if let Ok(endpoint) = self.insert(connection, Domain::default()) {
                self.start(endpoint);
            }
        }
    }

    fn insert(
        &mut self,
        connection: Box<dyn Connection>,
        domain: Domain,
    ) -> Result<EndpointId, AddressError> {
        if self.live >= self.config.endpoints_max {
            return Err(AddressError::TooMany(self.config.endpoints_max));
        }
        self.live += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 1,
                domain: Domain::default(),
                connection: None,
                hot: false,
                dirty: false,
            });
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[index as usize];
        slot.connection = Some(connection);
        slot.domain = domain;
        let generation = slot.generation;
        self.unfinished.push(index);
        Ok(EndpointId { index, generation })
    }

    /// Lets a new connection register its descriptors and speak first if it must.
    fn start(&mut self, endpoint: EndpointId) {
        self.with(endpoint, |connection, context| connection.progress(context).map(|_| ()));
        self.after_event(endpoint);
    }

    /// After anything that may have finished a connect or brought inbound work.
    fn after_event(&mut self, endpoint: EndpointId) {
        let Some(slot) = self.slot_mut(endpoint) else { return };
        let established = slot.connection.as_ref().is_some_and(|c| c.is_established());
        if established {
            if let Some(place) = self.unfinished.iter().position(|i| *i == endpoint.index) {
                self.unfinished.swap_remove(place);
                let domain = self.slots[endpoint.index()].domain;
                let keys: Vec<LocalKey> =
                    self.regions.remote_of(domain).map(|entry| entry.region.key).collect();
                for key in keys {
                    self.expose(endpoint, key);
                }
            }
            self.heat(endpoint.index);
        }
    }

    fn expose(&mut self, endpoint: EndpointId, key: LocalKey) {
        let Some(entry) = self.regions.get(key).cloned() else { return };
        self.with(endpoint, |connection, _| connection.expose(&entry));
    }

    fn established_of(&self, domain: Domain) -> Vec<EndpointId> {
        (0..self.slots.len())
            .filter(|index| {
                let slot = &self.slots[*index];
                slot.domain == domain
                    && slot.connection.as_ref().is_some_and(|c| c.is_established())
            })
            .map(|index| self.id_of(u32::try_from(index).unwrap_or(u32::MAX)))
            .collect()
    }

    fn first_deadline(&self) -> Option<Instant> {
        self.unfinished
            .iter()
            .filter_map(|index| self.slots[*index as usize].connection.as_ref()?.deadline())
            .min()
    }

    fn expire(&mut self) {
        if self.unfinished.is_empty() {
            return;
        }
        let now = Instant::now();
        for index in self.unfinished.clone() {
            let connection = self.slots[index as usize].connection.as_ref();
            if connection.and_then(|c| c.deadline()).is_some_and(|deadline| now >= deadline) {
                let reason = BreakReason::Unreachable("timed out while connecting".into());
                self.break_endpoint(self.id_of(index), reason);
            }
        }
    }

    /// Runs `action` on a live connection and breaks it if that fails.
    #[inline]
    fn with(
        &mut self,
        endpoint: EndpointId,
        action: impl FnOnce(&mut dyn Connection, &mut Context<'_>) -> Result<(), BreakReason>,
    ) {
        let Some((connection, mut context)) = self.lend(endpoint) else { return };
        if let Err(reason) = action(connection, &mut context) {
            self.break_endpoint(endpoint, reason);
        }
        if self.regions.has_revoked() {
            for entry in self.regions.take_revoked() {
                self.withdraw(&entry);
            }
        }
    }

    #[inline]
    fn lend(&mut self, endpoint: EndpointId) -> Option<(&mut dyn Connection, Context<'_>)> {
        let Self { slots, regions, events, poller, .. } = self;
        let slot = slots.get_mut(endpoint.index())?;
        if slot.generation != endpoint.generation {
            return None;
        }
        let connection = slot.connection.as_deref_mut()?;
        Some((connection, Context { endpoint, domain: slot.domain, regions, events, poller }))
    }

    fn break_endpoint(&mut self, endpoint: EndpointId, reason: BreakReason) {
        let Some((connection, mut context)) = self.lend(endpoint) else { return };
        connection.shutdown(&mut context, &reason);
        let index = endpoint.index;
        let slot = &mut self.slots[index as usize];
        slot.connection = None;
        slot.hot = false;
        self.hot.retain(|hot| *hot != index);
        self.unfinished.retain(|unfinished| *unfinished != index);
        self.events.push(Event::Broken { endpoint, reason });
    }

    fn slot_mut(&mut self, endpoint: EndpointId) -> Option<&mut Slot> {
        self.slots.get_mut(endpoint.index()).filter(|slot| slot.generation == endpoint.generation)
    }

    #[inline]
    fn id_of(&self, index: u32) -> EndpointId {
        EndpointId { index, generation: self.slots[index as usize].generation }
    }

    fn network(&self, address: &Address) -> Result<&sim::Network, AddressError> {
        self.config.sim.as_ref().ok_or_else(|| AddressError::NoProvider(address.clone()))
    }
}

impl Slot {
    fn clear_dirty(&mut self, index: u32) -> EndpointId {
        self.dirty = false;
        EndpointId { index, generation: self.generation }
    }
}

impl Listener {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Listener::Shm(listener) => Some(listener.fd()),
            Listener::Tcp(listener) => Some(listener.fd()),
            Listener::Sim(_) => None,
        }
    }

    fn address(&self) -> Address {
        match self {
            Listener::Shm(listener) => listener.address(),
            Listener::Tcp(listener) => listener.address(),
            Listener::Sim(listener) => listener.address(),
        }
    }

    fn accept(&mut self, id: ListenerId, deadline: Instant) -> Option<Box<dyn Connection>> {
        match self {
            Listener::Shm(l) => l.accept(id, deadline).map(|c| Box::new(c) as _),
            Listener::Tcp(l) => l.accept(id, deadline).map(|c| Box::new(c) as _),
            Listener::Sim(l) => l.accept(id).map(|c| Box::new(c) as _),
        }
    }
}

/// Empty polls between two looks at the clock.
const SPINS_PER_CLOCK: u32 = 64;
/// Waits satisfied from memory before sockets get a look, so that busy shared
/// memory never starves them.
const TURNS_PER_SOCKET_LOOK: u32 = 32;
/// New connections taken in one turn, so that established ones are served too.
const ACCEPTS_PER_TURN: usize = 16;
