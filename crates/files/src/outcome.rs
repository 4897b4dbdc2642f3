//! Results of operations, now or later.
//!
//! Invariant: an operation never replies. It returns what it did, or what is left to do. Only its
//! caller knows the client and the connection.

use dafs_filer::WaiterId;
use dafs_journal::RecordNumber;
use dafs_ops::{Appended, Committed, Fault, Opened, Partial, Refusal, Set, Written};
use dafs_store::StoreError;
use dafs_types::{ClientId, FileHandle, Status};

use crate::left::RemainingWork;

/// The result of an operation, or its remaining work.
#[derive(Debug)]
pub enum Now<T> {
    /// The operation is finished.
    Done(T),
    /// This work is left to do.
    Later(Box<RemainingWork>),
}

impl<T> Now<T> {
    /// Returns remaining work as the result.
    pub fn later(left: RemainingWork) -> Self {
        Self::Later(Box::new(left))
    }
}

impl Now<Outcome> {
    /// A finished operation whose reply waits until a record is durable.
    pub fn done(ended: Ended, after: RecordNumber) -> Self {
        Self::Done(Outcome { result: Ok(ended), after })
    }
}

/// The reason why an operation was not executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// The operation failed.
    Failed(Fault),
    /// The operation failed on its way, and the reply contains how far it got.
    Partly(Box<Refusal<'static>>),
    /// The operation has had no effect yet and must wait for the end of a delegation. The id is
    /// that of the waiting request.
    AwaitsRecall(WaiterId),
    /// The operation has had no effect yet and must wait for the reply of a delegation's holder.
    AwaitsHolder(Box<HolderQuery>),
}

/// A request to the holder of a delegation for the attributes of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderQuery {
    /// The client that holds the delegation.
    pub client: ClientId,
    /// The handle of the delegated file.
    pub file: FileHandle,
    /// The id of the request that waits for the reply.
    pub waiter: WaiterId,
}

impl NotDone {
    /// A failure with a partial result.
    pub fn partly(fault: Fault, partial: Partial<'static>) -> Self {
        Self::Partly(Box::new(Refusal { fault, partial }))
    }
}

impl From<Fault> for NotDone {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

/// For requests that the DAFS front end itself refuses.
impl From<Status> for NotDone {
    fn from(status: Status) -> Self {
        Self::Failed(status.into())
    }
}

impl From<StoreError> for NotDone {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

/// What a finished operation has done.
#[derive(Debug)]
pub enum Ended {
    /// Bytes were written.
    Written(Written),
    /// Bytes were appended.
    Appended(Appended),
    /// Written data is stable.
    Committed(Committed),
    /// An open has ended.
    Closed,
    /// Locks have ended.
    Unlocked,
    /// A lock was granted.
    Locked,
    /// A file was opened.
    Opened(Box<Opened>),
    /// Attributes were set.
    Set(Set),
    /// A new fencing list is in force.
    Fenced,
}

/// The outcome of an operation.
#[derive(Debug)]
pub struct Outcome {
    /// What the operation has done, or why it failed.
    pub result: Result<Ended, Box<Refusal<'static>>>,
    /// The reply waits until this record is durable; 0 means no wait.
    pub after: RecordNumber,
}

impl Outcome {
    /// A success that may be reported at once.
    #[inline]
    pub fn done(ended: Ended) -> Self {
        Self { result: Ok(ended), after: RecordNumber(0) }
    }

    /// A failure without a partial result.
    pub fn failed(why: impl Into<Fault>) -> Self {
        Self::refused(why, Partial::Nothing)
    }

    /// A failure with a partial result.
    pub fn refused(why: impl Into<Fault>, partial: Partial<'static>) -> Self {
        let refusal = Refusal { fault: why.into(), partial };
        Self { result: Err(Box::new(refusal)), after: RecordNumber(0) }
    }
}
