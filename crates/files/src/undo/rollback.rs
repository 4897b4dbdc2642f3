//! Rollbacks: restore what a file contained when an auto-recovery lock was taken.
//!
//! A rollback waits until earlier changes have ended; the lock table lets no new ones start. Then
//! the saved pieces are written back through the cache, the last extent first. Each extent's part
//! of the file is cut off or cleared at the old end of the file. At last everything is synced.
//! After a crash in between, the rollback starts again; the saved pieces do not change.
//!
//! **The end of the file.** If the file now ends within the range, it has grown under the lock and
//! is cut off at its old end, but never before the start of the range, because bytes there may
//! belong to others. If it ends after the range, others have extended it. Then the part of the
//! range beyond the old end becomes zeros, as if they had left a hole there.
//!
//! Invariant: a rollback is reported as finished when the restored data is on stable storage.

mod steps;

use std::collections::VecDeque;

use dafs_filer::FileKey;
use dafs_filer::locks::{ByteRange, RollbackId};
use dafs_store::cache::{CachedFile, CommitTicket};
use dafs_types::Moment;

use super::batch::Source;
use super::{Blob, Extent, Undo};

pub(super) struct Rollback {
    id: RollbackId,
    key: FileKey,
    range: ByteRange,
    /// The file, held in the cache once the rollback has started.
    file: Option<CachedFile>,
    /// The extents still to restore, in order; the last one is restored first.
    left: Vec<Extent>,
    stage: Stage,
}

enum Stage {
    /// Waits for the end of changes in progress.
    Quiet,
    /// Writes dirty data to the file, to compare it there.
    Writing(CommitTicket),
    /// The next extent must be read.
    Next,
    /// A job reads undo data.
    Reading,
    /// Pieces are written back.
    WriteBack(WriteBack),
    /// The end of the file is restored.
    RestoringEnd { size: u64, clear_from: u64 },
    /// Everything is being synced.
    Syncing(CommitTicket),
    /// A step failed. The rollback starts again at this time.
    Again(Moment),
    /// The rollback is finished.
    Over,
}

struct WriteBack {
    pieces: VecDeque<(u64, Vec<u8>)>,
    /// The number of bytes of the first piece that are written back.
    done: usize,
    more: Option<Box<Source>>,
    size: u64,
}

/// The result of a step of a rollback.
enum StepResult {
    On,
    Wait,
    WaitForRoom,
    Failed(String),
}

impl Undo {
    /// Starts the rollback of a range.
    pub fn roll_back(&mut self, id: RollbackId, key: FileKey, range: ByteRange) {
        let (file, left, stage) = (None, Vec::new(), Stage::Quiet);
        self.rollbacks.push(Rollback { id, key, range, file, left, stage });
    }
}

impl Blob {
    /// Returns true if the undo data may contain saved pieces.
    fn may_hold_pieces(&self) -> bool {
        match self {
            Blob::Absent => false,
            Blob::Closed | Blob::Busy | Blob::Open(_) | Blob::Failed => true,
        }
    }
}

/// The most bytes written back in one step, so that other work gets its turn.
const PUT_BYTES_MAX: u32 = 1 << 20;
/// The pause before a failed rollback starts again.
const RETRY_PERIOD: std::time::Duration = std::time::Duration::from_secs(2);
