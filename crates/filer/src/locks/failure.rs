//! Handles the ends of opens, owners and clients, and the restarts of clients and of the server,
//! for locks (draft 4.4.1.3 to 4.4.1.6).
//!
//! Invariants:
//! - An owner loses a lock with auto-recovery only by its own request, or through a rollback.
//! - An owner loses a lock with PERSIST only by its own request, or through a repair.

use std::collections::BTreeSet;

use dafs_types::{ClientId, Moment, StateId};

use super::action::HoldKey;
use super::action::{Hold, LockAction, LockRecord, Phase, RecordPhase, RollbackId, Then};
use super::owners::OwnerKey;
use super::pieces::{Piece, subtract};
use super::range::ByteRange;
use super::request::{LockClient, LockOwner, OwnerName};
use super::table::LockTable;
use crate::FileKey;

/// The error that the lock table keeps locks for another principal that used the client's name or
/// verifier. The status is CLID_INUSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the locks kept under this client's name belong to another principal")]
pub struct ForeignLocks;

/// The kind of a client's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    LeaseExpired,
    Restarted,
}

impl LockTable {
    /// Releases the locks of an open that ends in an orderly way (CLOSE), and removes its waiters.
    pub fn release_open(&mut self, owner: OwnerName<'_>, file: FileKey, now: Moment) {
        let Some(who) = self.registry.find(owner) else { return };
        self.release(&[who], Some(file), now);
    }

    /// Releases the locks of an owner that its client no longer uses.
    pub fn release_owner(&mut self, owner: OwnerName<'_>, now: Moment) {
        let Some(who) = self.registry.find(owner) else { return };
        self.release(&[who], None, now);
    }

    /// Releases all locks of a client that disconnected in an orderly way. The effect on each lock
    /// is that of LOCKU.
    pub fn release_client(&mut self, client: ClientId, now: Moment) {
        let owners = self.registry.owners_of(client);
        self.release(&owners, None, now);
    }

    fn release(&mut self, owners: &[OwnerKey], only: Option<FileKey>, now: Moment) {
        let mut touched = self.dismiss_waiters(owners, only);
        for &who in owners {
            if !self.has(who) {
                continue;
            }
            let mut files = self.registry.owner(who).files.clone();
            files.retain(|&file| only.is_none_or(|only| only == file));
            for &file in &files {
                for number in self.pieces(file, who, ByteRange::WHOLE) {
                    if self.is_unclaimed(number) {
                        // The owner has not reclaimed this lock, so it cannot make the changes
                        // final. By disconnecting, it has given the changes up.
                        self.fail_hold(number, Failure::LeaseExpired);
                    } else {
                        self.leave_rollback(number, Then::Gone);
                    }
                }
                for number in self.pieces(file, who, ByteRange::WHOLE) {
                    if !self.is_unclaimed(number) {
                        self.carve(file, who, self.holds[number].range);
                    }
                }
            }
            touched.extend(files);
            self.registry.forget_if_idle(who);
        }
        self.settle_all(touched, now);
    }

    /// Returns true if the lock is kept for an owner, which has not reclaimed it.
    fn is_unclaimed(&self, number: HoldKey) -> bool {
        let Hold { state, phase, .. } = self.holds[number];
        state == StateId::ANONYMOUS && matches!(phase, Phase::Survived | Phase::Breakable)
    }

    /// Reports that a client's lease has expired (draft 4.4.1.5). Plain locks are revoked. Locks
    /// with auto-recovery are rolled back and then revoked. Locks with PERSIST become breakable,
    /// and are broken if a request waits for them.
    pub fn lease_expired(&mut self, client: ClientId, now: Moment) {
        self.fail(client, Failure::LeaseExpired, now);
    }

    /// Reports that a client has restarted, which its new verifier shows (draft 4.4.1.5). The
    /// effect is that of an expired lease, except that locks with PERSIST are broken immediately.
    pub fn client_restarted(&mut self, client: ClientId, now: Moment) {
        self.fail(client, Failure::Restarted, now);
    }

