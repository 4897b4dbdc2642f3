//! Batches of transfers: BATCH_SUBMIT, HURRY_UP, BC_BATCH_COMPLETION (draft 4.2.3, 6.5.5,
//! 6.5.16, 6.6.2; DeBergalis et al., FAST'03, section 3.1).
//!
//! Invariant: a request that was accepted is reported exactly once, in a notice or in the
//! reply of its batch, unless its session ends first; every byte of it is in exactly one
//! run unless it fails; and nothing waits for ever as long as runs are given back and
//! [`BatchScheduler::poll_run`] and [`BatchScheduler::poll_notice`] are called.
//!
//! ```text
//! submit ─► held ─window passed─► due ──────────► running ─run_done─► gathered ─► notice
//!            │  └──────device idle────────────────►  ▲                   └─(synchronous)─► reply
//!            └──HURRY_UP─► hurried ──────────────────┘
//! ```
//!
//! **What goes first.** Hurried transfers in the order they were hurried, then due ones in
//! sweeps over files and offsets, then, while the device idles
//! ([`BatchLimits::early_start_below`]), the one that is due next. After eight hurried runs
//! in a row a due one goes, so that nobody starves others by hurrying. A synchronous batch
//! and a window of zero are due at once: no earlier and no later than that, for a window
//! that has passed makes a batch an ordinary request (draft 4.2.3).
//!
//! **Gathering.** A run takes along what lies edge to edge with it in the same file and
//! goes the same way, whoever asked for it and whether it is due or not, up to
//! [`BatchLimits::run_bytes_max`] and [`BatchLimits::run_pieces_max`]. Reads that overlap
//! share a run; writes that overlap never do. A hurried run takes hurried ones only.
//!
//! **Order.** The draft promises none between requests of a batch and leaves the rest to
//! the client. Within a batch that is how it is here. Between batches there is more, for
//! windows would otherwise turn the order of two writes round at the server's whim: where
//! requests of two batches touch the same bytes and one of them writes, the batch that
//! was accepted later waits until that part of the earlier one is done, whoever sent them;
//! and whatever makes the later one urgent makes the earlier part as urgent. So HURRY_UP
//! releases the request it names and what stands in its way, and nothing else. Requests
//! outside of batches are not ordered against them. To know who touches what stays cheap
//! because a place in a file has room for 1024 such transfers only: a batch with more of its
//! own is too large, one that finds too many there is told to wait.
//!
//! **Reporting.** Completions of asynchronous batches are gathered per session until there
//! are as many as the client last asked for; or nothing of the session is in hand any more
//! (draft 6.6.2); or one that was hurried or cancelled is among them, or the client was
//! told to wait for one; or the oldest has waited long enough: until its batch is due, and
//! no less than [`BatchLimits::notice_delay_max`]. A client that never said how many gets
//! them as they come. Until its notice is polled a request counts as outstanding: it keeps
//! its name, and HURRY_UP finds it.
//!
//! **What was transferred** is counted from the start of the request's data, chunks and
//! buffers read as one run of bytes: bytes beyond the first gap are not counted even if
//! they were moved. A request with a failure has the status of its first one, and nothing
//! more of it is begun. A short read or write is no failure. Of a read's
//! checksum the driver adds each part ([`BatchScheduler::add_checksum`]); a write's it has
//! looked at before ([`BatchRequest::bytes`]).
//!
//! **Cancelling.** The protocol has no procedure for it; the paper (section 4) gives the API
//! a cancel function, which a client can keep only by not listening any more, or by
//! ending the session, since its memory stays exposed until the completion. The machine
//! offers both ends: [`BatchScheduler::close_session`], and [`BatchScheduler::cancel`] for
//! the day that the procedure exists. A cancelled request is reported like any other, with
//! the status the caller names, once no run of its own is in flight: from then on the
//! client may use its memory.
//!
//! **Exactly once.** The answer to an asynchronous batch goes out when it is accepted, but
//! belongs into the response cache only with the notice of its last completion
//! ([`Notice::finished`], draft 5.2.3). Before that the client reissues the batch.

