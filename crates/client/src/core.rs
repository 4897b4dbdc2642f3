//! The engine: one interface, its sessions, what is outstanding on them.
//!
//! Invariant: every operation that was taken in ends exactly once, as a reply, a
//! completion or an error; a session that ends ends all of its operations.

use std::collections::VecDeque;
use std::time::Duration;

use dafs_dat::{
    BreakReason, CompletionStatus, Domain, EndpointId, Event, Gather, Interface, LocalSegment,
    Operation, Region, SendOptions, Signal, TlsFailure, coarse_now,
};
use dafs_memory::Memory;
use dafs_types::{SessionId, Status, StreamId, Verifier};
use dafs_wire::{
    ByteOrder, EncodeError, Procedure, Request, RequestHeader, ResponseHeader, encode_request,
    is_intact, seal,
};

use crate::back::Back;
use crate::batch::plan::Part;
use crate::batch::table::BatchTable;
use crate::chain::send::{ChainQueue, Member};
use crate::credits::Credits;
use crate::data::{Destination, QueuedTransfer, Transfer};
use crate::error::{ClientError, Result};
use crate::groups::Groups;
use crate::waiters::{Ticket, Waiters};

/// Names an operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(pub(crate) u64);

/// What an operation moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Octets.
    pub length: u32,
    /// For a read: the file ends here.
    pub end_of_file: bool,
    /// For a write or commit: changes when unstable data may have been lost.
    pub verifier: Verifier,
}

/// The end of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which.
    pub operation: OperationId,
    /// The caller's own word, given at the submission.
    pub context: u64,
    /// How it ended.
    pub result: Result<Transferred>,
}

pub(crate) struct Core {
    pub interface: Interface,
    pub sessions: Vec<SessionState>,
    /// Sessions that nobody holds any more, to be used again.
    free_sessions: Vec<usize>,
    /// Session of each endpoint, by its index.
    by_endpoint: Vec<Option<usize>>,
    pub groups: Groups,
    /// Transfers that one caller or one future waits for.
    pub transfers: Waiters<Result<Transferred>>,
    /// Answers to requests without bulk data.
    pub replies: Waiters<Result<Vec<u8>>>,
    pub batches: BatchTable,
    /// Back-control channels of all sessions.
    pub backs: Vec<Back>,
    last_operation: u64,
}

/// One session with one server.
pub(crate) struct SessionState {
    pub endpoint: EndpointId,
    pub address: String,
    pub phase: Phase,
    /// Who waits for the connection to stand or fail.
    pub greeting: Option<Ticket>,
    pub credits: Credits,
    pub inbox: Memory,
    pub inbox_region: Region,
    /// Inbox slots whose answers were taken in: receives to post behind the next request.
    pub slots_due: arrayvec::ArrayVec<u64, SLOTS_DUE_MAX>,
    pub pending: Vec<Option<Pending>>,
    pub queue: VecDeque<QueuedTransfer>,
    pub calls: VecDeque<QueuedCall>,
    pub chains: ChainQueue,
    /// Credits to wish for.
    pub wish: u16,
    /// Longest request the server takes and the transport was set up for, in octets.
    pub request_bytes_max: u32,
    /// Longest answer the server gives, in octets.
    pub response_bytes_max: u32,
    /// What the server calls it.
    pub id: SessionId,
    /// Longest silence while somebody waits for an answer.
    pub answer_timeout: Option<Duration>,
    pub checksums: bool,
    /// Small writes travel inside their requests.
    pub writes_inline: bool,
}

pub(crate) enum Phase {
    Connecting,
    Open,
    Ended(ClientError),
}

/// What a stream waits for.
pub(crate) enum Pending {
    Call(Ticket),
    Transfer(Transfer),
    Member(Member),
    Batch(Part),
    /// An answer nobody waits for.
    Silent,
}

/// A request without bulk data that waits for a credit, encoded.
pub(crate) struct QueuedCall {
    /// Who waits for the answer.
    pending: Pending,
    message: Vec<u8>,
}

