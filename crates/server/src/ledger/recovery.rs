//! The ledger at the server's start, and its checkpoints.
//!
//! Invariant: nobody is let in before every intent of the last life has its verdict, and
//! the verdicts are durable: a second crash finds them decided.

use std::collections::BTreeMap;
use std::sync::Arc;

use dafs_filer::locks::{LockId, LockRecord};
use dafs_filer::{
    ClientRecord, FenceId, FenceRecord, FencedObject, FileKey, Filer, RequestName, SessionRecord,
};
use dafs_journal::{Log, LogError, RecordKind, RecordNumber};
use dafs_store::{Store, StoreError};
use dafs_types::{
    Credentials, Entropy, FileHandle, Moment, SessionId, ShareAccess, Status, StreamId,
};

use super::verdict::judge;
use super::{
    Intent, JournalConfig, Ledger, LedgerError, Outcome, Record, RequestKey, journal_failed,
};
use crate::config::ServerError;
use crate::reactor::Reactor;

/// What the journal of the last life says.
#[derive(Default)]
struct Past {
    sessions: BTreeMap<SessionId, PastSession>,
    /// Clients that had state, by name.
    clients: BTreeMap<Box<[u8]>, ClientRecord>,
    locks: BTreeMap<LockId, (FileHandle, LockRecord)>,
    fences: BTreeMap<FencedObject, Box<[FenceId]>>,
    /// Records nobody understands.
    strange: u64,
}

struct PastSession {
    record: SessionRecord,
    replies: BTreeMap<StreamId, (RequestName, Status, Box<[u8]>)>,
    /// Without an outcome, in the order they were written.
    intents: Vec<Intent>,
}

impl Ledger {
    /// Opens the journal, judges what was under way when the last server ended, and puts
    /// everything back into the filer. Blocks.
    pub(crate) fn open(
        config: &JournalConfig,
        store: &Arc<dyn Store>,
        filer: &mut Filer,
        entropy: &mut dyn Entropy,
    ) -> Result<Self, ServerError> {
        let failed = |error: LogError| ServerError::Journal { source: journal_failed(error) };
        let (log, mut recovered) =
            Log::open(config.shelf.clone(), config.log.clone(), entropy).map_err(failed)?;
        let mut past = Past::default();
        while let Some(record) = recovered.next_record().map_err(failed)? {
            match Record::decode(record.kind, record.octets) {
                Some(record) => past.take(record),
                None => past.strange += 1,
            }
        }
        drop(recovered);
        if past.strange > 0 {
            return Err(recovery_failed(LedgerError::Journal(format!(
                "{} of its records were written by a newer version of this server; use that one",
                past.strange
            ))));
        }
        let verdicts = past.judge(store.as_ref())?;
        past.restore(filer).map_err(recovery_failed)?;
        let mut ledger = Self::new(log);
        let locks = std::mem::take(&mut past.locks);
        ledger.restore_locks(locks, store.as_ref(), filer)?;
        tracing::info!(
            sessions = past.sessions.len(),
            fences = filer.fence_counters().objects,
            undecided = verdicts.0 + verdicts.1,
            done = verdicts.0,
            "journal read"
        );
        ledger.write_all(filer, store)?;
        Ok(ledger)
    }

    /// Puts locks back that outlive their owners. Those of files that are gone are, too.
    fn restore_locks(
        &mut self,
        locks: BTreeMap<LockId, (FileHandle, LockRecord)>,
        store: &dyn Store,
        filer: &mut Filer,
    ) -> Result<(), ServerError> {
        let mut records = Vec::new();
        for (id, (handle, record)) in locks {
            let file = match store.open(&Credentials::superuser(), &handle, ShareAccess::Read) {
                Ok(file) => file,
                Err(StoreError::Stale | StoreError::NotFound | StoreError::BadHandle) => continue,
                Err(error) => return Err(recovery_failed(LedgerError::Store(error))),
            };
            records.push(LockRecord { file: FileKey(file.key().0), ..record });
            self.locked.insert(id, (handle, file));
        }
        filer.restore_locks(records, Moment(0));
        // What that asks for is in the checkpoint that follows.
        while filer.take_lock_action().is_some() {}
        Ok(())
    }

