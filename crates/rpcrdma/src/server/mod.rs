//! The server's end of a connection, in the Read-Write design: the server reads the data of calls
//! from the client's memory, and writes the data of replies to it.
//!
//! Invariants:
//! - The server exposes no memory: see [`Action`].
//! - Calls in flight are limited by the credits that were granted, buffers by
//!   [`ServerConfig::connection_bytes`], RDMA reads by [`ServerConfig::reads`], and Sends by twice
//!   the number of credits. A peer that exceeds a limit is disconnected; a call that finds no
//!   buffer waits.
//! - Everything that waits for the peer has a deadline. Calls wait for buffers only behind calls
//!   that have deadlines, or that the server itself executes.
//!
//! The driver gives events to the connection, and after each event executes all [`Action`]s that
//! [`Connection::poll_action`] returns. It should report completions of Sends before it reports
//! messages, so that a peer with many calls is not taken for one that does not receive.
//!
//! ```text
//! receive ─► Reserve, Read ─► read_done ─► Call ─► reply ─► Write, Send ─► sent ─► Release
//!    │                                      ▲        └────► refuse ─► Send ─► sent ─► Release
//!    └── all of the call is in the Send ────┘
//! ```

mod actions;
mod callbacks;
mod layout;
mod reply;

use std::collections::{BTreeMap, VecDeque};

use dafs_types::Moment;

pub use actions::{
    Action, CallId, CallbackFault, EndReason, Read, ReadId, Send, SendId, Source, Write,
};
pub use callbacks::CallbackRefused;
pub use layout::{IncomingCall, Piece};
pub use reply::{Item, Reply, ReplyFault, Room};

use crate::credits::Granted;
use crate::header::{
    Body, Chunks, Direction, Fault, Handle, Malformed, Message, Segment, TransportError, Xid,
    decode, direction, encode,
};
use crate::limits::ServerConfig;
use crate::private_data::PrivateData;
use callbacks::Callbacks;
use layout::Layout;
pub use layout::RPC_BYTES_MIN;
use reply::Plan;

/// The server's end of a connection.
#[derive(Debug)]
pub struct Connection {
    config: ServerConfig,
    /// The size in bytes of the largest message that both ends can handle.
    send_bytes: usize,
    invalidates: bool,
    credits: Granted,
    calls: BTreeMap<CallId, Call>,
    transfers: Transfers,
    sends: BTreeMap<SendId, Sent>,
    callbacks: Callbacks,
    actions: VecDeque<Action>,
    next_number: u64,
    ended: Option<EndReason>,
}

/// A call whose reply has not been sent completely.
#[derive(Debug)]
struct Call {
    xid: Xid,
    /// The Write list and the Reply chunk.
    offered: Chunks,
    invalidate: Option<Handle>,
    /// The number of bytes of the buffer.
    reserved: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The call waits for a buffer, or for reads.
    Incomplete { layout: Layout, reads_left: usize, start: [u8; RPC_BYTES_MIN] },
    /// The server executes the call.
    Executing,
    /// The reply has been handed to the transport.
    Replied,
}

/// The RDMA reads of a connection, and the memory for them.
#[derive(Debug, Default)]
struct Transfers {
    /// The calls that wait for a buffer, in their order.
    waiting: VecDeque<CallId>,
    /// The reads that were not started yet, in their order.
    queued: VecDeque<Read>,
    in_flight: BTreeMap<ReadId, (Read, Moment)>,
    /// The sum of the buffers of all calls, in bytes.
    reserved: usize,
}

/// A Send that is not complete.
#[derive(Clone, Copy, Debug)]
struct Sent {
    call: Option<CallId>,
    deadline: Moment,
}

impl Connection {
    /// Begins a connection. `peer` is what the client has said about itself.
    #[must_use]
    pub fn new(config: ServerConfig, peer: PrivateData) -> Self {
        let config = config.bounded();
        Self {
            config,
            send_bytes: config.send_bytes.min(peer.receive_bytes) as usize,
            invalidates: config.remote_invalidation && peer.remote_invalidation,
            credits: Granted::new(config.credits),
            calls: BTreeMap::new(),
            transfers: Transfers::default(),
            sends: BTreeMap::new(),
            callbacks: Callbacks::new(config.callbacks),
            actions: VecDeque::new(),
            next_number: 0,
            ended: None,
        }
    }

    /// Returns what this end says about itself, for the reply to the connection request.
    #[must_use]
    pub const fn private_data(&self) -> PrivateData {
        PrivateData {
            remote_invalidation: self.config.remote_invalidation,
            send_bytes: self.config.send_bytes,
            receive_bytes: self.config.receive_bytes,
        }
    }

