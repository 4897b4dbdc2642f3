//! The server's use of the journal and of undo data. Requests wait until records are durable, by
//! record number (`docs/decisions/0014-exactly-once.md`).
//!
//! Invariants:
//! - A request is executed after its intent is durable. Then its changes are synced. The outcome is
//!   written and the reply is sent only after the sync.
//! - Until the outcome is durable, no other request changes the same names. So after a crash, the
//!   intent and the names show whether the request was executed.

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
    Log, LogConfig, LogError, RecordKind, RecordNumber, Storage, UndoConfig, chain_of,
};
use dafs_store::{File, Store, StoreError};
use dafs_types::FileHandle;

use crate::opened::Opened;
use crate::undo::Undo;

pub use state::{Entry, StateRecord};

/// The storage of the journal, and its size limits.
#[derive(Clone)]
pub struct JournalConfig {
    /// The storage that contains the journal. No other server may use it at the same time.
    pub storage: Arc<dyn Storage>,
    /// The size limits of the journal's log.
    pub log: LogConfig,
    /// The size limits of the undo data of each auto-recovery lock. Undo data is stored in the same
    /// storage as the log.
    pub undo: UndoConfig,
}

impl std::fmt::Debug for JournalConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalConfig").field("log", &self.log).finish_non_exhaustive()
    }
}

/// The journal, with the operations that concern clients and files.
pub struct Ledger {
    log: Log,
    /// Records for which the log has no space yet, in the order in which they were appended.
    backlog: VecDeque<(RecordKind, Vec<u8>)>,
    /// The files on which there are recorded locks. A file stays open as long as it has a recorded
    /// lock.
    locked: BTreeMap<LockId, (FileHandle, Arc<dyn File>)>,
    /// The number of the record that ends the grace period. When that record is durable, no client
    /// may reclaim state any more.
    grace_ended: RecordNumber,
    /// The number of the last record about a client that has state.
    clients_noted: RecordNumber,
    /// The undo data of all files.
    pub undo: Undo,
}

/// A job that makes records or changes durable.
pub enum LedgerJob {
    /// Writes a group of records to the log.
    Group(GroupJob),
    /// Syncs the objects that operations have changed.
    Sync {
        /// The store that contains the objects.
        store: Arc<dyn Store>,
        /// The handles of the objects to be synced.
        touched: Vec<FileHandle>,
    },
}

/// The result of a [`LedgerJob`].
pub enum LedgerDone {
    /// A group of records is durable, or its write has failed.
    Group(GroupDone),
    /// The changes are on stable storage, or the sync has failed.
    Synced(Result<(), StoreError>),
}

impl LedgerJob {
    /// Runs the job. This blocks.
    pub fn run(self) -> LedgerDone {
        match self {
            Self::Group(group) => LedgerDone::Group(group.run()),
            Self::Sync { store, touched } => LedgerDone::Synced(sync(&*store, &touched)),
        }
    }

    /// Returns the failed result of a job that could not be completed.
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
                // This code runs on a worker thread, so it may wait.
                Err(StoreError::Busy) => {}
                Err(StoreError::Unseen) => std::thread::sleep(SEARCH_PAUSE),
                _ => break,
            }
            store.search(&[*handle]);
            synced = store.sync(handle);
        }
        match synced {
            // The object was removed, so no changes of it need to be durable.
            Ok(()) | Err(StoreError::Stale | StoreError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The reason why a server with a journal must stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// An operation on the journal's storage failed.
    #[error("the journal failed, so the server cannot keep its promises: {0}")]
    Journal(String),
    /// The changes of an operation could not be made durable.
    #[error("syncing the exported file system failed, so the server cannot keep its promises: {0}")]
    Store(StoreError),
    /// The fencing lists in the journal could not be restored, so fenced clients would have access.
    #[error("the fencing lists in the journal cannot be restored: {0}")]
    Fences(FenceRestoreError),
}

impl Ledger {
    /// Creates a ledger that uses a log and the undo data.
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

    /// Appends a record, and returns its number. The record becomes durable with one of the next
    /// groups.
    pub fn append(&mut self, record: &impl Entry) -> RecordNumber {
        self.append_bytes(record.kind(), record.encode())
    }

    /// Appends an encoded record, and returns its number.
    pub fn append_bytes(&mut self, kind: RecordKind, bytes: Vec<u8>) -> RecordNumber {
        self.backlog.push_back((kind, bytes));
        self.drain();
        self.last()
    }

    /// Returns the number of the last record that is durable.
    pub fn durable(&self) -> RecordNumber {
        self.log.durable()
    }

    /// Returns the number of the last record that was appended, including records for which the log
    /// has no space yet.
    pub fn last(&self) -> RecordNumber {
        RecordNumber(self.log.last_appended().0 + self.backlog.len() as u64)
    }

    /// Moves records from the backlog to the log until the log is full.
    fn drain(&mut self) {
        while let Some((kind, bytes)) = self.backlog.front() {
            // The append fails if the log is full. Other errors are reported when the group is
            // written.
            if self.log.append(*kind, &[bytes]).is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// Returns the key of the file with this handle if the file has a recorded lock.
    pub fn locked_file(&self, handle: &FileHandle) -> Option<FileKey> {
        let mut files = self.locked.values();
        let (_, file) = files.find(|(locked, _)| locked == handle)?;
        Some(FileKey(file.key().0))
    }

    /// Returns true if there are records to write. Called in each turn.
    #[inline]
    #[must_use]
    pub fn has_some(&self) -> bool {
        !self.backlog.is_empty() || self.log.has_some()
    }

    /// Returns the job that writes the next group. `None` if there are no records or a group is
    /// being written.
    pub fn take_group(&mut self) -> Option<LedgerJob> {
        self.drain();
        Some(LedgerJob::Group(self.log.take_group()?))
    }

    /// Handles the end of a group's write. Returns the number of the last durable record.
    pub fn on_group_done(&mut self, done: GroupDone) -> Result<RecordNumber, LedgerError> {
        self.log.on_group_done(done).map_err(journal_failed)
    }
}

/// Returns the file that has this key, provided that it is open or has a recorded lock.
pub fn locked_file_of(
    opened: &Opened,
    ledger: Option<&Ledger>,
    key: FileKey,
) -> Option<(FileHandle, Arc<dyn File>)> {
    opened.by_key(key).or_else(|| ledger?.locked_by_key(key))
}

/// Converts an error of the log to a [`LedgerError`].
pub fn journal_failed(error: LogError) -> LedgerError {
    LedgerError::Journal(chain_of(&error))
}

/// The maximum number of attempts to sync an object that cannot be found because some directories
/// are unreadable.
const SEARCHES_MAX: u32 = 10;
/// The pause between two such attempts.
const SEARCH_PAUSE: Duration = Duration::from_millis(200);
