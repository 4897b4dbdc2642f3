//! Tracks the requests between their intents and outcomes in the journal, and the replies that wait
//! for durable records.
//!
//! Invariants:
//! - No client learns the content of a record before the record is durable.
//! - The names that a request changes are busy from its intent until its outcome is durable.
//! - The reply to a change of a fencing list waits until its record is durable, and until the ends
//!   of all operations that the fenced clients had started are durable. So recovery after a crash
//!   has no operation of a fenced client to finish.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::locks::RollbackId;
use dafs_filer::{FenceRecord, FenceStoreId, RunningRequest};
use dafs_files::defect::Defect;
use dafs_files::ledger::plan::{Places, Touched};
use dafs_files::ledger::{Entry, Ledger, LedgerJob, StateRecord};
use dafs_journal::RecordNumber;
use dafs_ops::{Origin, encode_outcome};
use dafs_sessions::KeptSession;
use dafs_store::Store;
use dafs_types::{Status, StreamId};
use dafs_wire::ByteOrder;

use super::names::BusyNames;
use super::record::{CallReply, Intent, Outcome, Record, Reply, RequestKey};
use crate::channel::Channels;
use crate::reply_to::{ReplyTo, TaskId};
use crate::requests::translate::outcome_of;
use crate::waiting::fencing::operation_of_intent;

/// The work that continues when a request's intent is durable.
pub(super) enum AwaitingIntent {
    /// Executes the request with this encoded operation.
    Request { answer: ReplyTo, operation: Box<[u8]> },
    /// Continues the request of a guest.
    Guest(ReplyTo, RecordNumber),
    /// Executes the next step of the task with this id.
    Task(TaskId),
}

/// A request between its intent and its outcome.
pub(super) struct Running {
    origin: Origin,
    /// The byte order of the request's session. A guest's request has none.
    order: ByteOrder,
    /// The record number of the request's intent.
    number: RecordNumber,
    endpoint: EndpointId,
    intent: Vec<u8>,
    places: Places,
    touched: Touched,
}

/// Identifies a request between its intent and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RunningKey {
    /// A request of a DAFS session; a stream has one request in flight.
    Stream(KeptSession, StreamId),
    /// A request of a guest, by the record number of its intent.
    Guest(RecordNumber),
}

/// A step of a fencing change that waits for durable records.
pub(super) enum FenceStep {
    /// Reports to the filer that the record of a fencing list is durable.
    Stored(FenceStoreId),
    /// Sends the reply to the client that changed a fencing list. This waits until the ends of all
    /// operations that the fenced clients had started are durable.
    Answered(ReplyTo),
}

/// A reply that waits until its outcome, or another record, is durable.
pub(super) struct AwaitingRecord {
    pub(super) answer: ReplyTo,
    /// The origin of the request. `None` if the journal contains no outcome of the request.
    pub(super) origin: Option<Origin>,
    pub(super) status: Status,
    /// The bytes of the reply after the header.
    pub(super) bytes: Box<[u8]>,
    /// The message to send. `None` if the connection has ended.
    pub(super) message: Option<Box<[u8]>>,
}

/// A request that was executed but whose changes are not on stable storage yet.
pub(super) struct AwaitingSync {
    concluded: AwaitingRecord,
    /// The number of another record that must be durable before the reply is sent.
    after: RecordNumber,
    running: Running,
}

/// All requests that are in the journal and to which no reply was sent yet.
#[derive(Default)]
pub(crate) struct JournaledRequests {
    intended: VecDeque<(RecordNumber, AwaitingIntent)>,
    fences: VecDeque<(RecordNumber, FenceStep)>,
    concluded: VecDeque<(RecordNumber, AwaitingRecord)>,
    running: BTreeMap<RunningKey, Running>,
    /// Executed requests whose changes the next sync must cover.
    unsynced: Vec<AwaitingSync>,
    /// Executed requests whose changes the current sync covers.
    syncing: Vec<AwaitingSync>,
    /// Names that stop being busy when the record with this number is durable.
    committing: VecDeque<(RecordNumber, Places)>,
    /// The names that requests are changing, and the requests that wait for these names, as encoded
    /// operations.
    names: BusyNames<(ReplyTo, Box<[u8]>)>,
    /// ABORT requests, each with the rollbacks that it waits for.
    aborts: Vec<(ReplyTo, Vec<RollbackId>)>,
    /// True if a test injects the defect that requests are executed without an intent.
    skips_intents: bool,
}