impl Core {
    pub fn new(interface: Interface) -> Self {
        Self {
            interface,
            sessions: Vec::new(),
            free_sessions: Vec::new(),
            by_endpoint: Vec::new(),
            groups: Groups::new(),
            transfers: Waiters::default(),
            replies: Waiters::default(),
            batches: BatchTable::default(),
            backs: Vec::new(),
            last_operation: 0,
        }
    }

    #[inline]
    pub fn next_id(&mut self) -> OperationId {
        self.last_operation += 1;
        OperationId(self.last_operation)
    }

    pub fn add_session(&mut self, state: SessionState) -> usize {
        let endpoint = state.endpoint.index();
        if self.by_endpoint.len() <= endpoint {
            self.by_endpoint.resize(endpoint + 1, None);
        }
        let index = match self.free_sessions.pop() {
            Some(index) => {
                self.sessions[index] = state;
                index
            }
            None => {
                self.sessions.push(state);
                self.sessions.len() - 1
            }
        };
        self.by_endpoint[endpoint] = Some(index);
        index
    }

    /// Nobody holds a session any more: it ends, and its place is used again.
    pub fn leave(&mut self, index: usize) {
        let endpoint = self.sessions[index].endpoint;
        self.end_session(index, "nobody uses it any more".into());
        self.interface.disconnect(endpoint);
        self.free_sessions.push(index);
    }

    /// Arrivals worth sleeping for when so many completions are wanted: no more than are
    /// on their way, and only half of those while others wait for their credits.
    pub fn arrivals_for(&self, wanted: usize) -> usize {
        let mut on_their_way = 0;
        let mut others_wait = false;
        for session in &self.sessions {
            on_their_way += usize::from(session.credits.outstanding());
            others_wait |= session.has_waiting();
        }
        let most = if others_wait { on_their_way / 2 } else { on_their_way };
        wanted.min(most).max(1)
    }

    /// Whether any answer is on its way.
    pub fn is_expecting(&self) -> bool {
        self.sessions.iter().any(|session| session.credits.outstanding() > 0)
    }

    /// Waits for events and takes them in. Returns how many there were.
    pub fn turn(&mut self, threshold: usize, timeout: Option<Duration>) -> usize {
        if threshold == 0 {
            self.interface.poll();
        } else {
            self.interface.wait(threshold, timeout);
        }
        let mut count = 0;
        while let Some(event) = self.interface.next_event() {
            self.on_event(event);
            count += 1;
        }
        count
    }

    /// Turns until `take` finds what it looks for. A server that sends nothing for its
    /// session's limit is given up: there is no retransmission at this level, and what
    /// was asked stays undecided (draft 3.2.2).
    pub fn turn_until<T>(
        &mut self,
        index: usize,
        mut take: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        let mut heard = None;
        loop {
            if let Some(found) = take(self) {
                return found;
            }
            self.turn_patiently(index, &mut heard);
        }
    }

    /// One turn of waiting for a session, which is given up if the silence, kept in
    /// `heard` between turns, has lasted too long.
    pub fn turn_patiently(&mut self, index: usize, heard: &mut Option<Duration>) {
        let limit = self.sessions[index].answer_timeout;
        if let Some(silence) = self.turn_in_silence(limit, heard) {
            self.give_up_after(index, silence);
        }
    }

    /// One turn of waiting for whichever session owes an answer; those that have been silent
    /// for too long are given up.
    pub fn turn_patiently_for_all(&mut self, heard: &mut Option<Duration>) {
        let owing = self.sessions.iter().filter(|session| session.owes_an_answer());
        let limit = owing.filter_map(|session| session.answer_timeout).min();
        if let Some(silence) = self.turn_in_silence(limit, heard) {
            for index in 0..self.sessions.len() {
                if self.sessions[index].owes_an_answer() {
                    self.give_up_after(index, silence);
                }
            }
        }
    }

    /// One turn. How long nothing has come, if nothing came in it either.
    fn turn_in_silence(
        &mut self,
        limit: Option<Duration>,
        heard: &mut Option<Duration>,
    ) -> Option<Duration> {
        let since = *heard.get_or_insert_with(coarse_now);
        if self.turn(1, limit) > 0 {
            *heard = None;
            return None;
        }
        Some(coarse_now().saturating_sub(since))
    }

