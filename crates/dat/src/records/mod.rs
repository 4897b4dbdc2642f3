//! TCP connections that carry records: messages of any length, each preceded by its length, as in
//! ONC RPC over TCP (RFC 5531, section 11).
//!
//! Unlike the peer of an [`Interface`](crate::Interface), the peer of such a connection has no
//! registered memory and posts no receives: it sends requests as a stream of bytes and reads
//! replies. [`Records`] cuts the stream into records. It sends replies whose payload stays in the
//! caller's memory, so that cached bytes reach the socket without a copy. It sends as many replies
//! as possible with one system call.
//!
//! Invariants:
//!
//! - A record is delivered completely or not at all, and never exceeds the configured length.
//! - Memory for a record is allocated as its bytes arrive, not when its length arrives.
//! - For each cookie of a reply there is one [`RecordEvent::Sent`], even if the connection breaks.
//! - Records wait in the queue of their connection, whose length is limited. While the queue is
//!   full, the connection is not read. The connections take turns, so that none delays the others.
//! - A connection on which TLS was started (`secure`) sends and accepts only TLS from then on.
//! - Nothing blocks except [`Records::wait`].

mod clock;
mod datagrams;
mod foreign;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod inbox;
mod input;
mod link;
mod outgoing;
mod secure;
mod simulated;
mod socket;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use dafs_memory::Memory;
use rustix::event::epoll;

use self::clock::Clock;
use self::datagrams::{Datagram, DatagramSocket};
use self::link::Link;
use self::socket::Socket;
use crate::sim;
use crate::spare::Spare;
use crate::{CertificateIdentity, TlsFailure, TlsServer};

/// The limits that a [`Records`] enforces.
#[derive(Clone, Copy, Debug)]
pub struct RecordsConfig {
    /// The length of the longest record that a peer may send, in bytes.
    pub record_bytes_max: usize,
    /// The maximum number of connections. A connection beyond this number is closed immediately.
    pub connections_max: usize,
    /// The maximum number of connections of one address. All addresses of an IPv6 network with a
    /// prefix of 64 bits count as one.
    pub connections_per_address_max: usize,
    /// A connection is closed if its peer reads pending replies more slowly than 64 KiB/s for this
    /// time, or if a record is incomplete for this time.
    pub patience: Duration,
    /// A connection is closed if its TLS handshake takes longer than this time.
    pub handshake_patience: Duration,
    /// The maximum number of TLS handshakes of one address that are in progress. Addresses count as
    /// for `connections_per_address_max`.
    pub handshakes_per_address_max: usize,
}

/// The identifier of a connection. It is never used for another connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(u64);

/// An event of a connection that carries records.
#[derive(Debug)]
pub enum RecordEvent {
    /// A peer has connected.
    Opened {
        /// The new connection, which is not read before [`Records::keep_of_records`].
        link: LinkId,
        /// The peer's address.
        peer: SocketAddr,
        /// True if the connection stands for one datagram, and ends with the reply.
        is_datagram: bool,
    },
    /// A record has arrived.
    Record {
        /// The connection on which the record has arrived.
        link: LinkId,
        /// The bytes of the record, without its marks.
        bytes: Vec<u8>,
    },
    /// A TLS handshake is done, so everything that follows is protected.
    Secured {
        /// The connection.
        link: LinkId,
        /// The identity in the peer's certificate, which was verified. `None` if the peer has shown
        /// no certificate.
        certificate: Option<CertificateIdentity>,
    },
    /// TLS has failed. The event [`RecordEvent::Closed`] of the connection follows.
    TlsFailed {
        /// The connection.
        link: LinkId,
        /// The reason.
        failure: TlsFailure,
    },
    /// The memory of a reply is no longer in use: its bytes were given to the kernel, or the
    /// connection has ended.
    Sent {
        /// The cookie of the reply.
        cookie: u64,
    },
    /// The connection has ended, and its id is invalid.
    Closed {
        /// The connection that has ended.
        link: LinkId,
        /// The reason, in words.
        reason: &'static str,
    },
}

