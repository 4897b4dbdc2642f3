//! One connection of an NFS client over RDMA. It executes what the state machine of RPC-over-RDMA
//! asks for, with the work requests of the interface.
//!
//! Invariants:
//! - The memory of a reply stays as it is until its Send has completed. The pieces of the cache are
//!   released then, by their cookies.
//! - A call or reply that finds no buffer waits, and what needs none passes it. While something
//!   waits for a buffer, the time of the peer does not run.
//! - A call keeps its buffer until it is taken, so that a connection that is paused cannot have
//!   more calls than the limits of buffers allow.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use dafs_dat::{
    Completion, CompletionStatus, EndpointId, Gather, Inbox, LocalSegment, Operation, PostError,
    RemoteSegment, SendOptions, ServingInterface, Signal, Stag,
};
use dafs_nfs_wire::rpc::{Target, decode_call};
use dafs_nfs_wire::xdr::Reader;
use dafs_rpcrdma::binding;
use dafs_rpcrdma::header::{Segment, Xid};
use dafs_rpcrdma::server::{
    Action, CallId, Connection, EndReason, IncomingCall, Item, RPC_BYTES_MIN, Read, Reply,
    ReplyFault, Send, SendId, Source, Write,
};
use dafs_types::Moment;

use super::buffers::{Buffer, Buffers, NoBuffer, User};

/// A connection.
pub(super) struct Line {
    pub(super) endpoint: EndpointId,
    host: IpAddr,
    machine: Connection,
    inbox: Inbox,
    calls: BTreeMap<CallId, Kept>,
    /// The calls that the server executes, by their identifiers. A client may use an identifier
    /// again before it has the first reply.
    executing: BTreeMap<u32, VecDeque<(CallId, Option<Target>)>>,
    /// The work requests that have not completed, by their cookies.
    pending: BTreeMap<u64, Pending>,
    next_cookie: u64,
    /// What waits for a buffer for a call, in its order.
    waiting_calls: VecDeque<Action>,
    /// What waits for a buffer for a reply, in its order.
    waiting_replies: VecDeque<Action>,
    /// The number of bytes of the replies that are not sent.
    unsent: u64,
}

/// What is kept for a call until its reply has been sent.
#[derive(Default)]
struct Kept {
    /// The buffer with the data of the call, until the call is passed on.
    buffer: Option<Buffer>,
    reply: Option<Outgoing>,
    /// The buffer with the bytes of the reply, if some are written to the client's memory.
    staged: Option<Buffer>,
    /// True if a write of the reply waits for the buffer.
    is_waiting: bool,
}

/// A reply, until it has been sent.
#[derive(Default)]
pub(super) struct Outgoing {
    /// The encoded bytes.
    pub(super) bytes: Vec<u8>,
    /// The bulk data of the reply.
    pub(super) items: Vec<Item>,
    /// The memory of the items that are not among the encoded bytes, in their order.
    pub(super) outside: Vec<Vec<LocalSegment>>,
    /// What is reported when the memory is no longer in use.
    pub(super) cookies: Vec<u64>,
}

enum Pending {
    Send(SendId),
    Read(Read),
}

/// An event of a connection.
pub(super) enum LineEvent {
    /// A call has arrived. [`Line::take_call`] returns it.
    Call(IncomingCall),
    /// A reply to a callback has arrived.
    Message(Vec<u8>),
    /// The memory of a reply is no longer in use.
    Sent(u64),
    /// The connection must be closed.
    Ended(&'static str),
}

/// What all connections share.
pub(super) struct Common<'a> {
    pub(super) interface: &'a mut ServingInterface,
    pub(super) buffers: &'a mut Buffers,
    pub(super) events: &'a mut Vec<LineEvent>,
    pub(super) now: Moment,
}

impl Line {
    pub(super) fn new(
        endpoint: EndpointId,
        host: IpAddr,
        machine: Connection,
        inbox: Inbox,
    ) -> Self {
        Self {
            endpoint,
            host,
            machine,
            inbox,
            calls: BTreeMap::new(),
            executing: BTreeMap::new(),
            pending: BTreeMap::new(),
            next_cookie: 0,
            waiting_calls: VecDeque::new(),
            waiting_replies: VecDeque::new(),
            unsent: 0,
        }
    }

    /// Posts all free receives.
    pub(super) fn post_receives(&mut self, interface: &mut ServingInterface) {
        while self.inbox.post(interface, self.endpoint) {}
    }

    /// Returns the number of bytes of the replies that are not sent.
    pub(super) fn unsent(&self) -> u64 {
        self.unsent
    }

    // ---- from the client ----------------------------------------------------------------