    /// Gives a session up if a silence is longer than its limit.
    fn give_up_after(&mut self, index: usize, silence: Duration) {
        if let Some(limit) = self.sessions[index].answer_timeout.filter(|limit| silence >= *limit) {
            self.give_up(index, &format!("no answer for {} s", limit.as_secs_f32()));
        }
    }

    #[inline]
    fn on_event(&mut self, event: Event) {
        match event {
            Event::Completion(done) => {
                let is_answer = done.operation == Operation::Receive
                    && done.status == CompletionStatus::Success;
                if is_answer {
                    match self.session_of(done.endpoint) {
                        Some(index) => {
                            self.on_answer(index, done.context, done.length as usize);
                        }
                        None => {
                            let (slot, length) = (done.context, done.length as usize);
                            self.on_back_message(done.endpoint, slot, length);
                        }
                    }
                }
            }
            Event::Established { endpoint, .. } => {
                if let Some(index) = self.session_of(endpoint) {
                    self.sessions[index].phase = Phase::Open;
                    if let Some(ticket) = self.sessions[index].greeting.take() {
                        self.replies.put(ticket, Ok(Vec::new()));
                    }
                } else {
                    self.on_back_established(endpoint);
                }
            }
            Event::Rejected { endpoint, .. } => {
                self.end(endpoint, "the server refused the connection".into());
                self.interface.release(endpoint);
            }
            Event::Broken { endpoint, reason } => {
                self.end(endpoint, describe(&reason));
                self.interface.release(endpoint);
            }
            Event::ConnectionRequest { pending, .. } => self.interface.reject(pending, b""),
        }
    }

    #[inline]
    fn session_of(&self, endpoint: EndpointId) -> Option<usize> {
        let index = (*self.by_endpoint.get(endpoint.index())?)?;
        (self.sessions[index].endpoint == endpoint).then_some(index)
    }

    /// An answer is in an inbox slot.
    #[inline]
    fn on_answer(&mut self, index: usize, slot: u64, length: usize) {
        let session = &mut self.sessions[index];
        let at = slot as usize * SLOT_BYTES;
        let mut head = [0; HEAD_BYTES];
        let short = length <= HEAD_BYTES;
        let long;
        let message: &[u8] = if short {
            session.inbox.read(at, &mut head[..length]);
            &head[..length]
        } else {
            long = session.inbox.to_vec(at, length.min(SLOT_BYTES));
            &long
        };
        session.slots_due.push(slot);
        if session.slots_due.is_full() {
            self.post_receives(index);
        }
        let session = &mut self.sessions[index];
        let Ok(header) = ResponseHeader::decode(ByteOrder::NATIVE, message) else {
            return self.violate(index, "an answer without a readable header");
        };
        let stream = usize::from(header.stream.0);
        if session.checksums && !is_intact(message) {
            return self.violate(index, "an answer with a wrong checksum");
        }
        if !session.credits.is_newest(header.stream, header.sequence) {
            return self.violate(index, "an answer with another sequence number");
        }
        let Some(pending) = session.pending.get_mut(stream).and_then(Option::take) else {
            return self.violate(index, "an answer to no request");
        };
        session.credits.give(header.stream, header.target_credits);
        match pending {
            Pending::Silent => {}
            Pending::Call(ticket) => self.replies.put(ticket, Ok(message.to_vec())),
            Pending::Member(member) => self.replies.put(member.ticket, Ok(message.to_vec())),
            Pending::Batch(part) => self.on_batch_answer(index, &part, &header, message),
            Pending::Transfer(transfer) => {
                self.on_transferred(index, transfer, &header, message);
            }
        }
        self.pump(index);
    }

    /// Ends a transfer, where its submitter looks for it.
    #[inline]
    pub fn complete(&mut self, transfer: &Transfer, result: Result<Transferred>) {
        match transfer.destination {
            Destination::Group(group) => {
                let (operation, context) = (transfer.id, transfer.context);
                self.groups.end(group, Completion { operation, context, result });
            }
            Destination::Waiter(ticket) => self.transfers.put(ticket, result),
        }
    }

