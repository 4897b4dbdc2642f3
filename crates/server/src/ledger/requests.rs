//! Requests on their way through the journal: between their intents and their outcomes, and
//! whatever else is told to somebody once a record is durable.
//!
//! Invariant: nobody is told of a record before it is durable; names that a request is about are
//! busy from its intent on until its outcome is durable. A change of a fencing list is answered
//! when its record is durable and so is the end of everything that whom it leaves out had begun:
//! nothing is left that recovery would undo.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::locks::RollbackId;
use dafs_filer::{FenceRecord, FenceStoreId, RunningRequest};
use dafs_files::defect::Defect;
use dafs_files::ledger::plan::{Places, Touched};
use dafs_files::ledger::{Entry, Ledger, LedgerJob, StateRecord};
use dafs_journal::RecordNumber;
use dafs_ops::encode_outcome;
use dafs_sessions::KeptSession;
use dafs_store::Store;
use dafs_types::{Status, StreamId};
use dafs_wire::ByteOrder;

use super::names::BusyNames;
use super::record::{Intent, Outcome, Record, Reply, RequestKey};
use crate::channel::Channels;
use crate::reply_to::{ReplyTo, TaskId};
use crate::requests::translate::outcome_of;
use crate::waiting::fencing::operation_of_intent;

/// What waits for its intent to be durable.
pub(super) enum Intended {
    /// A request, to be carried out then: the operation that it asks for.
    Request { answer: ReplyTo, operation: Box<[u8]> },
    /// A task, to be stepped then.
    Task(TaskId),
}

/// A request between its intent and its outcome.
pub(super) struct Running {
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
    pub(super) bytes: Box<[u8]>,
    /// The answer as it will be sent; `None` if there is nobody to send it to.
    pub(super) message: Option<Box<[u8]>>,
}

/// A request that was carried out, and what it has touched is not synced yet.
pub(super) struct Unsynced {
    concluded: Concluded,
    /// The answer waits for this record, too.
    after: RecordNumber,
    running: Running,
}

/// All of them.
#[derive(Default)]
pub(crate) struct JournaledRequests {
    intended: VecDeque<(RecordNumber, Intended)>,
    fences: VecDeque<(RecordNumber, FenceStep)>,
    concluded: VecDeque<(RecordNumber, Concluded)>,
    running: BTreeMap<(KeptSession, StreamId), Running>,
    /// Carried out, to be synced; and those of which a sync is under way.
    unsynced: Vec<Unsynced>,
    syncing: Vec<Unsynced>,
    /// Names that are free when a record is durable.
    cooling: VecDeque<(RecordNumber, Places)>,
    /// Names that somebody is about to change, and requests that wait for them: as operations
    /// encode themselves.
    names: BusyNames<(ReplyTo, Box<[u8]>)>,
    /// ABORTs, and the rollbacks that each waits for.
    aborts: Vec<(ReplyTo, Vec<RollbackId>)>,
    /// A defect on purpose: nothing is written down before it is carried out.
    skips_intents: bool,
}

impl JournaledRequests {
    /// There are none yet.
    pub fn new(defect: Option<Defect>) -> Self {
        Self { skips_intents: defect == Some(Defect::SkipIntent), ..Self::default() }
    }

    /// Whether somebody is about to change one of these.
    pub(super) fn is_busy(&self, places: &Places) -> bool {
        self.names.is_busy(places)
    }

    /// A request waits for others to be done with a name.
    pub(super) fn hold(&mut self, answer: ReplyTo, operation: Box<[u8]>, places: Places) {
        self.names.hold((answer, operation), places);
    }

    /// The first that waits for names of which all are free now.
    pub(super) fn next_held(&mut self) -> Option<(ReplyTo, Box<[u8]>)> {
        self.names.next_free()
    }

    /// Writes an intent down; `next` is for when it is durable.
    pub(super) fn intend(
        &mut self,
        ledger: &mut Ledger,
        answer: ReplyTo,
        order: ByteOrder,
        intent: Intent,
        (places, touched): (Places, Touched),
        next: Intended,
    ) {
        let key = intent.key;
        let record = Record::Intent(intent);
        let bytes = record.encode();
        self.names.take(&places);
        let number = match self.skips_intents {
            // Something must be written, or nothing would set the request going again.
            true => ledger.append(&Record::Abandoned(key)),
            false => ledger.append_bytes(record.kind(), bytes.clone()),
        };
        let endpoint = answer.endpoint;
        let running = Running { key, order, number, endpoint, intent: bytes, places, touched };
        self.running.insert((answer.kept(), answer.stream), running);
        self.intended.push_back((number, next));
    }

    /// The next request whose intent is durable.
    pub(super) fn next_intended(&mut self, durable: RecordNumber) -> Option<Intended> {
        self.intended.front().filter(|(number, _)| *number <= durable)?;
        self.intended.pop_front().map(|(_, intended)| intended)
    }

    /// The next answer whose records are durable.
    pub(super) fn next_concluded(&mut self, durable: RecordNumber) -> Option<Concluded> {
        self.concluded.front().filter(|(number, _)| *number <= durable)?;
        self.concluded.pop_front().map(|(_, concluded)| concluded)
    }

    /// A request that has its outcome.
    pub(super) fn take_running(&mut self, answer: ReplyTo) -> Option<Running> {
        self.running.remove(&(answer.kept(), answer.stream))
    }

