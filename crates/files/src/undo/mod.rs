//! Undo for auto-recovery locks (draft 4.4.1.4): saves the content of a file before it is changed
//! under such a lock, and restores the content if the lock's holder fails or aborts.
//!
//! The filer's lock table decides for which ranges undo data is kept ([`LockAction::KeepUndo`],
//! `DropUndo`, `Rollback`). The journal always names the valid undo data for each range. The undo
//! data itself is in the same storage as the journal (`journal/src/undo`). A change passes the
//! [`gate`] before the cache accepts it. The gate copies the overwritten data or, where the file
//! system supports it, clones the data. A rollback restores the data through the cache.
//!
//! | event | record in the journal | undo data |
//! |---|---|---|
//! | a lock was granted | `UndoKept`, before the reply | none |
//! | its first change was accepted | | created: the file's size, then what changes overwrite |
//! | it ended, or was rolled back | `UndoDropped`, after the lock's record | kept until then |
//!
//! Invariants:
//! - No byte in a range with undo data changes before its old value is durable.
//! - After any crash, the journal names the valid undo data for each byte of an auto-recovery lock.
//!   If it names none, the byte was not changed.
//!
//! [`LockAction::KeepUndo`]: dafs_filer::locks::LockAction::KeepUndo

mod batch;
mod clones;
pub mod gate;
mod jobs;
mod restart;
mod rollback;
pub mod seen;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use clones::Clones;
use dafs_filer::FileKey;
use dafs_filer::locks::ByteRange;
use dafs_journal::undo::PieceNumber;
use dafs_journal::{Ranges, RecordNumber, Storage, UndoConfig, UndoId, UndoLog};
use dafs_store::{File, Store, StoreError};
use dafs_types::{FileHandle, Random, Status};

use crate::defect::Defect;
use crate::needs::Need;
use crate::under_way::TaskId;

pub use jobs::{UndoTask, UndoTaskDone};
pub use restart::RecordedLock;
use rollback::Rollback;

/// A range of a file for which undo data is kept, and the id of that undo data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The range of the file.
    pub range: ByteRange,
    /// The id of the undo data.
    pub id: UndoId,
}

/// A file that has undo data. It stays open, because its key is valid only while it is open.
struct UndoneFile {
    handle: FileHandle,
    open: Arc<dyn File>,
    /// The ranges of the file for which undo data is kept. They do not overlap.
    extents: Vec<Extent>,
}

/// The state of the undo data of one lock, in this server.
enum Blob {
    /// There is no undo data, because no change was made.
    Absent,
    /// The undo data was written by the previous server and was not opened yet.
    Closed,
    /// A job is using the undo data.
    Busy,
    Open(Box<UndoLog>),
    /// The undo data could not be created or read. Changes are refused.
    Failed,
}

struct Kept {
    blob: Blob,
    /// The changes that wait for the undo data.
    waiters: Vec<TaskId>,
    /// The numbers and ranges of the pieces that are saved but not durable yet.
    fresh: VecDeque<(PieceNumber, Range<u64>)>,
    /// False if sharing blocks between the file and the undo data is known to be impossible.
    may_clone: bool,
    /// The ranges for which cloning was tried, successfully or not.
    tried: Ranges,
    /// The ranges of the changes that were accepted. `None` if they are unknown.
    changed: Option<Ranges>,
    /// The error of an earlier write whose data was lost. It was not reported to a client yet.
    lost: Option<StoreError>,
}

/// The undo data of all files.
pub struct Undo {
    storage: Arc<dyn Storage>,
    config: UndoConfig,
    /// The store in which the files to restore are opened.
    store: Arc<dyn Store>,
    next: u64,
    files: BTreeMap<FileKey, UndoneFile>,
    data: BTreeMap<UndoId, Kept>,
    rollbacks: Vec<Rollback>,
    clones: Clones,
    /// Undo data whose locks have ended, with the number of the record that must be durable before
    /// it is removed.
    pending_removal: VecDeque<(RecordNumber, UndoId)>,
    /// The source of random numbers that distinguish this server's undo data from older data.
    seeds: Random,
    /// True if a test injects the defect that the first piece is not saved.
    forgets_block: bool,
    /// The piece that was not saved because of the injected defect.
    forgotten: Option<(UndoId, Range<u64>)>,
    /// True if a test injects the defect that blocks are shared before dirty data is written.
    clones_unwritten: bool,
}

