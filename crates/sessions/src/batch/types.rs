//! The input and output types of the batch scheduler.
//!
//! Invariant: a [`Run`] exists once. It cannot be copied, and is consumed when it is returned, so
//! that no byte can be reported as moved twice.

use std::sync::Arc;

use dafs_filer::{FileKey, IoKind};
use dafs_types::{CacheHint, FileHandle, RequestId, SessionId, StateId, Status};
use dafs_wire::messages::{Completion, FileChunk};
use dafs_wire::{Checksum, DirectBuffer};

use super::RequestKey;
use super::queue::TransferKey;

/// One request of a batch (draft 6.1.7). The server has already found its file and checked the
/// access permissions.
#[derive(Clone, Copy, Debug)]
pub struct BatchRequest<'a> {
    /// The request id, which the client has chosen. It is unique among the pending requests of the
    /// session.
    pub request: RequestId,
    /// The file to read or write.
    pub file: FileKey,
    /// The handle by which the client has named the file.
    pub handle: FileHandle,
    /// The state id of the open or lock that the request uses.
    pub state: StateId,
    /// The kind of operation: read or write.
    pub kind: IoKind,
    /// The ranges of the file, in the order of the request's data.
    pub chunks: &'a [FileChunk],
    /// The client's buffers, in the order of the request's data. Their total length equals that of
    /// the chunks.
    pub buffers: &'a [DirectBuffer],
    /// The checksum that the client sent with a write.
    pub checksum: Checksum,
    /// The data of a write, if the server has already fetched it to verify the checksum of the
    /// whole data. Otherwise `None`.
    pub data: Option<&'a Arc<[u8]>>,
    /// If the server refuses this request, the status with which the request completes; the other
    /// requests of the batch are not affected. `None` if the request is not refused.
    pub refused: Option<Status>,
}

/// The arguments of a BATCH_SUBMIT (draft 6.5.5).
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// The requests of the batch, in no particular order.
    pub requests: &'a [BatchRequest<'a>],
    /// The delay in microseconds that the client accepts, called the window. Ignored for a
    /// synchronous batch.
    pub window_us: u32,
    /// The number of completions that the client wants in each notice; 0 keeps the number of the
    /// previous batch. Ignored for a synchronous batch.
    pub completion_count: u32,
    /// True for a synchronous batch, whose reply reports the completion of all requests.
    pub synchronous: bool,
    /// A tag that the server chooses. It is returned when the batch is complete, and tells the
    /// server where to store the reply in the response cache.
    pub tag: u64,
}

/// The result of a batch that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// True for an empty asynchronous batch. No notice will report the batch, so its reply may be
    /// stored in the response cache immediately.
    pub complete: bool,
}

/// The reason why a batch was refused. None of its requests was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The session was not registered, or has ended.
    #[error("unknown session")]
    UnknownSession,
    /// The session has submitted an asynchronous batch without having a back-control channel for
    /// the completions.
    #[error("the session has no back-control channel for the completions")]
    NoBackChannel,
    /// The batch is malformed and can never be executed.
    #[error("the batch is invalid")]
    Invalid(#[from] InvalidBatch),
    /// The batch exceeds the limits of a session, even on an idle server.
    #[error("the batch is larger than a session may have pending")]
    TooLarge,
    /// The limits do not allow the batch now. The session has asynchronous requests pending, so
    /// their next completion, which is reported without delay, shows the client when to retry
    /// (draft 4.2.3).
    #[error("no room for the batch until a completion is reported")]
    WhoaCowboy,
    /// The limits do not allow the batch now. The session has no asynchronous requests pending
    /// whose completion could show the client when to retry, so the client must retry after a
    /// while.
    #[error("no room for the batch now")]
    Delay,
}

/// The reason why a batch is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBatch {
    /// The chunks and the buffers of a request have different total lengths.
    #[error("the chunks and buffers of a request differ in length")]
    TotalsDiffer,
    /// The request has the same id as another pending request of the session.
    #[error("the request has the same id as another one")]
    DuplicateRequest,
    /// A chunk ends beyond [`dafs_types::limits::FILE_OFFSET_MAX`].
    #[error("a file range ends beyond the largest offset")]
    OffsetTooLarge,
    /// A buffer ends beyond the largest 64-bit address.
    #[error("a buffer ends beyond the last address")]
    AddressTooLarge,
    /// The request has more bytes than the 32-bit byte count of a completion can express.
    #[error("the request is longer than 32 bits can count")]
    RequestTooLarge,
}

impl SubmitError {
    /// Returns the status for the reply to the batch.
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

/// The error that the session has no pending request with this id (BATCH_REQUEST_NOT_FOUND).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such request is pending")]
pub struct RequestNotFound;

/// The present load of the storage device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLoad {
    /// The number of operations in flight, including operations outside batches.
    pub in_flight: u32,
    /// The number of operations in flight at which the scheduler starts no further run.
    pub in_flight_max: u32,
}

/// One operation on a contiguous file range, and the client buffers to or from which the data is
/// transferred. A run must always be returned with [`super::BatchScheduler::run_done`].
#[derive(Debug, PartialEq)]
#[must_use = "a run that is not given back is never reported"]
pub struct Run {
    /// The file to read or write.
    pub file: FileKey,
    /// The kind of operation: read or write.
    pub kind: IoKind,
    /// The file offset of the first byte.
    pub offset: u64,
    /// The length in bytes, at most [`super::BatchLimits::run_bytes_max`].
    pub length: u32,
    pub(super) pieces: Vec<Piece>,
}