    fn fail(&mut self, client: ClientId, failure: Failure, now: Moment) {
        let owners = self.registry.owners_of(client);
        let mut touched = self.dismiss_waiters(&owners, None);
        for who in owners {
            if !self.has(who) {
                continue;
            }
            for file in self.registry.owner(who).files.clone() {
                for number in self.pieces(file, who, ByteRange::WHOLE) {
                    self.fail_hold(number, failure);
                }
                touched.insert(file);
            }
            self.registry.forget_if_idle(who);
        }
        self.settle_all(touched, now);
    }

    /// Applies one row of the table in draft 4.4.1.5 to a lock.
    fn fail_hold(&mut self, number: HoldKey, failure: Failure) {
        let Hold { attributes, phase, .. } = self.holds[number];
        let persistent = match failure {
            Failure::LeaseExpired => (Phase::Breakable, Then::Breakable),
            Failure::Restarted => (Phase::Broken, Then::Broken),
        };
        if phase.is_rolling_back() {
            let then = if attributes.persist { persistent.1 } else { Then::Gone };
            self.leave_rollback(number, then);
        } else if attributes.persist {
            match persistent.0 {
                Phase::Broken => self.break_hold(number),
                breakable => self.set_phase(number, breakable),
            }
        } else if attributes.auto_recovery {
            self.begin_rollback(number, Then::Gone);
        } else {
            self.remove_hold(number);
        }
    }

    /// Reports that a client has returned before its locks were broken, and still has its opens.
    /// Its breakable locks are held again. Locks that the client has not reclaimed yet do not
    /// change.
    pub fn client_renewed(&mut self, client: ClientId) {
        for who in self.registry.owners_of(client) {
            for file in self.registry.owner(who).files.clone() {
                for number in self.pieces(file, who, ByteRange::WHOLE) {
                    match self.holds[number].phase {
                        Phase::Breakable if self.holds[number].state == StateId::ANONYMOUS => {}
                        Phase::Breakable => self.set_phase(number, Phase::Held),
                        Phase::RollingBack { rollback, then: Then::Breakable } => {
                            let phase = Phase::RollingBack { rollback, then: Then::Held };
                            self.set_phase(number, phase);
                        }
                        Phase::Held
                        | Phase::Survived
                        | Phase::Broken
                        | Phase::RollingBack { .. } => {}
                    }
                }
            }
        }
    }

    /// Checks that no locks are kept for another principal that used the client's name.
    ///
    /// # Errors
    /// [`ForeignLocks`] if such locks are kept.
    pub fn may_connect(&self, client: &LockClient<'_>) -> Result<(), ForeignLocks> {
        let former = self.registry.former(client);
        let is_foreign = |id: &ClientId| {
            let record = self.registry.client(*id).expect("a former incarnation is known");
            *record.principal != *client.principal
        };
        if former.iter().any(is_foreign) { Err(ForeignLocks) } else { Ok(()) }
    }

    /// Registers an incarnation of a client whose id is new to this table. It must be called before
    /// the client's first request about locks. The table may contain locks that were kept for the
    /// client's name, from the time before a restart of the server or from an earlier record of the
    /// client. The client can reclaim these locks. But if the client's verifier shows that it has
    /// restarted, the locks are treated as in [`LockTable::client_restarted`].
    ///
    /// # Errors
    /// [`ForeignLocks`] if locks are kept for another principal of the name. Nothing is changed
    /// then.
    pub fn client_connected(
        &mut self,
        client: &LockClient<'_>,
        now: Moment,
    ) -> Result<(), ForeignLocks> {
        self.may_connect(client)?;
        for id in self.registry.former(client) {
            let same_life = self.registry.client(id).map(|c| c.verifier) == Some(client.verifier);
            match (same_life, self.registry.client(client.id).is_some()) {
                (false, _) => self.client_restarted(id, now),
                (true, false) => self.registry.rename(id, client.id),
                // The client has already requested locks. It cannot get back further locks of its
                // former id, which end with the client's lease or the grace period.
                (true, true) => {}
            }
        }
        Ok(())
    }