    /// Sends what waits for credits, and gives credits back that the server wants.
    #[inline]
    fn pump(&mut self, index: usize) {
        loop {
            let session = &mut self.sessions[index];
            if !session.has_waiting() {
                break;
            }
            if session.owes_a_chain() {
                if !self.send_chains(index) {
                    return;
                }
                continue;
            }
            let Some((stream, sequence)) = session.credits.take() else { return };
            if let Some(call) = session.calls.pop_front() {
                self.send_call(index, stream, sequence, call);
            } else if let Some(queued) = session.queue.pop_front() {
                self.send_transfer(index, stream, sequence, queued);
            }
        }
        if self.sessions[index].credits.should_shrink() {
            self.send_null(index);
        }
    }

    /// Takes a request without bulk data in; its answer comes to `replies`.
    pub fn start_call(&mut self, index: usize, request: &Request<'_>) -> Result<Ticket> {
        self.check_open(index)?;
        let message = self.encode_call(index, request)?;
        let ticket = self.replies.make();
        self.queue_call_for(index, Pending::Call(ticket), message);
        Ok(ticket)
    }

    /// Sends a request whose answer nobody waits for.
    pub fn cast(&mut self, index: usize, request: &Request<'_>) -> Result<()> {
        self.check_open(index)?;
        let message = self.encode_call(index, request)?;
        self.queue_call_for(index, Pending::Silent, message);
        self.interface.flush();
        Ok(())
    }

    fn encode_call(&self, index: usize, request: &Request<'_>) -> Result<Vec<u8>> {
        let session = &self.sessions[index];
        let mut message = vec![0; session.request_bytes_max as usize];
        let header = RequestHeader {
            desired_credits: session.wish,
            ..RequestHeader::new(StreamId(0), dafs_types::SequenceNumber(0))
        };
        let encoded = encode_request(ByteOrder::NATIVE, &header, request, &mut message);
        let length = encoded.map_err(|error| ClientError::Status {
            what: format!("{}: {error}", request.procedure().name()),
            status: match error {
                // Names are all that is long in these requests.
                EncodeError::TooMany { .. } | EncodeError::Space => Status::NameTooLong,
                other => other.status(),
            },
        })?;
        message.truncate(length);
        Ok(message)
    }

    /// Sends an encoded request, now or when there is a credit.
    pub fn queue_call_for(&mut self, index: usize, pending: Pending, message: Vec<u8>) {
        let call = QueuedCall { pending, message };
        match self.sessions[index].credits.take() {
            Some((stream, sequence)) => self.send_call(index, stream, sequence, call),
            None => self.sessions[index].calls.push_back(call),
        }
    }

    fn send_call(
        &mut self,
        index: usize,
        stream: StreamId,
        sequence: dafs_types::SequenceNumber,
        mut call: QueuedCall,
    ) {
        call.message[12..14].copy_from_slice(&stream.0.to_ne_bytes());
        call.message[14..16].copy_from_slice(&sequence.0.to_ne_bytes());
        let session = &mut self.sessions[index];
        if session.checksums {
            seal(&mut call.message, &[]);
        }
        self.post(index, stream, call.pending, &[Gather::Bytes(&call.message)]);
    }

    /// Tells the server that this client has seen its lower target.
    fn send_null(&mut self, index: usize) {
        let session = &mut self.sessions[index];
        if !matches!(session.phase, Phase::Open) {
            return;
        }
        let Some((stream, sequence)) = session.credits.take() else { return };
        let header = RequestHeader { desired_credits: 1, ..RequestHeader::new(stream, sequence) };
        let mut message = [0; HEAD_BYTES];
        let request = Request::Null(dafs_wire::messages::Empty);
        let Ok(length) = encode_request(ByteOrder::NATIVE, &header, &request, &mut message) else {
            return;
        };
        if session.checksums {
            seal(&mut message[..length], &[]);
        }
        self.post(index, stream, Pending::Silent, &[Gather::Bytes(&message[..length])]);
    }

