//! Undo for auto-recovery locks (draft 4.4.1.4): what a file held before it was changed under
//! such a lock, and how it is put back if the lock's holder fails or changes its mind.
//!
//! The filer's lock table says which ranges are to be kept undo of ([`LockAction::KeepUndo`],
//! `DropUndo`, `Rollback`); the journal knows at any moment which undo data is good for which
//! range; the undo data itself lies in blobs beside the journal (`journal/src/undo`). A change
//! passes [`gate`] before the cache lets it in, which has what is overwritten copied or, where
//! the file system can, cloned; a rollback puts things back through the cache.
//!
//! | what | is in the journal | has a blob |
//! |---|---|---|
//! | a lock was granted | `UndoKept`, before the grant is answered | no |
//! | its first change was let in | | yes: the file's size, then what changes overwrite |
//! | it ended, or was rolled back | `UndoDropped`, behind its record | until that is durable |
//!
//! Invariant: no byte in a range of which undo is kept changes before what it was is durable;
//! whatever a crash leaves, the journal names for each byte of an auto-recovery lock the undo
//! data that is good for it, or none if nothing was changed.
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
use dafs_journal::{Ranges, RecordNumber, Shelf, UndoConfig, UndoId, UndoLog};
use dafs_store::{File, Store, StoreError};
use dafs_types::{FileHandle, Random, Status};

use crate::defect::Defect;
use crate::needs::Need;
use crate::under_way::TaskId;

pub use jobs::{UndoTask, UndoTaskDone};
pub use restart::RecordedLock;
use rollback::Rollback;

/// Bytes of a file of which undo is kept, and which undo data is theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The bytes that it is about.
    pub range: ByteRange,
    /// Which undo data it is.
    pub id: UndoId,
}

/// A file with extents. It stays open: its key means nothing otherwise.
struct UndoneFile {
    handle: FileHandle,
    open: Arc<dyn File>,
    /// They do not overlap.
    extents: Vec<Extent>,
}

/// Undo data, as far as this server has come with it.
enum Blob {
    /// There is none: nothing was changed.
    Unborn,
    /// It is as the last server has left it.
    Resting,
    /// A job has it.
    Busy,
    Open(Box<UndoLog>),
    /// It could not be made or read; changes are refused.
    Failed,
}

struct Kept {
    blob: Blob,
    /// Changes that wait for it.
    waiters: Vec<TaskId>,
    /// What was saved and is not durable yet.
    fresh: VecDeque<(PieceNumber, Range<u64>)>,
    /// Whether it may share blocks with the file, as far as is known yet.
    may_clone: bool,
    /// What was to be cloned, whatever came of it.
    tried: Ranges,
    /// What changes were let in to; `None` if that is not known.
    changed: Option<Ranges>,
    /// An earlier write of the file was lost, and nobody was told yet.
    lost: Option<StoreError>,
}

/// All undo that is kept.
pub struct Undo {
    shelf: Arc<dyn Shelf>,
    config: UndoConfig,
    /// Where files are opened that are to be put back.
    store: Arc<dyn Store>,
    next: u64,
    files: BTreeMap<FileKey, UndoneFile>,
    data: BTreeMap<UndoId, Kept>,
    rollbacks: Vec<Rollback>,
    clones: Clones,
    /// Undo data of no lock, to be removed once a record is durable.
    doomed: VecDeque<(RecordNumber, UndoId)>,
    /// What tells the undo data of this server from older data.
    seeds: Random,
    /// Defects on purpose: the first piece is not saved, and what it was.
    forgets_block: bool,
    forgotten: Option<(UndoId, Range<u64>)>,
    /// The same: blocks are shared before what the cache has of them is written.
    clones_unwritten: bool,
}

/// Whether a change may be made.
#[derive(Debug)]
pub enum UndoGate {
    /// What it overwrites is saved.
    Open,
    /// Not yet: this comes first.
    Needs(Need),
    /// Not yet. The task is named by a notice when it is to try again.
    Shut,
    /// What it overwrites cannot be saved.
    Refused(Status),
}

