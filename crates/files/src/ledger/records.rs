//! Writes journal records about clients and files.
//!
//! Invariant: a reply that gives a client new state is sent only when two records are durable: the
//! record of the state, and the record after which no other client can reclaim conflicting state.

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
    /// Records a new or changed lock that survives its owner. Returns the record's number.
    pub fn write_lock(&mut self, record: &LockRecord) -> RecordNumber {
        let found = self.locked_file_of(record.file);
        let (Some((handle, file)), Some(ledger)) = (found, &mut *self.ledger) else {
            return RecordNumber(0);
        };
        ledger.locked.insert(record.id, (handle, file));
        ledger.append(&StateRecord::Lock(handle, Box::new(record.clone())))
    }

    /// Returns the handle and the file with this key, on which there is a lock. `None` if the file
    /// is not open.
    pub fn locked_file_of(&self, key: FileKey) -> Option<(FileHandle, Arc<dyn File>)> {
        locked_file_of(self.opened, self.ledger.as_ref(), key)
    }

    /// Records the end of a lock. Returns the record's number, or 0 without a journal.
    pub fn remove_lock(&mut self, id: LockId) -> RecordNumber {
        let Some(ledger) = &mut *self.ledger else { return RecordNumber(0) };
        ledger.locked.remove(&id);
        ledger.append(&StateRecord::LockGone(id))
    }

    /// Records the clients that no longer have state. Returns the number of the last of these
    /// records, or 0 if there are none.
    pub fn note_lapsed(&mut self) -> RecordNumber {
        let (lapsed, has_grace_ended) = self.filer.take_expired_records();
        let mut after = RecordNumber(0);
        let Some(ledger) = &mut *self.ledger else { return after };
        for name in lapsed {
            after = ledger.append(&StateRecord::ClientGone(name));
        }
        if has_grace_ended {
            tracing::info!("all clients have reclaimed their state; the grace period has ended");
            ledger.grace_ended = ledger.last();
        }
        after
    }

    /// Records that a client is about to get state. Returns the number of the record that the reply
    /// must wait for; this is not before the record that ends the grace period.
    pub fn record_client(&mut self, client: dafs_filer::ClientKey) -> RecordNumber {
        self.note_lapsed();
        let record = self.filer.client_to_record(client);
        let Some(ledger) = &mut *self.ledger else { return RecordNumber(0) };
        if let Some(record) = record {
            // A client that was recorded before a restart may hold plain locks that it has
            // reclaimed.
            let locker = record.has_locks.then(|| StateRecord::Locker(record.name.clone()));
            ledger.clients_noted = ledger.append(&StateRecord::Client(record));
            if let Some(locker) = locker {
                ledger.clients_noted = ledger.append(&locker);
            }
        }
        ledger.after_clients()
    }

    /// Records that a client takes plain locks, so that other clients wait after a restart until
    /// this client has reclaimed its locks. Returns the number of the record that the reply must
    /// wait for.
    pub fn record_locker(&mut self, client: dafs_filer::ClientKey) -> RecordNumber {
        let Some(ledger) = &mut *self.ledger else { return RecordNumber(0) };
        // The client itself was recorded with the open that the lock belongs to.
        if let Some(name) = self.filer.lock_holder_to_record(client) {
            ledger.clients_noted = ledger.append(&StateRecord::Locker(name));
        }
        ledger.after_clients()
    }
}

impl Ledger {
    /// Sets the seed of the random numbers, which no other server may have used, and the defect to
    /// inject, if any.
    pub fn prepare(&mut self, seed: u64, defect: Option<Defect>) {
        self.undo.prepare(Random::new(seed), defect);
    }

    /// Restores the locks that survive their owners. The next checkpoint records the changes of
    /// these locks that result from the restart; resulting rollbacks are executed when the server
    /// runs.
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
                // These actions do not occur here, because no request waits and no lock is taken or
                // released.
                LockAction::KeepUndo { .. }
                | LockAction::DropUndo { .. }
                | LockAction::Ready { .. }
                | LockAction::WaiterBroken { .. }
                | LockAction::WaiterGone { .. }
                | LockAction::Free { .. } => {}
            }
        }
    }

    /// Returns the file with this key if it has a recorded lock.
    pub(super) fn locked_by_key(&self, key: FileKey) -> Option<(FileHandle, Arc<dyn File>)> {
        self.locked.values().find(|(_, file)| file.key().0 == key.0).cloned()
    }

    /// Returns the number of the record that the reply to a client with new state must wait for:
    /// the last record about a client, or the record that ends the grace period, whichever is
    /// later.
    fn after_clients(&self) -> RecordNumber {
        let after = self.clients_noted.max(self.grace_ended);
        if after > self.log.durable() { after } else { RecordNumber(0) }
    }

    /// Returns true if the journal has grown enough for a checkpoint.
    pub fn wants_checkpoint(&self) -> bool {
        self.log.wants_checkpoint()
    }

    /// Starts a checkpoint with all current records, including those of front ends.
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
        // The records in the backlog are written after the checkpoint anyway.
        let records = records.iter().map(|(kind, bytes)| (*kind, bytes.as_slice()));
        self.log.begin_checkpoint(records).map_err(journal_failed)
    }
}