    /// Returns the number of receive buffers that the peer can fill: one for each credit, and one
    /// for each reply to a callback.
    #[must_use]
    pub const fn receives(&self) -> u32 {
        self.config.credits + self.config.callbacks
    }

    /// Returns the next thing that the driver must do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Takes a message that has arrived.
    pub fn receive(&mut self, message: &[u8], now: Moment) {
        if self.ended.is_some() {
            return;
        }
        match decode(message) {
            Err(malformed) => self.answer(malformed, now),
            Ok(Message { xid, credits, body }) => match body {
                Body::Done => {}
                Body::Error(error) => {
                    self.end_callback(xid, credits, Err(CallbackFault::Refused(error)), now);
                }
                Body::NoMessage { chunks } => self.begin(xid, credits, chunks, None, now),
                Body::Message { chunks, rpc } => match direction(rpc, xid) {
                    Ok(Direction::Call) => self.begin(xid, credits, chunks, Some(rpc), now),
                    Ok(Direction::Reply) if chunks.is_empty() => {
                        self.end_callback(xid, credits, Ok(rpc), now);
                    }
                    Ok(Direction::Reply) => {
                        self.end_callback(xid, credits, Err(CallbackFault::Chunks), now);
                    }
                    Err(fault) => self.answer(Malformed { xid, credits, fault }, now),
                },
            },
        }
    }

    /// Takes the result of an RDMA read: the bytes that are now in the buffer of the call.
    pub fn read_done(&mut self, read: ReadId, bytes: &[u8], now: Moment) {
        let first = &bytes[..bytes.len().min(RPC_BYTES_MIN)];
        self.read_ended(read, (bytes.len(), first), now);
    }

    /// Takes the end of an RDMA read: the number of bytes that are now in the buffer of the call,
    /// and at least the first [`RPC_BYTES_MIN`] of them, if there are so many.
    pub fn read_ended(&mut self, read: ReadId, (length, first): (usize, &[u8]), now: Moment) {
        let Some((read, _)) = self.transfers.in_flight.remove(&read) else { return };
        if length != read.from.length as usize {
            return self.end(EndReason::Transfer);
        }
        let Some(call) = self.calls.get_mut(&read.call) else { return };
        let State::Incomplete { reads_left, start, .. } = &mut call.state else { return };
        if let Some(start) = start.get_mut(read.at..) {
            start.iter_mut().zip(first).for_each(|(place, byte)| *place = *byte);
        }
        *reads_left -= 1;
        if *reads_left == 0 {
            self.complete(read.call, now);
        }
        self.start_reads(now);
    }

    /// Ends the connection because a transfer has failed.
    pub fn failed(&mut self) {
        self.end(EndReason::Transfer);
    }

    /// Returns the room that a call has for its reply; `None` if it does not wait for a reply.
    #[must_use]
    pub fn room(&self, call: CallId) -> Option<Room> {
        let call = self.calls.get(&call).filter(|call| call.is_executing())?;
        Some(Room::new(&call.offered, self.send_bytes))
    }

    /// Replies to a call. The caller keeps the memory of the reply until [`Action::Release`].
    ///
    /// # Errors
    /// If the reply cannot be sent. The call then still waits for a reply: a shorter one, or
    /// [`Connection::refuse`].
    pub fn reply(&mut self, id: CallId, reply: &Reply<'_>, now: Moment) -> Result<(), ReplyFault> {
        let call = self.calls.get_mut(&id).filter(|call| call.is_executing());
        let call = call.ok_or(ReplyFault::Unknown)?;
        let plan = Plan::new(reply, &call.offered, self.send_bytes)?;
        call.state = State::Replied;
        let (xid, invalidate) = (call.xid, call.invalidate);
        let Plan { writes, chunks, body } = plan;
        let writes = writes.into_iter().map(|(from, to)| Write { call: id, from, to });
        self.actions.extend(writes.map(Action::Write));
        let content = match chunks.reply {
            None => Body::Message { chunks, rpc: &[] },
            Some(_) => Body::NoMessage { chunks },
        };
        let message = Message { xid, credits: self.credits.end(), body: content };
        self.send(Some(id), &message, body, invalidate, now);
        Ok(())
    }

    /// Replies to a call with ERR_CHUNK: its chunks are not allowed, or too small for the reply.
    ///
    /// # Errors
    /// If the call does not wait for a reply.
    pub fn refuse(&mut self, id: CallId, now: Moment) -> Result<(), ReplyFault> {
        let call = self.calls.get_mut(&id).filter(|call| call.is_executing());
        let call = call.ok_or(ReplyFault::Unknown)?;
        call.state = State::Replied;
        let (xid, body) = (call.xid, Body::Error(TransportError::Chunk));
        let message = Message { xid, credits: self.credits.end(), body };
        self.send(Some(id), &message, Vec::new(), None, now);
        Ok(())
    }

