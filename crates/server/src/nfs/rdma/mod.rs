//! NFS over RDMA (RFC 8166): connections of clients over the RDMA transports of `dat`.
//!
//! The server reads the data of calls from the memory of clients, and writes the data of replies to
//! it. `line` executes what the state machine of a connection asks for, and `buffers` has the
//! registered memory for calls.
//!
//! Invariants:
//! - No memory of the server is exposed: the interface is a [`ServingInterface`].
//! - The data of replies goes from the cache to the client without a copy.
//! - A connection is accepted only after the access rules have let its client in.

mod buffers;
mod line;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use dafs_dat::records::{LinkId, RecordEvent, Records, network_of};
use dafs_dat::{
    Address, AddressError, Domain, EndpointConfig, EndpointId, Event, Inbox, InterfaceConfig,
    LocalSegment, PendingId, Region, ServingInterface, WaitPolicy,
};
use dafs_memory::Memory;
use dafs_nfs_wire::xdr::Writer;
use dafs_rpcrdma::binding::reply_items;
use dafs_rpcrdma::limits::ServerConfig;
use dafs_rpcrdma::private_data::PrivateData;
use dafs_rpcrdma::server::{Connection, IncomingCall};
use dafs_types::Moment;

use self::buffers::Buffers;
use self::line::{Common, Line, LineEvent, Outgoing};
use crate::config::ServerError;
use crate::guests::GuestRead;
use crate::nfs::calls::CALL_BYTES_MAX;

/// The connections of NFS clients over RDMA.
pub(super) struct Rdma {
    interface: ServingInterface,
    /// The memory of the cache.
    cache: Region,
    buffers: Buffers,
    addresses: Vec<Address>,
    /// The connections, by the index of their links.
    links: Vec<Option<RdmaLink>>,
    /// The links of the endpoints, by the index of the endpoint.
    owners: Vec<Option<LinkId>>,
    /// The connections that have messages and are not paused, in the order of their turns.
    ready: VecDeque<LinkId>,
    /// The connections that wait for buffers, in their order.
    waiting: VecDeque<LinkId>,
    /// The events that are not messages.
    events: VecDeque<RecordEvent>,
}

/// A connection, which counts among those of [`Records`].
struct RdmaLink {
    id: LinkId,
    host: IpAddr,
    state: State,
    is_paused: bool,
    is_ready: bool,
    /// True if the connection is in the list of those that wait for buffers.
    is_listed: bool,
    arrived: VecDeque<Arrived>,
}

/// What has arrived on a connection.
enum Arrived {
    Call(IncomingCall),
    /// A reply to a callback.
    Reply(Vec<u8>),
}

enum State {
    /// The connection was not accepted yet.
    Asked(PendingId, PrivateData),
    Open(Box<Line>),
}

/// A message for a client. The data of the reply to READ is the bytes of `reads`.
pub(super) struct OutgoingMessage<'m> {
    /// The bytes that replace the first ones of the message, and the number of bytes that they
    /// replace.
    pub(super) head: Option<(&'m [u8], usize)>,
    pub(super) writer: &'m Writer,
    pub(super) reads: &'m [GuestRead],
    /// What is reported when the bytes of `reads` are no longer in use.
    pub(super) cookies: Vec<u64>,
}

impl Rdma {
    /// Creates an interface that listens at addresses of iWARP over TCP and of RDMA devices.
    ///
    /// # Errors
    /// [`RdmaError`] if the system has no descriptor left, or an address cannot be used.
    pub(super) fn new(addresses: &[Address], cache: &Memory) -> Result<Self, RdmaError> {
        let mut interface = ServingInterface::serving(InterfaceConfig {
            wait: WaitPolicy { spin_max: Duration::ZERO },
            endpoints_max: CONNECTIONS_MAX,
            ..InterfaceConfig::default()
        })?;
        let cache = interface.register_local(cache, DOMAIN);
        let cache = cache.ok_or_else(|| io::Error::other("the table of regions is full"))?;
        let mut bound = Vec::new();
        for address in addresses {
            let listener = interface.listen(address)?;
            bound.push(interface.listener_address(listener).unwrap_or_else(|| address.clone()));
        }
        Ok(Self {
            interface,
            cache,
            buffers: Buffers::default(),
            addresses: bound,
            links: Vec::new(),
            owners: Vec::new(),
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            events: VecDeque::new(),
        })
    }

