//! The remaining work of operations that could not be finished immediately.
//!
//! Invariant: remaining work refers to files, users and the operation, but not to the request that
//! waits for the work. The caller stores the work, and continues it after the event for which the
//! work waits.

use std::sync::Arc;

use dafs_filer::locks::{ByteRange, LockMode};
use dafs_journal::RecordNumber;
use dafs_ops::{AttributeSet, Close, LockSpan, Opened};
use dafs_store::AttributeChanges;
use dafs_store::cache::{CachedFile, CommitTicket};
use dafs_types::{FileHandle, Stability};

use super::under_way::{Reach, UnderWay};
use crate::caller::Identity;
use crate::ranges::RangeTask;
use crate::undo::seen::UndoSeen;

/// The remaining work of an operation.
#[derive(Debug)]
pub enum RemainingWork {
    /// Data is being written to the file or to stable storage.
    Commit(CommitTask),
    /// The size of a file must be set, and then other attributes.
    Size(SizeTask),
    /// Times must be set after data is written.
    Times(TimesTask),
    /// A lock is granted, but the reply must wait for transfers.
    Grant(GrantTask),
    /// Storage of a range of a file is reserved, freed, shared, copied or searched.
    Range(Box<RangeTask>),
}

/// A commit in progress: it writes dirty data to the file or to stable storage, after which an
/// operation is finished.
#[derive(Debug)]
pub struct CommitTask {
    /// The cache's ticket of the commit.
    pub ticket: CommitTicket,
    /// The cache's id of the file.
    pub file: CachedFile,
    /// True if the server has opened the file for this request only.
    pub borrowed: bool,
    /// The operation to finish after the commit.
    pub then: Then,
}

/// The operation that a commit must finish after the data is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Then {
    /// The operation is a COMMIT.
    Committed,
    /// The operation is a WRITE.
    Written {
        /// The number of bytes written.
        length: u32,
        /// The stability that the client requested.
        stability: Stability,
    },
    /// The operation is an APPEND. It may still have reserved the end of the file, if the next
    /// append must wait until this append's outcome is journaled.
    Appended {
        /// The file offset of the first appended byte.
        offset: u64,
        /// The stability that the client requested.
        stability: Stability,
        /// True if the append has still reserved the end of its file.
        has_place: bool,
    },
    /// The operation is a CLOSE.
    Closed {
        /// The number of the record that must be durable before the reply is sent.
        after: RecordNumber,
    },
    /// The operation ends auto-recovery locks. They end after the data is on stable storage.
    Ending(Ending),
}

/// A request that ends auto-recovery locks, which makes the changes under them final.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// The request is a LOCKU.
    Unlock(LockSpan),
    /// The request is a CLOSE.
    Close(Close),
}

/// A change of a file's size in progress. Other attributes are set after it.
#[derive(Debug)]
pub struct SizeTask {
    /// The identity of the caller. The caller may have disconnected when the size is set.
    pub who: Arc<Identity>,
    /// The cache's id of the file.
    pub file: CachedFile,
    /// True if the server has opened the file for this request only.
    pub borrowed: bool,
    /// The handle of the file.
    pub handle: FileHandle,
    /// The new size in bytes.
    pub size: u64,
    /// The state of undo data at the time when the request was checked.
    pub undo_seen: UndoSeen,
    /// The other attributes, which are set after the size.
    pub rest: AttributeChanges,
    /// The attributes that the reply reports as set if no error occurs.
    pub set: AttributeSet,
    /// The operation to which the change of size belongs.
    pub reply: SizeReply,
}

impl SizeTask {
    /// Returns the range of bytes that the change of size may still affect.
    pub fn reach(&self) -> Reach {
        let range = ByteRange::from_ends(self.size, u64::MAX);
        Reach { file: self.file, range, changes: Some(self.undo_seen) }
    }
}

/// The operation to which a change of size belongs.
#[derive(Clone, Debug)]
pub enum SizeReply {
    /// The operation is a SETATTR.
    SetAttributes,
    /// The operation is an OPEN. The values are its results and the number of the record that must
    /// be durable before the reply.
    Open(Box<(Opened, RecordNumber)>),
}

/// Times that are set after dirty data is in the file, because writing the data changes the times.
#[derive(Debug)]
pub struct TimesTask {
    /// The identity of the caller. The caller may have disconnected when the times are set.
    pub who: Arc<Identity>,
    /// The cache's id of the file.
    pub file: CachedFile,
    /// True if the server has opened the file for this request only.
    pub borrowed: bool,
    /// The handle of the file.
    pub handle: FileHandle,
    /// The cache's ticket of the commit that writes the dirty data.
    pub ticket: CommitTicket,
    /// The times to set, and the mode to set if it has set-id bits.
    pub times: AttributeChanges,
    /// The attributes that the reply reports as set if no error occurs.
    pub set: AttributeSet,
}

/// A granted lock. Its reply waits until the transfers of other owners in the locked range have
/// ended.
#[derive(Debug)]
pub struct GrantTask {
    /// The cache's id of the file. `None` if the file is not cached.
    pub file: Option<CachedFile>,
    /// The locked range of bytes.
    pub range: ByteRange,
    /// The kind of the lock: shared or exclusive.
    pub mode: LockMode,
    /// The number of the record that must be durable before the reply is sent.
    pub after: RecordNumber,
}

impl GrantTask {
    /// Returns true if transfers of other owners are in progress in the locked range.
    pub fn waits(&self, under_way: &UnderWay) -> bool {
        self.file.is_some_and(|file| under_way.has_conflicting(file, self.range, self.mode))
    }
}
