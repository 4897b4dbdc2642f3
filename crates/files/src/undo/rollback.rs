//! Rollbacks: a file gets back what it held when an auto-recovery lock was taken.
//!
//! A rollback waits until changes that were let in before have ended; nobody else is let in
//! meanwhile, says the lock table. Then the saved pieces go back through the cache, last extent
//! first, each extent's part of the file is cut off or cleared to where the file ended, and
//! all of it is synced. A crash on the way begins it anew: saved pieces stay what they are.
//!
//! **The end of the file.** If the file ends within the range now, it has grown under the lock,
//! and is cut off where it ended; but never before the range begins, since what is there may be
//! others'. If it ends behind the range, others have made it longer: what of the range was behind
//! the end then becomes zeros, as if they had skipped it.
//!
//! Invariant: a rollback is reported done when what it put back is on stable storage.

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
    /// The file, held in the cache, once it has begun.
    file: Option<CachedFile>,
    /// Extents yet to be put back; the last one goes first.
    left: Vec<Extent>,
    stage: Stage,
}

enum Stage {
    /// Until changes under way have ended.
    Quiet,
    /// What the cache has of it goes to the file, to be looked at there.
    Writing(CommitTicket),
    /// The next extent is to be read.
    Next,
    /// A job reads.
    Reading,
    /// Pieces go back.
    Putting(Putting),
    /// The file gets its end back.
    Fitting { size: u64, clear_from: u64 },
    /// All is synced.
    Syncing(CommitTicket),
    /// Something failed: it begins anew then.
    Again(Moment),
    /// Nothing is left to do.
    Over,
}

struct Putting {
    pieces: VecDeque<(u64, Vec<u8>)>,
    /// Bytes of the first piece that are back.
    done: usize,
    more: Option<Box<Source>>,
    size: u64,
}

/// How far a step came.
enum Turn {
    On,
    Wait,
    WaitForRoom,
    Failed(String),
}

impl Undo {
    /// Begins a rollback.
    pub fn roll_back(&mut self, id: RollbackId, key: FileKey, range: ByteRange) {
        let (file, left, stage) = (None, Vec::new(), Stage::Quiet);
        self.rollbacks.push(Rollback { id, key, range, file, left, stage });
    }
}

impl Blob {
    /// Whether anything may have been saved.
    fn may_hold_pieces(&self) -> bool {
        match self {
            Blob::Unborn => false,
            Blob::Resting | Blob::Busy | Blob::Open(_) | Blob::Failed => true,
        }
    }
}

/// Most bytes put back before others have their turn.
const PUT_BYTES_MAX: u32 = 1 << 20;
/// After a failure.
const RETRY_PERIOD: std::time::Duration = std::time::Duration::from_secs(2);