/// One part of a reply that consists of several parts.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// Bytes that are copied when the reply is queued.
    Bytes(&'a [u8]),
    /// Bytes that the kernel reads from registered or mapped memory when it sends them.
    Memory {
        /// The memory, which is kept until the kernel has read the bytes.
        memory: &'a Memory,
        /// The offset of the first byte in the memory.
        offset: u64,
        /// The number of bytes.
        length: u32,
    },
}

/// A socket that accepts connections.
struct Listener {
    socket: OwnedFd,
    address: SocketAddr,
    spare: Spare,
}

/// Listeners and connections that carry records, which belong to one thread.
pub struct Records {
    epoll: OwnedFd,
    config: RecordsConfig,
    clock: Clock,
    listeners: Vec<Listener>,
    datagram_sockets: Vec<DatagramSocket>,
    /// The listener on a simulated network. `None` if the connections are sockets.
    simulated: Option<sim::Listener>,
    links: Vec<Option<Link>>,
    /// The datagrams whose replies were not sent yet, by the index of their links.
    datagrams: HashMap<LinkId, (Datagram, Duration)>,
    /// Indexes of `links` that are free.
    free: Vec<u32>,
    /// The generation of the next connection.
    next: u32,
    count: usize,
    /// The number of connections of each address.
    addresses: HashMap<IpAddr, usize>,
    /// The number of TLS handshakes of each address that are in progress.
    handshakes: HashMap<IpAddr, usize>,
    /// The number of connections that have ended, but whose records are not handled yet.
    ended: usize,
    /// The connections that have records in their queues and are not paused, in the order in which
    /// they take turns.
    ready: VecDeque<LinkId>,
    /// The number of bytes of replies that the kernel has not accepted yet.
    unsent: u64,
    /// The connections that have replies to be written to the socket.
    unflushed: Vec<LinkId>,
    /// The events that are not records.
    events: VecDeque<RecordEvent>,
    /// Buffers of earlier records, which later records reuse.
    buffers: Vec<Vec<u8>>,
    /// The buffer into which all connections read.
    scratch: Box<[u8]>,
    /// The buffers of connections with TLS.
    secure: secure::Buffers,
}

impl LinkId {
    fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(index))
    }

    /// Returns an index for tables of connections. After the connection has ended, another
    /// connection may get the same index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as u32 as usize
    }

    /// Returns the identifier as an integer.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the id that [`LinkId::to_bits`] has returned as this number.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl fmt::Debug for LinkId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LinkId({}, {})", self.0 as u32, self.0 >> 32)
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Records").field("connections", &self.count).finish_non_exhaustive()
    }
}

