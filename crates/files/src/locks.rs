//! Takes, tests and releases byte-range locks.

use std::borrow::Cow;

use dafs_filer::locks::{
    ByteRange, Claim, LockAction, LockAttributes, LockConflict, LockMode, LockReply, LockRequest,
    LockTestReply, LockWatch, RollbackId, Wait,
};
use dafs_filer::{FileKey, FileOperation, Party};
use dafs_journal::RecordNumber;
use dafs_ops::{Conflict, Fault, Lock, LockClaim, LockSpan, Partial, TestLock};
use dafs_types::{FileHandle, Moment, Stability, StateId};

use crate::caller::Caller;
use crate::left::{CommitTask, Ending, GrantTask, RemainingWork, Then};
use crate::outcome::{Ended, NotDone, Now, Outcome};
use crate::{Files, Notice};

/// The result of releasing locks and undoing the changes under them.
pub enum Aborted {
    /// The locks are released, and there is nothing to roll back.
    Done(Outcome),
    /// The locks are released when these rollbacks have finished.
    RollsBack(Vec<RollbackId>),
}

impl Files<'_> {
    /// Takes a lock (LOCK).
    pub fn lock(&mut self, by: &Caller, ask: &Lock) -> Result<Now<Outcome>, NotDone> {
        self.lock_for(by, ask, None)
    }

    /// Takes a lock for an owner that uses the open of another owner, as NFS clients do. The lock
    /// excludes only other locks. With the owner `None`, does the same as [`Files::lock`].
    pub fn lock_for(
        &mut self,
        by: &Caller,
        ask: &Lock,
        locker: Option<&[u8]>,
    ) -> Result<Now<Outcome>, NotDone> {
        let mode = mode_of(ask.mode);
        self.check_delegations(
            by,
            &ask.file,
            FileOperation::Lock { exclusive: mode == LockMode::Write },
        )?;
        let claim = match ask.claim {
            LockClaim::New => Claim::New,
            LockClaim::Reclaim => Claim::Reclaim,
            LockClaim::Repair => Claim::Repair,
        };
        let wait = match ask.waits && claim == Claim::New {
            true => Wait::Poll(self.lock_waits.name_of((by.party.fence, locker), ask, mode)),
            false => Wait::No,
        };
        let wanted = LockRequest {
            file: self.opened.key_of(ask.state, &ask.file),
            offset: ask.offset,
            length: ask.length,
            mode,
            attributes: LockAttributes {
                persist: ask.persist,
                auto_recovery: ask.auto_recovery,
                advisory: locker.is_some(),
            },
            claim,
            wait,
        };
        let owner = (ask.state, locker);
        let granted = self.filer.lock(by.party.client, owner, &wanted, self.now);
        let mut after = self.act_on_locks();
        let is_waiting = matches!(granted, Ok(LockReply::Waiting { .. }));
        if let (Wait::Poll(waiter), false) = (wait, is_waiting) {
            self.lock_waits.forget(waiter);
        }
        let granted = granted?;
        let fault = granted.fault();
        match granted {
            LockReply::Granted => {
                let range = ByteRange::new(ask.offset, ask.length).ok_or(Fault::Invalid)?;
                let file = self.opened.record(ask.state).map(|record| record.file);
                if claim != Claim::Reclaim {
                    after = after.max(self.record_client(by.party.client));
                }
                if !wanted.attributes.persist && !wanted.attributes.auto_recovery {
                    after = after.max(self.record_locker(by.party.client));
                }
                let grant = GrantTask { file, range, mode, after };
                Ok(match grant.waits(self.under_way) {
                    true => Now::later(RemainingWork::Grant(grant)),
                    false => Now::done(Ended::Locked, after),
                })
            }
            LockReply::Denied(conflict)
            | LockReply::Broken(conflict)
            | LockReply::Waiting { conflict, .. } => {
                let refused =
                    Outcome::refused(fault.unwrap_or(Fault::Denied), conflict_part(conflict));
                // The changes that the request made are journaled before the reply.
                Ok(Now::Done(Outcome { after, ..refused }))
            }
            LockReply::Deadlock(_) => Err(Fault::Deadlock.into()),
        }
    }

    /// Checks whether a lock could be granted, without taking it (LOCKT).
    pub fn lock_test(&mut self, by: &Caller, ask: &TestLock<'_>) -> Result<(), NotDone> {
        self.check_use(by, &ask.file)?;
        let wanted = LockRequest {
            // A file that no client has open has no locks.
            file: self.opened.key(&ask.file).unwrap_or(FileKey(u64::MAX)),
            offset: ask.offset,
            length: ask.length,
            mode: mode_of(ask.mode),
            attributes: LockAttributes::PLAIN,
            claim: Claim::New,
            wait: Wait::No,
        };
        let tested = self.filer.lock_test(by.party.client, ask.owner, &wanted, self.now)?;
        // The request ends the client's right to reclaim. The reply does not wait for the record of
        // that.
        self.record_client(by.party.client);
        match tested {
            LockTestReply::Free => Ok(()),
            LockTestReply::Denied(conflict) => {
                Err(NotDone::partly(Fault::Denied, conflict_part(conflict)))
            }
            LockTestReply::Broken(conflict) => {
                Err(NotDone::partly(Fault::LockBroken, conflict_part(conflict)))
            }
        }
    }

    /// Releases the locks in a range (LOCKU).
    pub fn unlock(&mut self, by: Party, ask: &LockSpan) -> Result<Now<Outcome>, Fault> {
        if self.keeps_undo_of(&ask.file) {
            return self.end_undo(by, &ask.file, Ending::Unlock(*ask));
        }
        self.unlock_now(by, ask)
    }

    /// Releases the locks in a range that an owner has taken with [`Files::lock_for`]. Returns the
    /// number of the record that the reply must wait for.
    pub fn unlock_for(
        &mut self,
        by: Party,
        ask: &LockSpan,
        locker: &[u8],
    ) -> Result<RecordNumber, Fault> {
        self.release(by, ask, Some(locker))
    }

    /// Returns true if an owner that has used [`Files::lock_for`] under an open still holds a lock
    /// in the file.
    pub fn holds_locks(
        &self,
        by: Party,
        state: StateId,
        handle: &FileHandle,
        locker: &[u8],
    ) -> bool {
        self.filer.holds_locks(by.client, locker, self.opened.key_of(state, handle))
    }

    /// Releases auto-recovery locks, which makes the changes under them final. The changes are
    /// written to stable storage first, so that a power failure cannot lose only some of them.
    pub fn end_undo(
        &mut self,
        by: Party,
        handle: &FileHandle,
        ending: Ending,
    ) -> Result<Now<Outcome>, Fault> {
        let Some(file) = self.cache.find(handle) else { return self.end_now(by, &ending) };
        let listener = self.listener(by, file);
        let ticket = self.cache.commit_begin(file, 0, 0, Stability::FileSync, listener);
        let then = Then::Ending(ending);
        Ok(Now::later(RemainingWork::Commit(CommitTask { ticket, file, borrowed: false, then })))
    }

    /// Releases auto-recovery locks after the changes under them are on stable storage.
    pub fn end_now(&mut self, by: Party, ending: &Ending) -> Result<Now<Outcome>, Fault> {
        match ending {
            Ending::Unlock(ask) => self.unlock_now(by, ask),
            Ending::Close(ask) => self.close_now(by, ask),
        }
    }

    fn unlock_now(&mut self, by: Party, ask: &LockSpan) -> Result<Now<Outcome>, Fault> {
        Ok(Now::done(Ended::Unlocked, self.release(by, ask, None)?))
    }

    fn release(
        &mut self,
        by: Party,
        ask: &LockSpan,
        locker: Option<&[u8]>,
    ) -> Result<RecordNumber, Fault> {
        let wanted = self.range_request(ask);
        let unlocked = self.filer.unlock(by.client, (ask.state, locker), &wanted, self.now);
        let after = self.act_on_locks();
        unlocked?;
        Ok(after)
    }

    /// Releases locks and undoes the changes under them (ABORT).
    pub fn abort_lock(&mut self, by: Party, ask: &LockSpan) -> Result<Aborted, Fault> {
        let wanted = self.range_request(ask);
        let aborted = self.filer.abort_lock(by.client, ask.state, &wanted);
        let after = self.act_on_locks();
        let rollbacks = aborted?;
        Ok(match rollbacks.is_empty() || self.ledger.is_none() {
            true => Aborted::Done(Outcome { result: Ok(Ended::Locked), after }),
            false => Aborted::RollsBack(rollbacks),
        })
    }

    /// Returns a lock request for the range of `ask`. The mode of the returned request has no
    /// meaning.
    fn range_request(&self, ask: &LockSpan) -> LockRequest {
        LockRequest {
            file: self.opened.key_of(ask.state, &ask.file),
            offset: ask.offset,
            length: ask.length,
            mode: LockMode::Write,
            attributes: LockAttributes::PLAIN,
            claim: Claim::New,
            wait: Wait::No,
        }
    }

    /// Takes a request that waits, and that [`Files::lock_for`] has queued, out of the queue.
    pub fn cancel_lock(&mut self, by: &Caller, ask: &Lock, locker: &[u8]) {
        let named = (by.party.fence, Some(locker));
        let waiter = self.lock_waits.name_of(named, ask, mode_of(ask.mode));
        self.filer.cancel_lock(waiter, self.now);
        self.lock_waits.forget(waiter);
        self.act_on_locks();
    }

    /// Asks for [`Notice::LockFree`] when a lock that [`Files::lock_for`] has just denied can be
    /// taken. Without the notice, the client must ask for the lock from time to time; it gets none
    /// if there are too many watches.
    pub fn watch_lock(
        &mut self,
        by: &Caller,
        ask: &Lock,
        locker: &[u8],
        (word, until): (u64, Moment),
    ) {
        let span =
            LockSpan { file: ask.file, state: ask.state, offset: ask.offset, length: ask.length };
        let wanted = LockRequest { mode: mode_of(ask.mode), ..self.range_request(&span) };
        let watch = LockWatch { handle: ask.file, word, until };
        self.filer.watch_lock(by.party.client, locker, &wanted, watch);
    }

    /// Executes the actions that the lock table has requested. Returns the number of the record
    /// that replies must wait for.
    pub fn act_on_locks(&mut self) -> RecordNumber {
        let mut after = RecordNumber(0);
        while let Some(action) = self.filer.take_lock_action() {
            match action {
                LockAction::Ready { waiter, .. } => {
                    let waiter = self.lock_waits.find(waiter);
                    self.notices.extend(waiter.map(Notice::LockReady));
                }
                LockAction::WaiterBroken { waiter, .. } | LockAction::WaiterGone { waiter } => {
                    self.lock_waits.forget(waiter);
                }
                LockAction::Free { client, owner, handle, word } => {
                    self.notices.push_back(Notice::LockFree { client, owner, handle, word });
                }
                LockAction::WriteRecord(record) => {
                    after = after.max(self.write_lock(&record));
                }
                LockAction::RemoveRecord(id) => after = after.max(self.remove_lock(id)),
                LockAction::KeepUndo { file, range } => {
                    after = after.max(self.keep_undo(file, range));
                }
                LockAction::DropUndo { file, range } => {
                    after = after.max(self.drop_undo(file, range));
                }
                LockAction::Rollback { rollback, file, range } => {
                    if let Some(ledger) = &mut *self.ledger {
                        ledger.undo.roll_back(rollback, file, range);
                    }
                }
            }
        }
        after
    }
}

/// Returns the partial result that describes a conflicting lock.
fn conflict_part(conflict: LockConflict) -> Partial<'static> {
    let conflict = Conflict {
        client: conflict.client,
        owner: Cow::Owned(conflict.owner.into()),
        offset: conflict.range.first(),
        length: conflict.range.length(),
        mode: match conflict.mode {
            LockMode::Read => dafs_ops::LockMode::Read,
            LockMode::Write => dafs_ops::LockMode::Write,
        },
    };
    Partial::Conflict { conflict }
}

fn mode_of(mode: dafs_ops::LockMode) -> LockMode {
    match mode {
        dafs_ops::LockMode::Read => LockMode::Read,
        dafs_ops::LockMode::Write => LockMode::Write,
    }
}