    /// Makes a checkpoint and waits until it is durable.
    fn write_all(&mut self, filer: &Filer, store: &Arc<dyn Store>) -> Result<(), ServerError> {
        self.begin_checkpoint(filer).map_err(recovery_failed)?;
        while let Some(job) = self.take_job(store) {
            self.on_done(job.run()).map_err(recovery_failed)?;
        }
        Ok(())
    }

    /// Hands the log everything its records amount to.
    fn begin_checkpoint(&mut self, filer: &Filer) -> Result<(), LedgerError> {
        let mut records: Vec<(RecordKind, Vec<u8>)> = Vec::new();
        let mut push = |record: &Record| records.push((record.kind(), record.encode()));
        for (session, replies) in filer.kept_records() {
            push(&Record::Session(session.clone()));
            for reply in replies {
                let key = RequestKey { session: session.id, request: reply.request };
                let (status, octets) = (reply.status, reply.octets.into());
                push(&Record::Outcome(Outcome { key, status, octets }));
            }
        }
        for client in filer.client_records() {
            push(&Record::Client(client));
        }
        for lock in filer.lock_records() {
            if let Some((handle, _)) = self.locked.get(&lock.id) {
                push(&Record::Lock(*handle, Box::new(lock)));
            }
        }
        for fence in filer.fence_records() {
            push(&Record::Fence(fence));
        }
        for (_, concluded) in &self.concluded {
            if let Some(key) = concluded.key {
                let (status, octets) = (concluded.status, concluded.octets.clone());
                push(&Record::Outcome(Outcome { key, status, octets }));
            }
        }
        let intent = RecordKind(2);
        let running = self.running.values().map(|running| (intent, running.intent.clone()));
        records.extend(running);
        // What is in the backlog is written behind the checkpoint in any case.
        let records = records.iter().map(|(kind, octets)| (*kind, octets.as_slice()));
        self.log.begin_checkpoint(records).map_err(journal_failed)
    }
}

impl Reactor {
    /// Begins a checkpoint if the journal has grown enough.
    pub(super) fn checkpoint_if_due(&mut self) {
        let Some(ledger) = &mut self.ledger else { return };
        if !ledger.log.wants_checkpoint() {
            return;
        }
        if let Err(error) = ledger.begin_checkpoint(&self.filer) {
            self.fail_for_good(error);
        }
    }

    /// A session whose results are kept begins.
    pub(crate) fn note_session(&mut self, id: dafs_filer::ChannelId) {
        let kept = self.filer.kept_session(id);
        if let (Some(ledger), Some(session)) = (&mut self.ledger, self.filer.session_record(kept)) {
            ledger.append(&Record::Session(session.clone()));
        }
    }

    /// A lock that outlives its owner is there, or has changed.
    pub(crate) fn write_lock(&mut self, record: &LockRecord) -> RecordNumber {
        let mut open = self.open_files.iter();
        let found = open.find(|(_, (file, _))| file.key().0 == record.file.0);
        let found = found.map(|(handle, (file, _))| (*handle, file.clone()));
        let Some(ledger) = &mut self.ledger else { return RecordNumber(0) };
        let known = || ledger.locked.values().find(|(_, file)| file.key().0 == record.file.0);
        let Some((handle, file)) = found.or_else(|| known().cloned()) else {
            return RecordNumber(0);
        };
        ledger.locked.insert(record.id, (handle, file));
        ledger.append(&Record::Lock(handle, Box::new(record.clone())))
    }

    /// It is no more.
    pub(crate) fn remove_lock(&mut self, id: LockId) -> RecordNumber {
        let Some(ledger) = &mut self.ledger else { return RecordNumber(0) };
        ledger.locked.remove(&id);
        ledger.append(&Record::LockGone(id))
    }

    /// Sessions whose results are kept no longer.
    pub(crate) fn note_forgotten(&mut self) {
        let forgotten = self.filer.take_forgotten();
        let (lapsed, has_grace_ended) = self.filer.take_lapsed();
        let Some(ledger) = &mut self.ledger else { return };
        for session in forgotten {
            ledger.append(&Record::Forgotten(session));
        }
        for name in lapsed {
            ledger.append(&Record::ClientGone(name));
        }
        if has_grace_ended {
            tracing::info!("clients have taken back what they held; new state is granted");
            ledger.grace_ended = ledger.last();
        }
    }