    /// Restores the records from stable storage, before the first request. Locks that were held
    /// wait to be reclaimed; unfinished rollbacks start again. If a crash came between the actions
    /// of one call, records may overlap; then the older record takes precedence.
    pub fn restore(&mut self, mut records: Vec<LockRecord>) {
        records.sort_by_key(|record| record.id);
        self.next_lock = records.last().map_or(1, |record| record.id.0 + 1).max(self.next_lock);
        for record in records {
            self.restore_one(&record);
        }
    }

    fn restore_one(&mut self, record: &LockRecord) {
        // A client that reconnected under another id has older records with its old id.
        let known = self.registry.life_of(record);
        let client = LockClient {
            id: known.unwrap_or(record.client),
            name: &record.client_name,
            principal: &record.principal,
            verifier: record.verifier,
        };
        let state = StateId::ANONYMOUS;
        let who = self.registry.enter(&LockOwner { client, owner: &record.owner, state });
        // The held locks of one owner never overlap. Broken shared locks may overlap each other and
        // the locks that their former owner has taken since.
        let held = RecordPhase::Held;
        let older = |hold: &Hold| {
            let same = hold.owner == who && hold.phase.on_record() == held && record.phase == held;
            same || hold.mode.conflicts(record.mode)
        };
        let taken = self.holds_overlapping(record.file, record.range, older);
        let free = subtract(&[record.range], &taken);
        let whole = free == [record.range];
        let mut id = Some(record.id);
        for range in free {
            let id = id.take().unwrap_or_else(|| self.new_lock_id());
            let rollback = RollbackId(self.next_rollback);
            let phase = match record.phase {
                RecordPhase::Held => Phase::Survived,
                RecordPhase::Broken => Phase::Broken,
                RecordPhase::Revoked => Phase::RollingBack { rollback, then: Then::Gone },
                RecordPhase::BrokenUnrolled => Phase::RollingBack { rollback, then: Then::Broken },
            };
            let LockRecord { file, mode, attributes, .. } = *record;
            let id = Some(id);
            let hold = Hold { file, owner: who, state, range, mode, attributes, phase, id };
            let number = self.add_hold(hold);
            if !whole {
                self.rewrite(number);
            }
            if phase.is_rolling_back() {
                self.next_rollback += 1;
                self.rollbacks.insert(rollback, number);
                self.push(LockAction::Rollback { rollback, file, range });
            }
        }
        if let Some(id) = id {
            self.push(LockAction::RemoveRecord(id));
        }
        self.registry.forget_if_idle(who);
    }

    fn holds_overlapping(
        &self,
        file: FileKey,
        range: ByteRange,
        which: impl Fn(&Hold) -> bool,
    ) -> Vec<ByteRange> {
        let found = self.holds_in(file, range, super::LockMode::Write, which);
        found.into_iter().map(|number| self.holds[number].range).collect()
    }

    /// Starts a grace period, in which plain locks can be reclaimed.
    pub fn begin_grace(&mut self) {
        self.grace = true;
    }

    /// Ends the grace period (draft 4.4.1.6). Locks with PERSIST that were not reclaimed become
    /// breakable. Locks without PERSIST that were not reclaimed are rolled back and end.
    pub fn grace_over(&mut self, now: Moment) {
        self.grace = false;
        let survived = |(number, hold): (HoldKey, &Hold)| {
            (hold.phase == Phase::Survived).then_some((number, hold.file, hold.attributes))
        };
        let survivors: Vec<_> = self.holds.iter().filter_map(survived).collect();
        let mut touched = BTreeSet::new();
        for (number, file, attributes) in survivors {
            if attributes.persist {
                self.set_phase(number, Phase::Breakable);
            } else {
                self.begin_rollback(number, Then::Gone);
            }
            touched.insert(file);
        }
        self.settle_all(touched, now);
    }

    /// Returns true during a grace period, in which plain locks can be reclaimed.
    #[must_use]
    pub fn in_grace(&self) -> bool {
        self.grace
    }