    /// Takes the message of the oldest event, if that is the end of a receive. Returns false
    /// otherwise.
    pub(super) fn take_message(&mut self, common: &mut Common<'_>) -> bool {
        let first = common.interface.first_completion();
        let is_message = |ended: &&Completion| {
            ended.operation == Operation::Receive && ended.status == CompletionStatus::Success
        };
        let Some(length) = first.filter(is_message).map(|ended| ended.length) else {
            return false;
        };
        let Some(mut slot) = common.interface.pass_message(&mut self.inbox) else { return false };
        self.machine.receive(slot.message(length), common.now);
        self.inbox.give_back(slot);
        self.inbox.post(common.interface, self.endpoint);
        true
    }

    /// Takes the end of a work request.
    pub(super) fn complete(&mut self, ended: &Completion, now: Moment) {
        let pending = self.pending.remove(&ended.cookie);
        match ended.status {
            CompletionStatus::Success => {}
            CompletionStatus::Failed => return self.machine.failed(),
            // The end of the connection follows.
            CompletionStatus::Flushed => return,
        }
        match pending {
            Some(Pending::Send(send)) => self.machine.sent(send, now),
            Some(Pending::Read(read)) => self.end_read(&read, now),
            // An RDMA write, or a receive.
            None => {}
        }
    }

    fn end_read(&mut self, read: &Read, now: Moment) {
        let length = read.from.length as usize;
        let mut first = Vec::new();
        if read.at < RPC_BYTES_MIN
            && let Some(buffer) = self.calls.get(&read.call).and_then(|call| call.buffer.as_ref())
        {
            buffer.append_to(&mut first, read.at, length.min(RPC_BYTES_MIN));
        }
        self.machine.read_ended(read.id, (length, &first), now);
    }

    /// Ends the connection if the client does not act in time.
    pub(super) fn on_time(&mut self, now: Moment) {
        for action in self.waiting_calls.iter().chain(&self.waiting_replies) {
            match action {
                Action::Read(read) => self.machine.postpone_read(read.id, now),
                Action::Send(send) => self.machine.postpone_send(send.id, now),
                _ => {}
            }
        }
        if self.machine.deadline().is_some_and(|deadline| deadline <= now) {
            self.machine.on_time(now);
        }
    }

    // ---- actions ------------------------------------------------------------------------

    /// Does what the state machine asks for.
    pub(super) fn drive(&mut self, common: &mut Common<'_>) {
        while let Some(action) = self.machine.poll_action() {
            self.act(action, common);
        }
    }

    /// Tries again what waits for a buffer.
    pub(super) fn try_again(&mut self, common: &mut Common<'_>) {
        self.try_queue(|line| &mut line.waiting_calls, common);
        self.try_queue(|line| &mut line.waiting_replies, common);
        self.drive(common);
    }

    /// Tries again what is in a queue, until one of it must still wait.
    fn try_queue(
        &mut self,
        queue: impl Fn(&mut Self) -> &mut VecDeque<Action>,
        common: &mut Common<'_>,
    ) {
        let mut left = std::mem::take(queue(self));
        while queue(self).is_empty()
            && let Some(action) = left.pop_front()
        {
            self.act(action, common);
        }
        // What still waits comes before what was not tried.
        queue(self).append(&mut left);
    }