mod cut;
mod endings;
mod limits;
mod notices;
mod overlap;
mod queue;
mod running;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use dafs_base::{Key, Slab};
use dafs_filer::{FileKey, IoKind};
use dafs_types::{FileHandle, Moment, RequestId, SessionId, StateId, Status};
use dafs_wire::{Checksum, ChecksumPart};

use crate::unkept::ConfigError;
use queue::{Priority, Stage, Transfer, TransferKey, TransferQueue};

pub use limits::BatchLimits;
pub use notices::completions_in;
pub use words::{
    AbortScope, Aborted, Accepted, BatchLoad, BatchReply, BatchRequest, Cancelled, DeviceLoad,
    EndedSession, InvalidBatch, Notice, Piece, PieceOutcome, RequestNotFound, RequestView, Run,
    RunOutcome, Submission, SubmitError,
};

/// The scheduler of all sessions' batches.
#[derive(Debug)]
pub struct BatchScheduler {
    limits: BatchLimits,
    sessions: Slab<Session>,
    by_id: BTreeMap<SessionId, SessionKey>,
    /// Requests by session and name, until they are reported.
    names: BTreeMap<(SessionKey, RequestId), RequestKey>,
    requests: Slab<Request>,
    batches: Slab<Batch>,
    queue: TransferQueue,
    load: BatchLoad,
    accepted: u64,
    /// When sessions report at the latest what they have gathered.
    report_by: BTreeSet<(Moment, SessionKey)>,
    /// Sessions with a notice to send.
    ready: VecDeque<SessionKey>,
    /// Synchronous batches that are complete.
    replies: VecDeque<BatchKey>,
    /// Names of a batch, while it is looked at.
    sorted: Vec<RequestId>,
    /// Pieces of runs that were given back.
    spare: Vec<Vec<Piece>>,
}

/// A session of the scheduler's.
type SessionKey = Key<Session>;
/// A batch of which not all was reported.
type BatchKey = Key<Batch>;
/// A request that was not reported.
type RequestKey = Key<Request>;

#[derive(Debug)]
struct Session {
    id: SessionId,
    /// What one notice carries; 0 without a back-control channel.
    completions_max: usize,
    /// Completions per notice the client asked for; 0 before it did.
    completions_wanted: usize,
    load: BatchLoad,
    /// Asynchronous requests that have not completed.
    unfinished: u32,
    /// Asynchronous requests that have, and were not reported.
    gathered: VecDeque<RequestKey>,
    report_by: Option<Moment>,
    /// The client waits for what is gathered, or for the next completion.
    is_awaited: bool,
    is_ready: bool,
}

#[derive(Debug)]
struct Batch {
    session: SessionKey,
    tag: u64,
    synchronous: bool,
    due: Moment,
    /// Requests that have not completed.
    unfinished: u32,
    /// Requests that were not reported.
    unreported: u32,
    /// Links the requests of a synchronous batch, for its reply.
    first: RequestKey,
}

#[derive(Debug)]
struct Request {
    /// [`Key::NULL`] once it has ended: the request then ends silently.
    session: SessionKey,
    /// Its id, for as long as the request lasts.
    session_id: SessionId,
    batch: BatchKey,
    name: RequestId,
    handle: FileHandle,
    state: StateId,
    data: Option<Arc<[u8]>>,
    length: u32,
    checksum: Checksum,
    /// What is known of the checksum of a read.
    sums: Vec<ChecksumPart>,
    /// Transfers that have not ended.
    unfinished: u32,
    /// Transfers it holds of the bounds, and bytes.
    transfers: u32,
    bytes: u64,
    first_transfer: TransferKey,
    next_of_batch: RequestKey,
    /// Bytes before the first that was not moved.
    moved: u32,
    failure: Option<Failure>,
    /// Its completion is not to be waited with.
    is_awaited: bool,
    report_by: Moment,
}

/// What went wrong with a request first, in the order of its data.
#[derive(Clone, Copy, Debug)]
struct Failure {
    at: u32,
    status: Status,
}

