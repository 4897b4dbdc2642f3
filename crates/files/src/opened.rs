//! The open files and their state ids.
//!
//! Invariant: a file is in the table as long as it has a state id.

use std::sync::Arc;

use dafs_store::cache::CachedFile;
use dafs_store::{File, FileKey};
use dafs_types::{FileHandle, QuickMap, StateId};

/// The open of a state id.
#[derive(Clone, Debug)]
pub struct OpenRecord {
    /// The handle of the file.
    pub handle: FileHandle,
    /// The store's key of the file.
    pub key: FileKey,
    /// The cache's id of the file.
    pub file: CachedFile,
    /// The number of the file's losses that count as reported to this open (`losses.rs`).
    pub heard: u32,
}

/// The table of open files.
#[derive(Default)]
pub struct Opened {
    records: QuickMap<StateId, OpenRecord>,
    /// The open file, which does not depend on names, and the number of its state ids.
    files: QuickMap<FileHandle, (Arc<dyn File>, usize)>,
}

impl Opened {
    /// The open of a state id.
    #[inline]
    pub fn record(&self, state: StateId) -> Option<&OpenRecord> {
        self.records.get(&state)
    }

    /// Sets the number of losses that an open has been told of.
    pub fn note_heard(&mut self, state: StateId, count: u32) {
        if let Some(record) = self.records.get_mut(&state) {
            record.heard = count;
        }
    }

    /// The open file with this handle.
    pub fn file(&self, handle: &FileHandle) -> Option<&Arc<dyn File>> {
        self.files.get(handle).map(|(file, _)| file)
    }

    /// The filer's key of an open file.
    pub fn key(&self, handle: &FileHandle) -> Option<dafs_filer::FileKey> {
        self.file(handle).map(|file| dafs_filer::FileKey(file.key().0))
    }

    /// The open file with this filer's key.
    pub fn by_key(&self, key: dafs_filer::FileKey) -> Option<(FileHandle, Arc<dyn File>)> {
        let (handle, (file, _)) = self.files.iter().find(|(_, (file, _))| file.key().0 == key.0)?;
        Some((*handle, file.clone()))
    }

    /// The filer's key of a state id's file. If state id and handle do not match, it is a key that
    /// no file has, so that the filer reports what is wrong with the state id.
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

    /// Removes an open, and its file after the last one.
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

    /// The number of state ids.
    pub fn state_count(&self) -> usize {
        self.records.len()
    }

    /// The number of open files.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }
}