    /// Returns true if something waits for a buffer.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting_calls.is_empty() || !self.waiting_replies.is_empty()
    }

    fn act(&mut self, action: Action, common: &mut Common<'_>) {
        let done = match action {
            Action::Reserve { call, bytes } => self.reserve((call, bytes), common),
            Action::Read(read) => self.read(read, common).map_err(|error| error.to_string()),
            Action::Call(call) => {
                common.events.push(LineEvent::Call(call));
                Ok(())
            }
            Action::Write(write) => self.write(write, common),
            Action::Send(send) => self.send(send, common).map_err(|error| error.to_string()),
            Action::Release(call) => {
                self.release(call, common);
                Ok(())
            }
            Action::Callback { outcome: Ok(reply), .. } => {
                common.events.push(LineEvent::Message(reply));
                Ok(())
            }
            // The caller of the callback notices by itself that there is no reply.
            Action::Callback { xid, outcome: Err(fault) } => {
                tracing::debug!(xid = xid.0, %fault, "a callback over RDMA has no reply");
                Ok(())
            }
            Action::End(reason) => {
                common.events.push(LineEvent::Ended(words_of(reason)));
                Ok(())
            }
        };
        if let Err(why) = done {
            tracing::debug!(endpoint = ?self.endpoint, why, "a transfer cannot be started");
            self.machine.failed();
        }
    }

    fn reserve(
        &mut self,
        (call, bytes): (CallId, usize),
        common: &mut Common<'_>,
    ) -> Result<(), String> {
        match common.buffers.take(common.interface, (User::CallsOf(self.host), bytes)) {
            Ok(buffer) => self.calls.entry(call).or_default().buffer = Some(buffer),
            Err(NoBuffer::Busy) => self.waiting_calls.push_back(Action::Reserve { call, bytes }),
            Err(NoBuffer::Failed(error)) => return Err(format!("no memory for a call: {error}")),
        }
        Ok(())
    }

    fn read(&mut self, read: Read, common: &mut Common<'_>) -> Result<(), PostError> {
        let Some(buffer) = self.calls.get(&read.call).and_then(|call| call.buffer.as_ref()) else {
            self.waiting_calls.push_back(Action::Read(read));
            return Ok(());
        };
        let local = buffer.segment(read.at, read.from.length);
        let cookie = self.cookie(Pending::Read(read));
        common.interface.post_rdma_read(self.endpoint, cookie, &[local], remote_of(read.from))
    }

    /// Returns the bytes of a call. Refuses it and returns `None` if its chunks contain data that
    /// must not be in chunks.
    pub(super) fn take_call(
        &mut self,
        call: &IncomingCall,
        common: &mut Common<'_>,
    ) -> Option<Vec<u8>> {
        let buffer = self.calls.entry(call.id).or_default().buffer.take();
        let whole = call.assemble_from(|range, whole| {
            // A call without a buffer has nothing to fetch.
            if let Some(buffer) = &buffer {
                buffer.append_to(whole, range.start, range.len());
            }
        });
        if let Some(buffer) = buffer {
            common.buffers.give_back(common.interface, buffer);
        }
        if let Err(fault) = binding::check_assembled(call, &whole) {
            tracing::debug!(%fault, "a call over RDMA is refused");
            self.refuse(call.id, common.now);
            return None;
        }
        let target = decode_call(&mut Reader::new(&whole)).ok().map(|call| Target {
            program: call.program,
            version: call.version,
            procedure: call.procedure,
        });
        self.executing.entry(call.xid.0).or_default().push_back((call.id, target));
        Some(whole)
    }

    // ---- replies ------------------------------------------------------------------------

    /// Returns what the oldest call with this identifier asks for. `None` if there is no such call,
    /// or it cannot be decoded.
    pub(super) fn target_of(&self, xid: u32) -> Option<Target> {
        self.executing.get(&xid)?.front()?.1
    }

    /// Replies to the oldest call with this identifier. If the client has no room for the reply,
    /// the call is refused. Returns the cookies of the reply if it is not sent.
    pub(super) fn reply(&mut self, xid: u32, outgoing: Outgoing, now: Moment) -> Vec<u64> {
        let Some(id) = self.end_execution(xid) else { return outgoing.cookies };
        let reply = Reply { bytes: &outgoing.bytes, items: &outgoing.items };
        match self.machine.reply(id, &reply, now) {
            Ok(()) => {
                self.unsent += outgoing.length();
                self.calls.entry(id).or_default().reply = Some(outgoing);
                Vec::new()
            }
            Err(fault) => {
                if fault != ReplyFault::Unknown {
                    tracing::debug!(xid, %fault, "a reply has no room at the client");
                    self.refuse(id, now);
                }
                outgoing.cookies
            }
        }
    }

    /// Refuses the oldest call with this identifier.
    pub(super) fn refuse_call(&mut self, xid: u32, now: Moment) {
        if let Some(id) = self.end_execution(xid) {
            self.refuse(id, now);
        }
    }

    fn refuse(&mut self, id: CallId, now: Moment) {
        let refused = self.machine.refuse(id, now);
        // Only an ended connection does not know the call.
        debug_assert!(matches!(refused, Ok(()) | Err(ReplyFault::Unknown)));
    }

    /// Sends a callback. If it cannot be sent, the caller notices that there is no reply.
    pub(super) fn call_back(&mut self, xid: u32, rpc: &[u8], now: Moment) {
        if let Err(why) = self.machine.call_back(Xid(xid), rpc, now) {
            tracing::debug!(xid, %why, "a callback over RDMA is not sent");
        }
    }

    fn end_execution(&mut self, xid: u32) -> Option<CallId> {
        let calls = self.executing.get_mut(&xid)?;
        let found = calls.pop_front();
        if calls.is_empty() {
            self.executing.remove(&xid);
        }
        found.map(|(id, _)| id)
    }

    /// Writes bytes of a reply to the client's memory.
    fn write(&mut self, write: Write, common: &mut Common<'_>) -> Result<(), String> {
        let kept = self.calls.get_mut(&write.call).ok_or("the reply is gone")?;
        let outgoing = kept.reply.as_ref().ok_or("the reply is gone")?;
        let local = match write.from {
            Source::Bytes { start, .. } => {
                if kept.staged.is_none() {
                    let wanted = (User::RepliesTo(self.host), outgoing.bytes.len());
                    match common.buffers.take(common.interface, wanted) {
                        Ok(buffer) => {
                            buffer.write(&outgoing.bytes);
                            (kept.staged, kept.is_waiting) = (Some(buffer), false);
                        }
                        Err(NoBuffer::Busy) => {
                            kept.is_waiting = true;
                            self.waiting_replies.push_back(Action::Write(write));
                            return Ok(());
                        }
                        Err(NoBuffer::Failed(error)) => {
                            return Err(format!("no memory for a reply: {error}"));
                        }
                    }
                }
                let staged = kept.staged.as_ref().ok_or("the reply is gone")?;
                vec![staged.segment(start, write.to.length)]
            }
            Source::Item { index, start, length } => outgoing.pieces(index, start, length),
        };
        // The completion of the Send that follows says that the write has succeeded, too.
        let (endpoint, to) = (self.endpoint, remote_of(write.to));
        let posted = common.interface.post_rdma_write(endpoint, 0, &local, to, Signal::OnError);
        posted.map_err(|error| error.to_string())
    }

    fn send(&mut self, send: Send, common: &mut Common<'_>) -> Result<(), PostError> {
        let kept = send.call.and_then(|call| self.calls.get(&call));
        if kept.is_some_and(|kept| kept.is_waiting) {
            self.waiting_replies.push_back(Action::Send(send));
            return Ok(());
        }
        let cookie = self.cookie(Pending::Send(send.id));
        let kept = send.call.and_then(|call| self.calls.get(&call));
        let outgoing = kept.and_then(|kept| kept.reply.as_ref());
        let mut gather = vec![Gather::Bytes(send.head())];
        for source in &send.body {
            let Some(outgoing) = outgoing else { return Err(PostError::BadSegment) };
            match *source {
                Source::Bytes { start, length } => {
                    gather.push(Gather::Bytes(&outgoing.bytes[start..start + length]));
                }
                Source::Item { index, start, length } => {
                    let pieces = outgoing.pieces(index, start, length);
                    gather.extend(pieces.into_iter().map(Gather::Segment));
                }
            }
        }
        let invalidate = send.invalidate.map(|handle| Stag(handle.0));
        let options = SendOptions { signal: Signal::Always, invalidate };
        common.interface.post_send(self.endpoint, cookie, &gather, options)
    }

    /// Frees the memory of a call and of its reply.
    fn release(&mut self, call: CallId, common: &mut Common<'_>) {
        let Some(Kept { buffer, reply, staged, .. }) = self.calls.remove(&call) else { return };
        for buffer in buffer.into_iter().chain(staged) {
            common.buffers.give_back(common.interface, buffer);
        }
        let Some(reply) = reply else { return };
        self.unsent -= reply.length();
        common.events.extend(reply.cookies.into_iter().map(LineEvent::Sent));
    }

    /// Frees everything, after the connection has ended.
    pub(super) fn end(mut self, common: &mut Common<'_>) {
        // After this, the transport uses no memory of the connection.
        common.interface.release(self.endpoint);
        common.interface.deregister(self.inbox.key());
        let calls: Vec<CallId> = self.calls.keys().copied().collect();
        for call in calls {
            self.release(call, common);
        }
    }

    fn cookie(&mut self, pending: Pending) -> u64 {
        self.next_cookie += 1;
        self.pending.insert(self.next_cookie, pending);
        self.next_cookie
    }
}

