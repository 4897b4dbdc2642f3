//! The ledger: which requests are on their way through the journal
//! (`docs/decisions/0014-exactly-once.md`).
//!
//! Invariant: a request is carried out after its intent is durable, and answered after what its
//! operation touched is synced; its outcome is written after that. Until the outcome is durable
//! nobody else changes the names it is about, so that the intent and the names tell as much.

mod bytes;
mod fences;
mod gate;
mod legacy;
mod record;
mod recovery;
mod verdict;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use dafs_dat::EndpointId;
use dafs_filer::locks::LockId;
use dafs_filer::{FenceRestoreError, FenceStoreId, FileKey, KeptSession};
use dafs_journal::log::{GroupDone, GroupJob};
use dafs_journal::{Log, LogConfig, LogError, RecordKind, RecordNumber, Shelf, UndoConfig};
use dafs_store::{File, Store, StoreError};
use dafs_types::{FileHandle, Status, StreamId};
use dafs_wire::ByteOrder;

use crate::opened::Opened;
use crate::reply_to::{ReplyTo, TaskId};
use crate::undo::Undo;

pub(crate) use record::Record;
use record::{Facts, Intent, Outcome, RequestKey};

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
    /// A request, to be carried out then: the operation that it asks for.
    Request { answer: ReplyTo, operation: Box<[u8]> },
    /// A task, to be stepped then.
    Task(TaskId),
}

/// A request between its intent and its outcome.
struct Running {
    key: RequestKey,
    /// The byte order of its session.
    order: ByteOrder,
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
    Answered(ReplyTo),
}

/// An answer that waits for its outcome to be durable, or for other records.
struct Concluded {
    answer: ReplyTo,
    /// Its name in the journal, if its outcome is there.
    key: Option<RequestKey>,
    status: Status,
    /// Everything behind the answer's header.
    octets: Box<[u8]>,
    /// The answer as it will be sent; `None` if there is nobody to send it to.
    message: Option<Box<[u8]>>,
}

/// A request that was carried out, and what it has touched is not synced yet.
struct Unsynced {
    concluded: Concluded,
    /// The answer waits for this record, too.
    after: RecordNumber,
    running: Running,
}

/// A request that waits for others to be done with a name.
struct Held {
    answer: ReplyTo,
    /// What it asks for, as an operation encodes itself.
    operation: Box<[u8]>,
}

pub(crate) struct Ledger {
    log: Log,
    /// Records the log has no room for yet, in order.
    backlog: VecDeque<(RecordKind, Vec<u8>)>,
    intended: VecDeque<(RecordNumber, Intended)>,
    fences: VecDeque<(RecordNumber, FenceStep)>,
    concluded: VecDeque<(RecordNumber, Concluded)>,
    running: BTreeMap<(KeptSession, StreamId), Running>,
    /// Carried out, to be synced; and those of which a sync is under way.
    unsynced: Vec<Unsynced>,
    syncing: Vec<Unsynced>,
    busy: HashSet<Place>,
    /// Names that are free when a record is durable.
    cooling: VecDeque<(RecordNumber, Places)>,
    /// Files of locks on record, which stay open as long as the locks are there.
    locked: BTreeMap<LockId, (FileHandle, Arc<dyn File>)>,
    /// Behind this record it is written down that nobody takes anything back any more.
    grace_ended: RecordNumber,
    /// The last that was said of clients that have state.
    clients_noted: RecordNumber,
    held: Vec<Held>,
    /// A defect on purpose: nothing is written down before it is carried out.
    skips_intents: bool,
    pub(crate) undo: Undo,
}

/// Something on its way to stable storage.
pub enum LedgerJob {
    /// A group of records.
    Group(GroupJob),
    /// What operations have touched.
    Sync { store: Arc<dyn Store>, touched: Vec<FileHandle> },
}

/// What came of it.
pub enum LedgerDone {
    Group(GroupDone),
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
    fn new(log: Log, undo: Undo) -> Self {
        Self {
            log,
            backlog: VecDeque::new(),
            intended: VecDeque::new(),
            fences: VecDeque::new(),
            concluded: VecDeque::new(),
            running: BTreeMap::new(),
            unsynced: Vec::new(),
            syncing: Vec::new(),
            busy: HashSet::new(),
            cooling: VecDeque::new(),
            locked: BTreeMap::new(),
            grace_ended: RecordNumber(0),
            clients_noted: RecordNumber(0),
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
    pub(crate) fn take_group(&mut self) -> Option<LedgerJob> {
        self.drain();
        Some(LedgerJob::Group(self.log.take_group()?))
    }

    /// A sync of what was touched, unless one is on its way.
    pub(crate) fn take_sync(&mut self, store: &Arc<dyn Store>) -> Option<LedgerJob> {
        if self.unsynced.is_empty() || !self.syncing.is_empty() {
            return None;
        }
        std::mem::swap(&mut self.unsynced, &mut self.syncing);
        let mut touched = Vec::new();
        for handle in self.syncing.iter().flat_map(|unsynced| &unsynced.running.touched) {
            if !touched.contains(handle) {
                touched.push(*handle);
            }
        }
        Some(LedgerJob::Sync { store: store.clone(), touched })
    }

    /// A group was written: up to which record everything is durable.
    fn on_group_done(&mut self, done: GroupDone) -> Result<RecordNumber, LedgerError> {
        self.log.on_group_done(done).map_err(journal_failed)
    }

    /// The intents of requests that have no outcome yet.
    fn intents(&self) -> impl Iterator<Item = &Vec<u8>> {
        let unsynced = self.unsynced.iter().chain(&self.syncing);
        let carried_out = unsynced.map(|unsynced| &unsynced.running.intent);
        self.running.values().map(|running| &running.intent).chain(carried_out)
    }

    /// Requests between arrival and answer.
    pub(crate) fn under_way(&self) -> usize {
        let unsynced = self.unsynced.len() + self.syncing.len();
        self.held.len() + self.running.len() + unsynced + self.concluded.len()
    }
}

/// The file of a lock: open, or kept for the sake of its record.
pub(crate) fn locked_file_of(
    opened: &Opened,
    ledger: Option<&Ledger>,
    key: FileKey,
) -> Option<(FileHandle, Arc<dyn File>)> {
    opened.by_key(key).or_else(|| ledger?.locked_by_key(key))
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

/// Searches for an object that is to be synced, while they cannot see everything.
const SEARCHES_MAX: u32 = 10;
/// Before each but the first.
const SEARCH_PAUSE: Duration = Duration::from_millis(200);
