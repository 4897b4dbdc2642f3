//! Batches of transfers: BATCH_SUBMIT and HURRY_UP (draft 4.2.3, 6.5.5, 6.5.16).
//!
//! What goes when is for [`BatchScheduler`] to say; here its runs are carried out. Each piece of
//! a run is a *strand* ([`strand`]): it passes fences, locks and its open by itself when it
//! begins, and is given back by itself, so that nobody waits for another client's memory. Octets
//! that are written are made stable for all strands of a file together ([`stable`]) before their
//! request is reported ([`report`]).
//!
//! Invariants: every piece that was handed out is given back once; what a client does not let be
//! read or written holds strands and octets up to a bound of its session; one turn begins no
//! more octets than [`TURN_BYTES_MAX`], however much is asked for.

mod report;
pub(crate) mod sealed;
mod stable;
pub(crate) mod strand;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_filer::{
    BatchLimits, BatchRequest, BatchScheduler, ConfigError, DeviceLoad, FileKey, IoKind, Piece,
    Submission, completions_in,
};
use dafs_types::{FileHandle, Moment, RequestId, SessionId, ShareAccess, StateId, Status};
use dafs_wire::messages::{
    BatchRequest as WireRequest, BatchSubmit, Completions, Empty, FileChunk, HurryUp,
    TransferDirection,
};
use dafs_wire::{Array, Checksum, DirectBuffer, Response};

use crate::handles;
use crate::reactor::Reactor;
use crate::task::ReplyTo;
use stable::Syncs;

/// All batches there are.
#[derive(Debug)]
pub(crate) struct Batches {
    scheduler: BatchScheduler,
    sessions: HashMap<SessionId, BatchSession>,
    /// Synchronous batches that are not answered, by tag.
    unanswered: HashMap<u64, ReplyTo>,
    last_tag: u64,
    /// There may be something to do.
    is_woken: bool,
    /// There is something to do that was put off to the next turn.
    has_more: bool,
    /// Octets that may still be begun in this turn.
    turn_bytes: u64,
    /// Strands that wait for a disk or for room, and files that are being made stable.
    in_flight: u32,
    /// Sessions whose strands wait for others of theirs.
    stalled: VecDeque<SessionId>,
    has_ending: bool,
    syncs: Syncs,
    /// Octets of sealed writes that are held, and of those that are being fetched.
    held: Vec<(Weak<[u8]>, usize)>,
    fetching_bytes: usize,
    /// Pieces of a run while they are begun.
    pieces: Vec<Piece>,
}

/// A session that has submitted a batch.
#[derive(Debug)]
struct BatchSession {
    operation: EndpointId,
    /// Its back-control channel.
    back: Option<EndpointId>,
    /// What is under way.
    strands: u32,
    bytes: u64,
    /// What waits for that.
    waiting: VecDeque<(Piece, IoKind)>,
    /// What a batch writes is being fetched to be looked at; those that came behind it.
    is_fetching: bool,
    behind: VecDeque<(ReplyTo, Batch)>,
    /// Its connection is gone.
    is_ending: bool,
}

impl BatchSession {
    fn is_full(&self) -> bool {
        self.strands >= SESSION_STRANDS_MAX || self.bytes >= SESSION_BYTES_MAX
    }
}

impl Batches {
    pub fn new(limits: BatchLimits) -> Result<Self, ConfigError> {
        Ok(Self {
            scheduler: BatchScheduler::new(limits)?,
            sessions: HashMap::new(),
            unanswered: HashMap::new(),
            last_tag: 0,
            is_woken: false,
            has_more: false,
            turn_bytes: 0,
            in_flight: 0,
            stalled: VecDeque::new(),
            has_ending: false,
            syncs: Syncs::default(),
            held: Vec::new(),
            fetching_bytes: 0,
            pieces: Vec::new(),
        })
    }

    /// A turn of the reactor begins.
    #[inline]
    pub fn begin_turn(&mut self) {
        self.turn_bytes = TURN_BYTES_MAX;
        self.is_woken |= std::mem::take(&mut self.has_more);
    }

    /// Whether the next turn has something to do without any event.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether there is anything that time alone could move.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.sessions.is_empty()
    }

    /// How long until time alone has something to do.
    pub fn pause(&self, now: Moment) -> Option<Duration> {
        if self.is_idle() {
            return None;
        }
        Some(self.scheduler.next_due()?.since(now))
    }

    /// Something has happened that batches may wait for.
    #[inline]
    pub fn wake(&mut self) {
        self.is_woken = true;
    }

    /// Requests that were not reported.
    pub fn request_count(&self) -> usize {
        self.scheduler.load().requests as usize
    }
}