    /// Returns the addresses of the listeners.
    pub(super) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns a descriptor that is readable when [`Rdma::poll`] has something to do.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.interface.as_fd()
    }

    /// Starts what was posted, and prepares for waiting. Returns false if there are events.
    pub(super) fn arm(&mut self) -> bool {
        let is_armed = self.interface.arm();
        is_armed && !self.has_events()
    }

    /// Returns true if there are events, so that [`Rdma::next_event`] returns something or must be
    /// called again.
    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty() || !self.ready.is_empty()
    }

    /// Returns true if a client that the rules let in has a connection.
    pub(super) fn is_in_use(&self) -> bool {
        self.links.iter().flatten().any(|open| matches!(open.state, State::Open(_)))
    }

    /// Returns true if a link is a connection over RDMA.
    pub(super) fn has(&self, link: LinkId) -> bool {
        self.links.get(link.index()).and_then(Option::as_ref).is_some_and(|open| open.id == link)
    }

    /// Removes and returns the next event.
    pub(super) fn next_event(&mut self, records: &mut Records) -> Option<RecordEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        while let Some(link) = self.ready.pop_front() {
            let Some(open) = find(&mut self.links, link) else { continue };
            open.is_ready = false;
            if open.is_paused {
                continue;
            }
            let arrived = open.arrived.pop_front();
            open.list_if_ready(&mut self.ready);
            let bytes = match arrived {
                None => continue,
                Some(Arrived::Reply(bytes)) => Some(bytes),
                Some(Arrived::Call(call)) => self.take_call(link, &call, records),
            };
            if let Some(bytes) = bytes {
                return Some(RecordEvent::Record { link, bytes });
            }
        }
        None
    }

    /// Returns the bytes of a call; `None` if it is refused.
    fn take_call(
        &mut self,
        link: LinkId,
        call: &IncomingCall,
        records: &mut Records,
    ) -> Option<Vec<u8>> {
        let mut bytes = None;
        self.with(link, moment(records), records, |line, common| {
            bytes = line.take_call(call, common);
            line.drive(common);
        });
        bytes
    }

    /// Accepts a connection whose client the rules let in.
    pub(super) fn admit(&mut self, link: LinkId, records: &mut Records) {
        let Self { interface, links, owners, .. } = self;
        let Some(open) = find(links, link) else { return };
        let State::Asked(pending, peer) = open.state else { return };
        let config = server_config();
        let machine = Connection::new(config, peer);
        let receives = u16::try_from(machine.receives()).unwrap_or(u16::MAX);
        let inbox = match Inbox::new(interface, DOMAIN, receives, config.receive_bytes) {
            Ok(inbox) => inbox,
            Err(error) => {
                tracing::warn!(%error, "an NFS client cannot connect over RDMA");
                return self.close((link, "there is no memory for the connection"), records);
            }
        };
        let endpoint_config = EndpointConfig {
            message_bytes_max: config.receive_bytes.max(config.send_bytes),
            receives_max: u32::from(receives),
            work_max: WORK_MAX,
            read_depth: u16::try_from(config.reads).unwrap_or(u16::MAX),
            ..EndpointConfig::default()
        };
        let data = machine.private_data().encode();
        let endpoint = interface.accept(pending, DOMAIN, &endpoint_config, &data);
        let mut line = Line::new(endpoint, network_of(open.host), machine, inbox);
        line.post_receives(interface);
        open.state = State::Open(Box::new(line));
        own(owners, endpoint, link);
    }

    /// Stops passing on the messages of a connection, or starts again.
    pub(super) fn set_paused(&mut self, link: LinkId, is_paused: bool) {
        if let Some(open) = find(&mut self.links, link) {
            open.is_paused = is_paused;
            open.list_if_ready(&mut self.ready);
        }
    }

    /// Returns the number of bytes of a connection's replies that are not sent.
    pub(super) fn unsent(&self, link: LinkId) -> u64 {
        let open = self.links.get(link.index()).and_then(Option::as_ref);
        open.filter(|open| open.id == link).map_or(0, RdmaLink::unsent)
    }

    /// Returns the number of bytes of all replies that are not sent.
    pub(super) fn unsent_total(&self) -> u64 {
        self.links.iter().flatten().map(RdmaLink::unsent).sum()
    }

    /// Sends a reply or a callback.
    pub(super) fn send(
        &mut self,
        link: LinkId,
        message: OutgoingMessage<'_>,
        records: &mut Records,
    ) {
        let (cache, now) = (self.cache, moment(records));
        let Some(State::Open(line)) = find(&mut self.links, link).map(|open| &mut open.state)
        else {
            return self.report_sent(message.cookies);
        };
        let bytes = message.writer.bytes();
        let (Some(xid), Some(direction)) = (word(bytes, 0), word(bytes, 1)) else {
            return self.report_sent(message.cookies);
        };
        if direction == CALL {
            line.call_back(xid, bytes, now);
        } else {
            let target = line.target_of(xid);
            match outgoing(&message, target.as_ref(), cache) {
                Some(outgoing) => {
                    let cookies = line.reply(xid, outgoing, now);
                    self.report_sent(cookies);
                }
                None => {
                    line.refuse_call(xid, now);
                    self.report_sent(message.cookies);
                }
            }
        }
        self.drive(link, now, records);
    }

    /// Sends a reply that has no data apart from its bytes.
    pub(super) fn send_whole(&mut self, link: LinkId, bytes: Vec<u8>, records: &mut Records) {
        let now = moment(records);
        let open = find(&mut self.links, link).map(|open| &mut open.state);
        let (Some(State::Open(line)), Some(xid)) = (open, word(&bytes, 0)) else { return };
        let cookies = line.reply(xid, Outgoing { bytes, ..Outgoing::default() }, now);
        debug_assert!(cookies.is_empty());
        self.drive(link, now, records);
    }

    /// Closes a connection, or rejects one that was not accepted.
    pub(super) fn close(&mut self, (link, reason): (LinkId, &'static str), records: &mut Records) {
        if !self.has(link) {
            return;
        }
        let Some(open) = self.links[link.index()].take() else { return };
        let Self { interface, buffers, owners, .. } = self;
        let mut found = Vec::new();
        match open.state {
            State::Asked(pending, _) => {
                if let Some(owner) = owners.iter_mut().find(|owner| **owner == Some(link)) {
                    *owner = None;
                }
                interface.reject(pending, &[]);
            }
            State::Open(line) => {
                owners[line.endpoint.index()] = None;
                let now = moment(records);
                line.end(&mut Common { interface, buffers, events: &mut found, now });
            }
        }
        let cookies = found.into_iter().filter_map(|event| match event {
            LineEvent::Sent(cookie) => Some(cookie),
            LineEvent::Call(_) | LineEvent::Message(_) | LineEvent::Ended(_) => None,
        });
        self.report_sent(cookies.collect());
        records.release(link, open.host);
        self.events.push_back(RecordEvent::Closed { link, reason });
    }

    /// Handles what has arrived, without waiting.
    pub(super) fn poll(&mut self, records: &mut Records) {
        let is_any = self.interface.poll() > 0;
        // A server that spins polls far more often than something arrives.
        if !is_any && self.waiting.is_empty() {
            return;
        }
        let now = moment(records);
        for _ in 0..EVENTS_IN_TURN {
            if self.take_message(now, records) {
                continue;
            }
            let Some(event) = self.interface.next_event() else { break };
            self.on_event(event, now, records);
        }
        self.try_again(now, records);
    }

    /// Closes the connections whose clients do not act in time. Must be called about once a second.
    pub(super) fn tick(&mut self, records: &mut Records) {
        let now = moment(records);
        let links: Vec<LinkId> = self.links.iter().flatten().map(|open| open.id).collect();
        for link in links {
            if let Some(State::Open(line)) = find(&mut self.links, link).map(|open| &mut open.state)
            {
                line.on_time(now);
            }
            self.drive(link, now, records);
        }
    }

    /// Tries again what waits for buffers. What has waited longest comes first.
    fn try_again(&mut self, now: Moment, records: &mut Records) {
        for link in std::mem::take(&mut self.waiting) {
            if let Some(open) = find(&mut self.links, link) {
                open.is_listed = false;
            }
            self.with(link, now, records, Line::try_again);
        }
    }

    /// Takes the message of the oldest event, if that is the end of a receive. Returns false
    /// otherwise.
    fn take_message(&mut self, now: Moment, records: &mut Records) -> bool {
        let Some(endpoint) = self.interface.first_completion().map(|ended| ended.endpoint) else {
            return false;
        };
        let Some(link) = self.owner_of(endpoint) else { return false };
        let mut is_taken = false;
        self.with(link, now, records, |line, common| {
            is_taken = line.take_message(common);
            if is_taken {
                line.drive(common);
            }
        });
        is_taken
    }

    fn on_event(&mut self, event: Event, now: Moment, records: &mut Records) {
        match event {
            Event::Completion(ended) => {
                let Some(link) = self.owner_of(ended.endpoint) else { return };
                self.with(link, now, records, |line, common| {
                    line.complete(&ended, now);
                    line.drive(common);
                });
            }
            Event::ConnectionRequest { pending, peer, private_data, .. } => {
                let address = match peer.address {
                    Address::Tcp(address) | Address::Verbs(address) if !peer.tls => address,
                    // No rules could name the address, or the connection begins with TLS, which
                    // NFS over RDMA does not have.
                    _ => return self.interface.reject(pending, &[]),
                };
                let peer = PrivateData::find(&private_data);
                self.ask((pending, address), peer, records);
            }
            Event::Broken { endpoint, reason } => {
                let Some(link) = self.owner_of(endpoint) else {
                    return self.interface.release(endpoint);
                };
                tracing::debug!(?link, %reason, "an RDMA connection of an NFS client has ended");
                self.close((link, "the RDMA connection has ended"), records);
            }
            Event::Established { .. } | Event::Rejected { .. } => {}
        }
    }

    /// Adds a connection that waits for the decision of the access rules.
    fn ask(
        &mut self,
        (pending, address): (PendingId, SocketAddr),
        peer: PrivateData,
        records: &mut Records,
    ) {
        let host = address.ip();
        let of_host = self.links.iter().flatten().filter(|open| open.is_of(host)).count();
        let id = (of_host < CONNECTIONS_PER_HOST_MAX).then(|| records.reserve(host)).flatten();
        let Some(id) = id else { return self.interface.reject(pending, &[]) };
        if self.links.len() <= id.index() {
            self.links.resize_with(id.index() + 1, || None);
        }
        self.links[id.index()] = Some(RdmaLink {
            id,
            host,
            state: State::Asked(pending, peer),
            is_paused: false,
            is_ready: false,
            is_listed: false,
            arrived: VecDeque::new(),
        });
        own(&mut self.owners, pending.endpoint(), id);
        self.events.push_back(RecordEvent::Opened { link: id, peer: address, is_datagram: false });
    }

    fn drive(&mut self, link: LinkId, now: Moment, records: &mut Records) {
        self.with(link, now, records, Line::drive);
    }

    /// Lets a connection do something, and handles its events.
    fn with(
        &mut self,
        link: LinkId,
        now: Moment,
        records: &mut Records,
        act: impl FnOnce(&mut Line, &mut Common<'_>),
    ) {
        let Self { interface, buffers, links, ready, waiting, events, .. } = self;
        let Some(open) = find(links, link) else { return };
        let State::Open(line) = &mut open.state else { return };
        let mut found = Vec::new();
        act(line, &mut Common { interface, buffers, events: &mut found, now });
        if line.is_waiting() && !open.is_listed {
            open.is_listed = true;
            waiting.push_back(link);
        }
        let mut ended = None;
        for event in found {
            match event {
                LineEvent::Call(call) => open.arrived.push_back(Arrived::Call(call)),
                LineEvent::Message(bytes) => open.arrived.push_back(Arrived::Reply(bytes)),
                LineEvent::Sent(cookie) => events.push_back(RecordEvent::Sent { cookie }),
                LineEvent::Ended(reason) => ended = Some(reason),
            }
        }
        open.list_if_ready(ready);
        if let Some(reason) = ended {
            self.close((link, reason), records);
        }
    }

    fn owner_of(&self, endpoint: EndpointId) -> Option<LinkId> {
        let link = self.owners.get(endpoint.index()).copied().flatten()?;
        let open = self.links.get(link.index())?.as_ref()?;
        let owned = match &open.state {
            State::Asked(pending, _) => pending.endpoint(),
            State::Open(line) => line.endpoint,
        };
        (owned == endpoint).then_some(link)
    }

    fn report_sent(&mut self, cookies: Vec<u64>) {
        self.events.extend(cookies.into_iter().map(|cookie| RecordEvent::Sent { cookie }));
    }
}

impl RdmaLink {
    /// Returns true if the client is this host, or one of the same IPv6 network.
    fn is_of(&self, host: IpAddr) -> bool {
        network_of(self.host) == network_of(host)
    }

    fn unsent(&self) -> u64 {
        match &self.state {
            State::Open(line) => line.unsent(),
            State::Asked(..) => 0,
        }
    }

    fn list_if_ready(&mut self, ready: &mut VecDeque<LinkId>) {
        if !self.is_ready && !self.is_paused && !self.arrived.is_empty() {
            self.is_ready = true;
            ready.push_back(self.id);
        }
    }
}

/// Returns a reply with its data in the cache. `None` if the reply cannot be decoded.
fn outgoing(
    message: &OutgoingMessage<'_>,
    target: Option<&dafs_nfs_wire::rpc::Target>,
    cache: Region,
) -> Option<Outgoing> {
    let encoded = message.writer.bytes();
    let mut items = match target {
        Some(target) => reply_items(target, message.writer).ok()?,
        None => Vec::new(),
    };
    let bytes = match message.head {
        None => encoded.to_vec(),
        Some((head, replaced)) => {
            for item in &mut items {
                item.at = (item.at + head.len()).checked_sub(replaced)?;
            }
            [head, encoded.get(replaced..)?].concat()
        }
    };
    let segments = |read: &GuestRead| -> Vec<LocalSegment> {
        read.pieces.iter().map(|(offset, length)| cache.local(*offset, *length)).collect()
    };
    // A read of no bytes has no data in the message.
    let outside = message.reads.iter().filter(|read| read.length() > 0).map(segments).collect();
    Some(Outgoing { bytes, items, outside, cookies: message.cookies.clone() })
}

fn find(links: &mut [Option<RdmaLink>], link: LinkId) -> Option<&mut RdmaLink> {
    links.get_mut(link.index())?.as_mut().filter(|open| open.id == link)
}

fn own(owners: &mut Vec<Option<LinkId>>, endpoint: EndpointId, link: LinkId) {
    if owners.len() <= endpoint.index() {
        owners.resize(endpoint.index() + 1, None);
    }
    owners[endpoint.index()] = Some(link);
}

/// Returns the word of a message with this index.
fn word(bytes: &[u8], index: usize) -> Option<u32> {
    let word = bytes.get(4 * index..)?.first_chunk()?;
    Some(u32::from_be_bytes(*word))
}

fn moment(records: &Records) -> Moment {
    Moment(u64::try_from(records.now().as_nanos()).unwrap_or(u64::MAX))
}

/// Returns the settings of connections. Linux clients use messages of 4 KiB, and at most 128
/// credits.
fn server_config() -> ServerConfig {
    ServerConfig {
        call_bytes: CALL_BYTES_MAX,
        connection_bytes: 8 * CALL_BYTES_MAX,
        ..ServerConfig::default()
    }
}

/// The reason why NFS clients cannot be served over RDMA.
#[derive(Debug, thiserror::Error)]
pub(super) enum RdmaError {
    /// The system refuses what an interface needs.
    #[error(transparent)]
    System(#[from] io::Error),
    /// An address cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
}

impl From<RdmaError> for ServerError {
    fn from(error: RdmaError) -> Self {
        match error {
            RdmaError::System(source) => {
                Self::System { what: "creating the RDMA interface for NFS", source }
            }
            RdmaError::Address(error) => error.into(),
        }
    }
}

/// The domain of all connections. They name no memory of the server, so they can share one.
const DOMAIN: Domain = Domain(0);
/// The direction of a call, in the second word of a message.
const CALL: u32 = 0;
/// The maximum number of connections, of which each has 350 KB of memory for received messages.
const CONNECTIONS_MAX: usize = 1024;
/// The maximum number of connections of one host.
const CONNECTIONS_PER_HOST_MAX: usize = 256;
/// The maximum number of work requests of a connection that have not completed.
const WORK_MAX: u32 = 8192;
/// The maximum number of events that are handled before others get a turn.
const EVENTS_IN_TURN: usize = 256;
