//! The ledger: which requests are on their way through the journal
//! (`docs/decisions/0014-exactly-once.md`).
//!
//! Invariant: a request is carried out after its intent is durable, and answered after its
//! outcome is; what its operation touched is synced before the outcome is written. From the
//! intent to the outcome nobody else changes the names it is about.

mod fences;
mod gate;
mod record;
mod recovery;
mod verdict;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use arrayvec::ArrayVec;
use dafs_dat::EndpointId;
use dafs_filer::locks::LockId;
use dafs_filer::{FenceRestoreError, FenceStoreId, FileKey, KeptSession};
use dafs_journal::log::{GroupDone, GroupJob};
use dafs_journal::{Log, LogConfig, LogError, RecordKind, RecordNumber, Shelf, UndoConfig};
use dafs_store::{File, Store, StoreError};
use dafs_types::{FileHandle, Status, StreamId};

use crate::task::{Answer, TaskId};
use crate::undo::Undo;
pub(crate) use record::{Facts, Intent, Outcome, Record, RequestKey};

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

/// What one request is about to change: a name in a directory, or an object (no name).
pub(crate) type Place = (FileHandle, Box<[u8]>);

/// At most two names, or one object.
pub(crate) type Places = ArrayVec<Place, 2>;

/// Objects to sync before an outcome is true for good.
pub(crate) type Touched = ArrayVec<FileHandle, 2>;

/// What waits for its intent to be durable.
enum Intended {
    /// A request, to be carried out then.
    Request { answer: Answer, message: Box<[u8]> },
    /// A task, to be stepped then.
    Task(TaskId),
}

/// A request between its intent and its outcome.
struct Running {
    key: RequestKey,
    /// Its intent.
    number: RecordNumber,
    endpoint: EndpointId,
    intent: Vec<u8>,
    places: Places,
    touched: Touched,
}

/// What of fencing waits for records to be durable.
enum FenceStep {
    /// A list.
    Stored(FenceStoreId),
    /// Word to whoever changed a list that the change holds: whatever its victims have
    /// begun must have come to a durable end.
    Answered(Answer),
}

/// An answer that waits for its outcome to be durable, or for other records.
struct Concluded {
    answer: Answer,
    /// Its name in the journal, if its outcome is there.
    key: Option<RequestKey>,
    status: Status,
    /// Everything behind the answer's header.
    octets: Box<[u8]>,
    /// The answer as it will be sent; `None` if there is nobody to send it to.
    message: Option<Box<[u8]>>,
}

/// A request that waits for others to be done with a name.
struct Held {
    answer: Answer,
    message: Box<[u8]>,
}

pub(crate) struct Ledger {
    log: Log,
    /// Records the log has no room for yet, in order.
    backlog: VecDeque<(RecordKind, Vec<u8>)>,
    intended: VecDeque<(RecordNumber, Intended)>,
    fences: VecDeque<(RecordNumber, FenceStep)>,
    concluded: VecDeque<(RecordNumber, Concluded)>,
    running: BTreeMap<(KeptSession, StreamId), Running>,
    /// What the operations of the outcomes not yet handed out have touched.
    touched: Vec<FileHandle>,
    busy: HashSet<Place>,
    /// Files of locks on record, which stay open as long as the locks are there.
    locked: BTreeMap<LockId, (FileHandle, Arc<dyn File>)>,
    /// Behind this record it is written down that nobody takes anything back any more.
    grace_ended: RecordNumber,
    held: Vec<Held>,
    /// A defect on purpose: nothing is written down before it is carried out.
    pub(crate) skips_intents: bool,
    pub(crate) undo: Undo,
}

/// A group of records on its way to stable storage, and what must be there before it.
pub struct LedgerJob {
    store: Arc<dyn Store>,
    touched: Vec<FileHandle>,
    group: GroupJob,
}

/// What came of it.
pub struct LedgerDone {
    synced: Result<(), StoreError>,
    group: GroupDone,
}

impl LedgerJob {
    /// Syncs what was touched, then writes the records. Blocks.
    pub fn run(self) -> LedgerDone {
        let mut synced = Ok(());
        for handle in &self.touched {
            match self.store.sync(handle) {
                // Somebody has removed it: nothing of it is left to be kept.
                Ok(()) | Err(StoreError::Stale | StoreError::NotFound) => {}
                Err(error) => synced = Err(error),
            }
        }
        LedgerDone { synced, group: self.group.run() }
    }
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
    fn new(log: Log, undo: Undo) -> Self {
        Self {
            log,
            backlog: VecDeque::new(),
            intended: VecDeque::new(),
            fences: VecDeque::new(),
            concluded: VecDeque::new(),
            running: BTreeMap::new(),
            touched: Vec::new(),
            busy: HashSet::new(),
            locked: BTreeMap::new(),
            grace_ended: RecordNumber(0),
            held: Vec::new(),
            skips_intents: false,
            undo,
        }
    }

    /// Adds a record behind all others; it becomes durable with one of the next groups.
    pub(crate) fn append(&mut self, record: &Record) -> RecordNumber {
        self.append_octets(record.kind(), record.encode())
    }

    fn append_octets(&mut self, kind: RecordKind, octets: Vec<u8>) -> RecordNumber {
        self.backlog.push_back((kind, octets));
        self.drain();
        self.last()
    }

    /// The record appended last.
    pub(crate) fn last(&self) -> RecordNumber {
        RecordNumber(self.log.last_appended().0 + self.backlog.len() as u64)
    }

    /// Gives the log what it has room for.
    fn drain(&mut self) {
        while let Some((kind, octets)) = self.backlog.front() {
            // Whatever is wrong besides a lack of room shows when the group is done.
            if self.log.append(*kind, &[octets]).is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// Whether somebody is about to change one of these.
    fn is_busy(&self, places: &Places) -> bool {
        !self.busy.is_empty() && places.iter().any(|place| self.busy.contains(place))
    }

    /// The key of a file that has a lock on record.
    pub(crate) fn locked_file(&self, handle: &FileHandle) -> Option<FileKey> {
        let mut files = self.locked.values();
        let (_, file) = files.find(|(locked, _)| locked == handle)?;
        Some(FileKey(file.key().0))
    }

    /// A group to be written, if there is anything to write and none is on its way.
    pub(crate) fn take_job(&mut self, store: &Arc<dyn Store>) -> Option<LedgerJob> {
        self.drain();
        let group = self.log.take_group()?;
        let touched = std::mem::take(&mut self.touched);
        Some(LedgerJob { store: store.clone(), touched, group })
    }

    /// A group was written: up to which record everything is durable.
    fn on_done(&mut self, done: LedgerDone) -> Result<RecordNumber, LedgerError> {
        let durable = self.log.on_group_done(done.group).map_err(journal_failed)?;
        done.synced.map_err(LedgerError::Store)?;
        Ok(durable)
    }

    /// Requests between arrival and answer.
    pub(crate) fn under_way(&self) -> usize {
        self.held.len() + self.running.len() + self.concluded.len()
    }
}

fn journal_failed(error: LogError) -> LedgerError {
    LedgerError::Journal(chain_of(&error))
}

/// An error and what caused it, in one line.
fn chain_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Whether a status says that nothing was changed.
fn is_failure(status: Status) -> bool {
    status != Status::Ok
}
