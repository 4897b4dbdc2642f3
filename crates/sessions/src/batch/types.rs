//! The input and output types of the batch scheduler.
//!
//! Invariant: a [`Run`] exists once. It cannot be copied, and giving it back consumes it, so that
//! no byte can be reported as moved twice.

use std::sync::Arc;

use dafs_filer::{FileKey, IoKind};
use dafs_types::{CacheHint, FileHandle, RequestId, SessionId, StateId, Status};
use dafs_wire::messages::{Completion, FileChunk};
use dafs_wire::{Checksum, DirectBuffer};

use super::RequestKey;
use super::queue::TransferKey;

/// One request of a batch (draft 6.1.7). The driver has resolved its file and checked the access
/// rights.
#[derive(Clone, Copy, Debug)]
pub struct BatchRequest<'a> {
    /// The client's id of the request, unique among the pending requests of its session.
    pub request: RequestId,
    /// The file to read or write.
    pub file: FileKey,
    /// The client's handle of the file.
    pub handle: FileHandle,
    /// The state id of the open or lock that the request uses.
    pub state: StateId,
    /// The kind of operation: read or write.
    pub kind: IoKind,
    /// The file ranges, in the order of the data.
    pub chunks: &'a [FileChunk],
    /// The client's buffers, in the order of the data. Their total length is that of the chunks.
    pub buffers: &'a [DirectBuffer],
    /// The checksum that the client sent with a write.
    pub checksum: Checksum,
    /// The data of a write, if the driver has fetched it already to verify it as a whole.
    pub data: Option<&'a Arc<[u8]>>,
    /// A status if the driver refuses this request: it completes with this status, and the other
    /// requests of its batch are not affected.
    pub refused: Option<Status>,
}

/// The arguments of a BATCH_SUBMIT (draft 6.5.5).
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// The requests, in no particular order.
    pub requests: &'a [BatchRequest<'a>],
    /// The delay in microseconds that the client accepts; a synchronous batch has none.
    pub window_us: u32,
    /// The completions per notice that the client would like; 0 keeps the last value. Ignored for a
    /// synchronous batch.
    pub completion_count: u32,
    /// True if one reply reports all requests.
    pub synchronous: bool,
    /// The driver's tag for the batch, returned when it is complete. It identifies stream and
    /// sequence number for the response cache.
    pub tag: u64,
}

/// The result of accepting a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// True for an empty asynchronous batch: no notice will name it, so its reply may enter the
    /// response cache at once.
    pub complete: bool,
}

/// The reason why a batch was refused. Nothing of it was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The session was not registered, or has ended.
    #[error("unknown session")]
    UnknownSession,
    /// An asynchronous batch came from a session without a back-control channel.
    #[error("the session has no back-control channel for the completions")]
    NoBackChannel,
    /// The batch is malformed and can never be executed.
    #[error("the batch is invalid")]
    Invalid(#[from] InvalidBatch),
    /// The batch is larger than a session may have pending, even on an idle server.
    #[error("the batch is larger than a session may have pending")]
    TooLarge,
    /// There is no room now. The session has asynchronous requests pending, so a completion will
    /// tell it when to continue (draft 4.2.3). That completion is reported without delay.
    #[error("no room for the batch until a completion is reported")]
    WhoaCowboy,
    /// There is no room now, and no completion of the session will follow. A client that waited for
    /// one would wait forever.
    #[error("no room for the batch now")]
    Delay,
}

/// The reason why a batch is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBatch {
    /// The chunks and the buffers of a request have different total lengths.
    #[error("the chunks and buffers of a request differ in length")]
    TotalsDiffer,
    /// Two pending requests would have the same id.
    #[error("the request has the same id as another one")]
    DuplicateRequest,
    /// A chunk ends beyond [`dafs_types::limits::FILE_OFFSET_MAX`].
    #[error("a file range ends beyond the largest offset")]
    OffsetTooLarge,
    /// A buffer ends beyond 64 bits.
    #[error("a buffer ends beyond the last address")]
    AddressTooLarge,
    /// A request is longer than a completion can count.
    #[error("the request is longer than 32 bits can count")]
    RequestTooLarge,
}

impl SubmitError {
    /// Returns the status for the reply.
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

/// The error that no such request is pending (BATCH_REQUEST_NOT_FOUND).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such request is pending")]
pub struct RequestNotFound;

/// The present load of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLoad {
    /// Operations in flight, runs and others.
    pub in_flight: u32,
    /// The desired maximum; no run is started at or above it.
    pub in_flight_max: u32,
}

