//! LOCK, LOCKT, LOCKU, and what locks ask of the server.
//!
//! Invariant: a lock is granted for its owner's eyes only when no read or write of others
//! that began before it is still under way in its range, and when what must be on stable
//! storage for it is.

use std::borrow::Cow;

use dafs_filer::locks::{
    ByteRange, Claim, LockAction, LockAnswer, LockAttributes, LockConflict, LockMode, LockRequest,
    LockTestAnswer, Wait, WaiterId,
};
use dafs_filer::{ChannelId, FileKey, Touch};
use dafs_journal::RecordNumber;
use dafs_ops::{Conflict, Lock, LockClaim, LockSpan, Partial, TestLock};
use dafs_store::cache::CachedFile;
use dafs_types::{FileHandle, Stability, StateId, Status};

use crate::back::BackRequest;
use crate::caller::Caller;
use crate::data::Step;
use crate::files::{Files, Notice};
use crate::outcome::{Ended, NotDone, Now, Outcome};
use crate::reactor::Reactor;
use crate::task::{CommitReply, CommitTask, Ending, ReplyTo, Tasks, Wait as TaskWait, Work};

/// A client whose lock request waits for its turn, and that asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockWaiter {
    id: WaiterId,
    channel: ChannelId,
    file: FileHandle,
    state: StateId,
    offset: u64,
    length: u64,
    mode: LockMode,
}

/// All that wait for locks.
#[derive(Debug, Default)]
pub(crate) struct LockWaits {
    waiters: Vec<LockWaiter>,
    last: u64,
}

impl LockWaits {
    /// The name of a request that may have to wait: the one it has if it has asked before.
    fn name_of(&mut self, channel: ChannelId, ask: &Lock, mode: LockMode) -> WaiterId {
        let Lock { file, state, offset, length, .. } = *ask;
        let is_same = |waiter: &&LockWaiter| {
            let LockWaiter { channel: c, file: f, state: s, offset: o, length: l, mode: m, .. } =
                **waiter;
            (c, f, s, o, l, m) == (channel, file, state, offset, length, mode)
        };
        if let Some(waiter) = self.waiters.iter().find(is_same) {
            return waiter.id;
        }
        self.last += 1;
        let id = WaiterId(self.last);
        self.waiters.push(LockWaiter { id, channel, file, state, offset, length, mode });
        id
    }

    fn find(&self, id: WaiterId) -> Option<LockWaiter> {
        self.waiters.iter().find(|waiter| waiter.id == id).copied()
    }

    fn forget(&mut self, id: WaiterId) {
        self.waiters.retain(|waiter| waiter.id != id);
    }

    /// A connection is gone, and what waited on it.
    pub fn forget_channel(&mut self, channel: ChannelId) {
        self.waiters.retain(|waiter| waiter.channel != channel);
    }
}

/// A granted lock whose answer waits for what others have under way.
#[derive(Debug)]
pub struct GrantTask {
    file: Option<CachedFile>,
    range: ByteRange,
    mode: LockMode,
    after: RecordNumber,
}

