//! What is left to do of an operation that could not be finished at once.
//!
//! Invariant: it names files, users and what is to be done, and nobody who waits for it: whoever
//! asked keeps it, and has it carried on when what it waits for has come.

use std::sync::Arc;

use dafs_filer::locks::{ByteRange, LockMode};
use dafs_journal::RecordNumber;
use dafs_ops::{AttributeSet, Close, LockSpan, Opened};
use dafs_store::AttributeChanges;
use dafs_store::cache::{CachedFile, CommitTicket};
use dafs_types::{FileHandle, Stability};

use super::under_way::{Reach, UnderWay};
use crate::caller::Asker;
use crate::undo::seen::UndoSeen;

/// What is left to do.
#[derive(Debug)]
pub enum Left {
    /// Data is on its way.
    Commit(CommitTask),
    /// A size is to be set.
    Size(SizeTask),
    /// Times are to be set behind data.
    Times(TimesTask),
    /// A lock is granted, and not told yet.
    Grant(GrantTask),
}

/// Data on its way to the file or to stable storage.
#[derive(Debug)]
pub struct CommitTask {
    /// What the cache knows it by.
    pub ticket: CommitTicket,
    /// The file, as the cache knows it.
    pub file: CachedFile,
    /// The file is open for this request alone.
    pub borrowed: bool,
    /// What the operation comes to then.
    pub then: Then,
}

/// What an operation comes to once its data is where it is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Then {
    /// A commit is done.
    Committed,
    /// A write is done.
    Written {
        /// How many bytes it is.
        length: u32,
        /// How stable they are to be.
        stability: Stability,
    },
    /// With the place at the file's end, if the next append must wait for this one's outcome.
    Appended {
        /// Where in the file it begins.
        offset: u64,
        /// How stable they are to be.
        stability: Stability,
        /// Whether it still has the end of its file.
        has_place: bool,
    },
    /// An open has ended.
    Closed {
        /// Not before this is durable.
        after: RecordNumber,
    },
    /// What ends auto-recovery locks comes behind it.
    Ending(Ending),
}

/// A request that makes final what was changed under auto-recovery locks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// Locks end.
    Unlock(LockSpan),
    /// An open ends.
    Close(Close),
}

/// A change of size on its way, other attributes follow.
#[derive(Debug)]
pub struct SizeTask {
    /// Who asked; the connection may be gone by the time it is done.
    pub who: Arc<Asker>,
    /// The file, as the cache knows it.
    pub file: CachedFile,
    /// The file is open for this request alone.
    pub borrowed: bool,
    /// The file's handle.
    pub handle: FileHandle,
    /// The size that is to be set.
    pub size: u64,
    /// Undo that was kept when it was let in.
    pub undo_seen: UndoSeen,
    /// What else is to be set, behind the size.
    pub rest: AttributeChanges,
    /// What is set in the end, if all goes well.
    pub set: AttributeSet,
    /// What to answer when the size is set: SETATTR's result, or that of an OPEN.
    pub reply: SizeReply,
}

impl SizeTask {
    /// What it may yet change.
    pub fn reach(&self) -> Reach {
        let range = ByteRange::from_ends(self.size, u64::MAX);
        Reach { file: self.file, range, changes: Some(self.undo_seen) }
    }
}

/// Who asked for a change of size.
#[derive(Clone, Debug)]
pub enum SizeReply {
    /// A change of attributes.
    SetAttributes,
    /// An opening, which has this to tell, and not before a record is durable.
    Open(Box<(Opened, RecordNumber)>),
}

/// Times to be set, once what was written before is in the file: its way there sets them, too.
#[derive(Debug)]
pub struct TimesTask {
    /// Who asked; the connection may be gone by the time it is done.
    pub who: Arc<Asker>,
    /// The file, as the cache knows it.
    pub file: CachedFile,
    /// The file is open for this request alone.
    pub borrowed: bool,
    /// The file's handle.
    pub handle: FileHandle,
    /// What the cache knows it by.
    pub ticket: CommitTicket,
    /// What is to be set.
    pub times: AttributeChanges,
    /// What is set in the end, if all goes well.
    pub set: AttributeSet,
}

/// A granted lock whose answer waits for what others have under way.
#[derive(Debug)]
pub struct GrantTask {
    /// The file, as the cache knows it, if it is there.
    pub file: Option<CachedFile>,
    /// The bytes that it is about.
    pub range: ByteRange,
    /// How it is locked.
    pub mode: LockMode,
    /// Not to be told before this record is durable.
    pub after: RecordNumber,
}

impl GrantTask {
    /// Whether somebody else's transfers are under way in the range.
    pub fn waits(&self, under_way: &UnderWay) -> bool {
        self.file.is_some_and(|file| under_way.has_conflicting(file, self.range, self.mode))
    }
}
