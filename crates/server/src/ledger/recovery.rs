//! Recovers the journal at the server's start, and writes checkpoints.
//!
//! Invariant: no client is admitted before every intent of the previous incarnation has a verdict
//! (executed or not), and all verdicts are durable. Because they are durable, a second crash does
//! not change them.

use std::collections::BTreeMap;
use std::sync::Arc;

use dafs_filer::locks::{ByteRange, LockId, LockRecord};
use dafs_filer::{ClientRecord, FenceId, FenceRecord, FencedObject, Filer};
use dafs_files::ledger::{
    Entry, JournalConfig, Ledger, LedgerError, LedgerJob, StateRecord, journal_failed,
};
use dafs_files::undo::{Extent, RecordedLock, Undo, without};
use dafs_journal::{Log, LogError, RecordKind};
use dafs_ops::{Done, Origin, decode_outcome, encode_outcome};
use dafs_sessions::{RequestName, SessionRecord, Sessions};
use dafs_store::{Store, StoreError};
use dafs_types::{
    Credentials, Entropy, FileHandle, Moment, SessionId, ShareAccess, Status, StreamId,
};

use super::record::{CallReply, INTENT, Intent, Outcome, Record, Reply, RequestKey};
use super::requests::JournaledRequests;
use super::verdict::judge;
use crate::config::ServerError;
use crate::nfs::client_record_of;
use crate::persistent::{PersistentSessions, is_persistent};
use crate::repeats::Repeats;
use crate::requests::handles;
use crate::requests::translate::results_of;

/// The tables of the calls that NFS clients may send again.
type Calls<'a> = (&'a mut Repeats, &'a mut PersistentSessions);

/// The state that the journal of the previous incarnation describes.
#[derive(Default)]
struct PreviousState {
    sessions: BTreeMap<SessionId, PreviousSession>,
    /// The calls of NFSv3 that were executed.
    calls: Repeats,
    /// The intents of calls of NFS clients without an outcome.
    call_intents: BTreeMap<Origin, Intent>,
    /// The persistent sessions of NFSv4. Their intents are in `call_intents`, too.
    persistent: PersistentSessions,
    /// The clients that had opens or locks, by name.
    clients: BTreeMap<Box<[u8]>, ClientRecord>,
    locks: BTreeMap<LockId, (FileHandle, LockRecord)>,
    fences: BTreeMap<FencedObject, Box<[FenceId]>>,
    /// The ranges of files for which there is valid undo data.
    undo: Vec<(FileHandle, Extent)>,
    /// The number of records that could not be decoded.
    undecodable: u64,
}

struct PreviousSession {
    record: SessionRecord,
    replies: BTreeMap<StreamId, (RequestName, Status, Box<[u8]>)>,
    /// The intents without an outcome, in the order of the journal.
    intents: Vec<(RequestKey, Intent)>,
}