impl JournaledRequests {
    /// Creates an empty table.
    pub(crate) fn new(defect: Option<Defect>) -> Self {
        Self { skips_intents: defect == Some(Defect::SkipIntent), ..Self::default() }
    }

    /// Returns true if a request is changing at least one of these names.
    pub(super) fn is_busy(&self, places: &Places) -> bool {
        self.names.is_busy(places)
    }

    /// Queues a request until no other request is changing these names.
    pub(super) fn hold(&mut self, answer: ReplyTo, operation: Box<[u8]>, places: Places) {
        self.names.hold((answer, operation), places);
    }

    /// Removes and returns the first queued request whose names are all free, so that no other
    /// request is changing any of them.
    pub(super) fn next_held(&mut self) -> Option<(ReplyTo, Box<[u8]>)> {
        self.names.next_free()
    }

    /// Journals an intent. The work `next` continues when the intent is durable.
    pub(super) fn intend(
        &mut self,
        ledger: &mut Ledger,
        answer: ReplyTo,
        order: ByteOrder,
        intent: Intent,
        changed: (Places, Touched),
        next: AwaitingIntent,
    ) {
        let key = RunningKey::Stream(answer.kept(), answer.stream);
        self.begin(ledger, (answer.endpoint, order), intent, changed, |_| (key, next));
    }

    /// Journals the intent of a guest's request. The request continues when the intent is durable.
    pub(super) fn intend_for_guest(
        &mut self,
        ledger: &mut Ledger,
        to: ReplyTo,
        intent: Intent,
        changed: (Places, Touched),
    ) {
        self.begin(ledger, (to.endpoint, ByteOrder::Big), intent, changed, |number| {
            (RunningKey::Guest(number), AwaitingIntent::Guest(to, number))
        });
    }

    /// Journals an intent. `name` returns the key of the request, and the work that continues when
    /// the intent is durable; its argument is the number of the intent.
    fn begin(
        &mut self,
        ledger: &mut Ledger,
        (endpoint, order): (EndpointId, ByteOrder),
        intent: Intent,
        (places, touched): (Places, Touched),
        name: impl FnOnce(RecordNumber) -> (RunningKey, AwaitingIntent),
    ) {
        let origin = intent.origin;
        let record = Record::Intent(intent);
        let bytes = record.encode();
        self.names.take(&places);
        let number = match self.skips_intents {
            // The injected defect still writes a record, because only a durable record continues
            // the request.
            true => ledger.append(&Record::Abandoned(origin)),
            false => ledger.append_bytes(record.kind(), bytes.clone()),
        };
        let (key, next) = name(number);
        let running = Running { origin, order, number, endpoint, intent: bytes, places, touched };
        self.running.insert(key, running);
        self.intended.push_back((number, next));
    }

    /// Removes and returns the next request whose intent is durable.
    pub(super) fn next_intended(&mut self, durable: RecordNumber) -> Option<AwaitingIntent> {
        self.intended.front().filter(|(number, _)| *number <= durable)?;
        self.intended.pop_front().map(|(_, intended)| intended)
    }

    /// Removes and returns the next reply for which all necessary records are durable.
    pub(super) fn next_concluded(&mut self, durable: RecordNumber) -> Option<AwaitingRecord> {
        self.concluded.front().filter(|(number, _)| *number <= durable)?;
        self.concluded.pop_front().map(|(_, concluded)| concluded)
    }

