//! The table of accesses to files that waiting requests may still make.
//!
//! Invariant: every waiting request that may still read or change bytes of a file is in this table
//! with its range.

use dafs_filer::locks::{ByteRange, LockMode};
use dafs_store::cache::CachedFile;

use crate::undo::seen::UndoSeen;

/// The id of a request in progress, given by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(pub u32);

/// A range of a file, and the access that a waiting request may still make to it.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// The cache's id of the file.
    pub file: CachedFile,
    /// The range; `None` means the whole file.
    pub range: Option<ByteRange>,
    /// The state of undo when a change was checked; `None` for a read.
    pub changes: Option<UndoSeen>,
}

impl Reach {
    /// The access of a read or write. One of zero bytes counts as one of one byte.
    pub fn of(file: CachedFile, (offset, length): (u64, u32), changes: Option<UndoSeen>) -> Self {
        let range = ByteRange::new(offset, u64::from(length.max(1)));
        Self { file, range, changes }
    }

    fn meets(&self, range: ByteRange) -> bool {
        self.range.is_none_or(|own| own.overlaps(range))
    }
}

/// The accesses of all waiting requests, by request id.
#[derive(Debug, Default)]
pub struct UnderWay {
    slots: Vec<Option<Reach>>,
}

impl UnderWay {
    /// Enters a waiting request. `None` if it accesses no file.
    pub fn enter(&mut self, id: TaskId, reach: Option<Reach>) {
        let index = id.0 as usize;
        if self.slots.len() <= index {
            self.slots.resize(index + 1, None);
        }
        self.slots[index] = reach;
    }

    /// Removes a request that no longer waits.
    pub fn leave(&mut self, id: TaskId) {
        if let Some(slot) = self.slots.get_mut(id.0 as usize) {
            *slot = None;
        }
    }

    /// The accesses to a file.
    fn on(&self, file: CachedFile) -> impl Iterator<Item = &Reach> {
        self.slots.iter().flatten().filter(move |reach| reach.file == file)
    }

    /// Returns true if a read or write waits that conflicts with a lock.
    pub fn has_conflicting(&self, file: CachedFile, range: ByteRange, mode: LockMode) -> bool {
        let minds = |reach: &Reach| mode == LockMode::Write || reach.changes.is_some();
        self.on(file).any(|reach| minds(reach) && reach.meets(range))
    }

    /// Returns true if a change of the range waits that was checked at this state of undo.
    pub fn has_change(
        &self,
        file: CachedFile,
        range: ByteRange,
        has_seen: impl Fn(UndoSeen) -> bool,
    ) -> bool {
        self.on(file).any(|reach| reach.changes.is_some_and(&has_seen) && reach.meets(range))
    }

    /// Returns true if a waiting request may still change the file.
    pub fn is_changing(&self, file: CachedFile) -> bool {
        self.on(file).any(|reach| reach.changes.is_some())
    }
}