impl Records {
    /// Creates a `Records` without listeners.
    ///
    /// # Errors
    /// The error of `epoll_create1`.
    pub fn new(config: RecordsConfig) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            config,
            clock: Clock::System,
            listeners: Vec::new(),
            datagram_sockets: Vec::new(),
            simulated: None,
            links: Vec::new(),
            datagrams: HashMap::new(),
            free: Vec::new(),
            next: 1,
            count: 0,
            addresses: HashMap::new(),
            handshakes: HashMap::new(),
            ended: 0,
            ready: VecDeque::new(),
            unsent: 0,
            unflushed: Vec::new(),
            events: VecDeque::new(),
            buffers: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            secure: secure::Buffers::default(),
        })
    }

    /// Listens on an address. Returns the address with the port that the system chose.
    ///
    /// # Errors
    /// The error of the system call that failed.
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let socket = crate::tcp::listening_socket(address)?;
        let bound = rustix::net::getsockname(&socket)?;
        let address = SocketAddr::try_from(bound).unwrap_or(address);
        let token = LISTENERS | self.listeners.len() as u64;
        self.watch_as(socket.as_fd(), token)?;
        self.listeners.push(Listener { socket, address, spare: Spare::new() });
        Ok(address)
    }

    /// Receives datagrams at an address. Returns the address with the port that the system chose.
    ///
    /// # Errors
    /// The error of the system call that failed.
    pub fn receive_datagrams(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let socket = DatagramSocket::bind(address)?;
        let token = LISTENERS | DATAGRAMS | self.datagram_sockets.len() as u64;
        self.watch_as(socket.socket.as_fd(), token)?;
        let address = socket.address;
        self.datagram_sockets.push(socket);
        Ok(address)
    }

    /// Returns the addresses of the listeners.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.listeners.iter().map(|listener| listener.address)
    }

    /// Makes [`Records::wait`] return when this descriptor is readable.
    ///
    /// # Errors
    /// The error of `epoll_ctl`.
    pub fn watch(&mut self, other: BorrowedFd<'_>) -> io::Result<()> {
        self.watch_as(other, OTHER)
    }

    fn watch_as(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, descriptor, data, epoll::EventFlags::IN)?)
    }

    /// Returns the time of the clock by which connections are judged. Times are durations since
    /// some moment that stays the same.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.count
    }

    /// Returns true if there may be events, so that a wait would not sleep.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty() || !self.ready.is_empty()
    }

    /// Writes pending replies to their sockets, waits until a descriptor is ready or `timeout` has
    /// passed, and receives the bytes that have arrived. [`Records::next_event`] returns the
    /// events. Returns true if the descriptor given to [`Records::watch`] is readable.
    pub fn wait(&mut self, timeout: Duration) -> bool {
        self.flush();
        let timeout = if self.has_events() { Duration::ZERO } else { timeout };
        let timeout = rustix::time::Timespec::try_from(timeout).ok();
        let mut ready = [const { MaybeUninit::uninit() }; READY_MAX];
        // A failure leaves no event; the next wait repeats the call.
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut ready, timeout.as_ref()) else {
            return true;
        };
        let mut is_other_ready = false;
        for event in ready.iter() {
            let token = event.data.u64();
            if token == OTHER {
                is_other_ready = true;
                continue;
            }
            if token & (LISTENERS | DATAGRAMS) == LISTENERS | DATAGRAMS {
                self.take_datagrams((token & !(LISTENERS | DATAGRAMS)) as usize);
                continue;
            }
            if token & LISTENERS != 0 {
                self.accept((token & !LISTENERS) as usize);
                continue;
            }
            let link = LinkId(token);
            let flags = event.flags;
            if flags.contains(epoll::EventFlags::OUT) {
                self.transmit(link);
            }
            if flags
                .intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR)
            {
                self.receive(link);
            }
        }
        is_other_ready
    }

    /// Removes and returns the next event. Events other than records come first. The connections
    /// take turns with their records.
    pub fn next_event(&mut self) -> Option<RecordEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        while let Some(link) = self.ready.pop_front() {
            let Self { links, epoll, ready, clock, .. } = self;
            let Some(open) = get(links, link) else { continue };
            open.is_ready = false;
            if open.is_paused {
                continue;
            }
            let Some(bytes) = open.inbox.pop() else { continue };
            if !open.inbox.is_empty() {
                open.is_ready = true;
                ready.push_back(link);
            }
            open.update_interest(epoll, *clock);
            if let Some(reason) = open.ending() {
                self.close(link, reason);
            }
            return Some(RecordEvent::Record { link, bytes });
        }
        None
    }

    /// Returns the buffer of a record to this value, which reuses it for another record.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= KEPT_BUFFER_BYTES && self.buffers.len() < KEPT_BUFFERS {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    /// Queues a reply, which consists of these parts in this order. The next [`Records::flush`] or
    /// [`Records::wait`] writes it to the socket. [`RecordEvent::Sent`] reports each of the cookies
    /// when the memory of the reply is no longer in use. If the connection has ended, this happens
    /// immediately.
    pub fn send<'a>(
        &mut self,
        link: LinkId,
        parts: impl IntoIterator<Item = Part<'a>>,
        cookies: impl IntoIterator<Item = u64>,
    ) {
        let cookies = cookies.into_iter();
        if let Some((datagram, _)) = self.datagrams.get_mut(&link) {
            datagram.put(parts);
            datagram.send();
            self.events.extend(cookies.map(|cookie| RecordEvent::Sent { cookie }));
            return self.close(link, "the datagram was answered");
        }
        let Some(open) = get(&mut self.links, link) else {
            return self.events.extend(cookies.map(|cookie| RecordEvent::Sent { cookie }));
        };
        let before = open.outgoing.unsent();
        open.outgoing.put(parts, cookies);
        self.unsent += open.outgoing.unsent() - before;
        if !open.is_unflushed {
            open.is_unflushed = true;
            self.unflushed.push(link);
        }
    }

    /// Sends a reply and then starts TLS: the peer begins the handshake when it has the reply.
    /// [`RecordEvent::Secured`] reports the end of the handshake. Until then replies wait. Closes
    /// the connection if the peer did not wait for the reply, or if too many handshakes are in
    /// progress.
    pub fn start_tls(&mut self, link: LinkId, server: &TlsServer, reply: &[u8]) {
        let Some(open) = get(&mut self.links, link) else { return };
        let network = network_of(open.address);
        let of_network = self.handshakes.get(&network).copied().unwrap_or(0);
        if of_network >= self.config.handshakes_per_address_max {
            return self.close(link, "too many TLS handshakes of this address are in progress");
        }
        self.send(link, [Part::Bytes(reply)], []);
        self.transmit(link);
        let Some(open) = get(&mut self.links, link) else { return };
        let started = match open.outgoing.unsent() {
            0 => open.start_tls(server, self.clock.now()),
            // Bytes of plain replies must not follow bytes of TLS.
            _ => Err("the peer did not read its replies before it started TLS"),
        };
        match started {
            Ok(()) => *self.handshakes.entry(network).or_default() += 1,
            Err(reason) => self.close(link, reason),
        }
    }

    /// Returns true if TLS was started on a connection.
    #[must_use]
    pub fn is_tls(&self, link: LinkId) -> bool {
        let open = self.links.get(link.index()).and_then(Option::as_ref);
        open.is_some_and(|open| open.id == link && open.is_tls())
    }

    /// Returns the number of bytes of replies that the kernel has not accepted yet.
    #[must_use]
    pub fn unsent(&self, link: LinkId) -> u64 {
        let open = self.links.get(link.index()).and_then(Option::as_ref);
        open.filter(|open| open.id == link).map_or(0, |open| open.outgoing.unsent())
    }

    /// Returns the number of bytes of replies, of all connections, that the kernel has not accepted
    /// yet.
    #[must_use]
    pub fn unsent_total(&self) -> u64 {
        self.unsent
    }

    /// Writes pending replies to their sockets, as far as the kernel accepts them.
    pub fn flush(&mut self) {
        while let Some(link) = self.unflushed.pop() {
            if let Some(open) = get(&mut self.links, link) {
                open.is_unflushed = false;
                self.transmit(link);
            }
        }
    }

    /// Sets the number of bytes that are kept of each record of a connection. The bytes after them
    /// are dropped, so that a peer of no importance occupies little memory: its records are
    /// delivered without their ends. A new connection is not read until this is set. If bytes of
    /// the current record were dropped that are wanted now, the connection is closed.
    pub fn keep_of_records(&mut self, link: LinkId, bytes_max: usize) {
        let Self { epoll, links, clock, .. } = self;
        let Some(open) = get(links, link) else { return };
        if !open.keep(bytes_max) {
            return self.close(link, "the peer must send its last record again");
        }
        open.update_interest(epoll, *clock);
    }

    /// Stops reading from a connection, or starts to read again. [`Records::next_event`] returns no
    /// records of a paused connection. While a connection is not read, its peer can send only until
    /// the buffers of the sockets are full.
    pub fn set_paused(&mut self, link: LinkId, is_paused: bool) {
        let Self { epoll, links, ready, clock, .. } = self;
        if let Some(open) = get(links, link) {
            open.is_paused = is_paused;
            open.list_if_ready(ready);
            open.update_interest(epoll, *clock);
        }
    }

    /// Closes a connection. Replies that the kernel has not accepted are dropped.
    pub fn close(&mut self, link: LinkId, reason: &'static str) {
        if self.datagrams.remove(&link).is_some() {
            self.free.push(link.index() as u32);
            self.count -= 1;
            return self.events.push_back(RecordEvent::Closed { link, reason });
        }
        if get(&mut self.links, link).is_none() {
            return;
        }
        if let Some(mut open) = self.links[link.index()].take() {
            self.unsent -= open.outgoing.unsent();
            open.outgoing.abandon(&mut self.events);
            self.ended -= usize::from(open.is_ending());
            let network = network_of(open.address);
            count_down(&mut self.addresses, network);
            if open.handshake_since().is_some() {
                count_down(&mut self.handshakes, network);
            }
            if let Some(failure) = open.part() {
                self.events.push_back(RecordEvent::TlsFailed { link, failure });
            }
            self.free.push(link.index() as u32);
            self.count -= 1;
            self.events.push_back(RecordEvent::Closed { link, reason });
        }
    }

    /// Closes the connections whose peers read pending replies too slowly or do not complete a
    /// record. The caller must call this regularly, for example once a second.
    pub fn tick(&mut self) {
        self.tick_at(self.now());
    }

    /// Closes the connections that [`Records::tick`] would close at this time.
    pub fn tick_at(&mut self, now: Duration) {
        let RecordsConfig { patience, handshake_patience, .. } = self.config;
        let is_late = |since: Option<Duration>| since.is_some_and(|since| since + patience < now);
        let reason = |open: &Link| {
            if open.handshake_since().is_some_and(|since| since + handshake_patience < now) {
                return Some("the TLS handshake takes too long");
            }
            if is_late(open.stalled_since) {
                return Some("the peer does not read its replies");
            }
            is_late(open.incomplete_since).then_some("the peer does not complete a record")
        };
        let late = self.links.iter().flatten().filter_map(|open| Some((open.id, reason(open)?)));
        for (link, reason) in late.collect::<Vec<_>>() {
            self.close(link, reason);
        }
        let is_old = |since: &Duration| *since + patience < now;
        let old = self.datagrams.iter().filter(|(_, (_, since))| is_old(since));
        let old: Vec<_> = old.map(|(link, _)| *link).collect();
        for link in old {
            self.close(link, "the datagram was not answered in time");
        }
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS_IN_TURN {
            let Some(Listener { socket, spare, address }) = self.listeners.get_mut(listener) else {
                return;
            };
            let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
            let Some((socket, peer)) =
                spare.accept(|| rustix::net::acceptfrom_with(&*socket, flags), drop)
            else {
                return;
            };
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok()).unwrap_or(*address);
            if !self.has_room_for(peer.ip()) {
                continue;
            }
            // Without this option, small replies are delayed. If the call fails, nothing else is
            // affected.
            let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
            self.add(Socket::System(socket), peer);
        }
    }

    /// Returns the identifier for a new connection.
    fn new_link(&mut self) -> LinkId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() as u32 - 1
        });
        let link = LinkId::new(index, self.next);
        // Tokens with the highest bit set stand for listeners and other descriptors, so a
        // connection's token must not have that bit.
        self.next = self.next.wrapping_add(1) & GENERATIONS;
        link
    }

    fn take_datagrams(&mut self, socket: usize) {
        for _ in 0..DATAGRAMS_IN_TURN {
            let Some(from) = self.datagram_sockets.get(socket) else { return };
            let Some((length, datagram)) = from.receive(&mut self.scratch) else { return };
            if self.count >= self.config.connections_max || self.datagrams.len() >= DATAGRAMS_MAX {
                continue;
            }
            let (link, peer) = (self.new_link(), datagram.peer());
            let mut bytes = self.buffers.pop().unwrap_or_default();
            bytes.extend_from_slice(&self.scratch[..length]);
            self.datagrams.insert(link, (datagram, self.clock.now()));
            self.count += 1;
            self.events.push_back(RecordEvent::Opened { link, peer, is_datagram: true });
            self.events.push_back(RecordEvent::Record { link, bytes });
        }
    }

    /// Returns true if an address may have another connection.
    fn has_room_for(&self, address: IpAddr) -> bool {
        let of_network = self.addresses.get(&network_of(address)).copied().unwrap_or(0);
        self.count < self.config.connections_max
            && of_network < self.config.connections_per_address_max
    }

    /// Adds a connection.
    fn add(&mut self, socket: Socket, peer: SocketAddr) {
        let link = self.new_link();
        if let Socket::System(socket) = &socket
            && self.watch_as(socket.as_fd(), link.0).is_err()
        {
            return self.free.push(link.index() as u32);
        }
        self.links[link.index()] = Some(Link::new(link, socket, peer.ip()));
        self.count += 1;
        *self.addresses.entry(network_of(peer.ip())).or_default() += 1;
        self.events.push_back(RecordEvent::Opened { link, peer, is_datagram: false });
    }

    fn receive(&mut self, link: LinkId) {
        let Self { epoll, links, ready, buffers, scratch, config, clock, .. } = self;
        let Some(open) = get(links, link) else { return };
        let received = match open.is_tls() {
            false => open.receive(scratch, buffers, config.record_bytes_max),
            true => {
                let received =
                    open.receive_sealed(&mut self.secure, buffers, config.record_bytes_max);
                if let Some(certificate) = open.take_secured() {
                    self.events.push_back(RecordEvent::Secured { link, certificate });
                    count_down(&mut self.handshakes, network_of(open.address));
                }
                received
            }
        };
        open.list_if_ready(ready);
        match received {
            Ok(()) => open.update_interest(epoll, *clock),
            // The records that have arrived before are delivered first. Clients that connect, send
            // and disconnect must not use up the connections, so the number is limited.
            Err(reason) if !open.inbox.is_empty() && self.ended < ENDED_MAX => {
                self.ended += 1;
                open.end(epoll, reason);
            }
            Err(reason) => self.close(link, reason),
        }
    }

    fn transmit(&mut self, link: LinkId) {
        let Self { epoll, links, events, unsent, secure, clock, .. } = self;
        let Some(open) = get(links, link) else { return };
        let before = open.outgoing.unsent();
        let transmitted = open.transmit(secure, events, *clock);
        *unsent -= before - open.outgoing.unsent();
        match transmitted {
            Ok(()) => open.update_interest(epoll, *clock),
            Err(reason) => self.close(link, reason),
        }
    }
}