/// One operation on a contiguous file range, with the client memory that the data goes to or comes
/// from. It must always be given back with [`super::BatchScheduler::run_done`].
#[derive(Debug, PartialEq)]
#[must_use = "a run that is not given back is never reported"]
pub struct Run {
    /// The file to read or write.
    pub file: FileKey,
    /// The kind of operation: read or write.
    pub kind: IoKind,
    /// The first byte in the file.
    pub offset: u64,
    /// The length in bytes, at most [`super::BatchLimits::run_bytes_max`].
    pub length: u32,
    pub(super) pieces: Vec<Piece>,
}

impl Run {
    /// Returns the pieces of the run, ascending by offset. Pieces of a write are adjacent; pieces
    /// of a read cover the range and may overlap.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Marks one piece as failed: its client's memory could not be accessed or its checksum was
    /// wrong. The other pieces get the outcome of the run.
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
    /// The offset in the file, within the run.
    pub offset: u64,
    /// The client's buffer; its length is that of the piece.
    pub buffer: DirectBuffer,
    /// The offset in the request's data.
    pub at: u32,
    /// The access pattern that the client expects for the range.
    pub hint: CacheHint,
    pub(super) failed: Option<Status>,
    pub(super) transfer: TransferKey,
    pub(super) request: RequestKey,
}

/// The request that a piece belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestView {
    /// The session. `None` if it has ended: its memory must not be accessed.
    pub session: Option<SessionId>,
    /// The client's id of the request.
    pub request: RequestId,
    /// The client's handle of the file.
    pub handle: FileHandle,
    /// The state id of the open or lock that the request uses.
    pub state: StateId,
    /// True if the reply of its batch reports it; false if a notice does.
    pub synchronous: bool,
    /// The data of a write, if the driver has it already.
    pub data: Option<Arc<[u8]>>,
    /// The length of the request in bytes.
    pub length: u32,
    /// The checksum that the client sent.
    pub checksum: Checksum,
    /// The status if the request has failed or was cancelled. Data that is still moved for it is
    /// not reported.
    pub failed: Option<Status>,
}

/// The outcome of a piece that was split off its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceOutcome {
    /// This many bytes from its start were moved.
    Moved(u32),
    /// The piece failed; it is unknown which bytes were moved.
    Failed(Status),
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// This many bytes from its start were moved: fewer than its length at the end of a file, or if
    /// a device accepted no more.
    Moved(u64),
    /// The run failed; it is unknown which bytes were moved.
    Failed(Status),
}

/// Completions for one BC_BATCH_COMPLETION (draft 6.6.2).
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// The session to notify.
    pub session: SessionId,
    /// The completions, in the order in which they happened, at most as many as one message of the
    /// session's back-control channel carries.
    pub completions: Vec<Completion>,
    /// The tags of the batches that this notice completes. From now on, and not earlier, their
    /// replies belong in the response cache (draft 5.2.3).
    pub finished: Vec<u64>,
}

/// The reply to a synchronous BATCH_SUBMIT.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchReply {
    /// The session to reply to.
    pub session: SessionId,
    /// The driver's tag of the batch.
    pub tag: u64,
    /// The completions, in the order of the requests.
    pub completions: Vec<Completion>,
}

/// The remaining work of a cancelled request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// None: its completion follows.
    Ended,
    /// Some transfers are in flight: its completion follows those runs.
    Draining,
}

/// Selects the requests that [`super::BatchScheduler::abort`] ends: those that match all fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortScope {
    /// Only requests of this session.
    pub session: Option<SessionId>,
    /// Only requests that use this open or lock.
    pub state: Option<StateId>,
    /// Only transfers in this file.
    pub file: Option<FileKey>,
    /// Only bytes of the file from this offset on.
    pub offset: u64,
    /// The length of the range; `u64::MAX` extends to the end of every file.
    pub length: u64,
}

impl AbortScope {
    /// Selects everything; restrict it with its fields.
    pub const EVERYTHING: Self =
        Self { session: None, state: None, file: None, offset: 0, length: u64::MAX };
}

/// The effect of an abort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aborted {
    /// Requests that failed because of the abort.
    pub requests: u32,
    /// Transfers in its scope that are in flight. Wait for them with
    /// [`super::BatchScheduler::is_running`] before relying on the abort.
    pub running: u32,
}

/// What remains of a session that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedSession {
    /// Requests whose completion will not be reported.
    pub requests: u32,
    /// Those of them with transfers in flight; they end silently with their runs.
    pub running: u32,
}

/// The load of the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchLoad {
    /// Requests that have not been reported.
    pub requests: u32,
    /// Transfers of requests that are incomplete.
    pub transfers: u32,
    /// Bytes of requests that are incomplete.
    pub bytes: u64,
}
