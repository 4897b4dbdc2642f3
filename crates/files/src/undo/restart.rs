//! Restores the undo data of the previous server.
//!
//! Invariant: stored undo data is kept only as far as a recorded lock covers it. Undo data outside
//! recorded locks belongs to locks that have ended, and is removed before the first request.

use std::collections::BTreeSet;
use std::sync::Arc;

use dafs_filer::FileKey;
use dafs_filer::locks::{LockRecord, RecordPhase};
use dafs_journal::{Storage, StorageError, UndoConfig, UndoError, UndoId, UndoLog};
use dafs_store::{File, Store};
use dafs_types::FileHandle;

use super::{Blob, Extent, Kept, Undo, without};

/// A recorded lock and its file.
pub struct RecordedLock {
    /// The handle of the file.
    pub handle: FileHandle,
    /// The file, open in the store.
    pub file: Arc<dyn File>,
    /// The record of the lock.
    pub record: LockRecord,
}

impl Undo {
    /// Restores the undo data that the journal names. This blocks.
    ///
    /// # Errors
    /// The undo data of a lock is damaged or cannot be read. The server must not start then,
    /// because the changes under the lock would stay in the file and could not be undone.
    pub fn restore(
        storage: &Arc<dyn Storage>,
        config: &UndoConfig,
        store: &Arc<dyn Store>,
        named: &[(FileHandle, Extent)],
        locks: &[RecordedLock],
    ) -> Result<Self, UndoError> {
        let mut undo = Self::new(storage.clone(), config.clone(), store.clone());
        for lock in locks.iter().filter(|lock| may_be_rolled_back(&lock.record)) {
            for (_, extent) in named.iter().filter(|(handle, _)| *handle == lock.handle) {
                undo.take_over(lock, *extent);
            }
        }
        let listed: BTreeSet<UndoId> = UndoLog::list(&**storage)?.into_iter().collect();
        let used: BTreeSet<UndoId> = undo.extents().map(|(_, extent)| extent.id).collect();
        for &id in &used {
            let blob = if listed.contains(&id) { look_at(&**storage, id)? } else { Blob::Absent };
            undo.data.insert(id, Kept::new(blob));
        }
        for &id in listed.difference(&used) {
            UndoLog::remove(&**storage, id)?;
        }
        storage.sync_names()?;
        let known = named.iter().map(|(_, extent)| extent.id).chain(listed);
        undo.next = known.map(|id| id.0 + 1).max().unwrap_or(1);
        Ok(undo)
    }

    /// Keeps the undo data for the part of an extent (a range with undo data) that a lock covers.
    /// After a crash, the records of locks of one owner may overlap.
    fn take_over(&mut self, lock: &RecordedLock, extent: Extent) {
        let Some(range) = extent.range.intersection(lock.record.range) else { return };
        let key = FileKey(lock.file.key().0);
        let known = self.files.get(&key).map_or_else(Vec::new, |file| file.extents.clone());
        let mut fresh = vec![Extent { range, id: extent.id }];
        for Extent { range, .. } in known {
            fresh = without(&fresh, range);
        }
        for extent in fresh {
            self.enter(key, lock.handle, &lock.file, extent);
        }
    }
}

fn may_be_rolled_back(record: &LockRecord) -> bool {
    let is_unrolled = match record.phase {
        RecordPhase::Held | RecordPhase::Revoked | RecordPhase::BrokenUnrolled => true,
        RecordPhase::Broken => false,
    };
    record.attributes.auto_recovery && is_unrolled
}

fn look_at(storage: &dyn Storage, id: UndoId) -> Result<Blob, UndoError> {
    match UndoLog::open(storage, id) {
        Ok(_) => Ok(Blob::Closed),
        // The undo data was never completely created, so no change was made.
        Err(
            UndoError::Unfinished { .. }
            | UndoError::Storage { source: StorageError::NotFound { .. } },
        ) => {
            UndoLog::remove(storage, id)?;
            Ok(Blob::Absent)
        }
        Err(error) => Err(error),
    }
}
