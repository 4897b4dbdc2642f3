//! Batches of transfers: BATCH_SUBMIT, HURRY_UP, BC_BATCH_COMPLETION (draft 4.2.3, 6.5.5, 6.5.16,
//! 6.6.2; DeBergalis et al., FAST'03, section 3.1).
//!
//! Invariants:
//! - An accepted request is reported exactly once, in a notice or in the reply of its batch, unless
//!   its session ends first.
//! - Every byte of a request is in exactly one run unless the request fails.
//! - No request waits forever, provided that the server returns all runs and keeps calling
//!   [`BatchScheduler::poll_run`] and [`BatchScheduler::poll_notice`].
//!
//! ```text
//! submit ─► held ─window passed─► due ──────────► running ─run_done─► gathered ─► notice
//!            │  └──────device idle────────────────►  ▲                   └─(synchronous)─► reply
//!            └──HURRY_UP─► hurried ──────────────────┘
//! ```
//!
//! **Priority.** Transfers for which HURRY_UP was called are started first, in the order of the
//! calls. The due transfers follow, ordered by file and offset. While the device is idle
//! ([`BatchLimits::early_start_below`]), the transfer that is due next starts early. After eight
//! consecutive runs of hurried transfers, a run of due transfers is started, so that a client that
//! always hurries cannot starve other clients. A synchronous batch and a batch with a window of
//! zero become due when they are accepted, and have no higher priority than other due transfers: a
//! batch whose window has passed is like an ordinary request (draft 4.2.3).
//!
//! **Merging.** A run merges transfers that are adjacent in the same file and have the same
//! direction. They may belong to different clients, and may or may not be due. The limits are
//! [`BatchLimits::run_bytes_max`] and [`BatchLimits::run_pieces_max`]. Reads that overlap share a
//! run; writes that overlap never do. A run that starts with a hurried transfer includes hurried
//! transfers only.
//!
//! **Order.** The draft promises no order between the requests of a batch and leaves this to the
//! client; so does this server. Between batches the server keeps an order, because otherwise
//! windows could reverse two writes. If requests of two batches access the same bytes and at least
//! one of them writes, the batch that was accepted later waits until the earlier batch has finished
//! with those bytes. This also applies to batches of different clients. If HURRY_UP raises the
//! priority of the later transfer, the earlier transfer gets the same priority. So HURRY_UP raises
//! the priority of the request that it names and of the requests that block it, but of no other
//! requests. Requests outside batches are not ordered relative to batches. Finding conflicts stays
//! cheap, because at most 1024 transfers may be near one position of a file. A batch that exceeds
//! this number on its own is refused as too large; a batch that exceeds it together with other
//! batches is refused for now.
//!
//! **Reporting.** Completions of asynchronous batches are collected for each session. They are
//! reported when at least one of these conditions holds:
//! - There are as many completions as the client has most recently asked for.
//! - The session has no other pending request (draft 6.6.2).
//! - One of the completed requests was hurried or cancelled, or the client was told to wait for a
//!   completion.
//! - The oldest completion has waited until its batch is due, and for at least
//!   [`BatchLimits::notice_delay_max`].
//!
//! A client that has never asked for a number gets each completion without delay. A request counts
//! as outstanding until the server has polled the notice that reports it: its id stays in use, and
//! HURRY_UP finds it.
//!
//! **Bytes transferred** are counted from the start of the request's data, which is the
//! concatenation of its chunks or buffers. Bytes after the first gap are not counted even if they
//! were moved. A failed request gets the status of its first failure, and its remaining transfers
//! are not started. A short read or write is not a failure. For a read, the server adds each part
//! to the checksum ([`BatchScheduler::add_checksum`]). For a write, the server has verified the
//! checksum before it submits the batch ([`BatchRequest::data`]).
//!
//! **Cancelling.** The protocol has no procedure to cancel a request. The API in the paper (section
//! 4) has a cancel function. A client can implement it only by ignoring the completion or by ending
//! the session, because the server may access the client's memory until the completion. The
//! scheduler offers [`BatchScheduler::close_session`], and [`BatchScheduler::cancel`] in case the
//! procedure is ever added. A cancelled request is reported like any other request, with the status
//! that the caller chooses, when none of its runs is in flight any more. From then on the client
//! may reuse its memory.
//!
//! **Exactly once.** The reply to an asynchronous batch is sent when the batch is accepted, but it
//! is stored in the response cache only when the notice of the batch's last completion is sent
//! ([`Notice::finished`], draft 5.2.3). If the session breaks earlier, the client submits the batch
//! again.