fn get(links: &mut [Option<Link>], link: LinkId) -> Option<&mut Link> {
    links.get_mut(link.index())?.as_mut().filter(|open| open.id == link)
}

/// Counts down the entry of an address, and removes it when it is 0.
fn count_down(counts: &mut HashMap<IpAddr, usize>, address: IpAddr) {
    if let Some(count) = counts.get_mut(&address) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&address);
        }
    }
}

/// Returns the address for which connections are counted: all addresses of an IPv6 network with a
/// prefix of 64 bits count as one.
#[must_use]
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6([a, b, c, d, 0, 0, 0, 0].into())
        }
        address => address,
    }
}

/// The bit that is set in the tokens of listeners; the other bits are the listener's index.
const LISTENERS: u64 = 1 << 63;
/// The bit that is set, with [`LISTENERS`], in the tokens of sockets that receive datagrams.
const DATAGRAMS: u64 = 1 << 62;
/// The maximum number of datagrams received before other connections are served again.
const DATAGRAMS_IN_TURN: usize = 64;
/// The maximum number of connections that have ended and whose records are still handled.
const ENDED_MAX: usize = 256;
/// The maximum number of datagrams that wait for their replies.
const DATAGRAMS_MAX: usize = 1024;
/// The token of descriptors that are only watched, so that [`Records::wait`] returns.
const OTHER: u64 = u64::MAX;
/// The mask of generations, which keeps them out of the bits of [`LISTENERS`].
const GENERATIONS: u32 = u32::MAX >> 1;
/// The number of descriptors that one system call reports.
const READY_MAX: usize = 256;
/// The maximum number of connections accepted before other connections are served again.
const ACCEPTS_IN_TURN: usize = 64;
/// The size of the buffer for one read. Longer records are read into their own buffer.
const SCRATCH_BYTES: usize = 64 << 10;
/// The number of buffers kept for later records, and the size of the largest of them in bytes.
const KEPT_BUFFERS: usize = 256;
const KEPT_BUFFER_BYTES: usize = 64 << 10;
