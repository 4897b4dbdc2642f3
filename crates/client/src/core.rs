//! The engine: one interface, its sessions, what is outstanding on them.
//!
//! Invariant: every operation that was taken in ends exactly once, as a reply, a
//! completion or an error; a session that ends ends all of its operations.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use dafs_dat::{
    BreakReason, CompletionStatus, Domain, EndpointId, Event, Gather, Interface, InterfaceConfig,
    LocalKey, LocalSegment, Operation, Region, Rights, SendOptions, Signal, WaitPolicy,
};
use dafs_memory::{Memory, Pages};
use dafs_types::{Status, StreamId, Verifier};
use dafs_wire::{
    ByteOrder, EncodeError, Procedure, Request, RequestHeader, ResponseHeader, encode_request,
    is_intact, seal,
};

use crate::buffer::Buffer;
use crate::credits::Credits;
use crate::data::{QueuedTransfer, Transfer};
use crate::error::{ClientError, Result};

/// Names an operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(pub(crate) u64);

/// Names a completion group of a client. [`Group::DEFAULT`] is always there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group(pub(crate) u32);

impl Group {
    /// The group of operations that name no other.
    pub const DEFAULT: Group = Group(0);
    /// Operations whose futures look for themselves.
    pub(crate) const FUTURES: Group = Group(1);
}

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

/// Habits of a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientConfig {
    /// When to spin and when to sleep while waiting over shared memory.
    pub wait: WaitPolicy,
}

/// Sessions with servers, driven by the thread that owns it. Cheap to clone.
#[derive(Clone)]
pub struct Client(pub(crate) Rc<Shared>);

pub(crate) struct Shared {
    core: RefCell<Core>,
    /// Registrations to be taken back once the core is free.
    orphans: RefCell<Vec<LocalKey>>,
}

pub(crate) struct Core {
    pub interface: Interface,
    pub sessions: Vec<SessionState>,
    /// Session of each endpoint, by its index.
    by_endpoint: Vec<Option<usize>>,
    groups: Vec<VecDeque<Completion>>,
    /// Completions whose futures will ask for them.
    pub for_futures: HashMap<OperationId, Completion>,
    replies: HashMap<OperationId, Result<Vec<u8>>>,
    last_operation: u64,
}

/// One session with one server.
pub(crate) struct SessionState {
    pub endpoint: EndpointId,
    pub address: String,
    pub phase: Phase,
    pub credits: Credits,
    pub inbox: Memory,
    pub inbox_region: Region,
    pub pending: Vec<Option<Pending>>,
    pub queue: VecDeque<QueuedTransfer>,
    pub calls: VecDeque<QueuedCall>,
    /// Credits to wish for.
    pub wish: u16,
    pub request_bytes_max: u32,
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
    Call(OperationId),
    Transfer(Transfer),
    /// An answer nobody waits for.
    Silent,
}

/// A request without bulk data that waits for a credit, encoded.
pub(crate) struct QueuedCall {
    /// `None` if nobody waits for the answer.
    id: Option<OperationId>,
    message: Vec<u8>,
}

impl Shared {
    pub fn borrow(&self) -> Ref<'_, Core> {
        self.core.borrow()
    }

    pub fn borrow_mut(&self) -> RefMut<'_, Core> {
        let mut core = self.core.borrow_mut();
        for key in self.orphans.borrow_mut().drain(..) {
            core.interface.deregister(key);
        }
        core
    }

    /// Takes a registration back, at once or when the core is free.
    pub fn let_go(&self, key: LocalKey) {
        match self.core.try_borrow_mut() {
            Ok(mut core) => core.interface.deregister(key),
            Err(_) => self.orphans.borrow_mut().push(key),
        }
    }
}

impl Client {
    /// A client without sessions.
    ///
    /// # Errors
    /// [`ClientError::System`] if the system has no descriptor left.
    pub fn new(config: ClientConfig) -> Result<Self> {
        let interface =
            Interface::new(InterfaceConfig { wait: config.wait, ..InterfaceConfig::default() })
                .map_err(|e| system("creating the transport interface", e))?;
        let core = Core {
            interface,
            sessions: Vec::new(),
            by_endpoint: Vec::new(),
            groups: vec![VecDeque::new(), VecDeque::new()],
            for_futures: HashMap::new(),
            replies: HashMap::new(),
            last_operation: 0,
        };
        Ok(Self(Rc::new(Shared { core: RefCell::new(core), orphans: RefCell::default() })))
    }

