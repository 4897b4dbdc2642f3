//! The transport of one thread: listeners, endpoints, regions, events.
//!
//! Invariants:
//!
//! - An endpoint whose index is in `hot` is polled and not armed. Every other established endpoint
//!   of a polled transport is armed, so that its peer wakes this interface.
//! - An endpoint that has been flushed is not in `dirty`.
//! - An armed endpoint signals arrivals on a descriptor. The interface polls descriptors every few
//!   turns even if shared memory is busy, so that no connection starves.
//! - Only the descriptor of the endpoint in `gathering` may fail to signal arrivals, and only
//!   during sleeps made for that endpoint.

mod admission;
mod config;
pub mod exposure;
mod handing;
mod progress;
mod unfinished;

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dafs_memory::Memory;

pub use self::config::{EndpointConfig, InterfaceConfig};
use self::exposure::Exposes;
use crate::connection::{Connection, Context, EventQueue, Poller, Readiness, Token};
use crate::group::Member;
use crate::inbox;
use crate::region::{RegionEntry, RegionTable};
use crate::wait::Waiter;
use crate::{
    Address, AddressError, BreakReason, Domain, EndpointId, Event, Forecast, Gather, ListenerId,
    LocalKey, LocalSegment, PendingId, PostError, Region, RegionPath, RemoteSegment, Rights,
    SendOptions, Signal, Stag, Waker, shm, sim, tcp, verbs,
};

/// One thread's access to all transports. The type parameter determines whether peers can access
/// memory of this side ([`exposure`]): a server exposes no memory.
pub struct Interface<E = Exposes> {
    exposure: PhantomData<fn() -> E>,
    config: InterfaceConfig,
    /// The number of this interface, unique within this process.
    number: u64,
    slots: Vec<Slot>,
    free: Vec<u32>,
    live: usize,
    listeners: Vec<Option<Listener>>,
    regions: RegionTable,
    /// True if a transport of this interface chooses its own names (STags) for regions.
    names_regions: bool,
    events: EventQueue,
    poller: Poller,
    hot: Vec<u32>,
    dirty: Vec<u32>,
    /// The endpoint that was flushed most recently, from which a reply is likely to arrive.
    asked: Option<EndpointId>,
    /// The endpoint whose descriptor becomes ready only when a large amount of data has arrived.
    gathering: Option<EndpointId>,
    /// The endpoints whose connect or accept may be unfinished, oldest first. All have the same
    /// timeout. Endpoints that are established or released are removed when they reach the front of
    /// the queue.
    unfinished: VecDeque<EndpointId>,
    /// The number of bytes of memory that connections occupy before they are established.
    unfinished_bytes: usize,
    /// The listeners that temporarily accept no connections.
    resting: Vec<u32>,
    ready: Vec<(Token, Readiness)>,
    /// The number of successive waits that ended by work in shared memory, without a poll of the
    /// sockets.
    turns_without_sockets: u32,
    has_slept: bool,
    /// True if the owner waits for the descriptor, or has just stopped waiting for it.
    is_armed: bool,
    /// True if the next wait will be long, so that it must not spin.
    is_patient: bool,
    /// True if a single reply is pending and is expected soon.
    is_eager: bool,
    waiter: Waiter,
    waker: Waker,
    /// The interface's membership in the group of interfaces that share connections.
    member: Option<Member>,
    /// The time by which other members of the group must take the connections that this interface
    /// gave them; `None` if they have taken all.
    given_until: Option<Instant>,
}

struct Slot {
    /// The endpoint in this slot. If the slot is free: the endpoint to create in it next.
    id: EndpointId,
    domain: Domain,
    connection: Option<Box<dyn Connection>>,
    hot: bool,
    dirty: bool,
    /// True if the group's count includes this connection.
    counted: bool,
    /// True if the connection was established, so that its peer knows the regions of its domain.
    established: bool,
    /// The size in bytes of the memory that the connection occupies until it is established.
    held_bytes: usize,
    /// The number of polls since the connection last made progress.
    vain_polls: u32,
}

enum Listener {
    Shm(shm::Listener),
    Tcp(tcp::Listener),
    Verbs(verbs::Listener),
    Sim(sim::Listener),
}

impl<E> Interface<E> {
    // ---- connections ----------------------------------------------------------