impl Run {
    /// Returns the pieces of the run, ordered by offset. The pieces of a write are adjacent. The
    /// pieces of a read cover the range and may overlap.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Marks a piece as failed, because its client's memory could not be accessed or its checksum
    /// was wrong. The outcome of the run applies to the other pieces.
    ///
    /// # Panics
    /// Panics if `index` is not less than the number of pieces.
    pub fn fail_piece(&mut self, index: usize, status: Status) {
        self.pieces[index].failed = Some(status);
    }
}

/// A part of a run that belongs to one request.
#[derive(Debug, PartialEq)]
pub struct Piece {
    /// The offset of the piece in the file.
    pub offset: u64,
    /// The client's buffer for the piece. The buffer and the file range have the same length.
    pub buffer: DirectBuffer,
    /// The offset of the piece's first byte in the request's data.
    pub at: u32,
    /// The access pattern that the client expects for the file range.
    pub hint: CacheHint,
    pub(super) failed: Option<Status>,
    pub(super) transfer: TransferKey,
    pub(super) request: RequestKey,
}

/// A description of the request to which a piece belongs.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestView {
    /// The session of the request. `None` if the session has ended; then the client's memory must
    /// not be accessed.
    pub session: Option<SessionId>,
    /// The request id, which the client has chosen.
    pub request: RequestId,
    /// The handle by which the client has named the file.
    pub handle: FileHandle,
    /// The state id of the open or lock that the request uses.
    pub state: StateId,
    /// True if the request is reported by the reply to its batch, false if it is reported by a
    /// notice.
    pub synchronous: bool,
    /// The data of a write, if the server has already fetched it. Otherwise `None`.
    pub data: Option<Arc<[u8]>>,
    /// The length of the request in bytes.
    pub length: u32,
    /// The checksum that the client sent with a write.
    pub checksum: Checksum,
    /// The status with which the request has failed or was cancelled; data that is moved after the
    /// failure is not reported. `None` if the request has not failed.
    pub failed: Option<Status>,
}

/// The outcome of a piece of a split run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceOutcome {
    /// This many bytes from the start of the piece were moved.
    Moved(u32),
    /// The piece has failed, and it is unknown which of its bytes were moved.
    Failed(Status),
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// This many bytes from the start of the run were moved. The number is less than the run's
    /// length if the file ends earlier or the device accepted fewer bytes.
    Moved(u64),
    /// The run has failed, and it is unknown which of its bytes were moved.
    Failed(Status),
}

/// The completions for one BC_BATCH_COMPLETION message (draft 6.6.2).
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// The session to which the notice is sent.
    pub session: SessionId,
    /// The completions, in the order in which they happened. They fit into one message of the
    /// session's back-control channel.
    pub completions: Vec<Completion>,
    /// The tags of the batches whose last completion is in this notice. The replies to these
    /// batches must be stored in the response cache when the notice is sent, and not earlier (draft
    /// 5.2.3).
    pub finished: Vec<u64>,
}

/// The reply to a synchronous BATCH_SUBMIT.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchReply {
    /// The session to which the reply is sent.
    pub session: SessionId,
    /// The tag that the server has chosen for the batch.
    pub tag: u64,
    /// The completions, in the order of the requests.
    pub completions: Vec<Completion>,
}

/// The state of a request after it was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// No transfer is in flight, so the completion is reported immediately.
    Ended,
    /// Some transfers are in flight. The completion is reported after their runs have ended.
    Draining,
}

/// Selects the requests that [`super::BatchScheduler::abort`] ends. A request must match all
/// fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortScope {
    /// The session of the requests. `None` matches every session.
    pub session: Option<SessionId>,
    /// The open or lock that the requests use. `None` matches every state id.
    pub state: Option<StateId>,
    /// The file of the transfers. `None` matches every file.
    pub file: Option<FileKey>,
    /// The offset of the first byte of the range.
    pub offset: u64,
    /// The number of bytes in the range; `u64::MAX` extends the range to the end of the file.
    pub length: u64,
}

impl AbortScope {
    /// The scope that matches all requests. Set its fields to restrict it.
    pub const EVERYTHING: Self =
        Self { session: None, state: None, file: None, offset: 0, length: u64::MAX };
}

/// The effect of a call of [`super::BatchScheduler::abort`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aborted {
    /// The number of requests that failed because of the abort.
    pub requests: u32,
    /// The number of transfers in the scope that are in flight. The caller must wait until
    /// [`super::BatchScheduler::is_running`] returns false before it relies on the abort.
    pub running: u32,
}

/// The requests of a session that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedSession {
    /// The number of requests whose completion will not be reported.
    pub requests: u32,
    /// The number of these requests that have transfers in flight. Such a request ends without a
    /// report when its runs end.
    pub running: u32,
}

/// The load of the scheduler, or of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchLoad {
    /// The number of requests that were not reported yet.
    pub requests: u32,
    /// The number of transfers of incomplete requests.
    pub transfers: u32,
    /// The number of bytes of incomplete requests.
    pub bytes: u64,
}