impl Reactor {
    /// BATCH_SUBMIT. Only what is wrong with the batch as a whole is answered here: what is
    /// wrong with one request goes into its completion.
    pub(crate) fn batch_submit(
        &mut self,
        answer: ReplyTo,
        request: &BatchSubmit<'_>,
    ) -> Result<(), Status> {
        let session = self.batch_session(answer)?;
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        self.filer.may_move(id)?;
        let batch = Batch {
            requests: request
                .requests
                .iter()
                .map(|request| self.wanted_transfer(&request))
                .collect(),
            window_us: request.window_us,
            completion_count: request.completion_count,
            synchronous: request.synchronous,
        };
        let bytes = self.response_bytes_max(answer.endpoint);
        let room = completions_in(u32::try_from(bytes).unwrap_or(u32::MAX));
        if batch.synchronous && batch.requests.len() > room {
            return Err(Status::TooSmall);
        }
        if self.has_checksums(answer.endpoint) {
            self.submit_in_order(session, answer, batch)
        } else {
            self.submit_batch(answer, &batch)
        }
    }

    fn wanted_transfer(&self, request: &WireRequest<'_>) -> Wanted {
        let mut wanted = Wanted::of(request);
        handles::renew(&*self.whole_store, &mut wanted.file);
        wanted
    }

    /// Gives a batch to the scheduler.
    pub(super) fn submit_batch(&mut self, answer: ReplyTo, batch: &Batch) -> Result<(), Status> {
        let session = self.batch_session(answer)?;
        let judged = batch.requests.iter().map(|wanted| {
            let key = match wanted.refused {
                Some(status) => Err(status),
                None => self.batch_key(answer, wanted.state, &wanted.file, wanted.kind),
            };
            BatchRequest {
                request: wanted.name,
                file: key.unwrap_or(FileKey(u64::MAX)),
                handle: wanted.file,
                state: wanted.state,
                kind: wanted.kind,
                chunks: &wanted.chunks,
                buffers: &wanted.buffers,
                checksum: wanted.checksum,
                octets: wanted.octets.as_ref(),
                refused: key.err(),
            }
        });
        let requests: Vec<BatchRequest<'_>> = judged.collect();
        for request in requests.iter().filter(|it| it.refused == Some(Status::Delay)) {
            self.search_later(&request.handle);
        }
        let tag = self.batches.last_tag + 1;
        let submission = Submission {
            requests: &requests,
            window_us: batch.window_us,
            completion_count: batch.completion_count,
            synchronous: batch.synchronous,
            tag,
        };
        let submitted = self.batches.scheduler.submit(session, &submission, self.now);
        // Also one that is told to wait for a completion is to have it soon.
        self.batches.wake();
        submitted.map_err(dafs_filer::SubmitError::status)?;
        self.batches.last_tag = tag;
        if !batch.synchronous {
            // It is asked anew where nobody knows how it ended (draft 5.2.3).
            let answer = self.abandon(answer);
            let nothing = Completions { completions: Array::default() };
            self.reply(answer, &Response::BatchSubmit(nothing));
            return Ok(());
        }
        // What a client has read is known to have arrived only with the answer.
        let only_writes = batch.requests.iter().all(|request| request.kind == IoKind::Write);
        let answer = if only_writes { answer } else { self.abandon(answer) };
        self.batches.unanswered.insert(tag, answer);
        Ok(())
    }

    /// HURRY_UP.
    pub(crate) fn hurry_up(&mut self, answer: ReplyTo, request: &HurryUp) -> Result<(), Status> {
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?;
        let session = channel.batch_session.ok_or(Status::BatchRequestNotFound)?;
        let hurried = self.batches.scheduler.hurry_up(session, request.request);
        hurried.map_err(|_| Status::BatchRequestNotFound)?;
        self.batches.wake();
        self.reply(answer, &Response::HurryUp(Empty));
        Ok(())
    }

    /// The session of a channel, known to the scheduler from now on.
    fn batch_session(&mut self, answer: ReplyTo) -> Result<SessionId, Status> {
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?;
        if let Some(session) = channel.batch_session {
            return Ok(session);
        }
        let (session, _) = self.filer.ids(channel.id).ok_or(Status::BadSession)?;
        let back = self.back_of(answer.endpoint);
        self.batches.scheduler.open_session(session, back.map(|(_, bytes)| bytes));
        self.batches.sessions.insert(
            session,
            BatchSession {
                operation: answer.endpoint,
                back: back.map(|(endpoint, _)| endpoint),
                strands: 0,
                bytes: 0,
                waiting: VecDeque::new(),
                is_fetching: false,
                behind: VecDeque::new(),
                is_ending: false,
            },
        );
        if let Some(channel) = self.channels.get_mut(answer.endpoint) {
            channel.batch_session = Some(session);
        }
        Ok(session)
    }

