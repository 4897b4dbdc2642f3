//! The engine: one interface, its sessions, what is outstanding on them.
//!
//! Invariant: every operation that was taken in ends exactly once, as a reply, a
//! completion or an error; a session that ends ends all of its operations. What is under
//! way holds all that is needed to ask for it again over another connection
//! (`recovery`).

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::{
    Domain, EndpointId, Event, Gather, Inbox, InboxSlot, Interface, PostError, SendOptions, Signal,
    coarse_now,
};
use dafs_types::{ClientId, SessionId, Status, StreamId, Verifier};
use dafs_wire::{
    ByteOrder, EncodeError, HEADER_BYTES, Request, RequestHeader, ResponseHeader, encode_request,
    is_intact, seal,
};

use crate::acting::{Registered, Registrations, label};
use crate::back::{Back, BackWish};
use crate::batch::plan::Part;
use crate::batch::table::BatchTable;
use crate::call::is_quick;
use crate::chain::send::{ChainQueue, Member, SharedChain};
use crate::credits::Credits;
use crate::data::{Destination, Transfer};
use crate::delegations::Delegated;
use crate::error::{ClientError, Result};
use crate::groups::Groups;
use crate::login::{Identity, LAPSED, Prover};
use crate::reasons::describe;
use crate::recovery::{Delay, Keeper, Listener, Place, Question, SessionEvent, Work, is_put_off};
use crate::session::SessionOptions;
use crate::turns::LOOK_PERIOD;
use crate::waiters::{Ticket, Waiters};

/// Names an operation of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// There are slots to post.
    owes_receives: bool,
    /// A chain to be used again.
    pub spare_chain: Option<SharedChain>,
    /// Back-control channels of all sessions.
    pub backs: Vec<Back>,
    last_operation: u64,
    /// Some session recovers, or has requests that were put off.
    pub has_timers: bool,
    /// The shortest silence that a session takes for a loss, while there are such.
    pub patience: Option<Duration>,
    pub turns: u32,
    /// What listeners are to be told.
    pub news: Vec<(Listener, SessionEvent)>,
    /// Listeners that hear no more. What they hold may use the client when it goes, so they
    /// go when nothing is borrowed.
    pub retired: Vec<Listener>,
    /// Whom the request being encoded acts for.
    pub acting: Option<Registered>,
    /// The last number given to registered credentials.
    pub last_registered: u64,
}

/// One session with one server.
pub(crate) struct SessionState {
    pub endpoint: EndpointId,
    pub address: String,
    pub phase: Phase,
    /// Who waits for the connection to stand or fail.
    pub greeting: Option<Ticket>,
    pub credits: Credits,
    /// Slots whose answers were taken in are posted again once the next request is out.
    pub inbox: Inbox,
    pub pending: Vec<Option<Pending>>,
    pub queue: VecDeque<Transfer>,
    pub calls: VecDeque<QueuedCall>,
    pub chains: ChainQueue,
    /// Credits to wish for.
    pub wish: u16,
    /// Longest request the server takes and the transport was set up for, in octets.
    pub request_bytes_max: u32,
    /// Longest answer the server gives, in octets.
    pub response_bytes_max: u32,
    /// What it was asked to be like, and where it is now.
    pub options: Rc<SessionOptions>,
    pub place: Place,
    /// What the server calls it.
    pub id: SessionId,
    /// What the server calls its client.
    pub client: ClientId,
    /// As what it was established; `None` until it is.
    pub identity: Option<Identity>,
    /// Proves the client by tickets, if that is how it is known.
    pub prover: Option<Rc<Prover>>,
    /// The longest request with a token that the server takes, in octets.
    pub token_bytes_max: u32,
    /// Whom it may act for.
    pub registered: Registrations,
    /// What its requests bear for whoever watches the server.
    pub label: u64,
    pub back_wish: BackWish,
    /// What is kept under delegations, if it wants any.
    pub delegated: Option<Box<Delegated>>,
    /// Longest silence while somebody waits for an answer.
    pub answer_timeout: Option<Duration>,
    pub checksums: bool,
    /// Small writes travel inside their requests.
    pub writes_inline: bool,
    /// What it needs to come back; `None` if it ends with its connection.
    pub keeper: Option<Box<Keeper>>,
    /// It has come back, and no request has been answered since.
    pub is_frail: bool,
    /// Answers have come since the silence was looked at last.
    pub has_spoken: bool,
}

