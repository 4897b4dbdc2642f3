//! Batches of transfers: BATCH_SUBMIT and HURRY_UP (draft 4.2.3, 6.5.5, 6.5.16).
//!
//! What goes when is for [`BatchScheduler`] to say; here its runs are carried out. Each piece of
//! a run is a *strand* ([`strand`]): it passes fences, locks and its open by itself when it
//! begins, and is given back by itself, so that nobody waits for another client's memory. Bytes
//! that are written are made stable for all strands of a file together ([`stable`]) before their
//! request is reported ([`report`]).
//!
//! Invariants: every piece that was handed out is given back once; what a client does not let be
//! read or written holds strands and bytes up to a bound of its session; one turn begins no
//! more bytes than [`TURN_BYTES_MAX`], however much is asked for.

mod report;
pub(crate) mod sealed;
mod stable;
pub(crate) mod strand;
mod submit;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_filer::IoKind;
use dafs_sessions::{BatchLimits, BatchScheduler, ConfigError, DeviceLoad, Piece};
use dafs_types::{FileHandle, Moment, RequestId, SessionId, StateId, Status};
use dafs_wire::messages::{BatchRequest as WireRequest, FileChunk, TransferDirection};
use dafs_wire::{Checksum, DirectBuffer};
use stable::Syncs;

use crate::reply_to::ReplyTo;

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
    /// Bytes that may still be begun in this turn.
    turn_bytes: u64,
    /// Strands that wait for a disk or for room, and files that are being made stable.
    in_flight: u32,
    /// Sessions whose strands wait for others of theirs.
    stalled: VecDeque<SessionId>,
    has_ending: bool,
    syncs: Syncs,
    /// Bytes of sealed writes that are held, and of those that are being fetched.
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

    /// The pieces of the next run, unless this turn has begun enough.
    fn next_run(&mut self, now: Moment) -> Option<(Vec<Piece>, IoKind)> {
        if self.turn_bytes == 0 {
            self.has_more = true;
            return None;
        }
        let device = DeviceLoad { in_flight: self.in_flight, in_flight_max: IN_FLIGHT_MAX };
        let run = self.scheduler.poll_run(now, device)?;
        self.turn_bytes = self.turn_bytes.saturating_sub(u64::from(run.length));
        let (kind, mut pieces) = (run.kind, std::mem::take(&mut self.pieces));
        self.scheduler.take_apart(run, &mut pieces);
        Some((pieces, kind))
    }

    /// Keeps the room that pieces took for those of the next run.
    fn keep_room(&mut self, pieces: Vec<Piece>) {
        self.pieces = pieces;
    }

    /// The next piece of a session that may begin now.
    fn next_stalled(&mut self, session: SessionId) -> Option<(Piece, IoKind)> {
        let entry = self.sessions.get_mut(&session).filter(|entry| !entry.is_full())?;
        entry.waiting.pop_front()
    }

    /// A session's pieces wait for others of it, if there are any left.
    fn stall_again(&mut self, session: SessionId) {
        let waits = |entry: &BatchSession| !entry.waiting.is_empty();
        if self.sessions.get(&session).is_some_and(waits) {
            self.stalled.push_back(session);
        }
    }

    /// Requests that were not reported.
    pub fn request_count(&self) -> usize {
        self.scheduler.load().requests as usize
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
    data: Option<Arc<[u8]>>,
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
            data: None,
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
/// Strands of one session under way at one time, and their bytes: so much a client that does
/// not let its memory be read or written keeps pinned.
const SESSION_STRANDS_MAX: u32 = 64;
const SESSION_BYTES_MAX: u64 = 8 << 20;
/// Bytes of runs begun in one turn, so that others are served too.
const TURN_BYTES_MAX: u64 = 4 << 20;