mod cancelling;
mod cut;
mod limits;
mod notices;
mod overlap;
mod queue;
mod running;
mod types;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use dafs_base::{Key, Slab};
use dafs_filer::{FileKey, IoKind};
use dafs_types::{FileHandle, Moment, RequestId, SessionId, StateId, Status};
use dafs_wire::{Checksum, ChecksumPart};

use crate::config_error::ConfigError;
use queue::{Priority, Stage, Transfer, TransferKey, TransferQueue};

pub use limits::BatchLimits;
pub use notices::completions_in;
pub use types::{
    AbortScope, Aborted, Accepted, BatchLoad, BatchReply, BatchRequest, Cancelled, DeviceLoad,
    EndedSession, InvalidBatch, Notice, Piece, PieceOutcome, RequestNotFound, RequestView, Run,
    RunOutcome, Submission, SubmitError,
};

/// The scheduler for the batches of all sessions.
#[derive(Debug)]
pub struct BatchScheduler {
    limits: BatchLimits,
    sessions: Slab<Session>,
    by_id: BTreeMap<SessionId, SessionKey>,
    /// The unreported requests, by session and request id.
    names: BTreeMap<(SessionKey, RequestId), RequestKey>,
    requests: Slab<Request>,
    batches: Slab<Batch>,
    queue: TransferQueue,
    load: BatchLoad,
    accepted: u64,
    /// For each session with collected completions, the time by which the session must report them.
    report_by: BTreeSet<(Moment, SessionKey)>,
    /// The sessions that have a notice to send, in the order of their turns.
    ready: VecDeque<SessionKey>,
    /// The synchronous batches whose requests are all complete.
    replies: VecDeque<BatchKey>,
    /// A buffer for sorting the request ids of a batch that is being checked.
    sorted: Vec<RequestId>,
    /// Empty piece lists of returned runs, kept to reuse their memory.
    spare: Vec<Vec<Piece>>,
}

/// The key of a session in the scheduler.
type SessionKey = Key<Session>;
/// The key of a batch with unreported requests.
type BatchKey = Key<Batch>;
/// The key of an unreported request.
type RequestKey = Key<Request>;

#[derive(Debug)]
struct Session {
    id: SessionId,
    /// The number of completions that fit into one notice; 0 without a back-control channel.
    completions_max: usize,
    /// The number of completions per notice that the client has requested; 0 if it has requested
    /// none.
    completions_wanted: usize,
    load: BatchLoad,
    /// The number of asynchronous requests that are incomplete.
    unfinished: u32,
    /// The asynchronous requests that are complete but were not reported yet.
    gathered: VecDeque<RequestKey>,
    report_by: Option<Moment>,
    /// True if the client waits for the collected completions, or for the next completion.
    is_awaited: bool,
    is_ready: bool,
}

#[derive(Debug)]
struct Batch {
    session: SessionKey,
    tag: u64,
    synchronous: bool,
    due: Moment,
    /// The number of requests that are incomplete.
    unfinished: u32,
    /// The number of requests that were not reported yet.
    unreported: u32,
    /// The first request of a synchronous batch. The reply lists the requests in the order of their
    /// links.
    first: RequestKey,
}