    /// Removes and returns the running request that belongs to a reply.
    pub(super) fn take_running(&mut self, answer: ReplyTo) -> Option<Running> {
        self.running.remove(&RunningKey::Stream(answer.kept(), answer.stream))
    }

    /// Removes and returns the running request of a guest with this intent.
    pub(super) fn take_running_guest(&mut self, intent: RecordNumber) -> Option<Running> {
        self.running.remove(&RunningKey::Guest(intent))
    }

    /// Ends a request. If its changes need no sync, returns the number of its intent and the number
    /// of the record that the reply must wait for. Otherwise returns `None`, and the request waits
    /// for a sync.
    pub(super) fn end(
        &mut self,
        ledger: &mut Ledger,
        running: Running,
        after: RecordNumber,
        mut concluded: AwaitingRecord,
    ) -> Option<(RecordNumber, RecordNumber, AwaitingRecord)> {
        concluded.origin = Some(running.origin);
        if !is_failure(concluded.status) && !running.touched.is_empty() {
            self.unsynced.push(AwaitingSync { concluded, after, running });
            return None;
        }
        let number = ledger.append(&running.ended(concluded.status, &concluded.bytes));
        self.names.free(&running.places);
        Some((running.number, number.max(after), concluded))
    }

    /// Removes and returns the requests that the finished sync covered.
    pub(super) fn take_synced(&mut self) -> Vec<AwaitingSync> {
        std::mem::take(&mut self.syncing)
    }

    /// Ends a request whose changes are synced. Returns the number of its intent and the number of
    /// the record that the reply must wait for.
    pub(super) fn end_synced(
        &mut self,
        ledger: &mut Ledger,
        synced: AwaitingSync,
    ) -> (RecordNumber, RecordNumber, AwaitingRecord) {
        let AwaitingSync { concluded, after, running } = synced;
        let number = ledger.append(&running.ended(concluded.status, &concluded.bytes));
        self.committing.push_back((number, running.places));
        (running.number, after, concluded)
    }

    /// Records that a request was not executed. Returns the number of its intent, or `None` if the
    /// request had no intent.
    pub(super) fn abandon(&mut self, ledger: &mut Ledger, answer: ReplyTo) -> Option<RecordNumber> {
        let running = self.take_running(answer)?;
        Some(self.end_without_effect(ledger, &running))
    }

    /// Records that a running request was not executed. Returns the number of its intent.
    pub(super) fn end_without_effect(
        &mut self,
        ledger: &mut Ledger,
        running: &Running,
    ) -> RecordNumber {
        ledger.append(&Record::Abandoned(running.origin));
        self.names.free(&running.places);
        running.number
    }

    /// Frees the names whose outcomes are durable. Returns true if any name became free.
    pub(super) fn free_committed(&mut self, durable: RecordNumber) -> bool {
        let mut is_any = false;
        while self.committing.front().is_some_and(|(number, _)| *number <= durable)
            && let Some((_, places)) = self.committing.pop_front()
        {
            self.names.free(&places);
            is_any = true;
        }
        is_any
    }

    /// Queues a reply until a record is durable. Each entry also waits for the record of the entry
    /// before it, so that the queue stays sorted by record number.
    pub(super) fn conclude_after(&mut self, after: RecordNumber, concluded: AwaitingRecord) {
        let after = self.concluded.back().map_or(after, |(last, _)| after.max(*last));
        self.concluded.push_back((after, concluded));
    }

    /// Returns the waiting replies as records for a checkpoint.
    pub(super) fn replies(&self) -> impl Iterator<Item = Record> {
        self.concluded.iter().filter_map(|(_, concluded)| {
            let (status, bytes) = (concluded.status, concluded.bytes.clone());
            let origin = concluded.origin?;
            Some(match RequestKey::of(&origin) {
                Some(key) => Record::Reply(Reply { key, status, bytes }),
                None => Record::CallReply(CallReply { origin, bytes }),
            })
        })
    }