impl BatchScheduler {
    /// A scheduler without sessions.
    ///
    /// # Errors
    /// The first limit that cannot be kept.
    pub fn new(limits: BatchLimits) -> Result<Self, ConfigError> {
        limits.check()?;
        Ok(Self {
            limits,
            sessions: Slab::default(),
            by_id: BTreeMap::new(),
            names: BTreeMap::new(),
            requests: Slab::default(),
            batches: Slab::default(),
            queue: TransferQueue::new(),
            load: BatchLoad::default(),
            accepted: 0,
            report_by: BTreeSet::new(),
            ready: VecDeque::new(),
            replies: VecDeque::new(),
            sorted: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// Announces a session, or that its back-control channel came or went: `notice_bytes`
    /// is the largest request that channel carries, `None` without one. Sessions are the
    /// driver's to bound; it has a channel for each.
    pub fn open_session(&mut self, session: SessionId, notice_bytes: Option<u32>) {
        let completions_max = notice_bytes.map_or(0, completions_in);
        if let Some(&slot) = self.by_id.get(&session) {
            let session = &mut self.sessions[slot];
            session.completions_max = completions_max;
            session.is_awaited |= !session.gathered.is_empty();
            return self.look_whether_ready(slot);
        }
        let slot = self.sessions.insert(Session {
            id: session,
            completions_max,
            completions_wanted: 0,
            load: BatchLoad::default(),
            unfinished: 0,
            gathered: VecDeque::new(),
            report_by: None,
            is_awaited: false,
            is_ready: false,
        });
        self.by_id.insert(session, slot);
    }

    /// BATCH_SUBMIT. An asynchronous batch is answered at once, a synchronous one when
    /// [`BatchScheduler::poll_reply`] yields it; the driver sees to it that the reply will
    /// fit the channel ([`completions_in`] its response size). Where there is no room the
    /// driver may also keep the request and try again after a run is done: its credit then
    /// holds the client back (draft 6.5.5).
    ///
    /// # Errors
    /// [`SubmitError`]; nothing of the batch was accepted.
    pub fn submit(
        &mut self,
        session: SessionId,
        submission: &Submission<'_>,
        now: Moment,
    ) -> Result<Accepted, SubmitError> {
        let slot = *self.by_id.get(&session).ok_or(SubmitError::UnknownSession)?;
        if !submission.synchronous && self.sessions[slot].completions_max == 0 {
            return Err(SubmitError::NoBackChannel);
        }
        let outcome = self.try_submit(slot, submission, now);
        if outcome == Err(SubmitError::WhoaCowboy) {
            self.sessions[slot].is_awaited = true;
            self.look_whether_ready(slot);
        }
        outcome
    }

    fn try_submit(
        &mut self,
        slot: SessionKey,
        submission: &Submission<'_>,
        now: Moment,
    ) -> Result<Accepted, SubmitError> {
        self.check_names(slot, submission.requests)?;
        self.check_room(slot, submission.requests)?;
        let window = Duration::from_micros(submission.window_us.into());
        let due = if submission.synchronous {
            now
        } else {
            now.after(window.min(self.limits.window_max))
        };
        let batch = self.batches.insert(Batch {
            session: slot,
            tag: submission.tag,
            synchronous: submission.synchronous,
            due,
            unfinished: 0,
            unreported: 0,
            first: Key::NULL,
        });
        self.accepted += 1;
        // The last is taken in first: what is linked in front then stands in order.
        for request in submission.requests.iter().rev() {
            if let Err(crowded) = self.take_in(batch, request) {
                self.withdraw(batch);
                return Err(if crowded.by_itself {
                    SubmitError::TooLarge
                } else {
                    self.no_room(slot)
                });
            }
        }
        if !submission.synchronous && submission.completion_count != 0 {
            self.sessions[slot].completions_wanted = submission.completion_count as usize;
        }
        self.begin_batch(batch, now);
        self.look_whether_ready(slot);
        Ok(Accepted { complete: submission.requests.is_empty() && !submission.synchronous })
    }

    /// No two requests in hand of a session may have one name.
    fn check_names(
        &mut self,
        slot: SessionKey,
        requests: &[BatchRequest<'_>],
    ) -> Result<(), SubmitError> {
        let mut sorted = std::mem::take(&mut self.sorted);
        sorted.clear();
        sorted.extend(requests.iter().map(|request| request.request));
        sorted.sort_unstable();
        let is_double = sorted.windows(2).any(|pair| pair[0] == pair[1])
            || sorted.iter().any(|&name| self.names.contains_key(&(slot, name)));
        self.sorted = sorted;
        if is_double { Err(InvalidBatch::DuplicateRequest.into()) } else { Ok(()) }
    }

    /// Whether a batch is sound, and there is room for it.
    fn check_room(
        &self,
        slot: SessionKey,
        requests: &[BatchRequest<'_>],
    ) -> Result<(), SubmitError> {
        let limits = &self.limits;
        let mut batch = BatchLoad::default();
        for request in requests {
            let length = cut::total(request.chunks, request.buffers)?;
            batch.requests = batch.requests.saturating_add(1);
            if request.refused.is_none() {
                batch.bytes = batch.bytes.saturating_add(length.into());
            }
        }
        if batch.requests > limits.requests_per_session_max
            || batch.bytes > limits.bytes_per_session_max
        {
            return Err(SubmitError::TooLarge);
        }
        // Only now, when the bytes are known to be few, is it cheap to count the cuts.
        for request in requests.iter().filter(|request| request.refused.is_none()) {
            let cuts = cut::cuts(request.chunks, request.buffers, limits.run_bytes_max).count();
            batch.transfers = batch.transfers.saturating_add(cuts as u32);
        }
        if batch.transfers > limits.transfers_per_session_max {
            return Err(SubmitError::TooLarge);
        }
        let (session, all) = (&self.sessions[slot].load, &self.load);
        let has_room = session.requests + batch.requests <= limits.requests_per_session_max
            && all.requests + batch.requests <= limits.requests_max
            && session.transfers + batch.transfers <= limits.transfers_per_session_max
            && all.transfers + batch.transfers <= limits.transfers_max
            && session.bytes + batch.bytes <= limits.bytes_per_session_max
            && all.bytes + batch.bytes <= limits.bytes_max;
        if has_room { Ok(()) } else { Err(self.no_room(slot)) }
    }

    fn no_room(&self, slot: SessionKey) -> SubmitError {
        let session = &self.sessions[slot];
        let will_hear = session.unfinished > 0 || !session.gathered.is_empty();
        if will_hear { SubmitError::WhoaCowboy } else { SubmitError::Delay }
    }

    /// Takes a request and its transfers in.
    fn take_in(
        &mut self,
        batch: BatchKey,
        request: &BatchRequest<'_>,
    ) -> Result<(), queue::Crowded> {
        let &Batch { session, due, first, .. } = &self.batches[batch];
        let length = cut::total(request.chunks, request.buffers).unwrap_or(0);
        let index = self.requests.insert(Request {
            session,
            session_id: self.sessions[session].id,
            batch,
            name: request.request,
            handle: request.handle,
            state: request.state,
            data: request.data.cloned(),
            length,
            checksum: request.checksum,
            sums: Vec::new(),
            unfinished: 0,
            transfers: 0,
            bytes: 0,
            first_transfer: Key::NULL,
            next_of_batch: first,
            moved: if request.refused.is_none() { length } else { 0 },
            failure: request.refused.map(|status| Failure { at: 0, status }),
            is_awaited: false,
            report_by: due,
        });
        self.names.insert((session, request.request), index);
        let entry = &mut self.batches[batch];
        (entry.first, entry.unfinished) = (index, entry.unfinished + 1);
        entry.unreported += 1;
        self.load.requests += 1;
        self.sessions[session].load.requests += 1;
        if request.refused.is_some() {
            return Ok(());
        }
        let bytes = u64::from(length);
        self.requests[index].bytes = bytes;
        self.load.bytes += bytes;
        self.sessions[session].load.bytes += bytes;
        cut::cuts(request.chunks, request.buffers, self.limits.run_bytes_max)
            .try_for_each(|cut| self.add_transfer(index, request.file, request.kind, due, &cut))
    }

    fn add_transfer(
        &mut self,
        request: RequestKey,
        file: FileKey,
        kind: IoKind,
        due: Moment,
        cut: &cut::Cut,
    ) -> Result<(), queue::Crowded> {
        let owner = &mut self.requests[request];
        owner.first_transfer = self.queue.add(Transfer {
            request,
            next: owner.first_transfer,
            file,
            kind,
            offset: cut.offset,
            at: cut.at,
            buffer: cut.buffer,
            hint: cut.hint,
            order: self.accepted,
            priority: Priority::Held(due),
            stage: Stage::Queued,
        })?;
        owner.transfers += 1;
        owner.unfinished += 1;
        self.load.transfers += 1;
        self.sessions[owner.session].load.transfers += 1;
        Ok(())
    }

    /// Undoes what was taken in of a batch for which there is no room after all.
    fn withdraw(&mut self, batch: BatchKey) {
        let mut index = self.batches[batch].first;
        while index != Key::NULL {
            let next = self.requests[index].next_of_batch;
            self.drop_transfers(index);
            self.release_transfers(index);
            self.forget(index);
            index = next;
        }
    }

    /// Sets going what is to be counted, and completes what moves nothing.
    fn begin_batch(&mut self, batch: BatchKey, now: Moment) {
        let &Batch { session, synchronous, unfinished, mut first, .. } = &self.batches[batch];
        if unfinished == 0 {
            // Nobody will come by to end it.
            if synchronous {
                self.replies.push_back(batch);
            } else {
                self.batches.remove(batch);
            }
            return;
        }
        if !synchronous {
            self.sessions[session].unfinished += unfinished;
        }
        while first != Key::NULL {
            let request = &self.requests[first];
            let next = request.next_of_batch;
            if request.unfinished == 0 {
                self.complete(first, now);
            }
            first = next;
        }
    }

    /// HURRY_UP: the request goes before all others, along with what stands in its way. If
    /// it has completed, its notice goes out now.
    ///
    /// # Errors
    /// The session has no asynchronous request of that name that was not reported.
    pub fn hurry_up(
        &mut self,
        session: SessionId,
        request: RequestId,
    ) -> Result<(), RequestNotFound> {
        let (slot, index) = self.find(session, request)?;
        let request = &mut self.requests[index];
        if self.batches[request.batch].synchronous {
            return Err(RequestNotFound);
        }
        request.is_awaited = true;
        if request.unfinished > 0 {
            self.queue.hurry(request.first_transfer);
        } else {
            self.sessions[slot].is_awaited = true;
            self.look_whether_ready(slot);
        }
        Ok(())
    }

    fn find(
        &self,
        session: SessionId,
        request: RequestId,
    ) -> Result<(SessionKey, RequestKey), RequestNotFound> {
        let slot = *self.by_id.get(&session).ok_or(RequestNotFound)?;
        let index = *self.names.get(&(slot, request)).ok_or(RequestNotFound)?;
        Ok((slot, index))
    }

    /// How much is in hand.
    #[must_use]
    pub fn load(&self) -> BatchLoad {
        self.load
    }

    /// How much one session has in hand; nothing for one that is not known.
    #[must_use]
    pub fn session_load(&self, session: SessionId) -> BatchLoad {
        self.by_id.get(&session).map_or_else(BatchLoad::default, |&slot| self.sessions[slot].load)
    }

    /// Nothing is in hand: every table but that of the sessions is empty.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.queue.transfers.is_empty()
            && self.requests.is_empty()
            && self.batches.is_empty()
            && self.names.is_empty()
            && self.report_by.is_empty()
            && self.ready.is_empty()
            && self.replies.is_empty()
            && self.load == BatchLoad::default()
    }
}
