//! Rollbacks, which restore the content that a file had when an auto-recovery lock was taken.
//!
//! A rollback waits until earlier changes of the file have ended; the lock table prevents new
//! changes. Then the saved pieces are written back through the cache, the last extent first. For
//! each extent, the file is truncated or cleared at its old end. Finally all restored data is
//! synced. After a crash during the rollback, the rollback starts again, because the saved pieces
//! do not change.
//!
//! **The end of the file.** If the file now ends within the range, it has grown under the lock. It
//! is truncated to its old size, but never before the start of the range, because bytes there may
//! belong to other owners. If the file ends after the range, other owners have extended it. Then
//! the part of the range beyond the old end is filled with zeros, as if those owners had left a
//! hole there.
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
    /// The cache's id of the file, which stays in use in the cache. `None` until the rollback has
    /// started.
    file: Option<CachedFile>,
    /// The extents (ranges with undo data) that must still be restored. The last extent in the list
    /// is restored first.
    left: Vec<Extent>,
    stage: Stage,
}

enum Stage {
    /// Waits until changes in progress have ended.
    Quiet,
    /// Writes dirty data to the file, so that the undo data can be compared with the file.
    Writing(CommitTicket),
    /// The undo data of the next extent (range) must be read.
    Next,
    /// A job is reading undo data.
    Reading,
    /// Pieces are being written back.
    WriteBack(WriteBack),
    /// The end of the file is being restored.
    RestoringEnd { size: u64, clear_from: u64 },
    /// The restored data is being synced.
    Syncing(CommitTicket),
    /// A step has failed. The rollback starts again at the given time.
    Again(Moment),
    /// The rollback is finished.
    Over,
}

struct WriteBack {
    pieces: VecDeque<(u64, Vec<u8>)>,
    /// The number of bytes of the first remaining piece that have been written back.
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
    /// Starts the rollback of a range of a file.
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

/// The maximum number of bytes that a rollback writes back in one step, so that it does not delay
/// other work.
const PUT_BYTES_MAX: u32 = 1 << 20;
/// The pause before a rollback that has failed starts again.
const RETRY_PERIOD: std::time::Duration = std::time::Duration::from_secs(2);
