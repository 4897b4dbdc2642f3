//! What is under way on files, for those who must wait until it is over.
//!
//! Invariant: whatever waits, and may yet read or change bytes of a file, is listed here with the
//! range that it is about.

use dafs_filer::locks::{ByteRange, LockMode};
use dafs_store::cache::CachedFile;

use crate::undo::seen::UndoSeen;

/// Names a request that is under way. Whoever asked has given the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(pub u32);

/// Bytes of a file, and what a request that waits may yet do to them.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// The file, as the cache knows it.
    pub file: CachedFile,
    /// `None` is anywhere.
    pub range: Option<ByteRange>,
    /// The undo that was kept when a change was let in; a read has none.
    pub changes: Option<UndoSeen>,
}

impl Reach {
    /// A read or write of so many bytes; one of none counts as one of a byte.
    pub fn of(file: CachedFile, (offset, length): (u64, u32), changes: Option<UndoSeen>) -> Self {
        let range = ByteRange::new(offset, u64::from(length.max(1)));
        Self { file, range, changes }
    }

    fn meets(&self, range: ByteRange) -> bool {
        self.range.is_none_or(|own| own.overlaps(range))
    }
}

/// All that is under way, by the names of the requests.
#[derive(Debug, Default)]
pub struct UnderWay {
    slots: Vec<Option<Reach>>,
}

impl UnderWay {
    /// A request waits that may yet do this, or nothing to any file.
    pub fn enter(&mut self, id: TaskId, reach: Option<Reach>) {
        let index = id.0 as usize;
        if self.slots.len() <= index {
            self.slots.resize(index + 1, None);
        }
        self.slots[index] = reach;
    }

    /// A request waits no more.
    pub fn leave(&mut self, id: TaskId) {
        if let Some(slot) = self.slots.get_mut(id.0 as usize) {
            *slot = None;
        }
    }

    /// What is under way on a file.
    fn on(&self, file: CachedFile) -> impl Iterator<Item = &Reach> {
        self.slots.iter().flatten().filter(move |reach| reach.file == file)
    }

    /// Whether a read or write waits that a lock stands against.
    pub fn has_conflicting(&self, file: CachedFile, range: ByteRange, mode: LockMode) -> bool {
        let minds = |reach: &Reach| mode == LockMode::Write || reach.changes.is_some();
        self.on(file).any(|reach| minds(reach) && reach.meets(range))
    }

    /// Whether a change of a range waits that has seen such undo when it was let in.
    pub fn has_change(
        &self,
        file: CachedFile,
        range: ByteRange,
        has_seen: impl Fn(UndoSeen) -> bool,
    ) -> bool {
        self.on(file).any(|reach| reach.changes.is_some_and(&has_seen) && reach.meets(range))
    }

    /// Whether something waits that may yet change a file.
    pub fn is_changing(&self, file: CachedFile) -> bool {
        self.on(file).any(|reach| reach.changes.is_some())
    }
}
