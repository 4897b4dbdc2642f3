//! The accesses to files that waiting requests may still make.
//!
//! Invariant: every waiting request that may still read or change bytes of a file is in this table
//! with its range.

use dafs_filer::locks::{ByteRange, LockMode};
use dafs_store::cache::CachedFile;

use crate::undo::seen::UndoSeen;

/// The id of a request in progress. The caller of the operation assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(pub u32);

/// A range of a file that a waiting request may still access, and the kind of the access.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// The cache's id of the file.
    pub file: CachedFile,
    /// The range of bytes. `None` means the whole file.
    pub range: Option<ByteRange>,
    /// For a change, the state of undo data when the change was checked. `None` for a read.
    pub changes: Option<UndoSeen>,
}

impl Reach {
    /// Creates the value for a read or write of this range. A length of 0 counts as one byte.
    pub fn of(file: CachedFile, (offset, length): (u64, u32), changes: Option<UndoSeen>) -> Self {
        let range = ByteRange::new(offset, u64::from(length.max(1)));
        Self { file, range, changes }
    }

    fn meets(&self, range: ByteRange) -> bool {
        self.range.is_none_or(|own| own.overlaps(range))
    }
}

/// The table of accesses of all waiting requests, indexed by request id.
#[derive(Debug, Default)]
pub struct UnderWay {
    slots: Vec<Option<Reach>>,
}

impl UnderWay {
    /// Adds a waiting request. `reach` is `None` if the request accesses no range of a file.
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

    /// Iterates over the accesses that waiting requests may still make to a file.
    fn on(&self, file: CachedFile) -> impl Iterator<Item = &Reach> {
        self.slots.iter().flatten().filter(move |reach| reach.file == file)
    }

    /// Returns true if a read or write of a waiting request conflicts with a lock of this range and
    /// mode.
    pub fn has_conflicting(&self, file: CachedFile, range: ByteRange, mode: LockMode) -> bool {
        let minds = |reach: &Reach| mode == LockMode::Write || reach.changes.is_some();
        self.on(file).any(|reach| minds(reach) && reach.meets(range))
    }

    /// Returns true if a waiting request may still change the range, and was checked before this
    /// undo data existed.
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