    /// Returns true if there are changes to sync. Called in each turn.
    #[inline]
    pub(crate) fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    /// Returns the job that syncs the changes. `None` if there is nothing to sync or a sync is in
    /// progress.
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

    /// Iterates over the encoded intents of requests without an outcome.
    pub(super) fn intents(&self) -> impl Iterator<Item = &Vec<u8>> {
        let unsynced = self.unsynced.iter().chain(&self.syncing);
        let carried_out = unsynced.map(|unsynced| &unsynced.running.intent);
        self.running.values().map(|running| &running.intent).chain(carried_out)
    }

    /// Returns the number of requests between intent and reply.
    pub(crate) fn under_way(&self) -> usize {
        let unsynced = self.unsynced.len() + self.syncing.len();
        self.names.held_count() + self.running.len() + unsynced + self.concluded.len()
    }

    // ---- fencing lists ----------------------------------------------------------------

    /// Journals a fencing list.
    pub(crate) fn store_fence(
        &mut self,
        ledger: &mut Ledger,
        id: FenceStoreId,
        record: FenceRecord,
    ) {
        let number = ledger.append(&StateRecord::Fence(record));
        self.fences.push_back((number, FenceStep::Stored(id)));
    }

    /// Returns true if all records are durable. Otherwise queues the reply to a change of a fencing
    /// list until all are.
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

    /// Returns the requests between intent and outcome, with one entry for each object that a
    /// request changes. Executed requests whose changes are not synced yet are included.
    pub(crate) fn running_requests(
        &self,
        channels: &Channels,
    ) -> impl Iterator<Item = RunningRequest> {
        let carried_out = self.unsynced.iter().chain(&self.syncing).map(|done| &done.running);
        self.running.values().chain(carried_out).flat_map(|running| {
            let operation = operation_of_intent(running.number);
            let fence = channels.party_of(running.endpoint).and_then(|party| party.fence);
            let handles = running.touched.iter();
            handles.map(move |&file| RunningRequest { operation, fence, file })
        })
    }

    // ---- rollbacks --------------------------------------------------------------------

    /// Makes an ABORT wait until its rollbacks are done.
    pub(crate) fn await_rollbacks(&mut self, answer: ReplyTo, rollbacks: Vec<RollbackId>) {
        self.aborts.push((answer, rollbacks));
    }

    /// Records that a rollback is done. Returns the ABORT requests that now wait for no further
    /// rollback.
    pub(crate) fn end_rollback(&mut self, id: RollbackId) -> Vec<ReplyTo> {
        for (_, waits_for) in &mut self.aborts {
            waits_for.retain(|other| *other != id);
        }
        let over = self.aborts.extract_if(.., |(_, waits_for)| waits_for.is_empty());
        over.map(|(answer, _)| answer).collect()
    }
}

impl Running {
    /// Returns the record of a request's end: an outcome if the results can be expressed as an
    /// outcome, otherwise a reply.
    fn ended(&self, status: Status, bytes: &[u8]) -> Record {
        let origin = self.origin;
        let Some(key) = RequestKey::of(&origin) else {
            return Record::CallReply(CallReply { origin, bytes: bytes.into() });
        };
        match outcome_of(self.order, key.request.procedure, status, bytes) {
            Some(outcome) => {
                let mut encoded = Vec::new();
                encode_outcome(&outcome, &mut encoded);
                Record::Outcome(Outcome { origin, outcome: encoded.into() })
            }
            None => Record::Reply(Reply { key, status, bytes: bytes.into() }),
        }
    }
}

impl AwaitingRecord {
    pub(super) fn new(
        answer: ReplyTo,
        status: Status,
        bytes: &[u8],
        message: Option<&[u8]>,
    ) -> Self {
        let (bytes, message) = (bytes.into(), message.map(Box::from));
        Self { answer, origin: None, status, bytes, message }
    }
}

/// Returns true if this status means that the request changed nothing.
pub(super) fn is_failure(status: Status) -> bool {
    status != Status::Ok
}