/// Opens the journal, decides which of the interrupted requests were executed before the previous
/// server ended, and restores clients, sessions, locks and calls. This blocks.
pub(crate) fn open(
    config: &JournalConfig,
    store: &Arc<dyn Store>,
    (filer, sessions, calls): (&mut Filer, &mut Sessions, Calls<'_>),
    entropy: &mut dyn Entropy,
) -> Result<Ledger, ServerError> {
    let failed = |error: LogError| ServerError::Journal { source: journal_failed(error) };
    let (log, mut recovered) =
        Log::open(config.storage.clone(), config.log.clone(), entropy).map_err(failed)?;
    let mut previous = PreviousState::default();
    while let Some(record) = recovered.next_record().map_err(failed)? {
        match Record::decode(record.kind, record.bytes) {
            Some(mut record) => {
                record.renew(|handle| handles::renew(&**store, handle));
                previous.take(record);
            }
            None => previous.undecodable += 1,
        }
    }
    drop(recovered);
    if previous.undecodable > 0 {
        return Err(recovery_failed(LedgerError::Journal(format!(
            "{} records were written by a newer version of this server; use that version",
            previous.undecodable
        ))));
    }
    let verdicts = previous.judge(store.as_ref())?;
    previous.restore(filer, sessions).map_err(recovery_failed)?;
    let locks = previous.open_locked(store.as_ref()).map_err(recovery_failed)?;
    let undo = Undo::restore(&config.storage, &config.undo, store, &previous.undo, &locks);
    let undo = undo
        .map_err(|error| recovery_failed(LedgerError::Journal(dafs_journal::chain_of(&error))))?;
    let mut ledger = Ledger::new(log, undo);
    ledger.restore_locks(locks, filer);
    tracing::info!(
        sessions = previous.sessions.len(),
        fences = filer.fence_counters().objects,
        undo = ledger.undo.data_count(),
        rollbacks = ledger.undo.rollback_count(),
        undecided = verdicts.0 + verdicts.1,
        done = verdicts.0,
        "journal read"
    );
    (*calls.0, *calls.1) = (previous.calls, previous.persistent);
    write_all(&mut ledger, filer, sessions, (calls.0, calls.1))?;
    Ok(ledger)
}

/// Writes a checkpoint and waits until it is durable.
fn write_all(
    ledger: &mut Ledger,
    filer: &Filer,
    sessions: &Sessions,
    calls: (&Repeats, &PersistentSessions),
) -> Result<(), ServerError> {
    let records = records_of(&JournaledRequests::default(), sessions, calls);
    ledger.begin_checkpoint(filer, records).map_err(recovery_failed)?;
    while let Some(LedgerJob::Group(job)) = ledger.take_group() {
        ledger.on_group_done(job.run()).map_err(recovery_failed)?;
    }
    Ok(())
}

/// Returns the front ends' own records for a checkpoint: sessions, intents and replies.
pub(super) fn records_of(
    requests: &JournaledRequests,
    sessions: &Sessions,
    (calls, persistent): (&Repeats, &PersistentSessions),
) -> Vec<(RecordKind, Vec<u8>)> {
    let mut records = Vec::new();
    let mut push = |record: Record| records.push((record.kind(), record.encode()));
    for (session, replies) in sessions.kept_records() {
        push(Record::Session(session.clone()));
        for reply in replies {
            let key = RequestKey { session: session.id, request: reply.request };
            let (status, bytes) = (reply.status, reply.bytes.into());
            push(Record::Reply(Reply { key, status, bytes }));
        }
    }
    for (origin, reply) in calls.replies() {
        push(Record::CallReply(CallReply { origin: *origin, bytes: reply.into() }));
    }
    for (session, record) in persistent.sessions() {
        push(Record::Persistent(session, record.into()));
    }
    for (origin, note) in persistent.all_slots() {
        push(Record::CallReply(CallReply { origin: *origin, bytes: note.encode().into() }));
    }
    for (origin, done) in calls.results().chain(persistent.results()) {
        let mut outcome = Vec::new();
        encode_outcome(&Ok(done.clone()), &mut outcome);
        push(Record::Outcome(Outcome { origin: *origin, outcome: outcome.into() }));
    }
    requests.replies().for_each(&mut push);
    records.extend(requests.intents().map(|bytes| (INTENT, bytes.clone())));
    records
}

impl PreviousState {
    /// Opens the files on which clients hold locks. Drops the locks of files that no longer exist.
    fn open_locked(&mut self, store: &dyn Store) -> Result<Vec<RecordedLock>, LedgerError> {
        let mut locks = Vec::new();
        for (_, (handle, record)) in std::mem::take(&mut self.locks) {
            match store.open(&Credentials::superuser(), &handle, ShareAccess::Read) {
                Ok(file) => locks.push(RecordedLock { handle, file, record }),
                Err(StoreError::Stale | StoreError::NotFound | StoreError::BadHandle) => {}
                Err(error) => return Err(LedgerError::Store(error)),
            }
        }
        Ok(locks)
    }

    fn drop_undo(&mut self, handle: &FileHandle, range: ByteRange) {
        let is_its = |(named, _): &mut (FileHandle, Extent)| named == handle;
        let extents: Vec<Extent> =
            self.undo.extract_if(.., is_its).map(|(_, extent)| extent).collect();
        let left = without(&extents, range).into_iter();
        self.undo.extend(left.map(|extent| (*handle, extent)));
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Session(record) => {
                let (replies, intents) = (BTreeMap::new(), Vec::new());
                let session = PreviousSession { record: record.clone(), replies, intents };
                self.sessions.entry(record.id).or_insert(session);
            }
            Record::Intent(intent) => match RequestKey::of(&intent.origin) {
                Some(key) => {
                    if let Some(session) = self.session_of(&key) {
                        session.replies.remove(&key.request.stream);
                        session.settle(&key);
                        session.intents.push((key, intent));
                    }
                }
                None => drop(self.call_intents.insert(intent.origin, intent)),
            },
            Record::Outcome(Outcome { origin, outcome }) => self.take_outcome(&origin, &outcome),
            Record::Reply(Reply { key, status, bytes }) => {
                if let Some(session) = self.session_of(&key) {
                    session.keep(&key, status, bytes);
                }
            }
            Record::CallReply(CallReply { origin, bytes }) if is_persistent(&origin) => {
                // A slot has one request at a time, so its other intents have ended.
                let first = Origin { sequence: 0, index: 0, ..origin };
                let last = Origin { sequence: u32::MAX, index: u16::MAX, ..origin };
                let ended = self.call_intents.range(first..=last).map(|(other, _)| *other);
                for other in ended.collect::<Vec<_>>() {
                    self.call_intents.remove(&other);
                }
                self.persistent.note(origin, &bytes);
            }
            Record::Persistent(session, record) => self.persistent.insert(session, &record),
            Record::PersistentGone(session) => self.persistent.remove(session),
            Record::CallReply(CallReply { origin, bytes }) => {
                self.call_intents.remove(&origin);
                self.calls.restore_reply(origin, &bytes);
            }
            Record::Abandoned(origin) => match RequestKey::of(&origin) {
                Some(key) => {
                    if let Some(session) = self.session_of(&key) {
                        session.settle(&key);
                    }
                }
                None => drop(self.call_intents.remove(&origin)),
            },
            Record::Forgotten(id) => drop(self.sessions.remove(&id)),
            Record::State(state) => self.take_state(state),
        }
    }

    fn take_outcome(&mut self, origin: &Origin, outcome: &[u8]) {
        let Some(outcome) = decode_outcome(outcome) else {
            // No version has written such a record, so it is counted as undecodable.
            self.undecodable += 1;
            return;
        };
        match (RequestKey::of(origin), outcome) {
            (Some(key), outcome) => {
                let Some(session) = self.sessions.get_mut(&key.session) else { return };
                match session.told(&key, &outcome) {
                    Some((status, bytes)) => session.keep(&key, status, bytes.into()),
                    None => self.undecodable += 1,
                }
            }
            (None, Ok(done)) => {
                self.call_intents.remove(origin);
                match is_persistent(origin) {
                    true => self.persistent.judge(origin, Some(done.into_owned())),
                    false => self.calls.restore_result(*origin, done.into_owned()),
                }
            }
            // The reply to a failed call is recorded as a reply.
            (None, Err(_)) => self.undecodable += 1,
        }
    }

    fn take_state(&mut self, record: StateRecord) {
        match record {
            StateRecord::Client(client) => drop(self.clients.insert(client.name.clone(), client)),
            StateRecord::ClientGone(name) => drop(self.clients.remove(&name)),
            StateRecord::Locker(name) => {
                if let Some(client) = self.clients.get_mut(&name) {
                    client.has_locks = true;
                }
            }
            StateRecord::Lock(handle, lock) => drop(self.locks.insert(lock.id, (handle, *lock))),
            StateRecord::LockGone(id) => drop(self.locks.remove(&id)),
            StateRecord::UndoKept { id, handle, range } => {
                self.undo.push((handle, Extent { range, id }))
            }
            StateRecord::UndoDropped { handle, range } => self.drop_undo(&handle, range),
            StateRecord::Fence(FenceRecord { object, fence_ids }) if fence_ids.is_empty() => {
                self.fences.remove(&object);
            }
            StateRecord::Fence(FenceRecord { object, fence_ids }) => {
                self.fences.insert(object, fence_ids);
            }
        }
    }

    fn session_of(&mut self, key: &RequestKey) -> Option<&mut PreviousSession> {
        self.sessions.get_mut(&key.session)
    }

    /// Decides for each interrupted request whether it was executed. Returns the number of requests
    /// that were executed and the number that were not.
    fn judge(&mut self, store: &dyn Store) -> Result<(u64, u64), ServerError> {
        let unreadable = |error| recovery_failed(LedgerError::Store(error));
        let (mut done, mut undone) = (0, 0);
        for (origin, intent) in std::mem::take(&mut self.call_intents) {
            let verdict = judge(store, &intent).map_err(unreadable)?;
            tracing::debug!(?origin, is_done = verdict.is_some(), "verdict");
            match &verdict {
                Some(_) => done += 1,
                None => undone += 1,
            }
            match verdict {
                result if is_persistent(&origin) => {
                    if matches!(result, Some(Done::Opened(_))) {
                        self.remember_opener(&origin);
                    }
                    self.persistent.judge(&origin, result);
                }
                Some(result) => self.calls.restore_result(origin, result),
                None => {}
            }
        }
        self.persistent.end_verdicts();
        for session in self.sessions.values_mut() {
            for (key, intent) in std::mem::take(&mut session.intents) {
                let verdict = judge(store, &intent).map_err(unreadable)?;
                let request = key.request;
                tracing::debug!(?request, is_done = verdict.is_some(), "verdict");
                let told = verdict.and_then(|done| session.told(&key, &Ok(done)));
                match told {
                    Some((status, bytes)) => {
                        done += 1;
                        session.replies.insert(request.stream, (request, status, bytes.into()));
                    }
                    None => undone += 1,
                }
            }
        }
        Ok((done, undone))
    }

    /// Notes that the client of a persistent session had an open, although its record was not
    /// durable yet. So the client may reclaim the open.
    fn remember_opener(&mut self, origin: &Origin) {
        let record = self.persistent.record(origin.session).and_then(client_record_of);
        if let Some(record) = record {
            self.clients.entry(record.name.clone()).or_insert(record);
        }
    }

    fn restore(&mut self, filer: &mut Filer, sessions: &mut Sessions) -> Result<(), LedgerError> {
        for session in self.sessions.values() {
            let kept = sessions.restore_session(session.record.clone(), Moment(0));
            for (request, status, bytes) in session.replies.values() {
                sessions.keep_finished(kept, *request, *status, bytes);
            }
        }
        let clients = std::mem::take(&mut self.clients).into_values().collect();
        filer.begin_grace(clients, Moment(0));
        let fences = std::mem::take(&mut self.fences).into_iter();
        filer
            .restore_fences(fences.map(|(object, fence_ids)| FenceRecord { object, fence_ids }))
            .map_err(LedgerError::Fences)
    }
}

impl PreviousSession {
    /// Stores the outcome of a request in its session.
    fn keep(&mut self, key: &RequestKey, status: Status, bytes: Box<[u8]>) {
        self.settle(key);
        self.replies.insert(key.request.stream, (key.request, status, bytes));
    }

    /// Converts an outcome to the status of the reply, and to the bytes of the reply in the
    /// session's byte order.
    fn told(&self, key: &RequestKey, outcome: &dafs_ops::Outcome<'_>) -> Option<(Status, Vec<u8>)> {
        results_of(self.record.order, key.request.procedure, outcome)
    }

    /// Removes the intents of the request's stream. A stream has only one request in flight, so its
    /// other intents belong to requests that have ended.
    fn settle(&mut self, key: &RequestKey) {
        self.intents.retain(|(other, _)| other.request.stream != key.request.stream);
    }
}

fn recovery_failed(source: LedgerError) -> ServerError {
    ServerError::Journal { source }
}
