//! Fencing: who may still reach a file or a file system (draft 4.4.4, 6.4), and how what
//! runs comes to its end when somebody is shut out.
//!
//! Every request names the handles it touches in [`touched`], and passes the fence with
//! them when it is dispatched; objects it finds by name pass when they are found. A request
//! that waited passes again before it goes on. So of all that whom a new list leaves out
//! has under way only this can still have an effect:
//!
//! | what                                    | how it ends                                   |
//! |-----------------------------------------|-----------------------------------------------|
//! | reads, writes, truncations that wait for a file or for room | refused at once     |
//! | transfers into the file                 | finished, or aborted with their connection    |
//! | transfers out of the file               | finished, or aborted with their connection    |
//! | the file itself in a client's hands     | returned, or its connection is broken         |
//! | an append of which a part is there      | finished: it is all or nothing                |
//! | data taken, on its way to the disk (stable writes, COMMIT, CLOSE) | finished      |
//! | a request between intent and outcome    | carried out if it had begun, refused if not   |
//!
//! Strands of batches are among them, each by itself; what of a batch has not begun passes when
//! it does. These are shown to the filer, and a change is answered when they are over, and durable
//! where there is a journal. What waits for something else passes again and is not waited
//! for: writes whose bytes are looked at before the file has them, SETATTR_DIRECT, requests
//! held for names that are busy. A client that lets its transfers stand keeps nobody waiting
//! for longer than [`crate::ServerConfig::fence_patience`]: then its connection is broken.
//!
//! Data that was answered for before stays, also where only the cache has it.
//!
//! Invariant: once a change is answered, no byte and no name changes by a request of a
//! session that the list leaves out. What is left of a connection that is gone counts as of
//! a session without an identity.

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

/// Changes of fencing lists under way, as many as the filer lets be.
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
    /// Under which whoever asked for it is told; `None` if that was done already, which is a
    /// defect.
    ticket: Option<ReplyTo>,
    /// Whoever keeps it waiting then loses the connection.
    patient_until: Moment,
}

impl Fencing {
    pub fn new(config: &ServerConfig) -> Self {
        Self {
            changes: BTreeMap::new(),
            next: 0,
            patience: config.fence_patience,
            has_warned: false,
            answers_early: config.defect == Some(Defect::AnswerFencesEarly),
        }
    }
}

/// Whether a request passes the fence again before it has any effect.
fn passes_again(work: &Work) -> bool {
    match work {
        Work::Write(write) => {
            matches!(write.source, WriteSource::Sealed { .. } | WriteSource::Fetched { .. })
        }
        Work::Fetch(_) | Work::SealedBatch(_) => true,
        // Those that wait for a file or for room pass again at once.
        Work::Read(_)
        | Work::Commit(_)
        | Work::Flush(_)
        | Work::Size(_)
        | Work::Times(_)
        | Work::Grant(_)
        | Work::Strand(_) => false,
    }
}

/// The handles a request names and touches. What it leads to by name is not among them; each
/// transfer of a batch passes by itself.
pub(crate) fn touched<'r>(request: &'r Request<'_>) -> [Option<&'r FileHandle>; 2] {
    match request {
        // Whoever is fenced out must be able to be let in again (`gaps.md`).
        Request::GetFencingList(_) | Request::SetFencingList(_) => [None; 2],
        request => handles::named(request),
    }
}

/// A parked request, as an operation.
#[inline]
pub(crate) fn operation_of_task(id: TaskId) -> OperationId {
    OperationId(TASK | u64::from(id.0))
}

/// A transfer out of the cache, as an operation.
#[inline]
pub(crate) fn operation_of_loan(id: LoanId) -> OperationId {
    OperationId(LOAN | id.to_bits())
}

/// A request between intent and outcome, as an operation.
#[inline]
pub(crate) fn operation_of_intent(number: RecordNumber) -> OperationId {
    OperationId(INTENT | number.0)
}

const KINDS: u64 = 3 << 62;
const TASK: u64 = 1 << 62;
const LOAN: u64 = 2 << 62;
const INTENT: u64 = 3 << 62;
