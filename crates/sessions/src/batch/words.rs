//! What goes into the scheduler and what comes out.
//!
//! Invariant: a [`Run`] exists once. It cannot be copied, and giving it back consumes it,
//! so that no byte can be reported as moved twice.

use std::sync::Arc;

use dafs_filer::{FileKey, IoKind};
use dafs_types::{CacheHint, FileHandle, RequestId, SessionId, StateId, Status};
use dafs_wire::messages::{Completion, FileChunk};
use dafs_wire::{Checksum, DirectBuffer};

use super::RequestKey;
use super::queue::TransferKey;

/// One request of a batch (draft 6.1.7). The driver has resolved its file and looked at
/// its rights.
#[derive(Clone, Copy, Debug)]
pub struct BatchRequest<'a> {
    /// The client's name for it, unique among what its session has in hand.
    pub request: RequestId,
    /// The file.
    pub file: FileKey,
    /// What the client calls the file by.
    pub handle: FileHandle,
    /// The open or lock it goes under.
    pub state: StateId,
    /// Which way.
    pub kind: IoKind,
    /// Pieces of the file, in the order of the data.
    pub chunks: &'a [FileChunk],
    /// Pieces of the client's memory, in the order of the data: as many bytes.
    pub buffers: &'a [DirectBuffer],
    /// The checksum the client sent along with a write.
    pub checksum: Checksum,
    /// The bytes of a write that the driver has at hand already, since they had to be looked
    /// at as a whole.
    pub data: Option<&'a Arc<[u8]>>,
    /// A request the driver will not have carried out: it completes with this status, and
    /// the others of its batch are not touched by it.
    pub refused: Option<Status>,
}

/// A BATCH_SUBMIT (draft 6.5.5).
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// The requests, in no order.
    pub requests: &'a [BatchRequest<'a>],
    /// Microseconds the client is content to wait; a synchronous batch has none.
    pub window_us: u32,
    /// Completions per notice the client would like; 0 keeps the last value. A synchronous
    /// batch says nothing about it.
    pub completion_count: u32,
    /// Whether one reply is to report them all.
    pub synchronous: bool,
    /// By what the driver will know the batch when it is complete: stream and sequence
    /// number, for the response cache.
    pub tag: u64,
}

/// A batch that was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// An asynchronous batch of nothing: no notice will name it. Its answer may go into
    /// the response cache at once.
    pub complete: bool,
}

/// Why a batch was not taken in. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The session was not announced, or has ended.
    #[error("unknown session")]
    UnknownSession,
    /// An asynchronous batch from a session without a back-control channel.
    #[error("no back-control channel to report completions over")]
    NoBackChannel,
    /// It can never be carried out.
    #[error("batch cannot be carried out")]
    Invalid(#[from] InvalidBatch),
    /// Larger than a session may have in hand: never, however idle the server.
    #[error("batch larger than a session may have in hand")]
    TooLarge,
    /// No room now. The session has asynchronous requests in hand, so that a completion
    /// will tell it when to go on (draft 4.2.3); the next one is not held back.
    #[error("no room until a completion was reported")]
    WhoaCowboy,
    /// No room now, and no completion of the session's own will follow: to tell it to
    /// wait for one would be to tell it to wait for ever.
    #[error("no room now")]
    Delay,
}

/// What is wrong with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBatch {
    /// Chunks and buffers of a request are not equally long.
    #[error("chunks and buffers of a request differ in length")]
    TotalsDiffer,
    /// Two requests in hand would have one name.
    #[error("request named like another one")]
    DuplicateRequest,
    /// A chunk ends beyond [`dafs_types::limits::FILE_OFFSET_MAX`].
    #[error("file range beyond the largest offset")]
    OffsetTooLarge,
    /// A buffer ends beyond 64 bits.
    #[error("buffer beyond the last address")]
    AddressTooLarge,
    /// A request is longer than a completion can count.
    #[error("request longer than 32 bits count")]
    RequestTooLarge,
}

impl SubmitError {
    /// The status to answer.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::UnknownSession => Status::BadSession,
            Self::NoBackChannel => Status::BackChannelUnusable,
            Self::Invalid(
                InvalidBatch::TotalsDiffer
                | InvalidBatch::DuplicateRequest
                | InvalidBatch::OffsetTooLarge
                | InvalidBatch::AddressTooLarge
                | InvalidBatch::RequestTooLarge,
            ) => Status::Inval,
            Self::TooLarge => Status::Resource,
            Self::WhoaCowboy => Status::WhoaCowboy,
            Self::Delay => Status::Delay,
        }
    }
}

/// No such request is in hand (BATCH_REQUEST_NOT_FOUND).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such request in hand")]
pub struct RequestNotFound;

/// How busy the device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLoad {
    /// Operations under way, runs or others.
    pub in_flight: u32,
    /// As many as it should have; no run is started at or above.
    pub in_flight_max: u32,
}

