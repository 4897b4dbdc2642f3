//! One thread's transport: listeners, endpoints, regions, events.
//!
//! Invariant: an endpoint index in `hot` is polled and not armed; every other
//! established polled endpoint is armed, so that its peer wakes us. A flushed
//! endpoint is not in `dirty`.
//!
//! What is armed shows on a descriptor, and descriptors get a look every few turns
//! however busy the memory of others is: nobody starves. Only the endpoint in
//! `gathering` may keep quiet about what has come, and only in sleeps made for it.

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

/// One thread's access to all transports. Whether peers may reach memory of this side is part
/// of its type ([`exposure`]): on the side that serves they may not.
pub struct Interface<E = Exposes> {
    exposure: PhantomData<fn() -> E>,
    config: InterfaceConfig,
    /// No other of this process has it.
    number: u64,
    slots: Vec<Slot>,
    free: Vec<u32>,
    live: usize,
    listeners: Vec<Option<Listener>>,
    regions: RegionTable,
    /// Some transport of this interface has names of its own for regions.
    names_regions: bool,
    events: EventQueue,
    poller: Poller,
    hot: Vec<u32>,
    dirty: Vec<u32>,
    /// The endpoint that was flushed last.
    asked: Option<EndpointId>,
    /// The endpoint whose descriptor keeps quiet until much is there.
    gathering: Option<EndpointId>,
    /// Endpoints whose connect or accept may not be finished, oldest first: all have the same
    /// time. Those that are, or are gone, are taken off when they get to the front.
    unfinished: VecDeque<EndpointId>,
    /// Bytes that they hold.
    unfinished_bytes: usize,
    /// Listeners that let nobody in for now.
    resting: Vec<u32>,
    ready: Vec<(Token, Readiness)>,
    /// Waits that memory alone satisfied since sockets were last looked at.
    turns_without_sockets: u32,
    has_slept: bool,
    /// The owner waits for the descriptor, or did until now.
    is_armed: bool,
    /// The next wait will be long.
    is_patient: bool,
    /// One answer is awaited, and will come soon.
    is_eager: bool,
    waiter: Waiter,
    waker: Waker,
    /// Its place among interfaces that share connections.
    member: Option<Member>,
    /// Until then others are to take what this one has given them.
    given_until: Option<Instant>,
}

struct Slot {
    /// The endpoint that is in it, or will be next.
    id: EndpointId,
    domain: Domain,
    connection: Option<Box<dyn Connection>>,
    hot: bool,
    dirty: bool,
    /// The group knows of it.
    counted: bool,
    /// It has stood once: its peer knows the regions of its domain.
    established: bool,
    /// Bytes it holds, while it does not stand.
    held_bytes: usize,
    /// Polls since anything moved.
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

    /// Starts listening; requests come as [`Event::ConnectionRequest`], each at the interface
    /// of the [group](InterfaceConfig::group) that got the connection.
    ///
    /// # Errors
    /// [`AddressError`] with the address and the system's reason.
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

    /// The address a listener of this interface really has (a TCP port of 0 is chosen by the
    /// system).
    #[must_use]
    pub fn listener_address(&self, listener: ListenerId) -> Option<Address> {
        if listener.owner != self.config.owner {
            return None;
        }
        self.listeners.get(listener.index as usize)?.as_ref().map(Listener::address)
    }

