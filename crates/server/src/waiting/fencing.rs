//! Fencing: which clients may still access a file or a file system (draft 4.4.4, 6.4), and how
//! their operations in progress end when they are fenced out.
//!
//! Every request names the handles it accesses in [`touched`], and is checked against the fences of
//! these when it is dispatched. An object that it finds by name is checked when it is found. A
//! request that waited is checked again before it continues. So when a new list fences a client
//! out, only these of its operations can still have an effect:
//!
//! | operation                               | how it ends                                   |
//! |-----------------------------------------|-----------------------------------------------|
//! | reads, writes, truncations that wait for a file or for room | refused at once     |
//! | transfers into the file                 | finished, or aborted with their connection    |
//! | transfers out of the file               | finished, or aborted with their connection    |
//! | the file itself in a client's hands     | returned, or its connection is broken         |
//! | an append of which a part has arrived   | finished: it is all or nothing                |
//! | accepted data on its way to the disk (stable writes, COMMIT, CLOSE) | finished    |
//! | a request between intent and outcome    | finished if it was started, else refused      |
//!
//! Each strand of a batch counts as an operation of its own; what has not started is checked when
//! it does. These operations are reported to the filer. The reply to a change waits until they have
//! ended, and until their ends are durable if there is a journal. Everything else that waits is
//! checked again later, and the change does not wait for it: writes whose bytes are verified before
//! they reach the file, SETATTR_DIRECT, and requests that wait for busy names. A client that stalls
//! its transfers delays a change for at most [`crate::ServerConfig::fence_patience`]; then its
//! connection is broken.
//!
//! Data of requests that were answered before the change stays, even if only the cache has it.
//!
//! Invariant: after the reply to a change, no request of a fenced session changes any byte or name.
//! What remains of a connection that has ended counts as a session without an identity.

pub(crate) mod draining;

use std::collections::BTreeMap;
use std::time::Duration;

use dafs_filer::{FenceRequest, OperationId};
use dafs_files::defect::Defect;
use dafs_journal::RecordNumber;
use dafs_types::{FileHandle, Moment};
use dafs_wire::Request;

use crate::config::ServerConfig;
use crate::moving::transfer::LoanId;
use crate::reply_to::{ReplyTo, TaskId};
use crate::requests::handles;
use crate::task::{Work, WriteSource};

/// The changes of fencing lists in progress. The filer limits their number.
#[derive(Debug)]
pub(crate) struct Fencing {
    changes: BTreeMap<FenceRequest, Change>,
    next: u64,
    patience: Duration,
    has_warned: bool,
    answers_early: bool,
}

#[derive(Debug)]
struct Change {
    /// The destination of the reply; `None` if an injected defect has replied already.
    ticket: Option<ReplyTo>,
    /// After this time, connections that delay the change are broken.
    patient_until: Moment,
}

impl Fencing {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        Self {
            changes: BTreeMap::new(),
            next: 0,
            patience: config.fence_patience,
            has_warned: false,
            answers_early: config.defect == Some(Defect::AnswerFencesEarly),
        }
    }
}

/// Returns true if a request is checked again before it has any effect.
fn is_checked_again(work: &Work) -> bool {
    match work {
        Work::Write(write) => {
            matches!(write.source, WriteSource::Sealed { .. } | WriteSource::Fetched { .. })
        }
        Work::Fetch(_) | Work::SealedBatch(_) => true,
        // Tasks that wait for a file or for room are checked at once.
        Work::Read(_)
        | Work::Commit(_)
        | Work::Flush(_)
        | Work::Size(_)
        | Work::Times(_)
        | Work::Grant(_)
        | Work::Strand(_) => false,
    }
}

/// The handles that a request names and accesses. Objects that it finds by name are not included.
/// Each transfer of a batch is checked separately.
pub(crate) fn touched<'r>(request: &'r Request<'_>) -> [Option<&'r FileHandle>; 2] {
    match request {
        // A fenced client must be able to lift its fence (`gaps.md`).
        Request::GetFencingList(_) | Request::SetFencingList(_) => [None; 2],
        request => handles::named(request),
    }
}

/// The operation id of a parked request.
#[inline]
pub(crate) fn operation_of_task(id: TaskId) -> OperationId {
    OperationId(TASK | u64::from(id.0))
}

/// The operation id of a transfer out of the cache.
#[inline]
pub(crate) fn operation_of_loan(id: LoanId) -> OperationId {
    OperationId(LOAN | id.to_bits())
}

/// The operation id of a request between intent and outcome.
#[inline]
pub(crate) fn operation_of_intent(number: RecordNumber) -> OperationId {
    OperationId(INTENT | number.0)
}

const KINDS: u64 = 3 << 62;
const TASK: u64 = 1 << 62;
const LOAN: u64 = 2 << 62;
const INTENT: u64 = 3 << 62;