    /// What the scheduler calls the file of a request.
    fn batch_key(
        &mut self,
        answer: ReplyTo,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<FileKey, Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let key = if state == StateId::ANONYMOUS {
            if answer.is_acting {
                // When the data moves, credentials of a stream may be others, or none.
                return Err(Status::NotSupp);
            }
            let who = self.who(answer);
            let access = match kind {
                IoKind::Read => ShareAccess::Read,
                IoKind::Write => ShareAccess::Write,
            };
            self.pass_file(answer, handle)?;
            FileKey(who.store().open(&who, handle, access)?.key().0)
        } else {
            // The filer tells stale, old and plainly wrong state ids apart.
            self.opened.key_of(state, handle)
        };
        self.filer.check_io(id, state, key, kind)?;
        Ok(key)
    }

    // ---- driving --------------------------------------------------------------------

    /// Does what batches have to do now.
    #[inline]
    pub(crate) fn push_batches(&mut self) {
        while std::mem::take(&mut self.batches.is_woken) {
            self.push_batches_once();
        }
    }

    #[inline(never)]
    fn push_batches_once(&mut self) {
        self.begin_stalled();
        self.begin_runs();
        self.begin_syncs();
        self.answer_batches();
        self.notify_batches();
        self.forget_ended_sessions();
        // What was answered may be a member.
        self.push_chains();
    }

    /// Batches that time alone has something to do for.
    #[inline]
    pub(crate) fn pass_batch_time(&mut self) {
        if self.batches.pause(self.now).is_some_and(|pause| pause.is_zero()) {
            self.batches.wake();
            self.push_batches();
        }
    }

    fn begin_runs(&mut self) {
        loop {
            let batches = &mut self.batches;
            if batches.turn_bytes == 0 {
                batches.has_more = true;
                return;
            }
            let device = DeviceLoad { in_flight: batches.in_flight, in_flight_max: IN_FLIGHT_MAX };
            let Some(run) = batches.scheduler.poll_run(self.now, device) else { return };
            batches.turn_bytes = batches.turn_bytes.saturating_sub(u64::from(run.length));
            let kind = run.kind;
            let mut pieces = std::mem::take(&mut batches.pieces);
            batches.scheduler.take_apart(run, &mut pieces);
            for piece in pieces.drain(..) {
                self.begin_piece(piece, kind);
            }
            self.batches.pieces = pieces;
        }
    }

    /// Begins what waited for others of its session.
    fn begin_stalled(&mut self) {
        for _ in 0..self.batches.stalled.len() {
            let Some(session) = self.batches.stalled.pop_front() else { return };
            while let Some(entry) = self.batches.sessions.get_mut(&session)
                && !entry.is_full()
                && let Some((piece, kind)) = entry.waiting.pop_front()
            {
                self.begin_strand(session, piece, kind);
            }
            let waits = |entry: &BatchSession| !entry.waiting.is_empty();
            if self.batches.sessions.get(&session).is_some_and(waits) {
                self.batches.stalled.push_back(session);
            }
        }
    }
}

/// A batch that was asked for.
#[derive(Debug)]
pub(crate) struct Batch {
    requests: Vec<Wanted>,
    window_us: u32,
    completion_count: u32,
    synchronous: bool,
}

/// One of its requests.
#[derive(Debug)]
struct Wanted {
    name: RequestId,
    file: FileHandle,
    state: StateId,
    kind: IoKind,
    chunks: Box<[FileChunk]>,
    buffers: Box<[DirectBuffer]>,
    checksum: Checksum,
    /// What is to be written, where it had to be looked at first.
    octets: Option<Arc<[u8]>>,
    refused: Option<Status>,
}

impl Wanted {
    fn of(request: &WireRequest<'_>) -> Self {
        Self {
            name: request.request,
            file: request.file,
            state: request.state,
            kind: kind_of(request.direction),
            chunks: request.chunks.iter().collect(),
            buffers: request.buffers.iter().collect(),
            checksum: request.checksum,
            octets: None,
            refused: None,
        }
    }
}

fn kind_of(direction: TransferDirection) -> IoKind {
    match direction {
        TransferDirection::Read => IoKind::Read,
        TransferDirection::Write => IoKind::Write,
    }
}

/// Strands that wait for disks, and files being made stable, at one time.
const IN_FLIGHT_MAX: u32 = 64;
/// Strands of one session under way at one time, and their octets: so much a client that does
/// not let its memory be read or written keeps pinned.
const SESSION_STRANDS_MAX: u32 = 64;
const SESSION_BYTES_MAX: u64 = 8 << 20;
/// Octets of runs begun in one turn, so that others are served too.
const TURN_BYTES_MAX: u64 = 4 << 20;
