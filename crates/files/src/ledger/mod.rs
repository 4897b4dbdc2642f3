//! The server's use of the journal and of undo data. Requests wait for record numbers
//! (`docs/decisions/0014-exactly-once.md`).
//!
//! Invariants:
//! - A request is executed after its intent is durable. The reply is sent after the changes are
//!   synced. The outcome is written after the sync.
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

/// The location of the journal, and its size limits.
#[derive(Clone)]
pub struct JournalConfig {
    /// The storage of the journal. No other server may use it at the same time.
    pub storage: Arc<dyn Storage>,
    /// Size limits of the log.
    pub log: LogConfig,
    /// Size limits of the undo data of each auto-recovery lock, which is stored beside the log.
    pub undo: UndoConfig,
}

impl std::fmt::Debug for JournalConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalConfig").field("log", &self.log).finish_non_exhaustive()
    }
}

/// The journal, as used for clients and files.
pub struct Ledger {
    log: Log,
    /// Records for which the log has no room yet, in order.
    backlog: VecDeque<(RecordKind, Vec<u8>)>,
    /// The files of recorded locks, which stay open as long as the locks exist.
    locked: BTreeMap<LockId, (FileHandle, Arc<dyn File>)>,
    /// When this record is durable, the journal says that no client may reclaim any more.
    grace_ended: RecordNumber,
    /// The last record about clients with state.
    clients_noted: RecordNumber,
    /// The undo data of all files.
    pub undo: Undo,
}

/// A job that makes records or changes durable.
pub enum LedgerJob {
    /// Writes a group of records.
    Group(GroupJob),
    /// Syncs what operations have changed.
    Sync {
        /// The store of the objects.
        store: Arc<dyn Store>,
        /// The objects to sync.
        touched: Vec<FileHandle>,
    },
}

/// The result of a [`LedgerJob`].
pub enum LedgerDone {
    /// A group was written, or failed.
    Group(GroupDone),
    /// The changes were synced, or that failed.
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

    /// The result if the job cannot be finished.
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
                // This is a worker thread, which may wait.
                Err(StoreError::Busy) => {}
                Err(StoreError::Unseen) => std::thread::sleep(SEARCH_PAUSE),
                _ => break,
            }
            store.search(&[*handle]);
            synced = store.sync(handle);
        }
        match synced {
            // The object was removed, so nothing of it must be durable.
            Ok(()) | Err(StoreError::Stale | StoreError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The reason why a server with a journal must stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The journal failed.
    #[error("the journal failed, so the server cannot keep its promises: {0}")]
    Journal(String),
    /// A change of an operation could not be made durable.
    #[error("syncing the exported file system failed, so the server cannot keep its promises: {0}")]
    Store(StoreError),
    /// The recorded fencing lists could not be restored, so fenced clients would have access.
    #[error("the fencing lists in the journal cannot be restored: {0}")]
    Fences(FenceRestoreError),
}

impl Ledger {
    /// Creates a ledger over a log and the undo data.
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

    /// Appends a record. It becomes durable with one of the next groups.
    pub fn append(&mut self, record: &impl Entry) -> RecordNumber {
        self.append_bytes(record.kind(), record.encode())
    }

    /// Appends a record that is already encoded.
    pub fn append_bytes(&mut self, kind: RecordKind, bytes: Vec<u8>) -> RecordNumber {
        self.backlog.push_back((kind, bytes));
        self.drain();
        self.last()
    }

    /// The number of the last durable record.
    pub fn durable(&self) -> RecordNumber {
        self.log.durable()
    }

    /// The number of the last appended record.
    pub fn last(&self) -> RecordNumber {
        RecordNumber(self.log.last_appended().0 + self.backlog.len() as u64)
    }

    /// Moves records of the backlog to the log as far as there is room.
    fn drain(&mut self) {
        while let Some((kind, bytes)) = self.backlog.front() {
            // Errors other than lack of room show when the group is written.
            if self.log.append(*kind, &[bytes]).is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// The key of a file that has a recorded lock.
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

    /// The job that writes the next group, if there are records and no group is being written.
    pub fn take_group(&mut self) -> Option<LedgerJob> {
        self.drain();
        Some(LedgerJob::Group(self.log.take_group()?))
    }

    /// Handles a written group. Returns the number of the last durable record.
    pub fn on_group_done(&mut self, done: GroupDone) -> Result<RecordNumber, LedgerError> {
        self.log.on_group_done(done).map_err(journal_failed)
    }
}

/// The file of a lock, which is open or kept for the lock's record.
pub fn locked_file_of(
    opened: &Opened,
    ledger: Option<&Ledger>,
    key: FileKey,
) -> Option<(FileHandle, Arc<dyn File>)> {
    opened.by_key(key).or_else(|| ledger?.locked_by_key(key))
}

/// Converts an error of the log.
pub fn journal_failed(error: LogError) -> LedgerError {
    LedgerError::Journal(chain_of(&error))
}

/// The number of attempts to find an object to sync, if searches cannot see all directories.
const SEARCHES_MAX: u32 = 10;
/// The pause between these attempts.
const SEARCH_PAUSE: Duration = Duration::from_millis(200);
