//! A connection to a server.
//!
//! Invariant: the buffers of a call are given back only when its reply or its failure has arrived.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use dafs_dat::{
    Address, AddressError, EndpointConfig, EndpointId, Event, Gather, Inbox, InboxError, Interface,
    InterfaceConfig, Operation, PostError, SendOptions,
};
use dafs_nfs_wire::rpc::Target;
use dafs_nfs_wire::xdr::padding;
use dafs_rpcrdma::binding::written_items;
use dafs_rpcrdma::client::{self, CallFault, Client, Failure};
use dafs_rpcrdma::header::{Chunk, Chunks, Handle, ReadSegment, Segment, Xid};
use dafs_rpcrdma::limits::ClientConfig;
use dafs_rpcrdma::private_data::PrivateData;

use crate::buffers::{Buffer, Buffers, DOMAIN};
use crate::plan::Plan;

/// A connection to an NFS server over RDMA.
pub struct Connection {
    interface: Interface,
    endpoint: EndpointId,
    client: Client,
    inbox: Inbox,
    buffers: Buffers,
    calls: BTreeMap<u32, Call>,
    /// The number of segments of each chunk for replies.
    segments: usize,
}

/// A call whose reply has not arrived.
#[derive(Debug)]
struct Call {
    target: Option<Target>,
    /// The memory of the data of the call, and of a call that does not fit in a Send.
    reads: Vec<Buffer>,
    writes: Vec<Buffer>,
    reply: Option<Buffer>,
}

/// What has arrived from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// The reply to a call: the whole RPC message.
    Reply(Vec<u8>),
    /// A call by the server: the whole RPC message.
    Callback(Vec<u8>),
    /// A call that has failed: its identifier, and the reason.
    Failed(u32, Failure),
    /// The connection has ended, for this reason.
    Ended(String),
}

/// How replies are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replies {
    Whole,
    /// Without the data in Write chunks.
    WithoutData,
}

/// The reason why a client could not connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The system has no descriptor left.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The address cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// There is no memory for received messages.
    #[error(transparent)]
    Inbox(#[from] InboxError),
    /// The server has rejected the connection, or could not be reached.
    #[error("the server does not accept the connection: {0}")]
    Refused(String),
}