pub(crate) enum Phase {
    Connecting,
    Open,
    /// The connection is gone; requests wait until there is another.
    Recovering,
    Ended(ClientError),
}

/// What a stream waits for.
pub(crate) enum Pending {
    Call(QueuedCall),
    Transfer(Transfer),
    Member(Member),
    /// Asked by whoever recovers the session.
    Rescue(Question),
    /// An answer nobody waits for.
    Silent,
}

/// A request without bulk data, encoded.
pub(crate) struct QueuedCall {
    pub id: OperationId,
    /// `None` if nobody waits for the answer.
    pub ticket: Option<Ticket>,
    /// Requests of a batch, which the answer is about.
    pub part: Option<Part>,
    pub message: Vec<u8>,
    /// The server has put it off.
    pub delay: Option<Box<Delay>>,
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
            owes_receives: false,
            spare_chain: None,
            backs: Vec::new(),
            last_operation: 0,
            has_timers: false,
            patience: None,
            turns: 0,
            news: Vec::new(),
            retired: Vec::new(),
            acting: None,
            last_registered: 0,
        }
    }

    #[inline]
    pub fn next_id(&mut self) -> OperationId {
        self.last_operation += 1;
        OperationId(self.last_operation)
    }

    pub fn add_session(&mut self, state: SessionState) -> usize {
        let endpoint = state.endpoint;
        if state.keeper.is_some() {
            let limits = [self.patience, state.answer_timeout, Some(LOOK_PERIOD)];
            self.patience = limits.into_iter().flatten().min();
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
        self.note_endpoint(endpoint, index);
        index
    }

    /// Events of an endpoint are a session's from now on.
    pub fn note_endpoint(&mut self, endpoint: EndpointId, index: usize) {
        let place = endpoint.index();
        if self.by_endpoint.len() <= place {
            self.by_endpoint.resize(place + 1, None);
        }
        self.by_endpoint[place] = Some(index);
    }

    /// Events of an endpoint are of no interest any more.
    pub fn forget_endpoint(&mut self, endpoint: EndpointId, index: usize) {
        if let Some(place) = self.by_endpoint.get_mut(endpoint.index())
            && *place == Some(index)
        {
            *place = None;
        }
    }

    /// Nobody holds a session any more: it ends, and its place is used again.
    pub fn leave(&mut self, index: usize) {
        self.take_leave(index);
        let endpoint = self.sessions[index].endpoint;
        self.end_session(index, "nobody uses it any more".into());
        self.interface.disconnect(endpoint);
        self.free_sessions.push(index);
    }

    /// A server that keeps results keeps them, and what is open, for a session that was
    /// lost: it must hear that this one leaves in order.
    fn take_leave(&mut self, index: usize) {
        let session = &mut self.sessions[index];
        let is_open = matches!(session.phase, Phase::Open);
        // From here on it ends with its connection.
        let kept = session.keeper.as_mut().and_then(|keeper| keeper.session.take());
        if !is_open || kept.is_none() || std::thread::panicking() {
            return;
        }
        let leave = Request::Disconnect(dafs_wire::messages::Empty);
        let Ok(ticket) = self.start_call(index, &leave) else { return };
        let until = coarse_now() + LEAVE_MAX;
        while self.replies.take(ticket).is_none() {
            let left = until.saturating_sub(coarse_now());
            if left.is_zero() {
                return self.replies.abandon(ticket);
            }
            self.turn(1, Some(left));
        }
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
        let is = |session: &SessionState| session.credits.outstanding() > 0 || session.is_awaited();
        self.sessions.iter().any(is)
    }

    /// The first completion is a receive's.
    #[inline(always)]
    pub fn on_received(&mut self, endpoint: EndpointId, length: u32, is_good: bool) {
        let Some(index) = self.session_of(endpoint) else {
            return self.on_back_received(endpoint, length, is_good);
        };
        match self.interface.pass_message(&mut self.sessions[index].inbox) {
            Some(slot) if is_good => self.on_answer(index, slot, length),
            Some(_) => {}
            // Of a connection that is gone.
            None => self.interface.pass_completion(),
        }
    }

    pub fn on_event(&mut self, event: Event) {
        match event {
            // Those are taken first.
            Event::Completion(_) => {}
            Event::Established { endpoint, .. } => {
                if let Some(index) = self.session_of(endpoint) {
                    if matches!(self.sessions[index].phase, Phase::Recovering) {
                        return self.on_reconnected(index);
                    }
                    self.sessions[index].phase = Phase::Open;
                    if let Some(ticket) = self.sessions[index].greeting.take() {
                        self.replies.put(ticket, Ok(Vec::new()));
                    }
                } else {
                    self.on_back_established(endpoint);
                }
            }
            Event::Rejected { endpoint, .. } => {
                let reason = "the server refused the connection: it is full, or its rules keep \
                              this host out; its log says which";
                self.end(endpoint, reason.into());
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
    fn on_answer(&mut self, index: usize, mut slot: InboxSlot, length: u32) {
        self.take_answer(index, slot.message(length));
        let inbox = &mut self.sessions[index].inbox;
        inbox.give_back(slot);
        if inbox.free() >= SLOTS_DUE_MAX {
            self.post_receives(index);
        } else {
            self.owes_receives = true;
        }
    }

    /// Sends what is posted, and only then posts the receives that were taken up: there are
    /// spare ones, and the server has something to do meanwhile.
    #[inline]
    pub fn pay_receives(&mut self) {
        if std::mem::take(&mut self.owes_receives) {
            self.interface.flush();
            (0..self.sessions.len()).for_each(|index| self.post_receives(index));
        }
    }

    #[inline]
    fn take_answer(&mut self, index: usize, message: &[u8]) {
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
        session.has_spoken = true;
        if header.status == Status::NotAuthenticated && session.has_lapsed(&pending) {
            session.pending[stream] = Some(pending);
            return self.lose(index, LAPSED.into());
        }
        match pending {
            Pending::Silent => {}
            Pending::Call(call) => self.on_called(index, call, &header, message),
            Pending::Member(member) => self.on_member(index, &member, &header, message),
            Pending::Transfer(transfer) => {
                if session.is_frail {
                    session.note_progress();
                }
                self.on_transferred(index, transfer, &header, message);
            }
            Pending::Rescue(question) => self.on_rescued(index, question, &header, message),
        }
        self.pump(index);
    }

    /// The answer to a request without bulk data came.
    pub fn on_called(
        &mut self,
        index: usize,
        mut call: QueuedCall,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        if is_put_off(header.status) {
            call = match self.put_off_call(index, call) {
                Some(call) => call,
                None => return,
            };
        }
        let session = &mut self.sessions[index];
        if session.is_frail {
            session.note_progress();
        }
        if let Some(keeper) = &mut session.keeper {
            keeper.opens.note_answer(&call.message, message, header.status);
        }
        if let Some(part) = &call.part {
            self.on_batch_answer(index, part, header, message);
        }
        if let Some(ticket) = call.ticket {
            self.replies.put(ticket, Ok(message.to_vec()));
        }
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
    pub fn pump(&mut self, index: usize) {
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
        self.note_request(index, request);
        let mut message = self.encode_call(index, request)?;
        if let Some(keeper) = &self.sessions[index].keeper {
            // The caller may know an open by a state id from before a restart.
            keeper.opens.restate(&mut message);
        }
        let (id, ticket) = (self.next_id(), self.replies.make());
        let call = QueuedCall { id, ticket: Some(ticket), part: None, message, delay: None };
        self.queue_call(index, call);
        if self.sessions[index].credits.outstanding() == 1 {
            self.interface.await_alone(is_quick(request));
        }
        Ok(ticket)
    }

    /// Sends a request whose answer nobody waits for.
    pub fn cast(&mut self, index: usize, request: &Request<'_>) -> Result<()> {
        self.check_open(index)?;
        self.note_request(index, request);
        let message = self.encode_call(index, request)?;
        let id = self.next_id();
        self.queue_call(index, QueuedCall { id, ticket: None, part: None, message, delay: None });
        self.interface.flush();
        Ok(())
    }

    pub fn encode_call(&self, index: usize, request: &Request<'_>) -> Result<Vec<u8>> {
        let session = &self.sessions[index];
        let mut message = vec![0; session.request_bytes_max as usize];
        let header = RequestHeader {
            desired_credits: session.wish,
            analyzer: label(self.acting) | session.label,
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
    pub fn queue_call(&mut self, index: usize, call: QueuedCall) {
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
        self.sessions[index].stamp(&mut call.message, stream, sequence);
        let posted = self.post_octets(index, &[Gather::Bytes(&call.message)]);
        // The message is kept until its answer is there: it may have to be sent again.
        self.note_posted(index, stream, Pending::Call(call), posted);
    }

    /// Tells the server that this client has seen its lower target.
    fn send_null(&mut self, index: usize) {
        let session = &mut self.sessions[index];
        if !matches!(session.phase, Phase::Open) {
            return;
        }
        let Some((stream, sequence)) = session.credits.take() else { return };
        let header = RequestHeader {
            desired_credits: 1,
            analyzer: session.label,
            ..RequestHeader::new(stream, sequence)
        };
        let mut message = [0; HEADER_BYTES];
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
        let posted = self.post_octets(index, gather);
        self.note_posted(index, stream, pending, posted);
    }

    #[inline]
    pub fn post_octets(
        &mut self,
        index: usize,
        gather: &[Gather<'_>],
    ) -> std::result::Result<(), PostError> {
        let endpoint = self.sessions[index].endpoint;
        let options = SendOptions { signal: Signal::OnError, invalidate: None };
        self.interface.post_send(endpoint, SEND_COOKIE, gather, options)
    }

    #[inline]
    pub fn note_posted(
        &mut self,
        index: usize,
        stream: StreamId,
        pending: Pending,
        posted: std::result::Result<(), PostError>,
    ) {
        self.sessions[index].set_pending(stream, pending);
        if let Err(error) = posted {
            self.lose(index, format!("sending failed: {error}"));
        }
    }

    /// Posts the receives whose answers have been taken in.
    fn post_receives(&mut self, index: usize) {
        let session = &mut self.sessions[index];
        while session.inbox.post(&mut self.interface, session.endpoint) {}
    }

    // ---- the end --------------------------------------------------------------------

    pub fn check_open(&self, index: usize) -> Result<()> {
        match &self.sessions[index].phase {
            Phase::Connecting | Phase::Open | Phase::Recovering => Ok(()),
            Phase::Ended(error) => Err(error.clone()),
        }
    }

    fn violate(&mut self, index: usize, what: &str) {
        self.give_up(index, &format!("server broke the protocol: {what}"));
    }

    pub fn give_up(&mut self, index: usize, reason: &str) {
        self.lose(index, reason.to_owned());
    }

    fn end(&mut self, endpoint: EndpointId, reason: String) {
        match self.session_of(endpoint) {
            Some(index) => self.lose(index, reason),
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
            Phase::Open | Phase::Recovering | Phase::Ended(_) => {
                ClientError::SessionEnded { address, reason }
            }
        };
        session.phase = Phase::Ended(error.clone());
        let pending = std::mem::take(&mut session.pending);
        let calls = std::mem::take(&mut session.calls);
        let chains = std::mem::take(&mut session.chains);
        let queue = std::mem::take(&mut session.queue);
        let region = session.inbox.key();
        let keeper = session.keeper.take();
        if let Some(ticket) = session.greeting.take() {
            self.replies.put(ticket, Err(error.clone()));
        }
        self.end_backs_of(index, &error);
        let (mut under_way, mut waiting) = (Vec::new(), Vec::new());
        for pending in pending.into_iter().flatten() {
            match pending {
                Pending::Silent | Pending::Rescue(_) => {}
                Pending::Call(call) => under_way.push(Work::Call(call)),
                Pending::Member(member) => under_way.push(Work::Chain(member.chain)),
                Pending::Transfer(transfer) => under_way.push(Work::Transfer(transfer)),
            }
        }
        if let Some(keeper) = keeper {
            self.retired.extend(keeper.listener);
            under_way.extend(keeper.rescue.into_iter().flat_map(|rescue| rescue.into_works()));
            waiting.extend(keeper.delayed.into_iter().map(|delayed| delayed.work));
        }
        waiting.extend(queue.into_iter().map(Work::Transfer));
        waiting.extend(calls.into_iter().map(Work::Call));
        waiting.extend(chains.into_iter().map(Work::Chain));
        for work in under_way {
            if let Work::Transfer(transfer) = &work {
                transfer.note_exposed();
            }
            self.fail(work, &error);
        }
        for work in waiting {
            self.fail(work, &error);
        }
        self.interface.deregister(region);
    }

    /// Ends a request with an error.
    pub fn fail(&mut self, work: Work, error: &ClientError) {
        match work {
            Work::Transfer(transfer) => self.complete(&transfer, Err(error.clone())),
            Work::Call(QueuedCall { ticket: Some(ticket), .. }) => {
                self.replies.put(ticket, Err(error.clone()));
            }
            Work::Call(QueuedCall { part: Some(part), .. }) => self.fail_part(&part, error),
            Work::Call(_) => {}
            Work::Member(member) => {
                let failed = Err(error.clone());
                member.chain.borrow_mut().note_answer(member.number, None, failed);
            }
            Work::Chain(chain) => self.fail_chain(&chain, error),
        }
    }

    pub fn cancel(&mut self, operation: OperationId) -> bool {
        for index in 0..self.sessions.len() {
            let session = &mut self.sessions[index];
            let queued = session.queue.iter().position(|queued| queued.id == operation);
            if let Some(place) = queued
                && let Some(queued) = session.queue.remove(place)
            {
                self.complete(&queued, Err(ClientError::Cancelled));
                return true;
            }
            let pending =
                session.pending.iter_mut().flatten().filter_map(|pending| match pending {
                    Pending::Transfer(transfer) => Some(transfer),
                    Pending::Call(_)
                    | Pending::Member(_)
                    | Pending::Rescue(_)
                    | Pending::Silent => None,
                });
            let kept = session.keeper.iter_mut().flat_map(|keeper| keeper.transfers());
            if let Some(transfer) = pending.chain(kept).find(|t| t.id == operation) {
                transfer.is_cancelled = true;
                return true;
            }
        }
        false
    }
}

impl SessionState {
    /// Whether the server has requests, or would have if it let them in.
    pub fn owes_an_answer(&self) -> bool {
        let waits = self.has_waiting();
        !matches!(self.phase, Phase::Ended(_)) && (waits || self.credits.outstanding() > 0)
    }

    /// Whether anything waits for credits.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        !self.calls.is_empty() || !self.queue.is_empty() || !self.chains.is_empty()
    }

    /// Gives an encoded request its place among all others.
    pub fn stamp(
        &self,
        message: &mut [u8],
        stream: StreamId,
        sequence: dafs_types::SequenceNumber,
    ) {
        message[12..14].copy_from_slice(&stream.0.to_ne_bytes());
        message[14..16].copy_from_slice(&sequence.0.to_ne_bytes());
        self.registered.name_in(message);
        // It may have been sealed for another session.
        message[24..28].fill(0);
        if self.checksums {
            seal(message, &[]);
        }
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

pub(crate) fn system(what: &'static str, error: std::io::Error) -> ClientError {
    ClientError::System { what, reason: error.to_string() }
}

/// The protection domain of everything a client registers.
pub(crate) const DOMAIN: Domain = Domain(0);
/// Octets of one inbox slot: room for any response that was negotiated.
pub(crate) const SLOT_BYTES: usize = 4096 + 512;
/// Longest wait for the server to hear that a session leaves.
const LEAVE_MAX: Duration = Duration::from_millis(200);
/// Inbox slots beyond one for each credit.
pub(crate) const SPARE_SLOTS: u16 = 8;
/// Receives that are not posted yet; fewer than there are to spare.
const SLOTS_DUE_MAX: usize = SPARE_SLOTS as usize / 2;
const SEND_COOKIE: u64 = u64::MAX;
