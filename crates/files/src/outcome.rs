//! The results of operations, which are available immediately or later.
//!
//! Invariant: an operation never replies. It returns its result or its remaining work. Only its
//! caller knows the client and the connection.

use std::ops::Range;

use dafs_filer::WaiterId;
use dafs_journal::RecordNumber;
use dafs_ops::{
    Appended, Committed, Copied, Fault, Opened, Partial, Refusal, Set, Sought, Written,
};
use dafs_store::StoreError;
use dafs_types::{ClientId, FileHandle, Status};

use crate::left::RemainingWork;

/// The result of an operation, or its remaining work.
#[derive(Debug)]
pub enum Now<T> {
    /// The operation has finished with this result.
    Done(T),
    /// The operation has not finished; this is its remaining work.
    Later(Box<RemainingWork>),
}

impl<T> Now<T> {
    /// Creates the value for an operation that has remaining work.
    pub fn later(left: RemainingWork) -> Self {
        Self::Later(Box::new(left))
    }
}

impl Now<Outcome> {
    /// Creates the value for an operation that has finished, whose reply waits until a record is
    /// durable.
    pub fn done(ended: Ended, after: RecordNumber) -> Self {
        Self::Done(Outcome { result: Ok(ended), after })
    }
}

/// The reason why an operation was not executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// The operation has failed.
    Failed(Fault),
    /// The operation has failed after partial progress, which the reply contains.
    Partly(Box<Refusal<'static>>),
    /// The operation has had no effect yet, and must wait until a delegation ends. The id
    /// identifies the waiting request.
    AwaitsRecall(WaiterId),
    /// The operation has had no effect yet, and must wait for a reply from the holder of a
    /// delegation.
    AwaitsHolder(Box<HolderQuery>),
}

/// A query that asks the holder of a delegation for the attributes of the delegated file.
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
    /// Creates the value for a failure with a partial result.
    pub fn partly(fault: Fault, partial: Partial<'static>) -> Self {
        Self::Partly(Box::new(Refusal { fault, partial }))
    }
}

impl From<Fault> for NotDone {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

/// Converts the status of a request that the DAFS front end itself refuses.
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

/// The result of a finished operation.
#[derive(Debug)]
pub enum Ended {
    /// Bytes were written to a file.
    Written(Written),
    /// Bytes were appended to a file.
    Appended(Appended),
    /// Written data is on stable storage.
    Committed(Committed),
    /// An open has ended.
    Closed,
    /// One or more locks have ended.
    Unlocked,
    /// A lock was granted.
    Locked,
    /// A file was opened.
    Opened(Box<Opened>),
    /// Attributes were set.
    Set(Set),
    /// A new fencing list is in force.
    Fenced,
    /// Storage of a range was reserved, freed or shared.
    Ranged,
    /// A range was copied.
    Copied(Copied),
    /// A search in a file has ended.
    Sought(Sought),
    /// The holes of a range were listed.
    Listed(Holes),
}

/// The holes of a range of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    /// The holes, in ascending order. The rest of the range must be read.
    pub holes: Vec<Range<u64>>,
    /// The size of the file in bytes.
    pub size: u64,
}

/// The outcome of an operation, whether it succeeded or failed.
#[derive(Debug)]
pub struct Outcome {
    /// The results of the operation, or the error with which it failed.
    pub result: Result<Ended, Box<Refusal<'static>>>,
    /// The number of the record that must be durable before the reply is sent; 0 means no wait.
    pub after: RecordNumber,
}

impl Outcome {
    /// Creates the outcome of an operation that has succeeded and whose reply need not wait.
    #[inline]
    pub fn done(ended: Ended) -> Self {
        Self { result: Ok(ended), after: RecordNumber(0) }
    }

    /// Creates the outcome of a failure without a partial result.
    pub fn failed(why: impl Into<Fault>) -> Self {
        Self::refused(why, Partial::Nothing)
    }

    /// Creates the outcome of a failure with a partial result.
    pub fn refused(why: impl Into<Fault>, partial: Partial<'static>) -> Self {
        let refusal = Refusal { fault: why.into(), partial };
        Self { result: Err(Box::new(refusal)), after: RecordNumber(0) }
    }
}