/// The decision about a change that passes the gate.
#[derive(Debug)]
pub enum UndoGate {
    /// The change may be made, because the bytes that it overwrites are saved.
    Open,
    /// The change must wait until the [`Need`] is satisfied.
    Needs(Need),
    /// The change must wait. A notice will name the task when the change must be retried.
    Shut,
    /// The change is refused, because the bytes that it overwrites cannot be saved.
    Refused(Status),
}

impl Undo {
    fn new(storage: Arc<dyn Storage>, config: UndoConfig, store: Arc<dyn Store>) -> Self {
        Self {
            clones: Clones::new(storage.has_reflinks()),
            storage,
            config,
            store,
            next: 1,
            files: BTreeMap::new(),
            data: BTreeMap::new(),
            rollbacks: Vec::new(),
            pending_removal: VecDeque::new(),
            seeds: Random::new(0),
            forgets_block: false,
            forgotten: None,
            clones_unwritten: false,
        }
    }

    /// Sets the source of random numbers, and the defect to inject, if any.
    pub fn prepare(&mut self, seeds: Random, defect: Option<Defect>) {
        self.seeds = seeds;
        self.forgets_block = defect == Some(Defect::ForgetUndoBlock);
        self.clones_unwritten = defect == Some(Defect::CloneUnwritten);
    }

    /// Returns true if no file has undo data.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the number of files with undo data.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Returns the number of rollbacks in progress.
    pub fn rollback_count(&self) -> usize {
        self.rollbacks.len()
    }

    /// Returns true if rollbacks or clones are in progress.
    pub fn is_at_work(&self) -> bool {
        self.rollback_count() > 0 || self.clones.count() > 0
    }

    /// Returns the number of bytes that undo data has shared with files since the start.
    pub fn cloned_bytes(&self) -> u64 {
        self.clones.bytes
    }

    /// Returns the number of locks that have undo data now.
    pub fn data_count(&self) -> usize {
        self.data.len()
    }

    /// Starts to keep undo data for a range of a file.
    pub fn keep(
        &mut self,
        key: FileKey,
        handle: FileHandle,
        file: &Arc<dyn File>,
        range: ByteRange,
    ) -> UndoId {
        let id = UndoId(self.next);
        self.next += 1;
        self.enter(key, handle, file, Extent { range, id });
        self.data.insert(id, Kept::new(Blob::Absent));
        id
    }

    fn enter(&mut self, key: FileKey, handle: FileHandle, file: &Arc<dyn File>, extent: Extent) {
        let made = || UndoneFile { handle, open: file.clone(), extents: Vec::new() };
        self.files.entry(key).or_insert_with(made).extents.push(extent);
    }

    /// Stops keeping undo data for a range. `after` is the number of the journal record which says
    /// so. Returns the tasks whose changes need not wait any more.
    pub fn drop_range(
        &mut self,
        key: FileKey,
        range: ByteRange,
        after: RecordNumber,
    ) -> Vec<TaskId> {
        let Some(file) = self.files.get_mut(&key) else { return Vec::new() };
        let before = std::mem::take(&mut file.extents);
        file.extents = without(&before, range);
        let left = |id: UndoId| file.extents.iter().any(|extent| extent.id == id);
        let ended: Vec<UndoId> =
            before.iter().map(|extent| extent.id).filter(|&id| !left(id)).collect();
        if file.extents.is_empty() {
            self.files.remove(&key);
        }
        let mut woken = Vec::new();
        for id in ended {
            let Some(undo) = self.data.remove(&id) else { continue };
            woken.extend(undo.waiters);
            match undo.blob {
                Blob::Absent => {}
                // The undo data is removed at the end of the job.
                _ if self.clones.is_sharing(id) => {}
                Blob::Closed | Blob::Open(_) | Blob::Failed => {
                    self.pending_removal.push_back((after, id))
                }
                // The undo data is removed at the end of the job.
                Blob::Busy => {}
            }
        }
        woken
    }