/// The reason why a call could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The state of the connection does not allow the call.
    #[error(transparent)]
    Fault(#[from] CallFault),
    /// The transport does not take the message.
    #[error(transparent)]
    Post(#[from] PostError),
    /// There is no memory for the chunks of the call.
    #[error(transparent)]
    Memory(#[from] io::Error),
}

/// Cuts a segment into so many segments. The last one has what the others leave.
fn cut(whole: Segment, count: usize) -> Vec<Segment> {
    let count = u32::try_from(count).unwrap_or(u32::MAX).clamp(1, whole.length.max(1));
    let step = whole.length / count;
    let piece = |index| Segment {
        offset: whole.offset + u64::from(index * step),
        length: if index + 1 == count { whole.length - index * step } else { step },
        ..whole
    };
    (0..count).map(piece).collect()
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Connection").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects to a server, and waits until the connection stands.
    ///
    /// # Errors
    /// [`ConnectError`] if there is no connection after this time.
    pub fn open(address: &Address, patience: Duration) -> Result<Self, ConnectError> {
        let mut interface = Interface::new(InterfaceConfig::default())?;
        // Registrations are kept, so the server must not invalidate them.
        let config = ClientConfig { remote_invalidation: false, ..ClientConfig::default() };
        let own = PrivateData {
            remote_invalidation: config.remote_invalidation,
            send_bytes: config.send_bytes,
            receive_bytes: config.receive_bytes,
        };
        let receives = config.credits + config.callbacks;
        let slots = u16::try_from(receives).unwrap_or(u16::MAX);
        let mut inbox = Inbox::new(&mut interface, DOMAIN, slots, config.receive_bytes)?;
        let endpoint_config = EndpointConfig {
            message_bytes_max: config.send_bytes.max(config.receive_bytes),
            receives_max: receives,
            ..EndpointConfig::default()
        };
        let endpoint = interface.connect(address, DOMAIN, &endpoint_config, &own.encode())?;
        while inbox.post(&mut interface, endpoint) {}
        let until = Instant::now() + patience;
        loop {
            match interface.next_event() {
                Some(Event::Established { private_data, .. }) => {
                    let peer = PrivateData::find(&private_data);
                    let client = Client::new(config, peer);
                    let (buffers, calls) = (Buffers::default(), BTreeMap::new());
                    return Ok(Self {
                        interface,
                        endpoint,
                        client,
                        inbox,
                        buffers,
                        calls,
                        segments: 1,
                    });
                }
                Some(Event::Rejected { .. }) => {
                    return Err(ConnectError::Refused("it was rejected".to_owned()));
                }
                Some(Event::Broken { reason, .. }) => {
                    return Err(ConnectError::Refused(reason.to_string()));
                }
                Some(_) => {}
                None => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(ConnectError::Refused("no reply in time".to_owned()));
                    }
                    interface.wait(1, Some(left));
                }
            }
        }
    }

    /// Offers the memory for replies in chunks of so many segments, for tests of a server. The
    /// usual number is 1.
    pub fn set_segments(&mut self, count: usize) {
        self.segments = count.max(1);
    }

    /// Returns true if the server allows one more call.
    #[must_use]
    pub fn has_credit(&self) -> bool {
        self.client.has_credit()
    }

    /// Sends a call: a whole RPC message.
    ///
    /// # Errors
    /// [`CallError`] if the call cannot be sent.
    pub fn call(&mut self, rpc: &[u8]) -> Result<(), CallError> {
        let xid = rpc.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        let plan = Plan::new(rpc, self.client.room(&Chunks::default()).saturating_sub(MARGIN));
        let mut call =
            Call { target: plan.target, reads: Vec::new(), writes: Vec::new(), reply: None };
        let sent = self.send_call((xid, rpc), &plan, &mut call);
        match sent {
            Ok(()) => drop(self.calls.insert(xid, call)),
            Err(_) => self.give_back(call),
        }
        sent
    }

    fn send_call(
        &mut self,
        (xid, rpc): (u32, &[u8]),
        plan: &Plan,
        call: &mut Call,
    ) -> Result<(), CallError> {
        let Self { interface, endpoint, buffers, client, segments, .. } = self;
        let mut chunks = Chunks::default();
        if let Some(place) = plan.read {
            let buffer = buffers.take(interface, place.length)?;
            buffer.write(&rpc[place.start..place.start + place.length]);
            let segment = buffer.segment((interface, *endpoint), place.length);
            let position = u32::try_from(place.start).unwrap_or(u32::MAX);
            chunks.reads.push(ReadSegment { position, segment });
            call.reads.push(buffer);
        }
        for length in &plan.writes {
            let buffer = buffers.take(interface, *length)?;
            let whole = buffer.segment((interface, *endpoint), *length);
            chunks.writes.push(Chunk(cut(whole, *segments)));
            call.writes.push(buffer);
        }
        if let Some(length) = plan.reply {
            let buffer = buffers.take(interface, length)?;
            let whole = buffer.segment((interface, *endpoint), length);
            chunks.reply = Some(Chunk(cut(whole, *segments)));
            call.reply = Some(buffer);
        }
        let rest = plan.rest(rpc);
        let mut long = Vec::new();
        if rest.len() > client.room(&chunks) {
            let buffer = buffers.take(interface, rest.len())?;
            buffer.write(&rest);
            long.push(buffer.segment((interface, *endpoint), rest.len()));
            call.reads.push(buffer);
        }
        let message =
            client.call(client::Call { xid: Xid(xid), rpc: &rest, chunks, long: &long })?;
        self.post(&message)?;
        Ok(())
    }

    /// Replies to a callback.
    ///
    /// # Errors
    /// [`CallError`] if the reply cannot be sent.
    pub fn reply_back(&mut self, rpc: &[u8]) -> Result<(), CallError> {
        let xid = rpc.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        let message = self.client.reply_back(Xid(xid), rpc)?;
        self.post(&message)?;
        Ok(())
    }

    /// Sends a message as it is, for tests of a server.
    ///
    /// # Errors
    /// [`PostError`] if the transport does not take the message.
    pub fn send_raw(&mut self, message: &[u8]) -> Result<(), PostError> {
        self.post(message)
    }

    /// Returns the next message as it is, for tests of a server. Its credits are ignored. Returns
    /// `None` if no message arrives in time, or the connection has ended.
    pub fn receive_raw(&mut self, timeout: Duration) -> Option<Vec<u8>> {
        let until = Instant::now() + timeout;
        loop {
            let first = self.interface.first_completion();
            if first.is_some_and(|ended| ended.operation == Operation::Receive) {
                let length = first.map_or(0, |ended| ended.length);
                let mut slot = self.interface.pass_message(&mut self.inbox)?;
                let message = slot.message(length).to_vec();
                self.inbox.give_back(slot);
                self.inbox.post(&mut self.interface, self.endpoint);
                return Some(message);
            }
            match self.interface.next_event() {
                Some(Event::Broken { .. }) => return None,
                Some(_) => {}
                None => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    self.interface.wait(1, Some(left));
                }
            }
        }
    }

    fn post(&mut self, message: &[u8]) -> Result<(), PostError> {
        let gather = [Gather::Bytes(message)];
        self.interface.post_send(self.endpoint, 0, &gather, SendOptions::default())
    }

    /// Returns what has arrived; waits for it for this time. Returns `None` if nothing has arrived.
    pub fn receive(&mut self, timeout: Duration) -> Option<Received> {
        self.receive_as(Replies::Whole, timeout)
    }

    /// Does the same, but leaves the data in Write chunks where it is: replies are without it.
    pub fn receive_without_data(&mut self, timeout: Duration) -> Option<Received> {
        self.receive_as(Replies::WithoutData, timeout)
    }

    fn receive_as(&mut self, replies: Replies, timeout: Duration) -> Option<Received> {
        let until = Instant::now() + timeout;
        loop {
            match self.next(replies) {
                Some(received) => return Some(received),
                None => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    if self.calls.len() == 1 {
                        self.interface.await_alone(true);
                    }
                    self.interface.wait(1, Some(left));
                }
            }
        }
    }

    /// Returns a descriptor that is readable when something has arrived, after
    /// [`Connection::arm`] has returned true.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.interface.as_fd()
    }

    /// Prepares for waiting on [`Connection::as_fd`]. Returns false if something has arrived.
    pub fn arm(&mut self) -> bool {
        self.interface.arm()
    }

    /// Returns what has arrived, without waiting.
    pub fn poll(&mut self) -> Option<Received> {
        if let Some(received) = self.next(Replies::Whole) {
            return Some(received);
        }
        self.interface.poll();
        self.next(Replies::Whole)
    }

    /// Returns the next thing among the events of the interface.
    fn next(&mut self, replies: Replies) -> Option<Received> {
        loop {
            let first = self.interface.first_completion();
            let receive = first.filter(|ended| ended.operation == Operation::Receive);
            if let Some((length, invalidated)) =
                receive.map(|ended| (ended.length, ended.invalidated))
                && let Some(mut slot) = self.interface.pass_message(&mut self.inbox)
            {
                let handle = invalidated.map(|stag| Handle(stag.0));
                let event = self.client.receive(slot.message(length), handle);
                self.inbox.give_back(slot);
                self.inbox.post(&mut self.interface, self.endpoint);
                match self.on_message(event, replies) {
                    Some(received) => return Some(received),
                    None => continue,
                }
            }
            match self.interface.next_event()? {
                Event::Broken { reason, .. } => return Some(Received::Ended(reason.to_string())),
                _ => continue,
            }
        }
    }

    fn on_message(&mut self, event: client::Event, replies: Replies) -> Option<Received> {
        match event {
            client::Event::Reply(reply) => {
                let call = self.calls.remove(&reply.xid.0)?;
                let message = match replies {
                    Replies::Whole => whole_reply(&reply, &call),
                    Replies::WithoutData => message_of(&reply, &call),
                };
                self.give_back(call);
                Some(match message {
                    Some(message) => Received::Reply(message),
                    None => Received::Failed(reply.xid.0, Failure::Lists),
                })
            }
            client::Event::Failed { xid, failure } => {
                if let Some(call) = self.calls.remove(&xid.0) {
                    self.give_back(call);
                }
                Some(Received::Failed(xid.0, failure))
            }
            client::Event::Callback { rpc, .. } => Some(Received::Callback(rpc)),
            client::Event::Answer(message) => {
                // The connection ends if this fails, which an event reports.
                let _ = self.post(&message);
                None
            }
            client::Event::Ignored => None,
            client::Event::Overrun => {
                Some(Received::Ended("the server sends too many callbacks".to_owned()))
            }
        }
    }

    fn give_back(&mut self, call: Call) {
        let Call { reads, writes, reply, .. } = call;
        self.buffers.give_back(reads.into_iter().chain(writes).chain(reply));
    }
}