    /// Sends a request, and remembers who waits for its answer. The server has it before
    /// anything else is put in order here: that is done while it works.
    #[inline]
    pub fn post(
        &mut self,
        index: usize,
        stream: StreamId,
        pending: Pending,
        gather: &[Gather<'_>],
    ) {
        let session = &mut self.sessions[index];
        let endpoint = session.endpoint;
        let options = SendOptions { signal: Signal::OnError, invalidate: None };
        let posted = self.interface.post_send(endpoint, SEND_COOKIE, gather, options);
        session.set_pending(stream, pending);
        if !session.slots_due.is_empty() {
            self.post_receives(index);
        }
        if let Err(error) = posted {
            self.end_session(index, format!("sending failed: {error}"));
            self.interface.disconnect(endpoint);
        }
    }

    /// Posts the receives whose answers have been taken in.
    fn post_receives(&mut self, index: usize) {
        let session = &mut self.sessions[index];
        for slot in session.slots_due.drain(..) {
            let segment = slot_segment(&session.inbox_region, slot);
            // A failure means that the connection is ending, which an event tells.
            let _ = self.interface.post_receive(session.endpoint, slot, &[segment]);
        }
    }

    // ---- the end --------------------------------------------------------------------

    pub fn check_open(&self, index: usize) -> Result<()> {
        match &self.sessions[index].phase {
            Phase::Connecting | Phase::Open => Ok(()),
            Phase::Ended(error) => Err(error.clone()),
        }
    }

    fn violate(&mut self, index: usize, what: &str) {
        self.give_up(index, &format!("server broke the protocol: {what}"));
    }

    fn give_up(&mut self, index: usize, reason: &str) {
        let endpoint = self.sessions[index].endpoint;
        self.end_session(index, reason.to_owned());
        self.interface.disconnect(endpoint);
    }

    fn end(&mut self, endpoint: EndpointId, reason: String) {
        match self.session_of(endpoint) {
            Some(index) => self.end_session(index, reason),
            None => self.end_back(endpoint, &reason),
        }
    }

    /// Ends everything a session has outstanding.
    pub fn end_session(&mut self, index: usize, reason: String) {
        let session = &mut self.sessions[index];
        if matches!(session.phase, Phase::Ended(_)) {
            return;
        }
        let address = session.address.clone();
        let error = match session.phase {
            Phase::Connecting => ClientError::Connect { address, reason },
            Phase::Open | Phase::Ended(_) => ClientError::SessionEnded { address, reason },
        };
        session.phase = Phase::Ended(error.clone());
        let pending = std::mem::take(&mut session.pending);
        let calls = std::mem::take(&mut session.calls);
        let chains = std::mem::take(&mut session.chains);
        let queue = std::mem::take(&mut session.queue);
        let region = session.inbox_region.key;
        if let Some(ticket) = session.greeting.take() {
            self.replies.put(ticket, Err(error.clone()));
        }
        for pending in pending.into_iter().flatten() {
            match pending {
                // Batches fail as a whole, below.
                Pending::Silent | Pending::Batch(_) => {}
                Pending::Call(ticket) => self.replies.put(ticket, Err(error.clone())),
                Pending::Member(member) => {
                    member.note_exposed();
                    self.replies.put(member.ticket, Err(error.clone()));
                }
                Pending::Transfer(transfer) => {
                    transfer.note_exposed();
                    self.complete(&transfer, Err(error.clone()));
                }
            }
        }
        for queued in queue {
            self.complete(&queued.transfer, Err(error.clone()));
        }
        for call in calls {
            if let Pending::Call(ticket) = call.pending {
                self.replies.put(ticket, Err(error.clone()));
            }
        }
        for ticket in chains.into_tickets() {
            self.replies.put(ticket, Err(error.clone()));
        }
        self.end_backs_of(index, &error);
        self.interface.deregister(region);
    }

    pub fn cancel(&mut self, operation: OperationId) -> bool {
        for index in 0..self.sessions.len() {
            let session = &mut self.sessions[index];
            let queued = session.queue.iter().position(|q| q.transfer.id == operation);
            if let Some(place) = queued
                && let Some(queued) = session.queue.remove(place)
            {
                self.complete(&queued.transfer, Err(ClientError::Cancelled));
                return true;
            }
            for pending in session.pending.iter_mut().flatten() {
                if let Pending::Transfer(transfer) = pending
                    && transfer.id == operation
                {
                    transfer.is_cancelled = true;
                    return true;
                }
            }
        }
        false
    }
}

impl SessionState {
    /// Whether the server has requests, or would have if it let them in.
    fn owes_an_answer(&self) -> bool {
        let waits = self.has_waiting();
        !matches!(self.phase, Phase::Ended(_)) && (waits || self.credits.outstanding() > 0)
    }