    /// Stops listening; established connections stay.
    pub fn unlisten(&mut self, listener: ListenerId) {
        if listener.owner == self.config.owner
            && let Some(slot) = self.listeners.get_mut(listener.index as usize)
        {
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
        // Where the answer waits for the receives that are posted now, the next flush sends it.
        if self.lend(endpoint).is_some() {
            self.mark_dirty(endpoint);
        }
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

    /// Endpoints that are not released, pending ones included.
    #[must_use]
    pub fn endpoint_count(&self) -> usize {
        self.live
    }

    // ---- regions --------------------------------------------------------------

    /// Registers memory that only [`Interface::post_private`] may use, and tells who it is.
    pub(crate) fn register_private(
        &mut self,
        memory: &Memory,
        domain: Domain,
    ) -> Option<(Region, u64)> {
        let region = self.regions.insert(memory.clone(), domain, Rights::LOCAL, true)?;
        Some((region, self.number))
    }

    /// Whether it is the interface of this number.
    #[inline]
    pub(crate) fn is_number(&self, number: u64) -> bool {
        self.number == number
    }

    /// Takes a registration back. Work that still uses it completes or fails; a
    /// peer that uses it afterwards breaks its connection.
    pub fn deregister(&mut self, key: LocalKey) {
        let Some(entry) = self.regions.remove(key) else { return };
        if entry.rights.is_remote() && entry.dmabuf.is_none() {
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

    /// Regions that are registered.
    #[must_use]
    pub fn region_count(&self) -> usize {
        self.regions.count()
    }

    /// Part of a region as the peer of an endpoint names it. RDMA devices choose the names
    /// themselves, so that a region has another with each; of the other transports it is
    /// [`Region::remote`]. A region that the peer does not reach has a name that is nothing to
    /// it.
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

    /// How bytes get to a region over an endpoint.
    #[must_use]
    pub fn region_path(&self, endpoint: EndpointId, key: LocalKey) -> Option<RegionPath> {
        let entry = self.regions.get(key)?;
        self.connection_of(endpoint).map(|connection| connection.path(entry))
    }

    // ---- work -----------------------------------------------------------------

    /// Posts a receive into `scatter`, under a cookie below 2^63: the others are
    /// [`Inbox`](crate::Inbox)es' own.
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
        if inbox::is_private(cookie) {
            return Err(PostError::PrivateCookie);
        }
        check_public(scatter)?;
        self.post_private(endpoint, cookie, scatter)
    }

    /// The same for an inbox, whose memory is nobody else's.
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
    /// [`PostError`]; nothing was queued then.
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
        check_public(local)?;
        let (connection, mut context) = self.lend(endpoint).ok_or(PostError::NotConnected)?;
        connection.post_rdma_write(&mut context, cookie, local, remote, signal)?;
        self.mark_dirty(endpoint);
        Ok(())
    }

    /// Does an RDMA write at once, if the transport can do that with no more than a copy and
    /// nothing posted before still waits: for the source, nothing outlives the call then,
    /// and the bytes are in place before any message sent afterwards arrives. False if
    /// nothing was done, for whatever reason: then [`Interface::post_rdma_write`] it.
    #[inline]
    pub fn rdma_write_now(
        &mut self,
        endpoint: EndpointId,
        local: &[LocalSegment],
        remote: RemoteSegment,
    ) -> bool {
        self.move_now(endpoint, local, remote, true)
    }

    /// Does an RDMA read at once, as [`Interface::rdma_write_now`] a write: the bytes are
    /// there when the call returns.
    #[inline]
    pub fn rdma_read_now(
        &mut self,
        endpoint: EndpointId,
        local: &[LocalSegment],
        remote: RemoteSegment,
    ) -> bool {
        self.move_now(endpoint, local, remote, false)
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
        check_public(local)?;
        let (connection, mut context) = self.lend(endpoint).ok_or(PostError::NotConnected)?;
        connection.post_rdma_read(&mut context, cookie, local, remote)?;
        self.mark_dirty(endpoint);
        Ok(())
    }

    /// Hints at what the peer will likely answer with; lets a socket transport place the
    /// bytes with one system call. In the order the requests were posted, and before any of
    /// them is flushed: of what has come already nothing may be foretold.
    #[inline]
    pub fn expect(&mut self, endpoint: EndpointId, forecast: &Forecast<'_>) {
        if let Some((connection, _)) = self.lend(endpoint) {
            connection.expect(forecast);
        }
    }

    /// Peers that listeners have turned away because there were no more descriptors.
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

/// Nobody but an inbox posts what is in one.
#[inline]
fn check_public(segments: &[LocalSegment]) -> Result<(), PostError> {
    let is_private = segments.iter().any(|segment| segment.key.is_private());
    if is_private { Err(PostError::BadSegment) } else { Ok(()) }
}

static INTERFACES: AtomicU64 = AtomicU64::new(0);