/// Returns a reply without the data of its Write chunks. `None` if there is none.
fn message_of(reply: &client::Reply, call: &Call) -> Option<Vec<u8>> {
    match (&reply.rpc, &call.reply) {
        (Some(rpc), _) => Some(rpc.clone()),
        (None, Some(buffer)) => Some(buffer.read(usize::try_from(reply.reply_bytes).ok()?)),
        (None, None) => None,
    }
}

/// Returns a whole reply, with the data of its Write chunks. `None` if its chunks do not belong to
/// its results.
fn whole_reply(reply: &client::Reply, call: &Call) -> Option<Vec<u8>> {
    let message = message_of(reply, call)?;
    let Some(target) = &call.target else { return Some(message) };
    if reply.written.iter().all(|bytes| *bytes == 0) {
        return Some(message);
    }
    let items = written_items(target, &message, &reply.written).ok()?;
    let mut whole = Vec::with_capacity(message.len());
    let mut taken = 0;
    let data = items.iter().filter(|item| item.is_outside).zip(&call.writes);
    for (item, buffer) in data {
        whole.extend_from_slice(message.get(taken..item.at)?);
        whole.extend(buffer.read(item.length));
        whole.resize(whole.len() + padding(item.length), 0);
        taken = item.at;
    }
    whole.extend_from_slice(message.get(taken..)?);
    Some(whole)
}

/// The room for the chunks of a header, in bytes.
const MARGIN: usize = 256;