    /// Breaks a lock, which then belongs to no owner until it is repaired. Changes made under
    /// auto-recovery are rolled back only now (draft 4.4.1.4).
    pub(super) fn break_hold(&mut self, number: HoldKey) {
        self.counters.broken += 1;
        if self.holds[number].attributes.auto_recovery {
            self.begin_rollback(number, Then::Broken);
        } else {
            self.set_phase(number, Phase::Broken);
            self.rewrite(number);
        }
    }

    pub(super) fn begin_rollback(&mut self, number: HoldKey, then: Then) -> RollbackId {
        let rollback = RollbackId(self.next_rollback);
        self.next_rollback += 1;
        self.counters.rollbacks += 1;
        self.rollbacks.insert(rollback, number);
        let before = self.holds[number].phase.on_record();
        let phase = Phase::RollingBack { rollback, then };
        self.set_phase(number, phase);
        if phase.on_record() != before {
            self.rewrite(number);
        }
        let Hold { file, range, .. } = self.holds[number];
        self.push(LockAction::Rollback { rollback, file, range });
        rollback
    }

    /// Changes the phase that a lock will have after a running ABORT, because the lock's owner has
    /// left or failed. Has no effect on locks in other phases.
    fn leave_rollback(&mut self, number: HoldKey, then: Then) {
        let Phase::RollingBack { rollback, .. } = self.holds[number].phase else { return };
        let before = self.holds[number].phase.on_record();
        let phase = Phase::RollingBack { rollback, then };
        self.set_phase(number, phase);
        if phase.on_record() != before {
            self.rewrite(number);
        }
    }

    /// Reports that a rollback is complete and durable. The lock enters the phase that was planned
    /// for it. Returns false if the rollback is not running.
    pub fn rollback_done(&mut self, rollback: RollbackId, now: Moment) -> bool {
        let Some(number) = self.rollbacks.remove(&rollback) else { return false };
        let hold = self.holds[number];
        let Hold { file, owner, state, range, mode, attributes, .. } = hold;
        let Phase::RollingBack { then, .. } = hold.phase else {
            unreachable!("a running rollback has a lock that is rolled back")
        };
        let drop_undo = LockAction::DropUndo { file, range };
        let keep_undo = LockAction::KeepUndo { file, range };
        match then {
            Then::Held => {
                self.push(drop_undo);
                self.push(keep_undo);
                self.set_phase(number, Phase::Held);
                self.place(file, owner, state, &Piece { range, mode, attributes });
            }
            Then::Breakable => {
                self.push(drop_undo);
                self.push(keep_undo);
                self.set_phase(number, Phase::Breakable);
            }
            Then::Broken => {
                self.set_phase(number, Phase::Broken);
                self.rewrite(number);
                self.push(drop_undo);
            }
            Then::Gone => {
                self.remove_hold(number);
                self.registry.forget_if_idle(owner);
                self.actions.extend(hold.id.map(LockAction::RemoveRecord));
                self.push(drop_undo);
            }
        }
        self.settle(file, now);
        true
    }

    /// Removes the waiting requests of these owners: for the file `only`, or for all files if it is
    /// `None`.
    fn dismiss_waiters(&mut self, owners: &[OwnerKey], only: Option<FileKey>) -> BTreeSet<FileKey> {
        let mut touched = BTreeSet::new();
        for &who in owners {
            for number in self.registry.owner(who).waiters.clone() {
                let (file, waiter) = (self.waiters[number].file, self.waiters[number].id);
                if only.is_none_or(|only| only == file) {
                    self.dismiss(number, LockAction::WaiterGone { waiter });
                    touched.insert(file);
                }
            }
        }
        touched
    }

    /// Returns true if the owner is still registered. An owner is removed together with its last
    /// waiting request, unless it has locks.
    fn has(&self, who: OwnerKey) -> bool {
        self.registry.is_known(who)
    }

    pub(super) fn settle_all(&mut self, files: BTreeSet<FileKey>, now: Moment) {
        for file in files {
            self.settle(file, now);
        }
    }
}