impl Outgoing {
    /// Returns the number of bytes of the reply.
    fn length(&self) -> u64 {
        let outside = self.outside.iter().flatten().map(|segment| u64::from(segment.length));
        self.bytes.len() as u64 + outside.sum::<u64>()
    }

    /// Returns a range of an item that is not among the encoded bytes, as segments.
    fn pieces(&self, index: usize, start: usize, length: usize) -> Vec<LocalSegment> {
        let before = self.items[..index].iter().filter(|item| is_loaned(item)).count();
        let (mut skip, mut left) = (start as u64, length as u64);
        let mut found = Vec::new();
        for segment in self.outside.get(before).into_iter().flatten() {
            let here = u64::from(segment.length).saturating_sub(skip).min(left);
            if here > 0 {
                let offset = segment.offset + skip;
                found.push(LocalSegment { offset, length: here as u32, ..*segment });
            }
            skip = skip.saturating_sub(u64::from(segment.length));
            left -= here;
        }
        found
    }
}

/// Returns true if an item has bytes outside of the encoded reply.
fn is_loaned(item: &Item) -> bool {
    item.is_outside && item.length > 0
}

fn remote_of(segment: Segment) -> RemoteSegment {
    RemoteSegment { stag: Stag(segment.handle.0), address: segment.offset, length: segment.length }
}

/// Returns a reason in words.
fn words_of(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Credits => "the peer sent more calls than it had credits for",
        EndReason::Congested => "the peer does not take what is sent to it",
        EndReason::Patience => "an RDMA transfer did not end in time",
        EndReason::Transfer => "an RDMA transfer failed",
    }
}