    /// Registered memory of `length` octets that a local server can map: bytes arrive
    /// in it without passing through anything else.
    ///
    /// # Errors
    /// [`ClientError::System`] if there is no memory.
    pub fn allocate(&self, length: usize) -> Result<Buffer> {
        let memory = Memory::shared(length.max(1), Pages::Huge)
            .map_err(|e| system("allocating a buffer", e))?;
        self.register_memory(memory)
    }

    /// Registers memory of any origin. [`crate::Session::path_of`] says how bytes get there.
    ///
    /// # Errors
    /// [`ClientError::System`] if the table of regions is full.
    pub fn register(&self, bytes: Box<[u8]>) -> Result<Buffer> {
        self.register_memory(Memory::from_heap(bytes))
    }

    fn register_memory(&self, memory: Memory) -> Result<Buffer> {
        let region = self.0.borrow_mut().interface.register(&memory, DOMAIN, Rights::REMOTE);
        let region = region.ok_or_else(|| ClientError::System {
            what: "registering a buffer",
            reason: "too many regions; drop some buffers".into(),
        })?;
        Ok(Buffer::new(memory, region, &self.0))
    }

    /// A new completion group.
    #[must_use]
    pub fn group(&self) -> Group {
        let mut core = self.0.borrow_mut();
        core.groups.push(VecDeque::new());
        Group(u32::try_from(core.groups.len() - 1).unwrap_or(u32::MAX))
    }

    /// Waits until `count` completions of a group are there, or the time is over; sleeps
    /// until about so many have arrived. Returns how many are there.
    pub fn wait(&self, group: Group, count: usize, timeout: Option<Duration>) -> usize {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut core = self.0.borrow_mut();
        loop {
            let there = core.completed(group);
            if there >= count || core.is_idle() {
                return there;
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                core.turn(0, Some(Duration::ZERO));
                return core.completed(group);
            }
            let threshold = core.arrivals_for(count - there);
            core.turn(threshold, left);
        }
    }

    /// The next completion of a group that is there.
    #[must_use]
    pub fn next(&self, group: Group) -> Option<Completion> {
        self.0.borrow_mut().groups.get_mut(group.0 as usize)?.pop_front()
    }

    /// Makes progress: waits for at least one event, or the time.
    pub fn turn(&self, timeout: Option<Duration>) {
        self.0.borrow_mut().turn(1, timeout);
    }

    /// Runs `use_fd` with a descriptor that becomes readable when [`Client::turn`] has
    /// something to do. False from [`Client::arm`] means: do not wait, turn.
    pub fn with_fd<T>(&self, use_fd: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        use_fd(self.0.borrow().interface.as_fd())
    }

    /// Prepares for waiting on the descriptor. False if there is something to do now.
    #[must_use]
    pub fn arm(&self) -> bool {
        self.0.borrow_mut().interface.arm()
    }

    /// Cancels an operation that waits for a credit; one under way goes on, and its
    /// completion says [`ClientError::Cancelled`]. False if it has ended already.
    pub fn cancel(&self, operation: OperationId) -> bool {
        self.0.borrow_mut().cancel(operation)
    }
}

impl Core {
    pub fn next_id(&mut self) -> OperationId {
        self.last_operation += 1;
        OperationId(self.last_operation)
    }

    pub fn add_session(&mut self, state: SessionState) -> usize {
        let endpoint = state.endpoint.index();
        if self.by_endpoint.len() <= endpoint {
            self.by_endpoint.resize(endpoint + 1, None);
        }
        self.by_endpoint[endpoint] = Some(self.sessions.len());
        self.sessions.push(state);
        self.sessions.len() - 1
    }

    fn completed(&self, group: Group) -> usize {
        self.groups.get(group.0 as usize).map_or(0, VecDeque::len)
    }

    /// Arrivals worth sleeping for when so many completions are wanted: no more than are
    /// on their way, and only half of those while others wait for their credits.
    fn arrivals_for(&self, wanted: usize) -> usize {
        let mut on_their_way = 0;
        let mut others_wait = false;
        for session in &self.sessions {
            on_their_way += usize::from(session.credits.outstanding());
            others_wait |= !session.queue.is_empty() || !session.calls.is_empty();
        }
        let most = if others_wait { on_their_way / 2 } else { on_their_way };
        wanted.min(most).max(1)
    }