    /// Starts to listen. Each connection request is reported as [`Event::ConnectionRequest`] by the
    /// interface of the [group](InterfaceConfig::group) that gets the connection.
    ///
    /// # Errors
    /// [`AddressError`] with the address and the system's error.
    pub fn listen(&mut self, address: &Address) -> Result<ListenerId, AddressError> {
        let listener = match address {
            Address::Shm(path) => Listener::Shm(shm::Listener::bind(path)?),
            Address::Tcp(socket) => {
                Listener::Tcp(tcp::Listener::bind(*socket, self.config.tls.clone())?)
            }
            Address::Verbs(socket) => {
                self.names_regions = true;
                Listener::Verbs(verbs::Listener::bind(*socket)?)
            }
            Address::Sim { node, port } => {
                Listener::Sim(sim::Listener::bind(self.network(address)?, *node, *port)?)
            }
        };
        let index = u32::try_from(self.listeners.len()).unwrap_or(u32::MAX);
        if let Some(fd) = listener.fd() {
            self.poller
                .add(fd, Token::Listener(index), crate::connection::Interest::Read)
                .map_err(|source| AddressError::System { address: address.clone(), source })?;
        }
        self.listeners.push(Some(listener));
        Ok(ListenerId { owner: self.config.owner, index })
    }

    /// Returns the actual address of a listener of this interface. If the requested TCP port was 0,
    /// the address has the port that the system chose.
    #[must_use]
    pub fn listener_address(&self, listener: ListenerId) -> Option<Address> {
        if listener.owner != self.config.owner {
            return None;
        }
        self.listeners.get(listener.index as usize)?.as_ref().map(Listener::address)
    }

    /// Stops listening. Established connections continue.
    pub fn unlisten(&mut self, listener: ListenerId) {
        if listener.owner == self.config.owner
            && let Some(slot) = self.listeners.get_mut(listener.index as usize)
        {
            *slot = None;
        }
    }