    /// Takes the completion of a Send.
    pub fn sent(&mut self, send: SendId, now: Moment) {
        let Some(Sent { call: Some(id), .. }) = self.sends.remove(&send) else { return };
        if let Some(call) = self.calls.remove(&id) {
            self.transfers.reserved -= call.reserved;
            self.actions.push_back(Action::Release(id));
            self.start_reads(now);
        }
    }

    /// Sends a callback, as soon as the peer has granted a credit for it. Its end is reported by
    /// [`Action::Callback`].
    ///
    /// # Errors
    /// If the callback cannot be sent.
    pub fn call_back(&mut self, xid: Xid, rpc: &[u8], now: Moment) -> Result<(), CallbackRefused> {
        if self.ended.is_some() {
            return Err(CallbackRefused::Ended);
        }
        let deadline = now.after(self.config.patience);
        self.callbacks.begin(xid, rpc, self.send_bytes, deadline)?;
        self.send_callbacks(now);
        Ok(())
    }

    /// Sends the callbacks for which there are credits.
    fn send_callbacks(&mut self, now: Moment) {
        while let Some(head) = self.callbacks.next_message(now.after(self.config.patience)) {
            self.push_send(None, head, Vec::new(), None, now);
        }
    }

    /// Returns the moment at which [`Connection::on_time`] must be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        let reads = self.transfers.in_flight.values().map(|(_, deadline)| *deadline);
        let sends = self.sends.values().map(|sent| sent.deadline);
        let first = reads.chain(sends).chain(self.callbacks.deadline()).min();
        first.filter(|_| self.ended.is_none())
    }

    /// Acts on deadlines that have passed.
    pub fn on_time(&mut self, now: Moment) {
        let reads = self.transfers.in_flight.values().map(|(_, deadline)| *deadline);
        let mut transfers = reads.chain(self.sends.values().map(|sent| sent.deadline));
        if transfers.any(|deadline| deadline <= now) {
            return self.end(EndReason::Patience);
        }
        while let Some(xid) = self.callbacks.overdue(now) {
            let outcome = Err(CallbackFault::Patience);
            self.actions.push_back(Action::Callback { xid, outcome });
        }
        self.send_callbacks(now);
    }

    /// Gives a read more time, because this end has no memory for it yet.
    pub fn postpone_read(&mut self, read: ReadId, now: Moment) {
        if let Some((_, deadline)) = self.transfers.in_flight.get_mut(&read) {
            *deadline = now.after(self.config.patience);
        }
    }

    /// Gives a Send more time, because this end has no memory yet for the writes before it.
    pub fn postpone_send(&mut self, send: SendId, now: Moment) {
        if let Some(sent) = self.sends.get_mut(&send) {
            sent.deadline = now.after(self.config.patience);
        }
    }

    /// Returns the number of bytes that are reserved for Read chunks.
    #[must_use]
    pub const fn reserved_bytes(&self) -> usize {
        self.transfers.reserved
    }

    /// Returns the number of calls in flight, as the credits count them.
    #[must_use]
    pub const fn calls_in_flight(&self) -> u32 {
        self.credits.in_flight()
    }

    /// Begins a call. `rpc` is the part of the call in the Send.
    fn begin(&mut self, xid: Xid, asked: u32, chunks: Chunks, rpc: Option<&[u8]>, now: Moment) {
        if !self.credits.begin(asked) {
            return self.end(EndReason::Credits);
        }
        if self.calls.len() >= self.sends_max() {
            return self.end(EndReason::Congested);
        }
        let layout = match Layout::new(&chunks, rpc, self.config.call_bytes) {
            Ok(layout) => layout,
            Err(fault) => return self.answer_begun(xid, fault, now),
        };
        let invalidate = if self.invalidates { only_handle(chunks.segments()) } else { None };
        let id = CallId(self.number());
        let offered = Chunks { reads: Vec::new(), ..chunks };
        let reads_left = layout.reads().len();
        let state = State::Incomplete { layout, reads_left, start: [0; RPC_BYTES_MIN] };
        self.calls.insert(id, Call { xid, offered, invalidate, reserved: 0, state });
        if reads_left == 0 {
            return self.complete(id, now);
        }
        self.transfers.waiting.push_back(id);
        self.start_reads(now);
    }

    /// Gives buffers to calls that wait for them, and starts reads, as far as the limits allow.
    fn start_reads(&mut self, now: Moment) {
        while let Some(&id) = self.transfers.waiting.front() {
            let Some(call) = self.calls.get_mut(&id) else { break };
            let State::Incomplete { layout, .. } = &call.state else { break };
            let bytes = layout.fetched_bytes();
            if bytes > self.config.connection_bytes - self.transfers.reserved {
                break;
            }
            call.reserved = bytes;
            self.transfers.reserved += bytes;
            self.transfers.waiting.pop_front();
            self.actions.push_back(Action::Reserve { call: id, bytes });
            for &(from, at) in layout.reads() {
                self.next_number += 1;
                let read = Read { id: ReadId(self.next_number), call: id, from, at };
                self.transfers.queued.push_back(read);
            }
        }
        while self.transfers.in_flight.len() < self.config.reads {
            let Some(read) = self.transfers.queued.pop_front() else { return };
            let deadline = now.after(self.config.patience);
            self.transfers.in_flight.insert(read.id, (read, deadline));
            self.actions.push_back(Action::Read(read));
        }
    }

    /// Passes on a call that has arrived completely.
    fn complete(&mut self, id: CallId, now: Moment) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let xid = call.xid;
        let state = std::mem::replace(&mut call.state, State::Executing);
        let State::Incomplete { layout, start, .. } = state else { return };
        let found = if layout.is_long() { direction(&start, xid) } else { Ok(Direction::Call) };
        if found == Ok(Direction::Call) {
            let call = IncomingCall::new(id, xid, layout);
            return self.actions.push_back(Action::Call(call));
        }
        // What the Read chunk contains is not this call.
        let refused = self.refuse(id, now);
        debug_assert_eq!(refused, Ok(()));
    }

    fn end_callback(
        &mut self,
        xid: Xid,
        granted: u32,
        outcome: Result<&[u8], CallbackFault>,
        now: Moment,
    ) {
        // A reply to a callback that has run out of time, or that was never sent, is ignored.
        if self.callbacks.end(xid, granted) {
            let outcome = outcome.map(<[u8]>::to_vec);
            self.actions.push_back(Action::Callback { xid, outcome });
            self.send_callbacks(now);
        }
    }

    /// Sends the error for a message that is not valid. The message takes a credit, like a call.
    fn answer(&mut self, malformed: Malformed, now: Moment) {
        if malformed.fault.error().is_none() {
            return;
        }
        if !self.credits.begin(malformed.credits) {
            return self.end(EndReason::Credits);
        }
        self.answer_begun(malformed.xid, malformed.fault, now);
    }

    fn answer_begun(&mut self, xid: Xid, fault: Fault, now: Moment) {
        let credits = self.credits.end();
        let Some(error) = fault.error() else { return };
        let message = Message { xid, credits, body: Body::Error(error) };
        self.send(None, &message, Vec::new(), None, now);
    }

    fn send(
        &mut self,
        call: Option<CallId>,
        message: &Message<'_>,
        body: Vec<Source>,
        invalidate: Option<Handle>,
        now: Moment,
    ) {
        let mut head = Vec::new();
        encode(message, &mut head);
        self.push_send(call, head, body, invalidate, now);
    }

    fn push_send(
        &mut self,
        call: Option<CallId>,
        head: Vec<u8>,
        body: Vec<Source>,
        invalidate: Option<Handle>,
        now: Moment,
    ) {
        if self.sends.len() >= self.sends_max() {
            return self.end(EndReason::Congested);
        }
        let id = SendId(self.number());
        self.sends.insert(id, Sent { call, deadline: now.after(self.config.patience) });
        self.actions.push_back(Action::Send(Send { id, call, head, body, invalidate }));
    }

    fn end(&mut self, reason: EndReason) {
        if self.ended.is_none() {
            self.ended = Some(reason);
            self.calls.clear();
            self.sends.clear();
            self.transfers = Transfers::default();
            self.actions.clear();
            self.actions.push_back(Action::End(reason));
        }
    }

    /// The number of Sends, and of calls with those whose reply is being sent, that can be there
    /// while the transport works.
    const fn sends_max(&self) -> usize {
        2 * (self.config.credits + self.config.callbacks) as usize
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

impl Call {
    fn is_executing(&self) -> bool {
        matches!(self.state, State::Executing)
    }
}

/// Returns the handle that all segments with bytes have in common. Linux invalidates under the same
/// condition, because a client may use registrations of several kinds, of which some cannot be
/// invalidated by the peer.
fn only_handle<'s>(segments: impl Iterator<Item = &'s Segment>) -> Option<Handle> {
    let mut segments = segments.filter(|segment| segment.length > 0);
    let first = segments.next()?.handle;
    segments.all(|segment| segment.handle == first).then_some(first)
}