    /// Nothing is outstanding anywhere: waiting would never end.
    fn is_idle(&self) -> bool {
        self.sessions.iter().all(|session| {
            session.queue.is_empty()
                && session.calls.is_empty()
                && session.pending.iter().all(Option::is_none)
        })
    }

    /// Waits for events and takes them in.
    pub fn turn(&mut self, threshold: usize, timeout: Option<Duration>) {
        if threshold == 0 {
            self.interface.poll();
        } else {
            self.interface.wait(threshold, timeout);
        }
        while let Some(event) = self.interface.next_event() {
            self.on_event(event);
        }
    }

    #[inline]
    fn on_event(&mut self, event: Event) {
        match event {
            Event::Completion(done) => {
                let is_answer = done.operation == Operation::Receive
                    && done.status == CompletionStatus::Success;
                if is_answer && let Some(index) = self.session_of(done.endpoint) {
                    self.on_answer(index, done.context, done.length as usize);
                }
            }
            Event::Established { endpoint, .. } => {
                if let Some(index) = self.session_of(endpoint) {
                    self.sessions[index].phase = Phase::Open;
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
        let segment = slot_segment(&session.inbox_region, slot);
        // A failure means that the connection is ending, which an event tells.
        let _ = self.interface.post_receive(session.endpoint, slot, &[segment]);
        let Ok(header) = ResponseHeader::decode(ByteOrder::NATIVE, message) else {
            return self.violate(index, "an answer without a readable header");
        };
        let stream = usize::from(header.stream.0);
        let Some(pending) = session.pending.get_mut(stream).and_then(Option::take) else {
            return self.violate(index, "an answer to no request");
        };
        session.credits.give(header.stream, header.target_credits);
        if session.checksums && !is_intact(message) {
            return self.violate(index, "an answer with a wrong checksum");
        }
        match pending {
            Pending::Silent => {}
            Pending::Call(id) => {
                self.replies.insert(id, Ok(message.to_vec()));
            }
            Pending::Transfer(transfer) => {
                let completion = transfer.finish(message, &self.sessions[index]);
                self.complete(transfer.group, completion);
            }
        }
        self.pump(index);
    }

    pub fn complete(&mut self, group: Group, completion: Completion) {
        if group == Group::FUTURES {
            self.for_futures.insert(completion.operation, completion);
        } else if let Some(queue) = self.groups.get_mut(group.0 as usize) {
            queue.push_back(completion);
        }
    }

    /// Sends what waits for credits, and gives credits back that the server wants.
    #[inline]
    fn pump(&mut self, index: usize) {
        loop {
            let session = &mut self.sessions[index];
            if session.calls.is_empty() && session.queue.is_empty() {
                break;
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

    /// Takes a request without bulk data in; its answer is asked for with
    /// [`Core::take_reply`].
    pub fn start_call(&mut self, index: usize, request: &Request<'_>) -> Result<OperationId> {
        let id = self.next_id();
        self.queue_call(index, request, Some(id))?;
        Ok(id)
    }

    /// Sends a request whose answer nobody waits for.
    pub fn cast(&mut self, index: usize, request: &Request<'_>) -> Result<()> {
        self.queue_call(index, request, None)?;
        self.interface.flush();
        Ok(())
    }

    fn queue_call(
        &mut self,
        index: usize,
        request: &Request<'_>,
        id: Option<OperationId>,
    ) -> Result<()> {
        self.check_open(index)?;
        let mut buffer = vec![0; CALL_BYTES];
        let header = RequestHeader {
            desired_credits: self.sessions[index].wish,
            ..RequestHeader::new(StreamId(0), dafs_types::SequenceNumber(0))
        };
        let encoded = encode_request(ByteOrder::NATIVE, &header, request, &mut buffer);
        let length = encoded.map_err(|error| ClientError::Status {
            what: format!("{}: {error}", request.procedure().name()),
            status: match error {
                // Names are all that is long in these requests.
                EncodeError::TooMany { .. } => Status::NameTooLong,
                other => other.status(),
            },
        })?;
        buffer.truncate(length);
        let call = QueuedCall { id, message: buffer };
        match self.sessions[index].credits.take() {
            Some((stream, sequence)) => self.send_call(index, stream, sequence, call),
            None => self.sessions[index].calls.push_back(call),
        }
        Ok(())
    }

    /// The answer to a call, if it is there.
    pub fn take_reply(&mut self, id: OperationId) -> Option<Result<Vec<u8>>> {
        self.replies.remove(&id)
    }

    /// Makes a call and waits for its answer.
    pub fn call(&mut self, index: usize, request: &Request<'_>) -> Result<Vec<u8>> {
        let id = self.start_call(index, request)?;
        loop {
            if let Some(reply) = self.take_reply(id) {
                return reply;
            }
            self.turn(1, None);
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
        session.set_pending(stream, call.id.map_or(Pending::Silent, Pending::Call));
        let endpoint = session.endpoint;
        self.post(index, endpoint, &[Gather::Bytes(&call.message)]);
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
        session.set_pending(stream, Pending::Silent);
        let endpoint = session.endpoint;
        self.post(index, endpoint, &[Gather::Bytes(&message[..length])]);
    }

    #[inline]
    pub fn post(&mut self, index: usize, endpoint: EndpointId, gather: &[Gather<'_>]) {
        let options = SendOptions { signal: Signal::OnError, invalidate: None };
        if let Err(error) = self.interface.post_send(endpoint, SEND_COOKIE, gather, options) {
            self.end_session(index, format!("sending failed: {error}"));
            self.interface.disconnect(endpoint);
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
        let endpoint = self.sessions[index].endpoint;
        self.end_session(index, format!("server broke the protocol: {what}"));
        self.interface.disconnect(endpoint);
    }

    fn end(&mut self, endpoint: EndpointId, reason: String) {
        if let Some(index) = self.session_of(endpoint) {
            self.end_session(index, reason);
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
        let queue = std::mem::take(&mut session.queue);
        let region = session.inbox_region.key;
        let ended = queue.into_iter().map(|queued| Pending::Transfer(queued.transfer));
        for pending in pending.into_iter().flatten().chain(ended) {
            match pending {
                Pending::Silent => {}
                Pending::Call(id) => {
                    self.replies.insert(id, Err(error.clone()));
                }
                Pending::Transfer(transfer) => {
                    let completion = transfer.fail(error.clone());
                    self.complete(transfer.group, completion);
                }
            }
        }
        for id in calls.into_iter().filter_map(|call| call.id) {
            self.replies.insert(id, Err(error.clone()));
        }
        self.interface.deregister(region);
    }

    fn cancel(&mut self, operation: OperationId) -> bool {
        for index in 0..self.sessions.len() {
            let session = &mut self.sessions[index];
            let queued = session.queue.iter().position(|q| q.transfer.id == operation);
            if let Some(place) = queued
                && let Some(queued) = session.queue.remove(place)
            {
                let completion = queued.transfer.fail(ClientError::Cancelled);
                self.complete(queued.transfer.group, completion);
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
        other => other.to_string(),
    }
}

/// The protection domain of everything a client registers.
pub(crate) const DOMAIN: Domain = Domain(0);
/// Octets of one inbox slot: room for any response that was negotiated.
pub(crate) const SLOT_BYTES: usize = 4096 + 512;
/// Answers to transfers fit this; longer ones are taken to the heap.
const HEAD_BYTES: usize = 64;
/// Room for any request without bulk data.
const CALL_BYTES: usize = 4096 + 512;
const SEND_COOKIE: u64 = u64::MAX;

/// Decodes a reply, turning a failure into an error that says what was asked.
pub(crate) fn decode<'m>(
    procedure: Procedure,
    message: &'m [u8],
    address: &str,
    what: impl FnOnce() -> String,
) -> Result<(ResponseHeader, dafs_wire::Response<'m>)> {
    let (header, response) = dafs_wire::decode_response(ByteOrder::NATIVE, procedure, message)
        .map_err(|error| ClientError::Protocol {
            address: address.to_owned(),
            what: format!("{} answer: {error}", procedure.name()),
        })?;
    if header.status == dafs_types::Status::Ok {
        Ok((header, response))
    } else {
        Err(ClientError::Status { what: what(), status: header.status })
    }
}
