//! What operations come to: at once, or later.
//!
//! Invariant: an operation never replies. It says what it did, or what is left to do; who asked,
//! and over which connection, is the business of whoever called it.

use dafs_filer::WaiterId;
use dafs_journal::RecordNumber;
use dafs_ops::{Appended, Committed, Fault, Opened, Partial, Refusal, Set, Written};
use dafs_store::StoreError;
use dafs_types::{ClientId, FileHandle, Status};

use crate::left::Left;

/// What an operation has come to so far.
#[derive(Debug)]
pub enum Now<T> {
    /// It is done.
    Done(T),
    /// This is left to do.
    Later(Box<Left>),
}

impl<T> Now<T> {
    /// Something is left to do.
    pub fn later(left: Left) -> Self {
        Self::Later(Box::new(left))
    }
}

impl Now<Outcome> {
    /// It is done, and may be told once a record is durable.
    pub fn done(ended: Ended, after: RecordNumber) -> Self {
        Self::Done(Outcome { result: Ok(ended), after })
    }
}

/// Why an operation was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// It failed.
    Failed(Fault),
    /// It failed on its way, and how far it came belongs to the answer.
    Partly(Box<Refusal<'static>>),
    /// It has had no effect yet, and waits until a delegation has ended: this is the name that
    /// it waits by.
    Recalls(WaiterId),
    /// It has had no effect yet, and waits until the holder of a delegation has answered this.
    Asks(Box<Question>),
}

/// What the holder of a delegation is to be asked: what its file is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Who is asked.
    pub client: ClientId,
    /// About which file.
    pub file: FileHandle,
    /// What waits for the answer.
    pub waiter: WaiterId,
}

impl NotDone {
    /// It failed on its way.
    pub fn partly(fault: Fault, partial: Partial<'static>) -> Self {
        Self::Partly(Box::new(Refusal { fault, partial }))
    }
}

impl From<Fault> for NotDone {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

/// Of what DAFS refuses by itself.
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

/// What an operation that is done has done.
#[derive(Debug)]
pub enum Ended {
    /// Bytes are written.
    Written(Written),
    /// Bytes are appended.
    Appended(Appended),
    /// What was written is stable.
    Committed(Committed),
    /// An open has ended.
    Closed,
    /// Locks have ended.
    Unlocked,
    /// A lock is granted.
    Locked,
    /// A file is open.
    Opened(Box<Opened>),
    /// Attributes are set.
    Set(Set),
    /// A fencing list holds.
    Fenced,
}

/// What came of an operation.
#[derive(Debug)]
pub struct Outcome {
    /// What it has done, or why it has not.
    pub result: Result<Ended, Box<Refusal<'static>>>,
    /// Not to be told before this record is durable; 0 waits for none.
    pub after: RecordNumber,
}

impl Outcome {
    /// It may be told at once.
    #[inline]
    pub fn done(ended: Ended) -> Self {
        Self { result: Ok(ended), after: RecordNumber(0) }
    }

    /// It failed, and there is nothing more to be said.
    pub fn failed(why: impl Into<Fault>) -> Self {
        Self::refused(why, Partial::Nothing)
    }

    /// It failed, and this is known besides.
    pub fn refused(why: impl Into<Fault>, partial: Partial<'static>) -> Self {
        let refusal = Refusal { fault: why.into(), partial };
        Self { result: Err(Box::new(refusal)), after: RecordNumber(0) }
    }
}
