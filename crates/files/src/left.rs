//! The remaining work of operations that could not be finished at once.
//!
//! Invariant: it names files, users and the work, but not the request that waits for it. The caller
//! keeps it, and continues it when what it waits for has happened.

use std::sync::Arc;

use dafs_filer::locks::{ByteRange, LockMode};
use dafs_journal::RecordNumber;
use dafs_ops::{AttributeSet, Close, LockSpan, Opened};
use dafs_store::AttributeChanges;
use dafs_store::cache::{CachedFile, CommitTicket};
use dafs_types::{FileHandle, Stability};

use super::under_way::{Reach, UnderWay};
use crate::caller::Identity;
use crate::undo::seen::UndoSeen;

/// The remaining work of an operation.
#[derive(Debug)]
pub enum RemainingWork {
    /// Data is being written.
    Commit(CommitTask),
    /// A size must be set.
    Size(SizeTask),
    /// Times must be set after data is written.
    Times(TimesTask),
    /// A lock is granted, but the reply must wait.
    Grant(GrantTask),
}

/// Data being written to the file or to stable storage.
#[derive(Debug)]
pub struct CommitTask {
    /// The cache's ticket of the commit.
    pub ticket: CommitTicket,
    /// The cache's id of the file.
    pub file: CachedFile,
    /// True if the file is open for this request alone.
    pub borrowed: bool,
    /// The operation to finish after the commit.
    pub then: Then,
}

/// An operation to finish after its data is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Then {
    /// A COMMIT.
    Committed,
    /// A write.
    Written {
        /// The number of bytes.
        length: u32,
        /// The stability that the write asked for.
        stability: Stability,
    },
    /// An append. It keeps the end of the file if the next append must wait for its outcome.
    Appended {
        /// The offset of the append in the file.
        offset: u64,
        /// The stability that the append asked for.
        stability: Stability,
        /// True if the append still owns the end of its file.
        has_place: bool,
    },
    /// The end of an open.
    Closed {
        /// The reply waits until this record is durable.
        after: RecordNumber,
    },
    /// The end of auto-recovery locks, which must come after their data is stable.
    Ending(Ending),
}

/// A request that makes changes under auto-recovery locks final.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// LOCKU.
    Unlock(LockSpan),
    /// CLOSE.
    Close(Close),
}

/// A change of size in progress. Other attributes are set after it.
#[derive(Debug)]
pub struct SizeTask {
    /// The caller. Its connection may be gone by the time the size is set.
    pub who: Arc<Identity>,
    /// The cache's id of the file.
    pub file: CachedFile,
    /// True if the file is open for this request alone.
    pub borrowed: bool,
    /// The handle of the file.
    pub handle: FileHandle,
    /// The new size in bytes.
    pub size: u64,
    /// The state of undo when the request was checked.
    pub undo_seen: UndoSeen,
    /// The other attributes, to be set after the size.
    pub rest: AttributeChanges,
    /// All attributes that will be set if nothing fails.
    pub set: AttributeSet,
    /// The operation that the change of size belongs to.
    pub reply: SizeReply,
}

impl SizeTask {
    /// The range that the change of size may still affect.
    pub fn reach(&self) -> Reach {
        let range = ByteRange::from_ends(self.size, u64::MAX);
        Reach { file: self.file, range, changes: Some(self.undo_seen) }
    }
}

/// The operation that a change of size belongs to.
#[derive(Clone, Debug)]
pub enum SizeReply {
    /// A SETATTR.
    SetAttributes,
    /// An OPEN, with its results, and the record that must be durable before the reply.
    Open(Box<(Opened, RecordNumber)>),
}

/// Times to be set after dirty data is in the file, because writing the data changes them.
#[derive(Debug)]
pub struct TimesTask {
    /// The caller. Its connection may be gone by the time the times are set.
    pub who: Arc<Identity>,
    /// The cache's id of the file.
    pub file: CachedFile,
    /// True if the file is open for this request alone.
    pub borrowed: bool,
    /// The handle of the file.
    pub handle: FileHandle,
    /// The cache's ticket of the write-back.
    pub ticket: CommitTicket,
    /// The times, and perhaps a mode, to set.
    pub times: AttributeChanges,
    /// All attributes that will be set if nothing fails.
    pub set: AttributeSet,
}

/// A granted lock whose reply waits for transfers of others in its range.
#[derive(Debug)]
pub struct GrantTask {
    /// The cache's id of the file, if it is cached.
    pub file: Option<CachedFile>,
    /// The locked range of bytes.
    pub range: ByteRange,
    /// The kind of the lock.
    pub mode: LockMode,
    /// The reply waits until this record is durable.
    pub after: RecordNumber,
}

impl GrantTask {
    /// Returns true if transfers of others are in progress in the range.
    pub fn waits(&self, under_way: &UnderWay) -> bool {
        self.file.is_some_and(|file| under_way.has_conflicting(file, self.range, self.mode))
    }
}
