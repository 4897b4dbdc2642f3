//! What is open: state ids, and the files behind them.
//!
//! Invariant: a file is among the open files as long as a state id stands for it.

use std::sync::Arc;

use dafs_store::cache::CachedFile;
use dafs_store::{File, FileKey};
use dafs_types::{FileHandle, QuickMap, StateId};

/// What stands behind a state id.
#[derive(Clone, Debug)]
pub struct OpenRecord {
    /// The file's handle.
    pub handle: FileHandle,
    /// The file, as the store tells files apart.
    pub key: FileKey,
    /// The file, as the cache knows it.
    pub file: CachedFile,
    /// How many of the file's losses it need not be told any more (`losses.rs`).
    pub heard: u32,
}

/// Everything that is open.
#[derive(Default)]
pub struct Opened {
    records: QuickMap<StateId, OpenRecord>,
    /// How to reach a file whatever happened to its names, and how many state ids it has.
    files: QuickMap<FileHandle, (Arc<dyn File>, usize)>,
}

impl Opened {
    /// What stands behind a state id.
    #[inline]
    pub fn record(&self, state: StateId) -> Option<&OpenRecord> {
        self.records.get(&state)
    }

    /// An open need not be told of so many of its file's losses any more.
    pub fn note_heard(&mut self, state: StateId, count: u32) {
        if let Some(record) = self.records.get_mut(&state) {
            record.heard = count;
        }
    }

    /// A file that is open.
    pub fn file(&self, handle: &FileHandle) -> Option<&Arc<dyn File>> {
        self.files.get(handle).map(|(file, _)| file)
    }

    /// The filer's key of a file that is open.
    pub fn key(&self, handle: &FileHandle) -> Option<dafs_filer::FileKey> {
        self.file(handle).map(|file| dafs_filer::FileKey(file.key().0))
    }

    /// The open file with a key of the filer's.
    pub fn by_key(&self, key: dafs_filer::FileKey) -> Option<(FileHandle, Arc<dyn File>)> {
        let (handle, (file, _)) = self.files.iter().find(|(_, (file, _))| file.key().0 == key.0)?;
        Some((*handle, file.clone()))
    }

    /// The filer's key of a state's file; an impossible one if they do not agree, so
    /// that the filer says what is wrong with the state id.
    pub fn key_of(&self, state: StateId, handle: &FileHandle) -> dafs_filer::FileKey {
        match self.records.get(&state) {
            Some(record) if record.handle == *handle => dafs_filer::FileKey(record.key.0),
            _ => dafs_filer::FileKey(u64::MAX),
        }
    }

    /// A file has been opened under a new state id.
    pub fn enter(&mut self, state: StateId, record: OpenRecord, file: &Arc<dyn File>) {
        let entry = self.files.entry(record.handle).or_insert_with(|| (file.clone(), 0));
        entry.1 += 1;
        self.records.insert(state, record);
    }

    /// A state id has ended.
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

    /// State ids there are.
    pub fn state_count(&self) -> usize {
        self.records.len()
    }

    /// Files that are open.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }
}