    /// Returns the handle of a file with undo data.
    pub fn handle_of(&self, key: FileKey) -> Option<FileHandle> {
        Some(self.files.get(&key)?.handle)
    }

    /// Returns true if undo data is kept for any range of a file.
    pub fn has_file(&self, handle: &FileHandle) -> bool {
        self.files.values().any(|file| file.handle == *handle)
    }

    /// Iterates over all ranges for which undo data is kept, each with the handle of its file.
    pub fn extents(&self) -> impl Iterator<Item = (FileHandle, Extent)> + '_ {
        let with_handle = |file: &UndoneFile, extent: &Extent| (file.handle, *extent);
        self.files
            .values()
            .flat_map(move |file| file.extents.iter().map(move |extent| with_handle(file, extent)))
    }

    /// Returns the ranges of a file that have undo data and overlap `range`, in order of their
    /// offsets.
    fn extents_in(&self, file: &UndoneFile, range: ByteRange) -> Vec<Extent> {
        let mut found: Vec<Extent> =
            file.extents.iter().filter(|extent| extent.range.overlaps(range)).copied().collect();
        found.sort_unstable_by_key(|extent| extent.range.first());
        found
    }

    /// Removes from the queue and returns the id of the next undo data to remove. `None` if no
    /// record for such a removal is durable yet.
    fn next_doomed(&mut self, durable: RecordNumber) -> Option<UndoId> {
        self.pending_removal.front().filter(|(number, _)| *number <= durable)?;
        self.pending_removal.pop_front().map(|(_, id)| id)
    }
}

impl Kept {
    fn new(blob: Blob) -> Self {
        let changed = matches!(blob, Blob::Absent).then(Ranges::default);
        Self {
            blob,
            waiters: Vec::new(),
            fresh: VecDeque::new(),
            may_clone: true,
            tried: Ranges::default(),
            changed,
            lost: None,
        }
    }

    /// Records the range of an accepted change.
    fn note_change(&mut self, range: Range<u64>) {
        if let Some(changed) = &mut self.changed {
            changed.insert(range);
            if changed.count() > CHANGED_COUNT_MAX {
                self.changed = None;
            }
        }
    }
}

/// The maximum number of changed ranges that are tracked for the undo data of one lock.
const CHANGED_COUNT_MAX: usize = 1 << 16;

/// Returns the extents without those parts that are inside `range`.
pub fn without(extents: &[Extent], range: ByteRange) -> Vec<Extent> {
    let (first, last) = (range.first(), range.last());
    let mut left = Vec::with_capacity(extents.len() + 1);
    for &Extent { range: held, id } in extents {
        if !held.overlaps(range) {
            left.push(Extent { range: held, id });
            continue;
        }
        let before = first.checked_sub(1).and_then(|end| ByteRange::from_ends(held.first(), end));
        let behind = last.checked_add(1).and_then(|start| ByteRange::from_ends(start, held.last()));
        left.extend([before, behind].into_iter().flatten().map(|range| Extent { range, id }));
    }
    left
}

/// Converts a range with an inclusive end to offsets with an exclusive end.
fn offsets(range: ByteRange) -> Range<u64> {
    range.first()..range.last().saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(first: u64, last: u64, id: u64) -> Extent {
        Extent { range: ByteRange::from_ends(first, last).unwrap(), id: UndoId(id) }
    }

    #[test]
    fn a_range_is_taken_out_of_extents() {
        let extents = [extent(0, 9, 1), extent(10, 19, 2), extent(30, 39, 3)];
        let left = without(&extents, ByteRange::from_ends(5, 34).unwrap());
        assert_eq!(left, [extent(0, 4, 1), extent(35, 39, 3)]);
        let left = without(&extents, ByteRange::from_ends(12, 13).unwrap());
        let parted = [extent(0, 9, 1), extent(10, 11, 2), extent(14, 19, 2), extent(30, 39, 3)];
        assert_eq!(left, parted);
        assert_eq!(without(&extents, ByteRange::WHOLE), []);
        let whole = [Extent { range: ByteRange::WHOLE, id: UndoId(1) }];
        let left = without(&whole, ByteRange::from_ends(7, u64::MAX).unwrap());
        assert_eq!(left, [extent(0, 6, 1)]);
    }
}