impl Undo {
    fn new(shelf: Arc<dyn Shelf>, config: UndoConfig, store: Arc<dyn Store>) -> Self {
        Self {
            clones: Clones::new(shelf.has_reflinks()),
            shelf,
            config,
            store,
            next: 1,
            files: BTreeMap::new(),
            data: BTreeMap::new(),
            rollbacks: Vec::new(),
            doomed: VecDeque::new(),
            seeds: Random::new(0),
            forgets_block: false,
            forgotten: None,
            clones_unwritten: false,
        }
    }

    /// Gives it random numbers, and a defect on purpose if it is to have one.
    pub fn prepare(&mut self, seeds: Random, defect: Option<Defect>) {
        self.seeds = seeds;
        self.forgets_block = defect == Some(Defect::ForgetUndoBlock);
        self.clones_unwritten = defect == Some(Defect::CloneUnwritten);
    }

    /// Whether there is nothing to keep undo of.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.files.is_empty()
    }

    /// Files of which undo is kept.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Rollbacks under way.
    pub fn rollback_count(&self) -> usize {
        self.rollbacks.len()
    }

    /// Whether anything waits to be pushed on.
    pub fn is_at_work(&self) -> bool {
        self.rollback_count() > 0 || self.clones.count() > 0
    }

    /// Bytes that undo data has shared with files, so far.
    pub fn cloned_bytes(&self) -> u64 {
        self.clones.bytes
    }

    /// Undo data there is.
    pub fn data_count(&self) -> usize {
        self.data.len()
    }

    /// Begins to keep undo of a range.
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
        self.data.insert(id, Kept::new(Blob::Unborn));
        id
    }

    fn enter(&mut self, key: FileKey, handle: FileHandle, file: &Arc<dyn File>, extent: Extent) {
        let made = || UndoneFile { handle, open: file.clone(), extents: Vec::new() };
        self.files.entry(key).or_insert_with(made).extents.push(extent);
    }

    /// Keeps no undo of a range any more. `after` is the record that says so. Whose changes
    /// need not wait any more.
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
                Blob::Unborn => {}
                // The job's end finds out.
                _ if self.clones.is_sharing(id) => {}
                Blob::Resting | Blob::Open(_) | Blob::Failed => self.doomed.push_back((after, id)),
                // The job's end finds out.
                Blob::Busy => {}
            }
        }
        woken
    }

    /// The handle of a file that undo is kept of.
    pub fn handle_of(&self, key: FileKey) -> Option<FileHandle> {
        Some(self.files.get(&key)?.handle)
    }

    /// Whether undo is kept of anything in a file.
    pub fn has_file(&self, handle: &FileHandle) -> bool {
        self.files.values().any(|file| file.handle == *handle)
    }

    /// Every extent, with its file.
    pub fn extents(&self) -> impl Iterator<Item = (FileHandle, Extent)> + '_ {
        let with_handle = |file: &UndoneFile, extent: &Extent| (file.handle, *extent);
        self.files
            .values()
            .flat_map(move |file| file.extents.iter().map(move |extent| with_handle(file, extent)))
    }

    /// The extents of a file that overlap a range, in order.
    fn extents_in(&self, file: &UndoneFile, range: ByteRange) -> Vec<Extent> {
        let mut found: Vec<Extent> =
            file.extents.iter().filter(|extent| extent.range.overlaps(range)).copied().collect();
        found.sort_unstable_by_key(|extent| extent.range.first());
        found
    }

    /// Undo data that nobody needs once a record is durable, which it is now.
    fn next_doomed(&mut self, durable: RecordNumber) -> Option<UndoId> {
        self.doomed.front().filter(|(number, _)| *number <= durable)?;
        self.doomed.pop_front().map(|(_, id)| id)
    }
}

impl Kept {
    fn new(blob: Blob) -> Self {
        let changed = matches!(blob, Blob::Unborn).then(Ranges::default);
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

    /// A change is let in.
    fn note_change(&mut self, range: Range<u64>) {
        if let Some(changed) = &mut self.changed {
            changed.insert(range);
            if changed.count() > CHANGED_COUNT_MAX {
                self.changed = None;
            }
        }
    }
}

/// Most ranges of changes that are kept track of, for each undo data.
const CHANGED_COUNT_MAX: usize = 1 << 16;

/// Extents less a range.
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

/// A range as offsets of a file: its end is behind its last byte.
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