    /// A request has come to its end. If nothing is to be synced for it: its intent, and after
    /// which record it may be told.
    pub(super) fn end(
        &mut self,
        ledger: &mut Ledger,
        running: Running,
        after: RecordNumber,
        mut concluded: Concluded,
    ) -> Option<(RecordNumber, RecordNumber, Concluded)> {
        concluded.key = Some(running.key);
        if !is_failure(concluded.status) && !running.touched.is_empty() {
            self.unsynced.push(Unsynced { concluded, after, running });
            return None;
        }
        let number = ledger.append(&running.ended(concluded.status, &concluded.bytes));
        self.names.free(&running.places);
        Some((running.number, number.max(after), concluded))
    }

    /// Requests of which everything that they have touched is on stable storage.
    pub(super) fn take_synced(&mut self) -> Vec<Unsynced> {
        std::mem::take(&mut self.syncing)
    }

    /// One of them comes to its end: its intent, and after which record it may be told.
    pub(super) fn end_synced(
        &mut self,
        ledger: &mut Ledger,
        synced: Unsynced,
    ) -> (RecordNumber, RecordNumber, Concluded) {
        let Unsynced { concluded, after, running } = synced;
        let number = ledger.append(&running.ended(concluded.status, &concluded.bytes));
        self.cooling.push_back((number, running.places));
        (running.number, after, concluded)
    }

    /// A request was not carried out. Its intent, if it had one.
    pub(super) fn abandon(&mut self, ledger: &mut Ledger, answer: ReplyTo) -> Option<RecordNumber> {
        let running = self.take_running(answer)?;
        ledger.append(&Record::Abandoned(running.key));
        self.names.free(&running.places);
        Some(running.number)
    }

    /// Names whose outcomes are durable are free. Whether there are any.
    pub(super) fn free_cooled(&mut self, durable: RecordNumber) -> bool {
        let mut is_any = false;
        while self.cooling.front().is_some_and(|(number, _)| *number <= durable)
            && let Some((_, places)) = self.cooling.pop_front()
        {
            self.names.free(&places);
            is_any = true;
        }
        is_any
    }

    /// An answer waits for a record. What was appended last is durable last: the queue stays in
    /// order.
    pub(super) fn conclude_after(&mut self, after: RecordNumber, concluded: Concluded) {
        let after = self.concluded.back().map_or(after, |(last, _)| after.max(*last));
        self.concluded.push_back((after, concluded));
    }

    /// What a server that starts from here would be told of answers that wait.
    pub(super) fn replies(&self) -> impl Iterator<Item = Reply> {
        self.concluded.iter().filter_map(|(_, concluded)| {
            let (status, bytes) = (concluded.status, concluded.bytes.clone());
            Some(Reply { key: concluded.key?, status, bytes })
        })
    }

    /// Whether anything that was touched waits to be synced. It is asked at each turn.
    #[inline]
    pub(crate) fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
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
        self.names.held_count() + self.running.len() + unsynced + self.concluded.len()
    }

    // ---- fencing lists ----------------------------------------------------------------

    /// Writes a list down.
    pub(crate) fn store_fence(
        &mut self,
        ledger: &mut Ledger,
        id: FenceStoreId,
        record: FenceRecord,
    ) {
        let number = ledger.append(&StateRecord::Fence(record));
        self.fences.push_back((number, FenceStep::Stored(id)));
    }

    /// Has a change answered once all that was written down by now is durable. True if it
    /// is already.
    pub(crate) fn is_settled(&mut self, ledger: &Ledger, answer: ReplyTo) -> bool {
        let last = ledger.last();
        let is_durable = ledger.durable() >= last;
        if !is_durable {
            self.fences.push_back((last, FenceStep::Answered(answer)));
        }
        is_durable
    }

    pub(super) fn next_fence_step(&mut self, durable: RecordNumber) -> Option<FenceStep> {
        self.fences.front().filter(|(number, _)| *number <= durable)?;
        self.fences.pop_front().map(|(_, step)| step)
    }

    /// Requests between intent and outcome, for each object they touch; those among them that
    /// were carried out and are not synced yet.
    pub(crate) fn running_requests(
        &self,
        channels: &Channels,
    ) -> impl Iterator<Item = RunningRequest> {
        let carried_out = self.unsynced.iter().chain(&self.syncing).map(|done| &done.running);
        self.running.values().chain(carried_out).flat_map(|running| {
            let operation = operation_of_intent(running.number);
            let fence = channels.get(running.endpoint).and_then(|channel| channel.party.fence);
            let handles = running.touched.iter();
            handles.map(move |&file| RunningRequest { operation, fence, file })
        })
    }

    // ---- rollbacks --------------------------------------------------------------------

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

impl Running {
    /// How the request has ended, as it is written down: as an outcome, if there are words for it.
    fn ended(&self, status: Status, bytes: &[u8]) -> Record {
        let key = self.key;
        match outcome_of(self.order, key.request.procedure, status, bytes) {
            Some(outcome) => {
                let mut encoded = Vec::new();
                encode_outcome(&outcome, &mut encoded);
                Record::Outcome(Outcome { key, outcome: encoded.into() })
            }
            None => Record::Reply(Reply { key, status, bytes: bytes.into() }),
        }
    }
}

impl Concluded {
    pub(super) fn new(
        answer: ReplyTo,
        status: Status,
        bytes: &[u8],
        message: Option<&[u8]>,
    ) -> Self {
        let (bytes, message) = (bytes.into(), message.map(Box::from));
        Self { answer, key: None, status, bytes, message }
    }
}

/// Whether a status says that nothing was changed.
pub(super) fn is_failure(status: Status) -> bool {
    status != Status::Ok
}
