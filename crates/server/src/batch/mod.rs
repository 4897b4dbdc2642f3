//! Batches of transfers: BATCH_SUBMIT and HURRY_UP (draft 4.2.3, 6.5.5, 6.5.16).
//!
//! The [`BatchScheduler`] decides which pieces run when; this module executes its runs. Each piece
//! of a run is a *strand* ([`strand`]), which is one transfer. When a strand starts, it checks its
//! open, the locks and the fencing lists. Each strand reports its own end, so that no strand waits
//! for the memory of another client. The bytes that all strands have written to a file are made
//! stable together ([`stable`]), before their requests are reported as complete ([`report`]).
//!
//! Invariants:
//! - The end of every piece that the scheduler hands out is reported to the scheduler once.
//! - A client that does not let its memory be read or written holds at most as many strands and
//!   bytes as its session's limits allow.
//! - One turn starts at most [`TURN_BYTES_MAX`] bytes.

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

/// All batches of the server.
#[derive(Debug)]
pub(crate) struct Batches {
    scheduler: BatchScheduler,
    sessions: HashMap<SessionId, BatchSession>,
    /// The destinations of the replies to unfinished synchronous batches, by the batch's tag.
    unanswered: HashMap<u64, ReplyTo>,
    last_tag: u64,
    /// True if an event has occurred after which the scheduler may have work to start.
    is_woken: bool,
    /// True if work remains for the next turn.
    has_more: bool,
    /// The number of bytes for which this turn may still start transfers.
    turn_bytes: u64,
    /// The number of strands (transfers of batches) that wait for a disk or for cache space, plus
    /// the number of files that are being made stable.
    in_flight: u32,
    /// Sessions with transfers that wait for the end of other transfers of the same session.
    stalled: VecDeque<SessionId>,
    has_ending: bool,
    syncs: Syncs,
    /// The buffers that hold the bytes of checksummed writes, each with its size in bytes.
    held: Vec<(Weak<[u8]>, usize)>,
    /// The number of bytes that are being fetched for checksummed writes.
    fetching_bytes: usize,
    /// An empty vector for the pieces of the next run, kept to reuse its memory.
    pieces: Vec<Piece>,
}

/// A session that has submitted a batch.
#[derive(Debug)]
struct BatchSession {
    operation: EndpointId,
    /// The session's back-control channel. `None` if the client has bound none.
    back: Option<EndpointId>,
    /// The number of strands (transfers of batches) in progress.
    strands: u32,
    /// The number of bytes that the transfers in progress move.
    bytes: u64,
    /// Pieces that wait because the session has reached a limit.
    waiting: VecDeque<(Piece, IoKind)>,
    /// True while the bytes of a batch's writes are fetched for verification. Later batches of the
    /// session wait in `waiting_batches`.
    is_fetching: bool,
    waiting_batches: VecDeque<(ReplyTo, Batch)>,
    /// True if the session's connection has ended.
    is_ending: bool,
}

impl BatchSession {
    fn is_full(&self) -> bool {
        self.strands >= SESSION_STRANDS_MAX || self.bytes >= SESSION_BYTES_MAX
    }
}

impl Batches {
    pub(crate) fn new(limits: BatchLimits) -> Result<Self, ConfigError> {
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

    /// Resets the byte limit at the start of a reactor's turn.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        self.turn_bytes = TURN_BYTES_MAX;
        self.is_woken |= std::mem::take(&mut self.has_more);
    }

    /// Returns true if there is work for the next turn even if no event arrives.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Returns true if no batch waits for its start time.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Returns the time until the next batch is due. `None` if no batch waits for its start time.
    pub(crate) fn pause(&self, now: Moment) -> Option<Duration> {
        if self.is_idle() {
            return None;
        }
        Some(self.scheduler.next_due()?.since(now))
    }

    /// Records that an event has occurred that batches may wait for, so that the scheduler looks
    /// for work again.
    #[inline]
    pub(crate) fn wake(&mut self) {
        self.is_woken = true;
    }

    /// Returns the pieces of the next run. `None` if no run can start, or if this turn has already
    /// started as many bytes as it may.
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

    /// Keeps the empty vector of a finished run, so that the next run reuses its memory.
    fn keep_room(&mut self, pieces: Vec<Piece>) {
        self.pieces = pieces;
    }

    /// Removes and returns the next waiting piece of a session. `None` if no piece waits or the
    /// session is at its limits.
    fn next_stalled(&mut self, session: SessionId) -> Option<(Piece, IoKind)> {
        let entry = self.sessions.get_mut(&session).filter(|entry| !entry.is_full())?;
        entry.waiting.pop_front()
    }

    /// Queues a session again if it still has waiting pieces.
    fn requeue_stalled(&mut self, session: SessionId) {
        let waits = |entry: &BatchSession| !entry.waiting.is_empty();
        if self.sessions.get(&session).is_some_and(waits) {
            self.stalled.push_back(session);
        }
    }

    /// Returns the number of batch requests that are not reported as complete yet.
    pub(crate) fn request_count(&self) -> usize {
        self.scheduler.load().requests as usize
    }
}

/// A batch as submitted by a client.
#[derive(Debug)]
pub(crate) struct Batch {
    requests: Vec<Wanted>,
    window_us: u32,
    completion_count: u32,
    synchronous: bool,
}

/// One READ or WRITE request of a batch.
#[derive(Debug)]
struct Wanted {
    name: RequestId,
    file: FileHandle,
    state: StateId,
    kind: IoKind,
    chunks: Box<[FileChunk]>,
    buffers: Box<[DirectBuffer]>,
    checksum: Checksum,
    /// The bytes to write, which were fetched for verification. `None` in a session without
    /// checksums.
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

/// The maximum sum of two counts: the strands (transfers of batches) that wait for disks or cache
/// space, and the files that are being made stable.
const IN_FLIGHT_MAX: u32 = 64;
/// The maximum number of strands (transfers of batches) that one session has in progress.
const SESSION_STRANDS_MAX: u32 = 64;
/// The maximum number of bytes of the transfers that one session's batches have in progress. A
/// client that does not let its memory be read or written keeps at most this many bytes pinned.
const SESSION_BYTES_MAX: u64 = 8 << 20;
/// The maximum number of bytes for which batches start transfers in one turn. The limit leaves time
/// for other requests.
const TURN_BYTES_MAX: u64 = 4 << 20;
