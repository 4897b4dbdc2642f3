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
    /// The ranges of source files that copies may still read.
    sources: Vec<(TaskId, Reach)>,
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

    /// Adds the range of a source file that a waiting copy may still read.
    pub fn enter_source(&mut self, id: TaskId, reach: Reach) {
        self.sources.push((id, reach));
    }

    /// Removes a request that no longer waits.
    pub fn leave(&mut self, id: TaskId) {
        if !self.sources.is_empty() {
            self.sources.retain(|(other, _)| *other != id);
        }
        if let Some(slot) = self.slots.get_mut(id.0 as usize) {
            *slot = None;
        }
    }

    /// Iterates over the accesses that waiting requests may still make to a file.
    fn on(&self, file: CachedFile) -> impl Iterator<Item = &Reach> {
        let sources = self.sources.iter().map(|(_, reach)| reach);
        self.slots.iter().flatten().chain(sources).filter(move |reach| reach.file == file)
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

#[cfg(test)]
mod tests {
    use dafs_store::cache::{Cache, CacheConfig};
    use dafs_store::memory::{MemoryLimits, MemoryStore};
    use dafs_store::{AttributeChanges, Store};
    use dafs_types::{CreateMode, Credentials, ShareAccess};

    use super::*;
    use crate::undo::gate::undo_seen;

    fn files(count: usize) -> Vec<CachedFile> {
        let store = MemoryStore::new(MemoryLimits { bytes_max: 1000, object_count_max: 10 });
        let mut cache = Cache::new(CacheConfig::default()).unwrap();
        let who = Credentials::superuser();
        let top = store.root(&who).unwrap().handle;
        let (mode, none) = (CreateMode::Guarded, AttributeChanges::default());
        let make = |number: usize| {
            let name = number.to_string();
            let access = ShareAccess::Both;
            let (_, file) =
                store.create_file(&who, &top, name.as_bytes(), mode, &none, access).unwrap();
            let version = file.version().unwrap();
            cache.open(file, version).unwrap()
        };
        (0..count).map(make).collect()
    }

    #[test]
    fn a_copy_stands_in_the_way_of_locks_on_both_of_its_files() {
        let [source, target] = files(2)[..] else { panic!("two files") };
        let mut under_way = UnderWay::default();
        let id = TaskId(3);
        under_way.enter(id, Some(Reach::of(target, (100, 10), Some(undo_seen(&None)))));
        under_way.enter_source(id, Reach::of(source, (0, 10), None));
        let waits = |under_way: &UnderWay, file, from, mode| {
            under_way.has_conflicting(file, ByteRange::new(from, 5).unwrap(), mode)
        };
        assert!(waits(&under_way, source, 5, LockMode::Write));
        assert!(!waits(&under_way, source, 5, LockMode::Read), "two may read");
        assert!(!waits(&under_way, source, 10, LockMode::Write));
        assert!(waits(&under_way, target, 105, LockMode::Read));
        assert!(!waits(&under_way, target, 5, LockMode::Write));
        assert!(under_way.is_changing(target) && !under_way.is_changing(source));
        under_way.leave(id);
        assert!(!waits(&under_way, source, 5, LockMode::Write));
        assert!(!waits(&under_way, target, 105, LockMode::Read));
    }
}