/// One operation on a file: a range in one piece, and the client memory it goes to or
/// comes from. Give it back with [`super::BatchScheduler::run_done`], whatever happens.
#[derive(Debug, PartialEq)]
#[must_use = "a run that is not given back is never reported"]
pub struct Run {
    /// The file.
    pub file: FileKey,
    /// Which way.
    pub kind: IoKind,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes, at most [`super::BatchLimits::run_bytes_max`].
    pub length: u32,
    pub(super) pieces: Vec<Piece>,
}

impl Run {
    /// What the run is made of, ascending by offset. Pieces of a write lie edge to edge;
    /// pieces of a read cover the range and may overlap.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Says that one piece failed by itself: its client's memory could not be reached or
    /// its checksum was wrong. The others go by the outcome of the run.
    ///
    /// # Panics
    /// If there is no such piece.
    pub fn fail_piece(&mut self, index: usize, status: Status) {
        self.pieces[index].failed = Some(status);
    }
}

/// A part of a run that belongs to one request.
#[derive(Debug, PartialEq)]
pub struct Piece {
    /// Where it begins in the file, within the run.
    pub offset: u64,
    /// The client's memory; its length is the piece's.
    pub buffer: DirectBuffer,
    /// Where it begins in the request's data.
    pub at: u32,
    /// What the client expects of the range.
    pub hint: CacheHint,
    pub(super) failed: Option<Status>,
    pub(super) transfer: TransferKey,
    pub(super) request: RequestKey,
}

/// Whose a piece is. No session: it has ended, and its memory must not be touched.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestView {
    /// The session.
    pub session: Option<SessionId>,
    /// The client's name for the request.
    pub request: RequestId,
    /// What the client calls the file by.
    pub handle: FileHandle,
    /// The open or lock it goes under.
    pub state: StateId,
    /// Whether the reply of its batch reports it, and not a notice.
    pub synchronous: bool,
    /// Bytes of a write that are at hand already.
    pub data: Option<Arc<[u8]>>,
    /// Its bytes.
    pub length: u32,
    /// The checksum the client sent.
    pub checksum: Checksum,
    /// It has failed or was cancelled: what is still moved for it is not reported.
    pub failed: Option<Status>,
}

/// How a piece went that was taken out of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceOutcome {
    /// So many bytes from its start were moved.
    Moved(u32),
    /// Nothing is known to have been moved.
    Failed(Status),
}

/// How a run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// So many bytes from its start were moved: fewer than its length at the end of a
    /// file, or where a device took no more.
    Moved(u64),
    /// Nothing is known to have been moved.
    Failed(Status),
}

/// Completions for one BC_BATCH_COMPLETION (draft 6.6.2).
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Whom to tell.
    pub session: SessionId,
    /// In the order of completion. As many as one message of the session's back-control
    /// channel carries, or fewer.
    pub completions: Vec<Completion>,
    /// Tags of the batches whose last completion this is: from now on their answers
    /// belong into the response cache, and not before (draft 5.2.3).
    pub finished: Vec<u64>,
}

/// The reply to a synchronous BATCH_SUBMIT.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchReply {
    /// Whom to answer.
    pub session: SessionId,
    /// What the driver named the batch by.
    pub tag: u64,
    /// In the order of the requests.
    pub completions: Vec<Completion>,
}

/// What a cancelled request still does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// Nothing: its completion follows.
    Ended,
    /// Some of it is in flight: its completion follows those runs.
    Draining,
}

/// Which requests [`super::BatchScheduler::abort`] ends: those that match all of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortScope {
    /// Of this session only.
    pub session: Option<SessionId>,
    /// Under this open or lock only.
    pub state: Option<StateId>,
    /// In this file only.
    pub file: Option<FileKey>,
    /// From this byte of the file on.
    pub offset: u64,
    /// So many bytes; `u64::MAX` reaches to the end of every file.
    pub length: u64,
}

impl AbortScope {
    /// Everything there is; narrow it down by its fields.
    pub const EVERYTHING: Self =
        Self { session: None, state: None, file: None, offset: 0, length: u64::MAX };
}

/// What an abort has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aborted {
    /// Requests that failed by it.
    pub requests: u32,
    /// Transfers in its scope that are in flight: wait for them before what the abort is
    /// for ([`super::BatchScheduler::is_running`]).
    pub running: u32,
}

/// What a session that ended leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedSession {
    /// Requests that nobody will hear of.
    pub requests: u32,
    /// Those of them with transfers in flight; they end silently with their runs.
    pub running: u32,
}

/// How much the scheduler has in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchLoad {
    /// Requests that have not been reported.
    pub requests: u32,
    /// Transfers of requests that have not completed.
    pub transfers: u32,
    /// Bytes of requests that have not completed.
    pub bytes: u64,
}
