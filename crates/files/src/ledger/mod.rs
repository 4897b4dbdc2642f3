//! The ledger: what is written down in the journal, and what is kept undo of. Whoever asked waits
//! for that by record number (`docs/decisions/0014-exactly-once.md`).
//!
//! Invariant: a request is carried out after its intent is durable, and answered after what its
//! operation touched is synced; its outcome is written after that. Until the outcome is durable
//! nobody else changes the names it is about, so that the intent and the names tell as much.

pub mod bytes;
pub mod plan;
mod records;
pub mod state;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use dafs_filer::locks::LockId;
use dafs_filer::{FenceRestoreError, FileKey};
use dafs_journal::log::{GroupDone, GroupJob};
use dafs_journal::{
    Log, LogConfig, LogError, RecordKind, RecordNumber, Shelf, UndoConfig, chain_of,
};
use dafs_store::{File, Store, StoreError};
use dafs_types::FileHandle;

use crate::opened::Opened;
use crate::undo::Undo;

pub use state::{Entry, StateRecord};

/// Where the journal is kept, and how large it may get.
#[derive(Clone)]
pub struct JournalConfig {
    /// The place; nobody else may use it meanwhile.
    pub shelf: Arc<dyn Shelf>,
    /// Bounds.
    pub log: LogConfig,
    /// Bounds of the undo data of each auto-recovery lock, which is kept beside it.
    pub undo: UndoConfig,
}

impl std::fmt::Debug for JournalConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalConfig").field("log", &self.log).finish_non_exhaustive()
    }
}

/// The journal, as far as clients and files are concerned.
pub struct Ledger {
    log: Log,
    /// Records the log has no room for yet, in order.
    backlog: VecDeque<(RecordKind, Vec<u8>)>,
    /// Files of locks on record, which stay open as long as the locks are there.
    locked: BTreeMap<LockId, (FileHandle, Arc<dyn File>)>,
    /// Behind this record it is written down that nobody takes anything back any more.
    grace_ended: RecordNumber,
    /// The last that was said of clients that have state.
    clients_noted: RecordNumber,
    /// What is kept undo of.
    pub undo: Undo,
}

/// Something on its way to stable storage.
pub enum LedgerJob {
    /// A group of records.
    Group(GroupJob),
    /// What operations have touched.
    Sync {
        /// Where they are.
        store: Arc<dyn Store>,
        /// Each is synced.
        touched: Vec<FileHandle>,
    },
}

/// What came of it.
pub enum LedgerDone {
    /// A group was written, or could not be.
    Group(GroupDone),
    /// What was touched is synced, or could not be.
    Synced(Result<(), StoreError>),
}

impl LedgerJob {
    /// Does it. Blocks.
    pub fn run(self) -> LedgerDone {
        match self {
            Self::Group(group) => LedgerDone::Group(group.run()),
            Self::Sync { store, touched } => LedgerDone::Synced(sync(&*store, &touched)),
        }
    }

    /// What it comes to if it cannot be finished.
    pub fn failed(&self, why: &'static str) -> LedgerDone {
        match self {
            Self::Group(group) => LedgerDone::Group(group.failed(why)),
            Self::Sync { .. } => LedgerDone::Synced(Err(StoreError::Fault)),
        }
    }
}

fn sync(store: &dyn Store, touched: &[FileHandle]) -> Result<(), StoreError> {
    for handle in touched {
        let mut synced = store.sync(handle);
        for _ in 0..SEARCHES_MAX {
            match synced {
                // This thread may wait.
                Err(StoreError::Busy) => {}
                Err(StoreError::Unseen) => std::thread::sleep(SEARCH_PAUSE),
                _ => break,
            }
            store.search(&[*handle]);
            synced = store.sync(handle);
        }
        match synced {
            // Somebody has removed it: nothing of it is left to be kept.
            Ok(()) | Err(StoreError::Stale | StoreError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Why a server with a journal cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The journal failed.
    #[error("the journal failed, so nothing more can be promised: {0}")]
    Journal(String),
    /// What an operation changed could not be made durable.
    #[error("the exported file system failed to sync, so nothing more can be promised: {0}")]
    Store(StoreError),
    /// Whoever was fenced out would be let in.
    #[error("its fencing lists cannot be taken over: {0}")]
    Fences(FenceRestoreError),
}

impl Ledger {
    /// Over a log, with what was kept undo of.
    pub fn new(log: Log, undo: Undo) -> Self {
        Self {
            log,
            backlog: VecDeque::new(),
            locked: BTreeMap::new(),
            grace_ended: RecordNumber(0),
            clients_noted: RecordNumber(0),
            undo,
        }
    }

    /// Adds a record behind all others; it becomes durable with one of the next groups.
    pub fn append(&mut self, record: &impl Entry) -> RecordNumber {
        self.append_bytes(record.kind(), record.encode())
    }

    /// The same for a record that is encoded already.
    pub fn append_bytes(&mut self, kind: RecordKind, bytes: Vec<u8>) -> RecordNumber {
        self.backlog.push_back((kind, bytes));
        self.drain();
        self.last()
    }

    /// The last record that is durable.
    pub fn durable(&self) -> RecordNumber {
        self.log.durable()
    }

    /// The record appended last.
    pub fn last(&self) -> RecordNumber {
        RecordNumber(self.log.last_appended().0 + self.backlog.len() as u64)
    }

    /// Gives the log what it has room for.
    fn drain(&mut self) {
        while let Some((kind, bytes)) = self.backlog.front() {
            // Whatever is wrong besides a lack of room shows when the group is done.
            if self.log.append(*kind, &[bytes]).is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// The key of a file that has a lock on record.
    pub fn locked_file(&self, handle: &FileHandle) -> Option<FileKey> {
        let mut files = self.locked.values();
        let (_, file) = files.find(|(locked, _)| locked == handle)?;
        Some(FileKey(file.key().0))
    }

    /// Whether there is anything to write. It is asked at each turn.
    #[inline]
    #[must_use]
    pub fn has_some(&self) -> bool {
        !self.backlog.is_empty() || self.log.has_some()
    }

    /// A group to be written, if there is anything to write and none is on its way.
    pub fn take_group(&mut self) -> Option<LedgerJob> {
        self.drain();
        Some(LedgerJob::Group(self.log.take_group()?))
    }

    /// A group was written: up to which record everything is durable.
    pub fn on_group_done(&mut self, done: GroupDone) -> Result<RecordNumber, LedgerError> {
        self.log.on_group_done(done).map_err(journal_failed)
    }
}

/// The file of a lock: open, or kept for the sake of its record.
pub fn locked_file_of(
    opened: &Opened,
    ledger: Option<&Ledger>,
    key: FileKey,
) -> Option<(FileHandle, Arc<dyn File>)> {
    opened.by_key(key).or_else(|| ledger?.locked_by_key(key))
}

/// What the failure of its log is for the ledger.
pub fn journal_failed(error: LogError) -> LedgerError {
    LedgerError::Journal(chain_of(&error))
}

/// Searches for an object that is to be synced, while they cannot see everything.
const SEARCHES_MAX: u32 = 10;
/// Before each but the first.
const SEARCH_PAUSE: Duration = Duration::from_millis(200);
