//! Requests on their way through the journal: between their intents and their outcomes, and
//! whatever else is told to somebody once a record is durable.
//!
//! Invariant: nobody is told of a record before it is durable; names that a request is about are
//! busy from its intent on until its outcome is durable.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use arrayvec::ArrayVec;
use dafs_dat::EndpointId;
use dafs_filer::locks::RollbackId;
use dafs_filer::{FenceStoreId, KeptSession};
use dafs_journal::RecordNumber;
use dafs_store::Store;
use dafs_types::{FileHandle, Status, StreamId};
use dafs_wire::ByteOrder;

use super::LedgerJob;
use super::record::RequestKey;
use crate::defect::Defect;
use crate::reply_to::{ReplyTo, TaskId};

/// What one request is about to change: a name in a directory, or an object (no name).
pub(crate) type Place = (FileHandle, Box<[u8]>);

/// At most two names, or one object.
pub(crate) type Places = ArrayVec<Place, 2>;

/// Objects to sync before an outcome is true for good.
pub(crate) type Touched = ArrayVec<FileHandle, 2>;

/// What waits for its intent to be durable.
pub(super) enum Intended {
    /// A request, to be carried out then: the operation that it asks for.
    Request { answer: ReplyTo, operation: Box<[u8]> },
    /// A task, to be stepped then.
    Task(TaskId),
}

/// A request between its intent and its outcome.
pub(super) struct Running {
    pub(super) key: RequestKey,
    /// The byte order of its session.
    pub(super) order: ByteOrder,
    /// Its intent.
    pub(super) number: RecordNumber,
    pub(super) endpoint: EndpointId,
    pub(super) intent: Vec<u8>,
    pub(super) places: Places,
    pub(super) touched: Touched,
}

/// What of fencing waits for records to be durable.
pub(super) enum FenceStep {
    /// A list.
    Stored(FenceStoreId),
    /// Word to whoever changed a list that the change holds: whatever its victims have
    /// begun must have come to a durable end.
    Answered(ReplyTo),
}

/// An answer that waits for its outcome to be durable, or for other records.
pub(super) struct Concluded {
    pub(super) answer: ReplyTo,
    /// Its name in the journal, if its outcome is there.
    pub(super) key: Option<RequestKey>,
    pub(super) status: Status,
    /// Everything behind the answer's header.
    pub(super) octets: Box<[u8]>,
    /// The answer as it will be sent; `None` if there is nobody to send it to.
    pub(super) message: Option<Box<[u8]>>,
}

/// A request that was carried out, and what it has touched is not synced yet.
pub(super) struct Unsynced {
    pub(super) concluded: Concluded,
    /// The answer waits for this record, too.
    pub(super) after: RecordNumber,
    pub(super) running: Running,
}

/// A request that waits for others to be done with a name.
pub(super) struct Held {
    pub(super) answer: ReplyTo,
    /// What it asks for, as an operation encodes itself.
    pub(super) operation: Box<[u8]>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct JournaledRequests {
    pub(super) intended: VecDeque<(RecordNumber, Intended)>,
    pub(super) fences: VecDeque<(RecordNumber, FenceStep)>,
    pub(super) concluded: VecDeque<(RecordNumber, Concluded)>,
    pub(super) running: BTreeMap<(KeptSession, StreamId), Running>,
    /// Carried out, to be synced; and those of which a sync is under way.
    pub(super) unsynced: Vec<Unsynced>,
    pub(super) syncing: Vec<Unsynced>,
    pub(super) busy: HashSet<Place>,
    /// Names that are free when a record is durable.
    pub(super) cooling: VecDeque<(RecordNumber, Places)>,
    pub(super) held: Vec<Held>,
    /// ABORTs, and the rollbacks that each waits for.
    pub(super) aborts: Vec<(ReplyTo, Vec<RollbackId>)>,
    /// A defect on purpose: nothing is written down before it is carried out.
    pub(super) skips_intents: bool,
}

impl JournaledRequests {
    /// There are none yet.
    pub fn new(defect: Option<Defect>) -> Self {
        Self { skips_intents: defect == Some(Defect::SkipIntent), ..Self::default() }
    }

    /// Whether somebody is about to change one of these.
    pub(super) fn is_busy(&self, places: &Places) -> bool {
        !self.busy.is_empty() && places.iter().any(|place| self.busy.contains(place))
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

    /// The intents of requests that have no outcome yet.
    pub(super) fn intents(&self) -> impl Iterator<Item = &Vec<u8>> {
        let unsynced = self.unsynced.iter().chain(&self.syncing);
        let carried_out = unsynced.map(|unsynced| &unsynced.running.intent);
        self.running.values().map(|running| &running.intent).chain(carried_out)
    }

    /// Requests between arrival and answer.
    pub(crate) fn under_way(&self) -> usize {
        let unsynced = self.unsynced.len() + self.syncing.len();
        self.held.len() + self.running.len() + unsynced + self.concluded.len()
    }

    /// Has an ABORT wait for its rollbacks.
    pub fn await_rollbacks(&mut self, answer: ReplyTo, rollbacks: Vec<RollbackId>) {
        self.aborts.push((answer, rollbacks));
    }

    /// A rollback is over: the ABORTs that waited for it alone.
    pub fn end_rollback(&mut self, id: RollbackId) -> Vec<ReplyTo> {
        for (_, waits_for) in &mut self.aborts {
            waits_for.retain(|other| *other != id);
        }
        let over = self.aborts.extract_if(.., |(_, waits_for)| waits_for.is_empty());
        over.map(|(answer, _)| answer).collect()
    }
}

/// Whether a status says that nothing was changed.
pub(super) fn is_failure(status: Status) -> bool {
    status != Status::Ok
}
