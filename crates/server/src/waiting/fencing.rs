//! Fencing: controls which clients may still access a file or a file system (draft 4.4.4, 6.4), and
//! how operations in progress end when their clients are fenced out.
//!
//! Every request lists the handles that it accesses in [`touched`], and the fencing lists of these
//! objects are checked when the request is dispatched. The fencing list of an object that the
//! request finds by name is checked when the object is found. A request that waited is checked
//! again before it continues. So when a new list fences a client out, only the following operations
//! of that client can still have an effect:
//!
//! | operation                               | how it ends                                   |
//! |-----------------------------------------|-----------------------------------------------|
//! | reads, writes, truncations that wait for a file or for room | refused immediately |
//! | transfers into the file                 | finished, or aborted with their connection    |
//! | transfers out of the file               | finished, or aborted with their connection    |
//! | the file itself in a client's hands     | returned, or its connection is broken         |
//! | an append of which a part has arrived   | finished, because appends are atomic          |
//! | accepted data on its way to the disk (stable writes, COMMIT, CLOSE) | finished    |
//! | a request between intent and outcome    | finished if it was started, else refused      |
//!
//! Each strand of a batch counts as an operation of its own; a strand that has not started is
//! checked when it starts. These operations are reported to the filer. The reply to a change waits
//! until they have ended, and, if there is a journal, until the records of their ends are durable.
//! The change does not wait for requests that are checked again later: writes whose bytes are
//! verified before they reach the file, SETATTR_DIRECT, and requests that wait for busy names. A
//! client that stalls its transfers delays a change for at most
//! [`crate::Patience::fence`]; then its connection is broken.
//!
//! The data of requests that had their replies before the change is kept, even if it is only in the
//! cache.
//!
//! Invariant: after the reply to a change, no request of a fenced session changes any byte or name.
//! When a connection has ended, its remaining operations count as those of a session without an
//! identity.

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
    /// The destination of the reply to the change. `None` if an injected defect has already sent
    /// the reply.
    ticket: Option<ReplyTo>,
    /// The time at which the server breaks the connections that still delay the change.
    patient_until: Moment,
}

impl Fencing {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        Self {
            changes: BTreeMap::new(),
            next: 0,
            patience: config.patience.fence,
            has_warned: false,
            answers_early: config.defect == Some(Defect::AnswerFencesEarly),
        }
    }
}

/// Returns true if this work checks the fencing lists again before it has any effect.
fn is_checked_again(work: &Work) -> bool {
    match work {
        Work::Write(write) => {
            matches!(write.source, WriteSource::Sealed { .. } | WriteSource::Fetched { .. })
        }
        Work::Fetch(_) | Work::SealedBatch(_) => true,
        // Tasks that wait for a file or for cache space are checked when the list changes.
        Work::Read(_)
        | Work::Commit(_)
        | Work::Flush(_)
        | Work::Size(_)
        | Work::Range(_)
        | Work::Times(_)
        | Work::Grant(_)
        | Work::Strand(_) => false,
    }
}

/// Returns the handles that a request names and accesses. Objects that the request finds by name
/// are not included, nor are the transfers of a batch, each of which is checked separately.
pub(crate) fn touched<'r>(request: &'r Request<'_>) -> [Option<&'r FileHandle>; 2] {
    match request {
        // A fenced client must be able to lift its fence (`gaps.md`).
        Request::GetFencingList(_) | Request::SetFencingList(_) => [None; 2],
        request => handles::named(request),
    }
}

/// Returns the operation id of a parked task.
#[inline]
pub(crate) fn operation_of_task(id: TaskId) -> OperationId {
    OperationId(TASK | u64::from(id.0))
}

/// Returns the operation id of a transfer from the cache to a client.
#[inline]
pub(crate) fn operation_of_loan(id: LoanId) -> OperationId {
    OperationId(LOAN | id.to_bits())
}

/// Returns the operation id of a request between intent and outcome.
#[inline]
pub(crate) fn operation_of_intent(number: RecordNumber) -> OperationId {
    OperationId(INTENT | number.0)
}

const KINDS: u64 = 3 << 62;
const TASK: u64 = 1 << 62;
const LOAN: u64 = 2 << 62;
const INTENT: u64 = 3 << 62;
