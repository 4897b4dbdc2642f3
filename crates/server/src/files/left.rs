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
pub(crate) enum Left {
    Commit(CommitTask),
    Size(SizeTask),
    Times(TimesTask),
    Grant(GrantTask),
}

/// Data on its way to the file or to stable storage.
#[derive(Debug)]
pub(crate) struct CommitTask {
    pub ticket: CommitTicket,
    pub file: CachedFile,
    /// The file is open for this request alone.
    pub borrowed: bool,
    pub then: Then,
}

/// What an operation comes to once its data is where it is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Then {
    Committed,
    Written {
        length: u32,
        stability: Stability,
    },
    /// With the place at the file's end, if the next append must wait for this one's outcome.
    Appended {
        offset: u64,
        stability: Stability,
        has_place: bool,
    },
    Closed {
        /// Not before this is durable.
        after: RecordNumber,
    },
    /// What ends auto-recovery locks comes behind it.
    Ending(Ending),
}

/// A request that makes final what was changed under auto-recovery locks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ending {
    Unlock(LockSpan),
    Close(Close),
}

/// A change of size on its way, other attributes follow.
#[derive(Debug)]
pub(crate) struct SizeTask {
    /// Who asked; the connection may be gone by the time it is done.
    pub who: Arc<Asker>,
    pub file: CachedFile,
    /// The file is open for this request alone.
    pub borrowed: bool,
    pub handle: FileHandle,
    pub size: u64,
    /// Undo that was kept when it was let in.
    pub undo_seen: UndoSeen,
    pub rest: AttributeChanges,
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
pub(crate) enum SizeReply {
    SetAttributes,
    Open(Box<(Opened, RecordNumber)>),
}

/// Times to be set, once what was written before is in the file: its way there sets them, too.
#[derive(Debug)]
pub(crate) struct TimesTask {
    /// Who asked; the connection may be gone by the time it is done.
    pub who: Arc<Asker>,
    pub file: CachedFile,
    /// The file is open for this request alone.
    pub borrowed: bool,
    pub handle: FileHandle,
    pub ticket: CommitTicket,
    pub times: AttributeChanges,
    pub set: AttributeSet,
}

/// A granted lock whose answer waits for what others have under way.
#[derive(Debug)]
pub(crate) struct GrantTask {
    pub file: Option<CachedFile>,
    pub range: ByteRange,
    pub mode: LockMode,
    pub after: RecordNumber,
}

impl GrantTask {
    /// Whether somebody else's transfers are under way in the range.
    pub fn waits(&self, under_way: &UnderWay) -> bool {
        self.file.is_some_and(|file| under_way.has_conflicting(file, self.range, self.mode))
    }
}