    /// Starts to connect. The attempt ends with [`Event::Established`], [`Event::Rejected`] or
    /// [`Event::Broken`]. Receives may be posted as soon as this call has returned.
    ///
    /// # Errors
    /// [`AddressError`] if the attempt cannot start.
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
            Address::Verbs(socket) => {
                self.names_regions = true;
                Box::new(verbs::Connection::connect(*socket, config, private_data, deadline)?)
            }
            Address::Sim { node, port } => {
                self.names_regions = true;
                let (network, to) = (self.network(address)?, (*node, *port));
                Box::new(sim::Connection::connect(network, to, config, private_data)?)
            }
        };
        let endpoint = self.insert(connection, domain)?;
        self.count_added();
        self.start(endpoint);
        Ok(endpoint)
    }

    /// Accepts an inbound connection. [`Event::Established`] follows, or [`Event::Broken`] if the
    /// connection has ended meanwhile.
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
        // A transport that sends its reply only after receives are posted sends it at the next
        // flush.
        if self.lend(endpoint).is_some() {
            self.mark_dirty(endpoint);
        }
        endpoint
    }

    /// Rejects an inbound connection and sends `private_data` to the peer.
    pub fn reject(&mut self, pending: PendingId, private_data: &[u8]) {
        self.with(pending.0, |connection, context| {
            connection.reject(context, private_data);
            Ok(())
        });
        self.release(pending.0);
    }

    /// Breaks a connection. Its outstanding work completes as flushed, then [`Event::Broken`]
    /// with [`BreakReason::Local`] follows.
    pub fn disconnect(&mut self, endpoint: EndpointId) {
        if self.slot_mut(endpoint).is_some() {
            self.break_endpoint(endpoint, BreakReason::Local);
        }
    }

    /// Releases an endpoint. If it is still connected, first breaks the connection without an
    /// event.
    pub fn release(&mut self, endpoint: EndpointId) {
        let Some(slot) = self.slot_mut(endpoint) else { return };
        slot.id = slot.id.next();
        slot.hot = false;
        slot.dirty = false;
        let is_counted = slot.counted;
        let index = endpoint.slot();
        self.drop_connection(index);
        self.hot.retain(|hot| *hot != index);
        self.dirty.retain(|dirty| *dirty != index);
        self.free.push(index);
        self.live -= 1;
        if is_counted {
            self.count_removed();
        }
    }

    /// Returns the number of endpoints that are not released, including pending ones.
    #[must_use]
    pub fn endpoint_count(&self) -> usize {
        self.live
    }

    // ---- regions --------------------------------------------------------------

    /// Registers memory that only [`Interface::post_private`] may use. Also returns the number of
    /// this interface.
    pub(crate) fn register_private(
        &mut self,
        memory: &Memory,
        domain: Domain,
    ) -> Option<(Region, u64)> {
        let region = self.regions.insert(memory.clone(), domain, Rights::LOCAL, true)?;
        Some((region, self.number))
    }

    /// Returns true if this interface has this number.
    #[inline]
    pub(crate) fn is_number(&self, number: u64) -> bool {
        self.number == number
    }

    /// Deregisters memory. Posted work that uses the memory completes or fails. A peer that
    /// accesses the memory afterwards breaks its connection.
    pub fn deregister(&mut self, key: LocalKey) {
        let Some(entry) = self.regions.remove(key) else { return };
        if entry.rights.is_remote() && entry.dmabuf.is_none() {
            self.withdraw(&entry);
        }
    }

    /// Makes a region inaccessible to every peer of its domain.
    fn withdraw(&mut self, entry: &RegionEntry) {
        for endpoint in self.established_of(entry.domain) {
            if let Some(connection) = self.slot_mut(endpoint).and_then(|s| s.connection.as_mut()) {
                connection.withdraw(entry);
            }
        }
    }

    /// Returns the number of registered regions.
    #[must_use]
    pub fn region_count(&self) -> usize {
        self.regions.count()
    }

    /// Returns a range of a region as the peer of an endpoint names it. RDMA devices choose STags
    /// themselves, so a region has a different STag on each device. With the other transports the
    /// result equals [`Region::remote`]. If the peer cannot access the region, the result is of no
    /// use to the peer.
    #[must_use]
    #[inline]
    pub fn remote(
        &mut self,
        endpoint: EndpointId,
        region: &Region,
        offset: u64,
        length: u32,
    ) -> RemoteSegment {
        let remote = region.remote(offset, length);
        if !self.names_regions {
            return remote;
        }
        RemoteSegment { stag: self.name(endpoint, region), ..remote }
    }

    /// Returns how bytes reach a region over an endpoint.
    #[must_use]
    pub fn region_path(&self, endpoint: EndpointId, key: LocalKey) -> Option<RegionPath> {
        let entry = self.regions.get(key)?;
        self.connection_of(endpoint).map(|connection| connection.path(entry))
    }

    // ---- work -----------------------------------------------------------------

    /// Posts a receive into `scatter`. The cookie must be below 2^63; larger cookies belong to
    /// [`Inbox`](crate::Inbox)es.
    ///
    /// # Errors
    /// [`PostError`] if the receive could not be queued.
    #[inline]
    pub fn post_receive(
        &mut self,
        endpoint: EndpointId,
        cookie: u64,
        scatter: &[LocalSegment],
    ) -> Result<(), PostError> {
        if inbox::is_private(cookie) {
            return Err(PostError::PrivateCookie);
        }
        check_public(scatter)?;
        self.post_private(endpoint, cookie, scatter)
    }

    /// Posts a receive of an inbox, whose memory no other code may access.
    #[inline]
    pub(crate) fn post_private(
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
    /// [`PostError`] if the send could not be queued.
    #[inline]
    pub fn post_send(
        &mut self,
        endpoint: EndpointId,
        cookie: u64,
        gather: &[Gather<'_>],
        options: SendOptions,
    ) -> Result<(), PostError> {
        for piece in gather {
            if let Gather::Segment(segment) = piece {
                check_public(std::slice::from_ref(segment))?;
            }
        }
        let (connection, mut context) = self.lend(endpoint).ok_or(PostError::NotConnected)?;
        connection.post_send(&mut context, cookie, gather, options)?;
        self.mark_dirty(endpoint);
        Ok(())
    }

    /// Posts an RDMA write. `remote.length` must be the sum of the local lengths, in bytes.
    ///
    /// # Errors
    /// [`PostError`] if the write could not be queued.
    #[inline]
    pub fn post_rdma_write(
        &mut self,
        endpoint: EndpointId,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
        signal: Signal,
    ) -> Result<(), PostError> {
        check_public(local)?;
        let (connection, mut context) = self.lend(endpoint).ok_or(PostError::NotConnected)?;
        connection.post_rdma_write(&mut context, cookie, local, remote, signal)?;
        self.mark_dirty(endpoint);
        Ok(())
    }

    /// Executes an RDMA write immediately if the transport only needs to copy bytes for it and no
    /// earlier work is waiting. After a return of true, the source may be reused, and the bytes are
    /// in place before any message sent later arrives. Returns false if no byte was moved, for any
    /// reason: the caller must then call [`Interface::post_rdma_write`].
    #[inline]
    pub fn rdma_write_now(
        &mut self,
        endpoint: EndpointId,
        local: &[LocalSegment],
        remote: RemoteSegment,
    ) -> bool {
        self.move_now(endpoint, local, remote, true)
    }

    /// Executes an RDMA read immediately under the conditions of [`Interface::rdma_write_now`]. The
    /// bytes have arrived when the call returns true.
    #[inline]
    pub fn rdma_read_now(
        &mut self,
        endpoint: EndpointId,
        local: &[LocalSegment],
        remote: RemoteSegment,
    ) -> bool {
        self.move_now(endpoint, local, remote, false)
    }

    /// Posts an RDMA read. `remote.length` must be the sum of the local lengths, in bytes.
    ///
    /// # Errors
    /// [`PostError`] if the read could not be queued.
    #[inline]
    pub fn post_rdma_read(
        &mut self,
        endpoint: EndpointId,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
    ) -> Result<(), PostError> {
        check_public(local)?;
        let (connection, mut context) = self.lend(endpoint).ok_or(PostError::NotConnected)?;
        connection.post_rdma_read(&mut context, cookie, local, remote)?;
        self.mark_dirty(endpoint);
        Ok(())
    }

    /// Gives a hint about the reply that the peer will probably send, so that a socket transport
    /// can place the bytes with one system call. Call this in the order in which the requests were
    /// posted, and before any of them is flushed, because data that has already arrived must not be
    /// forecast.
    #[inline]
    pub fn expect(&mut self, endpoint: EndpointId, forecast: &Forecast<'_>) {
        if let Some((connection, _)) = self.lend(endpoint) {
            connection.expect(forecast);
        }
    }

    /// Returns the number of peers that listeners have turned away because no descriptors were
    /// free.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        let count = |listener: &Listener| match listener {
            Listener::Shm(listener) => listener.turned_away(),
            Listener::Tcp(listener) => listener.turned_away(),
            Listener::Verbs(listener) => listener.turned_away(),
            Listener::Sim(_) => 0,
        };
        self.listeners.iter().flatten().map(count).sum()
    }

    fn empty(config: InterfaceConfig) -> io::Result<Self> {
        config.check()?;
        let waiter = Waiter::new(config.wait);
        let (poller, waker) = (Poller::new()?, Waker::new()?);
        poller.add(waker.fd(), Token::Waker, crate::connection::Interest::ReadEdge)?;
        let join = |group| Member::join(group, config.owner, &waker);
        let member = config.group.as_ref().map(join).transpose()?;
        Ok(Self {
            exposure: PhantomData,
            config,
            number: INTERFACES.fetch_add(1, Ordering::Relaxed),
            slots: Vec::new(),
            free: Vec::new(),
            live: 0,
            listeners: Vec::new(),
            regions: RegionTable::default(),
            names_regions: false,
            events: EventQueue::default(),
            poller,
            hot: Vec::new(),
            dirty: Vec::new(),
            asked: None,
            gathering: None,
            unfinished: VecDeque::new(),
            unfinished_bytes: 0,
            resting: Vec::new(),
            ready: Vec::new(),
            turns_without_sockets: 0,
            has_slept: false,
            is_armed: false,
            is_patient: false,
            is_eager: false,
            waiter,
            waker,
            member,
            given_until: None,
        })
    }

    // ---- inside ---------------------------------------------------------------

    #[inline]
    fn move_now(
        &mut self,
        endpoint: EndpointId,
        local: &[LocalSegment],
        remote: RemoteSegment,
        write: bool,
    ) -> bool {
        if check_public(local).is_err() {
            return false;
        }
        self.lend(endpoint).is_some_and(|(connection, mut context)| {
            connection.move_now(&mut context, local, remote, write)
        })
    }

    fn name(&mut self, endpoint: EndpointId, region: &Region) -> Stag {
        let lent = self.lend(endpoint);
        lent.map_or(region.stag, |(connection, context)| connection.name(&context, region))
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
            let index = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
            self.slots.push(Slot {
                id: EndpointId::first(self.config.owner, index),
                domain: Domain::default(),
                connection: None,
                hot: false,
                vain_polls: 0,
                dirty: false,
                counted: false,
                established: false,
                held_bytes: 0,
            });
            index
        });
        let slot = &mut self.slots[index as usize];
        slot.connection = Some(connection);
        slot.domain = domain;
        slot.established = false;
        slot.counted = true;
        let endpoint = slot.id;
        self.note_unfinished(endpoint);
        self.forget_finished();
        Ok(endpoint)
    }

    /// Starts a new connection: registers its descriptors and, for an outbound connection, begins
    /// its start-up.
    fn start(&mut self, endpoint: EndpointId) {
        self.with(endpoint, |connection, context| connection.progress(context).map(|_| ()));
        self.after_event(endpoint);
    }

    /// Updates the interface's lists after an event that may have finished a connect or brought
    /// work.
    fn after_event(&mut self, endpoint: EndpointId) {
        let Some(slot) = self.slot_mut(endpoint) else { return };
        let established = slot.connection.as_ref().is_some_and(|c| c.is_established());
        if established {
            if !std::mem::replace(&mut slot.established, true) {
                self.note_held(endpoint.slot(), 0);
                let domain = self.slots[endpoint.index()].domain;
                let keys: Vec<LocalKey> =
                    self.regions.remote_of(domain).map(|entry| entry.region.key).collect();
                for key in keys {
                    self.expose(endpoint, key);
                }
            }
            self.heat(endpoint.slot());
        } else {
            let held = slot.connection.as_ref().map_or(0, |connection| connection.held_bytes());
            self.note_held(endpoint.slot(), held);
            self.bound_unfinished();
        }
    }

    fn expose(&mut self, endpoint: EndpointId, key: LocalKey) {
        let Some(entry) = self.regions.get(key).cloned() else { return };
        self.with(endpoint, |connection, context| connection.expose(context, &entry));
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

    fn connection_of(&self, endpoint: EndpointId) -> Option<&dyn Connection> {
        let slot = self.slots.get(endpoint.index())?;
        slot.connection.as_deref().filter(|_| slot.id == endpoint)
    }

    /// Runs `action` on a live connection and breaks the connection if that fails.
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
        if slot.id != endpoint {
            return None;
        }
        let connection = slot.connection.as_deref_mut()?;
        Some((connection, Context { endpoint, domain: slot.domain, regions, events, poller }))
    }

    fn break_endpoint(&mut self, endpoint: EndpointId, reason: BreakReason) {
        let Some((connection, mut context)) = self.lend(endpoint) else { return };
        connection.shutdown(&mut context, &reason);
        let index = endpoint.slot();
        self.drop_connection(index);
        self.slots[index as usize].hot = false;
        self.hot.retain(|hot| *hot != index);
        self.events.push(Event::Broken { endpoint, reason });
    }

    fn drop_connection(&mut self, index: u32) {
        self.note_held(index, 0);
        if let Some(mut connection) = self.slots[index as usize].connection.take() {
            connection.unwatch(&self.poller);
        }
    }

    fn slot_mut(&mut self, endpoint: EndpointId) -> Option<&mut Slot> {
        self.slots.get_mut(endpoint.index()).filter(|slot| slot.id == endpoint)
    }

    #[inline]
    fn id_of(&self, index: u32) -> EndpointId {
        self.slots[index as usize].id
    }

    fn network(&self, address: &Address) -> Result<&sim::Network, AddressError> {
        self.config.sim.as_ref().ok_or_else(|| AddressError::NoProvider(address.clone()))
    }
}