impl Files<'_> {
    /// Takes a lock.
    pub fn lock(&mut self, by: &Caller, ask: &Lock) -> Result<Now<Outcome>, NotDone> {
        let mode = mode_of(ask.mode);
        self.touch(by, &ask.file, Touch::Lock { exclusive: mode == LockMode::Write })?;
        let claim = match ask.claim {
            LockClaim::New => Claim::New,
            LockClaim::Reclaim => Claim::Reclaim,
            LockClaim::Repair => Claim::Repair,
        };
        let wait = match ask.waits && claim == Claim::New {
            true => Wait::Poll(self.lock_waits.name_of(by.channel, ask, mode)),
            false => Wait::No,
        };
        let wanted = LockRequest {
            file: self.opened.key_of(ask.state, &ask.file),
            offset: ask.offset,
            length: ask.length,
            mode,
            attributes: LockAttributes { persist: ask.persist, auto_recovery: ask.auto_recovery },
            claim,
            wait,
        };
        let granted = self.filer.lock(by.channel, ask.state, &wanted, self.now);
        let mut after = self.act_on_locks();
        let is_waiting = matches!(granted, Ok(LockAnswer::Waiting { .. }));
        if let (Wait::Poll(waiter), false) = (wait, is_waiting) {
            self.lock_waits.forget(waiter);
        }
        let status = granted.as_ref().map_or_else(|status| *status, LockAnswer::status);
        match granted? {
            LockAnswer::Granted => {
                let range = ByteRange::new(ask.offset, ask.length).ok_or(Status::Inval)?;
                let file = self.opened.record(ask.state).map(|record| record.file);
                if wanted.attributes == LockAttributes::PLAIN {
                    after = after.max(self.record_locker(by.channel));
                }
                let grant = GrantTask { file, range, mode, after };
                Ok(match grant.waits(self.tasks) {
                    true => Now::later(Work::Grant(grant)),
                    false => Now::done(Ended::Locked, after),
                })
            }
            LockAnswer::Denied(conflict)
            | LockAnswer::Broken(conflict)
            | LockAnswer::Waiting { conflict, .. } => {
                let refused = Outcome::refused(status, in_the_way(conflict));
                // What the request has changed is written down before it is told.
                Ok(Now::Done(Outcome { after, ..refused }))
            }
            LockAnswer::Deadlock(_) => Err(status.into()),
        }
    }

    /// Whether a lock could be taken, which it is not.
    pub fn lock_test(&mut self, by: &Caller, ask: &TestLock<'_>) -> Result<(), NotDone> {
        self.check_use(by, &ask.file)?;
        let wanted = LockRequest {
            // A file that nobody has open has no locks.
            file: self.opened.key(&ask.file).unwrap_or(FileKey(u64::MAX)),
            offset: ask.offset,
            length: ask.length,
            mode: mode_of(ask.mode),
            attributes: LockAttributes::PLAIN,
            claim: Claim::New,
            wait: Wait::No,
        };
        match self.filer.lock_test(by.channel, ask.owner, &wanted)? {
            LockTestAnswer::Free => Ok(()),
            LockTestAnswer::Denied(conflict) => {
                Err(NotDone::partly(Status::Denied, in_the_way(conflict)))
            }
            LockTestAnswer::Broken(conflict) => {
                Err(NotDone::partly(Status::LockBroken, in_the_way(conflict)))
            }
        }
    }

    /// Ends locks.
    pub fn unlock(&mut self, channel: ChannelId, ask: &LockSpan) -> Result<Now<Outcome>, Status> {
        if self.keeps_undo_of(&ask.file) {
            return self.end_undo(channel, &ask.file, Ending::Unlock(*ask));
        }
        self.unlock_now(channel, ask)
    }

    /// What was changed under auto-recovery locks is final once they end: so it goes to stable
    /// storage first, or a loss of power could leave part of it.
    pub fn end_undo(
        &mut self,
        channel: ChannelId,
        handle: &FileHandle,
        ending: Ending,
    ) -> Result<Now<Outcome>, Status> {
        let Some(file) = self.cache.find(handle) else { return self.end_now(channel, &ending) };
        let ticket = self.cache.commit_begin(file, 0, 0, Stability::FileSync);
        let reply = CommitReply::Ending(ending);
        Ok(Now::later(Work::Commit(CommitTask { ticket, file, reply, borrowed: false })))
    }

    /// What was changed is on stable storage.
    pub fn end_now(&mut self, channel: ChannelId, ending: &Ending) -> Result<Now<Outcome>, Status> {
        match ending {
            Ending::Unlock(ask) => self.unlock_now(channel, ask),
            Ending::Close(ask) => self.close_now(channel, ask),
        }
    }

    fn unlock_now(&mut self, channel: ChannelId, ask: &LockSpan) -> Result<Now<Outcome>, Status> {
        let wanted = self.range_request(ask);
        let unlocked = self.filer.unlock(channel, ask.state, &wanted, self.now);
        let after = self.act_on_locks();
        unlocked?;
        Ok(Now::done(Ended::Unlocked, after))
    }

    /// Ends locks and takes back what was changed under them. Whoever asked is told under
    /// `ticket` if that takes rollbacks.
    pub fn abort_lock(
        &mut self,
        ticket: ReplyTo,
        channel: ChannelId,
        ask: &LockSpan,
    ) -> Result<Option<Outcome>, Status> {
        let wanted = self.range_request(ask);
        let aborted = self.filer.abort_lock(channel, ask.state, &wanted);
        let after = self.act_on_locks();
        let rollbacks = aborted?;
        match self.ledger {
            // Answered when all is as it was.
            Some(ledger) if !rollbacks.is_empty() => {
                ledger.undo.await_rollbacks(ticket, rollbacks);
                Ok(None)
            }
            _ => Ok(Some(Outcome { result: Ok(Ended::Locked), after })),
        }
    }

    /// A range of a file, and nothing more.
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

    /// Does what locks ask for. Answers wait for the record that is returned.
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

impl GrantTask {
    /// Whether somebody else's transfers are under way in the range.
    fn waits(&self, tasks: &Tasks) -> bool {
        self.file.is_some_and(|file| tasks.has_conflicting(file, self.range, self.mode))
    }
}

impl Reactor {
    /// A lock is granted; its owner learns of it when nobody else's transfers are under way
    /// in its range any more.
    pub(crate) fn step_grant(&mut self, task: &GrantTask) -> Step {
        match task.waits(&self.tasks) {
            true => Step::Wait(TaskWait::Room),
            false => Now::done(Ended::Locked, task.after).into(),
        }
    }

    /// Tells a client that its turn has come, if there is a way to.
    pub(crate) fn tell_waiter(&mut self, waiter: &LockWaiter) {
        let LockWaiter { channel, file, state, offset, length, .. } = *waiter;
        let Some(endpoint) = self.channels.endpoint_of(channel) else { return };
        // Whoever does not hear of it asks again by itself.
        let _ = self.tell(endpoint, BackRequest::LockReady { file, state, offset, length });
    }
}

/// What is told of a lock that stands in the way.
fn in_the_way(conflict: LockConflict) -> Partial<'static> {
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