    /// A channel's client is about to have state: its answer waits until that is written
    /// down, and until it is that others' time to take theirs back is over.
    pub(crate) fn record_client(&mut self, id: dafs_filer::ChannelId) -> RecordNumber {
        self.note_forgotten();
        let record = self.filer.client_to_record(id);
        let Some(ledger) = &mut self.ledger else { return RecordNumber(0) };
        let mut after = ledger.grace_ended;
        if let Some(record) = record {
            after = ledger.append(&Record::Client(record));
        }
        if after > ledger.log.durable() { after } else { RecordNumber(0) }
    }

    /// Nothing can be promised any more: the server ends, and its successor finds out what
    /// is left.
    pub(crate) fn fail_for_good(&mut self, error: LedgerError) {
        tracing::error!(%error, "the server stops");
        self.fatal = Some(error);
        self.stop.store(true, std::sync::atomic::Ordering::Release);
    }
}

impl Past {
    fn take(&mut self, record: Record) {
        match record {
            Record::Session(record) => {
                let (replies, intents) = (BTreeMap::new(), Vec::new());
                let session = PastSession { record: record.clone(), replies, intents };
                self.sessions.entry(record.id).or_insert(session);
            }
            Record::Intent(intent) => {
                if let Some(session) = self.session_of(&intent.key) {
                    session.replies.remove(&intent.key.request.stream);
                    session.settle(&intent.key);
                    session.intents.push(intent);
                }
            }
            Record::Outcome(outcome) => {
                if let Some(session) = self.session_of(&outcome.key) {
                    session.settle(&outcome.key);
                    let request = outcome.key.request;
                    let reply = (request, outcome.status, outcome.octets);
                    session.replies.insert(request.stream, reply);
                }
            }
            Record::Abandoned(key) => {
                if let Some(session) = self.session_of(&key) {
                    session.settle(&key);
                }
            }
            Record::Forgotten(id) => drop(self.sessions.remove(&id)),
            Record::Client(client) => drop(self.clients.insert(client.name.clone(), client)),
            Record::ClientGone(name) => drop(self.clients.remove(&name)),
            Record::Lock(handle, lock) => drop(self.locks.insert(lock.id, (handle, *lock))),
            Record::LockGone(id) => drop(self.locks.remove(&id)),
            Record::Fence(FenceRecord { object, fence_ids }) if fence_ids.is_empty() => {
                self.fences.remove(&object);
            }
            Record::Fence(FenceRecord { object, fence_ids }) => {
                self.fences.insert(object, fence_ids);
            }
        }
    }

    fn session_of(&mut self, key: &RequestKey) -> Option<&mut PastSession> {
        self.sessions.get_mut(&key.session)
    }

    /// Decides what was under way. How much of it was done, and how much was not.
    fn judge(&mut self, store: &dyn Store) -> Result<(u64, u64), ServerError> {
        let (mut done, mut undone) = (0, 0);
        for session in self.sessions.values_mut() {
            for intent in std::mem::take(&mut session.intents) {
                let verdict = judge(store, &intent);
                let verdict =
                    verdict.map_err(|error| recovery_failed(LedgerError::Store(error)))?;
                let request = intent.key.request;
                tracing::debug!(?request, is_done = verdict.is_some(), "verdict");
                match verdict {
                    Some(octets) => {
                        done += 1;
                        let reply = (request, Status::Ok, octets.into());
                        session.replies.insert(request.stream, reply);
                    }
                    None => undone += 1,
                }
            }
        }
        Ok((done, undone))
    }

    fn restore(&mut self, filer: &mut Filer) -> Result<(), LedgerError> {
        for session in self.sessions.values() {
            let kept = filer.restore_session(session.record.clone(), Moment(0));
            for (request, status, octets) in session.replies.values() {
                filer.restore_reply(kept, *request, *status, octets);
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

impl PastSession {
    /// A request, or an older one on its stream, is undecided no longer.
    fn settle(&mut self, key: &RequestKey) {
        self.intents.retain(|intent| intent.key.request.stream != key.request.stream);
    }
}

fn recovery_failed(source: LedgerError) -> ServerError {
    ServerError::Journal { source }
}
