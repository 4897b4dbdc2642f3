//! The open files and their state ids.
//!
//! Invariant: a file is in the table as long as it has a state id.

use std::sync::Arc;

use dafs_store::cache::CachedFile;
use dafs_store::{File, FileKey};
use dafs_types::{FileHandle, QuickMap, StateId};

/// The record of an open, which has a state id.
#[derive(Clone, Debug)]
pub struct OpenRecord {
    /// The handle of the file.
    pub handle: FileHandle,
    /// The store's key of the file.
    pub key: FileKey,
    /// The cache's id of the file.
    pub file: CachedFile,
    /// The number of the file's data losses that were reported to this open (`losses.rs`).
    pub heard: u32,
}

/// The table of open files.
#[derive(Default)]
pub struct Opened {
    records: QuickMap<StateId, OpenRecord>,
    /// The open files by handle, each with the file (which does not depend on its names) and the
    /// number of its state ids.
    files: QuickMap<FileHandle, (Arc<dyn File>, usize)>,
}

impl Opened {
    /// Returns the record of a state id. `None` if the state id belongs to no open.
    #[inline]
    pub fn record(&self, state: StateId) -> Option<&OpenRecord> {
        self.records.get(&state)
    }

    /// Sets the number of data losses that were reported to an open.
    pub fn note_heard(&mut self, state: StateId, count: u32) {
        if let Some(record) = self.records.get_mut(&state) {
            record.heard = count;
        }
    }

    /// Returns the open file with this handle. `None` if no client has the file open.
    pub fn file(&self, handle: &FileHandle) -> Option<&Arc<dyn File>> {
        self.files.get(handle).map(|(file, _)| file)
    }

    /// Returns the filer's key of an open file. `None` if no client has the file open.
    pub fn key(&self, handle: &FileHandle) -> Option<dafs_filer::FileKey> {
        self.file(handle).map(|file| dafs_filer::FileKey(file.key().0))
    }

    /// Returns the open file with this filer key, and the file's handle.
    pub fn by_key(&self, key: dafs_filer::FileKey) -> Option<(FileHandle, Arc<dyn File>)> {
        let (handle, (file, _)) = self.files.iter().find(|(_, (file, _))| file.key().0 == key.0)?;
        Some((*handle, file.clone()))
    }

    /// Returns the filer's key of the file to which a state id belongs. If the state id and the
    /// handle do not match, returns a key that no file has, so that the filer reports the error of
    /// the state id.
    pub fn key_of(&self, state: StateId, handle: &FileHandle) -> dafs_filer::FileKey {
        match self.records.get(&state) {
            Some(record) if record.handle == *handle => dafs_filer::FileKey(record.key.0),
            _ => dafs_filer::FileKey(u64::MAX),
        }
    }

    /// Adds an open of a file.
    pub fn enter(&mut self, state: StateId, record: OpenRecord, file: &Arc<dyn File>) {
        let entry = self.files.entry(record.handle).or_insert_with(|| (file.clone(), 0));
        entry.1 += 1;
        self.records.insert(state, record);
    }

    /// Removes and returns an open. If this was the last open of the file, also removes the file's
    /// entry.
    pub fn forget(&mut self, state: StateId) -> Option<OpenRecord> {
        let record = self.records.remove(&state)?;
        if let Some(entry) = self.files.get_mut(&record.handle) {
            entry.1 -= 1;
            if entry.1 == 0 {
                self.files.remove(&record.handle);
            }
        }
        Some(record)
    }

    /// Returns the number of state ids.
    pub fn state_count(&self) -> usize {
        self.records.len()
    }

    /// Returns the number of open files.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }
}