#[derive(Debug)]
struct Request {
    /// The key of the session. [`Key::NULL`] after the session has ended; the request then ends
    /// without a report.
    session: SessionKey,
    /// The id of the session, which is kept as long as the request exists.
    session_id: SessionId,
    batch: BatchKey,
    name: RequestId,
    handle: FileHandle,
    state: StateId,
    data: Option<Arc<[u8]>>,
    length: u32,
    checksum: Checksum,
    /// The checksums of those parts of a read for which the checksum has been computed.
    sums: Vec<ChecksumPart>,
    /// The number of transfers that have not ended.
    unfinished: u32,
    /// The number of transfers by which the request is counted against the limits.
    transfers: u32,
    /// The number of bytes by which the request is counted against the limits.
    bytes: u64,
    first_transfer: TransferKey,
    next_of_batch: RequestKey,
    /// The number of bytes, from the start of the request's data, before the first byte that was
    /// not moved.
    moved: u32,
    failure: Option<Failure>,
    /// True if the request's completion is reported without waiting for other completions.
    is_awaited: bool,
    report_by: Moment,
}

/// The first failure of a request, in the order of the request's data.
#[derive(Clone, Copy, Debug)]
struct Failure {
    at: u32,
    status: Status,
}

impl BatchScheduler {
    /// Creates a scheduler without sessions.
    ///
    /// # Errors
    /// [`ConfigError`] with the name of the first limit that is out of range.
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

    /// Registers a session, or reports a change of its back-control channel. `notice_bytes` is the
    /// size of the largest request that the channel carries; `None` without a channel. The number
    /// of sessions needs no limit of its own, because each session has a channel and the number of
    /// channels is limited.
    pub fn open_session(&mut self, session: SessionId, notice_bytes: Option<u32>) {
        let completions_max = notice_bytes.map_or(0, completions_in);
        if let Some(&slot) = self.by_id.get(&session) {
            let session = &mut self.sessions[slot];
            session.completions_max = completions_max;
            session.is_awaited |= !session.gathered.is_empty();
            return self.update_ready(slot);
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

    /// Handles BATCH_SUBMIT. The server replies to an asynchronous batch immediately, and to a
    /// synchronous batch when [`BatchScheduler::poll_reply`] returns it. The server must make sure
    /// that the reply fits into the channel's reply size ([`completions_in`]). If the limits do not
    /// allow the batch now, the server may keep the request and call this again after a run has
    /// ended. Meanwhile the request holds its credit, which slows the client down (draft 6.5.5).
    ///
    /// # Errors
    /// [`SubmitError`]. No request of the batch was accepted.
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
            self.update_ready(slot);
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
        // The list is built from the last request to the first, so that it is in order at the end.
        for request in submission.requests.iter().rev() {
            if let Err(crowded) = self.add_request(batch, request) {
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
        self.update_ready(slot);
        Ok(Accepted { complete: submission.requests.is_empty() && !submission.synchronous })
    }

    /// Checks that no two pending requests of a session would have the same id.
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

    /// Checks that a batch is valid and that the limits allow it.
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
        // The number of bytes is checked first, because it limits the number of cuts to be counted.
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

    /// Adds a request and its transfers to the tables.
    fn add_request(
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

    /// Removes the requests of a batch that were already added, because its other requests do not
    /// fit.
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

    /// Starts a batch, and completes the requests in it that move no data.
    fn begin_batch(&mut self, batch: BatchKey, now: Moment) {
        let &Batch { session, synchronous, unfinished, mut first, .. } = &self.batches[batch];
        if unfinished == 0 {
            // An empty synchronous batch has no transfer whose end would complete it.
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

    /// Handles HURRY_UP: moves a request, and the requests that block it, ahead of all others. If
    /// the request is already complete, its notice becomes ready now.
    ///
    /// # Errors
    /// The session has no unreported asynchronous request with that id.
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
            self.update_ready(slot);
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

    /// Returns the total load of all sessions.
    #[must_use]
    pub fn load(&self) -> BatchLoad {
        self.load
    }

    /// Returns the load of one session. Returns zeros if the session is not registered.
    #[must_use]
    pub fn session_load(&self, session: SessionId) -> BatchLoad {
        self.by_id.get(&session).map_or_else(BatchLoad::default, |&slot| self.sessions[slot].load)
    }

    /// Returns true if there are no requests, transfers, notices or replies.
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