impl Slot {
    fn clear_dirty(&mut self) -> EndpointId {
        self.dirty = false;
        self.id
    }
}

impl Listener {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Listener::Shm(listener) => listener.fd(),
            Listener::Tcp(listener) => Some(listener.fd()),
            Listener::Verbs(listener) => listener.fd(),
            Listener::Sim(_) => None,
        }
    }

    fn address(&self) -> Address {
        match self {
            Listener::Shm(listener) => listener.address(),
            Listener::Tcp(listener) => listener.address(),
            Listener::Verbs(listener) => listener.address(),
            Listener::Sim(listener) => listener.address(),
        }
    }

    fn accept(&mut self, id: ListenerId, deadline: Instant) -> Option<Box<dyn Connection>> {
        match self {
            Listener::Shm(l) => l.accept(id, deadline).map(|c| Box::new(c) as _),
            Listener::Tcp(l) => l.accept(id, deadline).map(|c| Box::new(c) as _),
            Listener::Verbs(l) => l.accept(id, deadline).map(|c| Box::new(c) as _),
            Listener::Sim(l) => l.accept(id).map(|c| Box::new(c) as _),
        }
    }
}

/// Refuses segments of an inbox's memory, which only the inbox may post.
#[inline]
fn check_public(segments: &[LocalSegment]) -> Result<(), PostError> {
    let is_private = segments.iter().any(|segment| segment.key.is_private());
    if is_private { Err(PostError::BadSegment) } else { Ok(()) }
}

static INTERFACES: AtomicU64 = AtomicU64::new(0);