    /// Whether anything waits for credits.
    #[inline]
    fn has_waiting(&self) -> bool {
        !self.calls.is_empty() || !self.queue.is_empty() || !self.chains.is_empty()
    }

    #[inline]
    pub fn set_pending(&mut self, stream: StreamId, pending: Pending) {
        let index = usize::from(stream.0);
        if self.pending.len() <= index {
            self.pending.resize_with(index + 1, || None);
        }
        self.pending[index] = Some(pending);
    }
}

/// The local segment of an inbox slot.
pub(crate) fn slot_segment(region: &Region, slot: u64) -> LocalSegment {
    region.local(slot * SLOT_BYTES as u64, SLOT_BYTES as u32)
}

pub(crate) fn system(what: &'static str, error: std::io::Error) -> ClientError {
    ClientError::System { what, reason: error.to_string() }
}

fn describe(reason: &BreakReason) -> String {
    match reason {
        BreakReason::Peer => "the server closed the connection".into(),
        // That it is about connecting says the error it becomes.
        BreakReason::Unreachable(why) => why.clone(),
        BreakReason::Tls(failure) => match tls_advice(failure) {
            Some(advice) => format!("{failure}; {advice}"),
            None => failure.to_string(),
        },
        other => other.to_string(),
    }
}

/// What to do about it, where that is plain.
fn tls_advice(failure: &TlsFailure) -> Option<&'static str> {
    match failure {
        TlsFailure::Required => Some(TLS_REQUIRED_ADVICE),
        TlsFailure::NotSpoken => Some("write dafs://, or have it serve with --tls-cert"),
        TlsFailure::Certificate(_) => {
            Some("look at the server's certificate, --tls-ca and --tls-name")
        }
        TlsFailure::Refused(_) => Some("look at --tls-cert, and at what the server trusts"),
        TlsFailure::Truncated | TlsFailure::Protocol(_) => None,
    }
}

/// For who was turned away for want of TLS.
pub(crate) const TLS_REQUIRED_ADVICE: &str = "write dafs+tls:// or give --tls";
/// The protection domain of everything a client registers.
pub(crate) const DOMAIN: Domain = Domain(0);
/// Octets of one inbox slot: room for any response that was negotiated.
pub(crate) const SLOT_BYTES: usize = 4096 + 512;
/// Answers to transfers fit this; longer ones are taken to the heap.
const HEAD_BYTES: usize = 64;
/// Inbox slots beyond one for each credit.
pub(crate) const SPARE_SLOTS: u16 = 8;
/// Receives that are not posted yet; fewer than there are to spare.
const SLOTS_DUE_MAX: usize = SPARE_SLOTS as usize / 2;
const SEND_COOKIE: u64 = u64::MAX;

/// Decodes a reply, be it a failure.
pub(crate) fn decode_any<'m>(
    procedure: Procedure,
    message: &'m [u8],
    address: &str,
) -> Result<(ResponseHeader, dafs_wire::Response<'m>)> {
    dafs_wire::decode_response(ByteOrder::NATIVE, procedure, message).map_err(|error| {
        ClientError::Protocol {
            address: address.to_owned(),
            what: format!("{} answer: {error}", procedure.name()),
        }
    })
}

/// Decodes a reply, turning a failure into an error that says what was asked.
pub(crate) fn decode<'m>(
    procedure: Procedure,
    message: &'m [u8],
    address: &str,
    what: impl FnOnce() -> String,
) -> Result<(ResponseHeader, dafs_wire::Response<'m>)> {
    let (header, response) = decode_any(procedure, message, address)?;
    if header.status == dafs_types::Status::Ok {
        Ok((header, response))
    } else {
        Err(ClientError::Status { what: what(), status: header.status })
    }
}
