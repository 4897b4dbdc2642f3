//! What is written down of clients and files.
//!
//! Invariant: who gets state hears of it when it is written down, and so is that nobody else takes
//! theirs back any more.

use std::sync::Arc;

use dafs_filer::locks::{LockAction, LockId, LockRecord};
use dafs_filer::{FileKey, Filer};
use dafs_journal::{RecordKind, RecordNumber};
use dafs_store::File;
use dafs_types::{FileHandle, Moment, Random};

use super::{Entry, Ledger, LedgerError, StateRecord, journal_failed, locked_file_of};
use crate::Files;
use crate::defect::Defect;
use crate::undo::{Extent, RecordedLock};

impl Files<'_> {
    /// A lock that outlives its owner is there, or has changed.
    pub fn write_lock(&mut self, record: &LockRecord) -> RecordNumber {
        let found = self.locked_file_of(record.file);
        let (Some((handle, file)), Some(ledger)) = (found, &mut *self.ledger) else {
            return RecordNumber(0);
        };
        ledger.locked.insert(record.id, (handle, file));
        ledger.append(&StateRecord::Lock(handle, Box::new(record.clone())))
    }

    /// The file of a lock.
    pub fn locked_file_of(&self, key: FileKey) -> Option<(FileHandle, Arc<dyn File>)> {
        locked_file_of(self.opened, self.ledger.as_ref(), key)
    }

    /// It is no more.
    pub fn remove_lock(&mut self, id: LockId) -> RecordNumber {
        let Some(ledger) = &mut *self.ledger else { return RecordNumber(0) };
        ledger.locked.remove(&id);
        ledger.append(&StateRecord::LockGone(id))
    }

    /// Writes down which clients have no state any more. The last record about that, if there is
    /// any.
    pub fn note_lapsed(&mut self) -> RecordNumber {
        let (lapsed, has_grace_ended) = self.filer.take_lapsed();
        let mut after = RecordNumber(0);
        let Some(ledger) = &mut *self.ledger else { return after };
        for name in lapsed {
            after = ledger.append(&StateRecord::ClientGone(name));
        }
        if has_grace_ended {
            tracing::info!("clients have taken back what they held; new state is granted");
            ledger.grace_ended = ledger.last();
        }
        after
    }

    /// A client is about to have state: its answer waits until that is written
    /// down, and until it is that others' time to take theirs back is over.
    pub fn record_client(&mut self, client: dafs_filer::ClientKey) -> RecordNumber {
        self.note_lapsed();
        let record = self.filer.client_to_record(client);
        let Some(ledger) = &mut *self.ledger else { return RecordNumber(0) };
        if let Some(record) = record {
            // One that was written down before may hold plain locks that it has taken back.
            let locker = record.has_locks.then(|| StateRecord::Locker(record.name.clone()));
            ledger.clients_noted = ledger.append(&StateRecord::Client(record));
            if let Some(locker) = locker {
                ledger.clients_noted = ledger.append(&locker);
            }
        }
        ledger.after_clients()
    }

    /// A client has a plain lock: its answer waits until it is written down that it
    /// takes such, so that others wait for it after a restart.
    pub fn record_locker(&mut self, client: dafs_filer::ClientKey) -> RecordNumber {
        let Some(ledger) = &mut *self.ledger else { return RecordNumber(0) };
        // That it is a client was written down with the open that the lock is of, or is by now.
        if let Some(name) = self.filer.lock_holder_to_record(client) {
            ledger.clients_noted = ledger.append(&StateRecord::Locker(name));
        }
        ledger.after_clients()
    }
}

impl Ledger {
    /// Gives it a number that no other server has had, and a defect on purpose if it is to have
    /// one.
    pub fn prepare(&mut self, seed: u64, defect: Option<Defect>) {
        self.undo.prepare(Random::new(seed), defect);
    }

    /// Puts locks back that outlive their owners. What that changes in them is in the
    /// checkpoint that follows; what is to be rolled back is, once the server runs.
    pub fn restore_locks(&mut self, locks: Vec<RecordedLock>, filer: &mut Filer) {
        let mut records = Vec::new();
        for RecordedLock { handle, file, record } in locks {
            records.push(LockRecord { file: FileKey(file.key().0), ..record.clone() });
            self.locked.insert(record.id, (handle, file));
        }
        filer.restore_locks(records, Moment(0));
        while let Some(action) = filer.take_lock_action() {
            match action {
                LockAction::WriteRecord(record) => {
                    let known = self.locked_by_key(record.file);
                    self.locked.extend(known.map(|known| (record.id, known)));
                }
                LockAction::RemoveRecord(id) => drop(self.locked.remove(&id)),
                LockAction::Rollback { rollback, file, range } => {
                    self.undo.roll_back(rollback, file, range);
                }
                // Nobody waits yet; and nothing is unlocked or locked anew.
                LockAction::KeepUndo { .. }
                | LockAction::DropUndo { .. }
                | LockAction::Ready { .. }
                | LockAction::WaiterBroken { .. }
                | LockAction::WaiterGone { .. } => {}
            }
        }
    }

    /// The file of a lock on record.
    pub(super) fn locked_by_key(&self, key: FileKey) -> Option<(FileHandle, Arc<dyn File>)> {
        self.locked.values().find(|(_, file)| file.key().0 == key.0).cloned()
    }

    /// What the answer to somebody who gets state waits for: what was written down of
    /// clients, be it for a request of the same client before, and of the end of grace.
    fn after_clients(&self) -> RecordNumber {
        let after = self.clients_noted.max(self.grace_ended);
        if after > self.log.durable() { after } else { RecordNumber(0) }
    }

    /// Whether the journal has grown enough for a checkpoint.
    pub fn wants_checkpoint(&self) -> bool {
        self.log.wants_checkpoint()
    }

    /// Hands the log everything its records amount to, those of fronts among them.
    pub fn begin_checkpoint(
        &mut self,
        filer: &Filer,
        of_fronts: Vec<(RecordKind, Vec<u8>)>,
    ) -> Result<(), LedgerError> {
        let mut records = of_fronts;
        let mut push = |record: StateRecord| records.push((record.kind(), record.encode()));
        for client in filer.client_records() {
            let locker = client.has_locks.then(|| StateRecord::Locker(client.name.clone()));
            push(StateRecord::Client(client));
            locker.into_iter().for_each(&mut push);
        }
        for lock in filer.lock_records() {
            if let Some((handle, _)) = self.locked.get(&lock.id) {
                push(StateRecord::Lock(*handle, Box::new(lock)));
            }
        }
        for fence in filer.fence_records() {
            push(StateRecord::Fence(fence));
        }
        for (handle, Extent { range, id }) in self.undo.extents() {
            push(StateRecord::UndoKept { id, handle, range });
        }
        // What is in the backlog is written behind the checkpoint in any case.
        let records = records.iter().map(|(kind, bytes)| (*kind, bytes.as_slice()));
        self.log.begin_checkpoint(records).map_err(journal_failed)
    }
}
