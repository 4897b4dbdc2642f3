//! LOCK, LOCKT, LOCKU, and what locks ask of the server.
//!
//! Invariant: a lock is granted for its owner's eyes only when no read or write of others
//! that began before it is still under way in its range, and when what must be on stable
//! storage for it is.

use dafs_dat::EndpointId;
use dafs_filer::locks::{
    ByteRange, Claim, LockAction, LockAnswer, LockAttributes, LockConflict, LockMode, LockRequest,
    LockTestAnswer, Wait, WaiterId,
};
use dafs_filer::{FileKey, Touch};
use dafs_journal::RecordNumber;
use dafs_store::cache::CachedFile;
use dafs_types::{FileHandle, Stability, StateId, Status};
use dafs_wire::Response;
use dafs_wire::messages::{
    Empty, Lock, LockConflict as WireConflict, LockOptions, LockResult, LockTest, LockType, Unlock,
};

use crate::back::BackRequest;
use crate::data::Step;
use crate::reactor::Reactor;
use crate::task::{Answer, CommitReply, CommitTask, Ending, Task, Wait as TaskWait};

/// A client whose lock request waits for its turn, and that asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockWaiter {
    id: WaiterId,
    endpoint: EndpointId,
    file: FileHandle,
    state: StateId,
    offset: u64,
    length: u64,
    mode: LockMode,
}

/// A granted lock whose answer waits for what others have under way.
#[derive(Debug)]
pub struct GrantTask {
    file: Option<CachedFile>,
    range: ByteRange,
    mode: LockMode,
    after: RecordNumber,
}

impl Reactor {
    pub(crate) fn lock(&mut self, answer: Answer, request: &Lock) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let (mode, waits) = match request.lock_type {
            LockType::Read => (LockMode::Read, false),
            LockType::Write => (LockMode::Write, false),
            LockType::ReadWait => (LockMode::Read, true),
            LockType::WriteWait => (LockMode::Write, true),
            LockType::Abort => return self.abort_lock(answer, request),
        };
        self.touch(answer, &request.file, Touch::Lock { exclusive: mode == LockMode::Write })?;
        let options = request.options;
        let claim =
            match (options.contains(LockOptions::RECLAIM), options.contains(LockOptions::REPAIR)) {
                (false, false) => Claim::New,
                (true, false) => Claim::Reclaim,
                (false, true) => Claim::Repair,
                (true, true) => return Err(Status::Inval),
            };
        let wait = if waits && claim == Claim::New {
            Wait::Poll(self.waiter_of(answer.endpoint, request, mode))
        } else {
            Wait::No
        };
        let key = self.key_of(request.state, &request.file);
        let wanted = LockRequest {
            file: key,
            offset: request.offset,
            length: request.length,
            mode,
            attributes: LockAttributes {
                persist: options.contains(LockOptions::PERSIST),
                auto_recovery: options.contains(LockOptions::AUTO_RECOVERY),
            },
            claim,
            wait,
        };
        let granted = self.filer.lock(id, request.state, &wanted, self.now);
        let mut after = self.act_on_locks();
        let is_waiting = matches!(granted, Ok(LockAnswer::Waiting { .. }));
        if let (Wait::Poll(waiter), false) = (wait, is_waiting) {
            self.forget_waiter(waiter);
        }
        let status = granted.as_ref().map_or_else(|status| *status, LockAnswer::status);
        match granted? {
            LockAnswer::Granted => {
                let range = ByteRange::new(request.offset, request.length).ok_or(Status::Inval)?;
                let file = self.opens.get(&request.state).map(|record| record.file);
                if wanted.attributes == LockAttributes::PLAIN {
                    after = after.max(self.record_locker(id));
                }
                let grant = GrantTask { file, range, mode, after };
                self.start(Task::Grant(answer, grant));
            }
            LockAnswer::Denied(conflict)
            | LockAnswer::Broken(conflict)
            | LockAnswer::Waiting { conflict, .. } => {
                self.answer_conflict(answer, status, &conflict, after, true);
            }
            LockAnswer::Deadlock(_) => return Err(status),
        }
        Ok(())
    }

    /// Tells of a conflict, once what the request has changed is written down.
    fn answer_conflict(
        &mut self,
        answer: Answer,
        status: Status,
        conflict: &LockConflict,
        after: RecordNumber,
        is_lock: bool,
    ) {
        let conflict = WireConflict {
            client: conflict.client,
            owner: &conflict.owner,
            offset: conflict.range.first(),
            length: conflict.range.length(),
            lock_type: match conflict.mode {
                LockMode::Read => LockType::Read,
                LockMode::Write => LockType::Write,
            },
        };
        let result = LockResult { conflict: Some(conflict) };
        let response = if is_lock { Response::Lock(result) } else { Response::LockT(result) };
        self.answer_after = after;
        self.respond(answer, status, &response);
        self.answer_after = RecordNumber(0);
    }

    /// A lock is granted; its owner learns of it when nobody else's transfers are under way
    /// in its range any more.
    pub(crate) fn step_grant(&mut self, answer: Answer, task: &GrantTask) -> Step {
        if let Some(file) = task.file
            && self.tasks.has_conflicting(file, task.range, task.mode)
        {
            return Step::Wait(TaskWait::Room);
        }
        self.reply_after(task.after, answer, &Response::Lock(LockResult { conflict: None }));
        Step::Done
    }

    pub(crate) fn lock_test(
        &mut self,
        answer: Answer,
        request: &LockTest<'_>,
    ) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let mode = match request.lock_type {
            LockType::Read | LockType::ReadWait => LockMode::Read,
            LockType::Write | LockType::WriteWait => LockMode::Write,
            LockType::Abort => return Err(Status::Inval),
        };
        self.check_use(answer, &request.file)?;
        // A file that nobody has open has no locks.
        let file = match self.open_files.get(&request.file) {
            Some((file, _)) => FileKey(file.key().0),
            None => FileKey(u64::MAX),
        };
        let wanted = LockRequest {
            file,
            offset: request.offset,
            length: request.length,
            mode,
            attributes: LockAttributes::PLAIN,
            claim: Claim::New,
            wait: Wait::No,
        };
        match self.filer.lock_test(id, request.owner, &wanted)? {
            LockTestAnswer::Free => {
                self.reply(answer, &Response::LockT(LockResult { conflict: None }));
            }
            LockTestAnswer::Denied(conflict) => {
                let after = RecordNumber(0);
                self.answer_conflict(answer, Status::Denied, &conflict, after, false);
            }
            LockTestAnswer::Broken(conflict) => {
                let after = RecordNumber(0);
                self.answer_conflict(answer, Status::LockBroken, &conflict, after, false);
            }
        }
        Ok(())
    }

    pub(crate) fn unlock(&mut self, answer: Answer, request: &Unlock) -> Result<(), Status> {
        if self.keeps_undo_of(&request.file) {
            return self.end_undo(answer, &request.file, Ending::Unlock(*request));
        }
        self.unlock_now(answer, request)
    }

    /// What was changed under auto-recovery locks is final once they end: so it goes to stable
    /// storage first, or a loss of power could leave part of it.
    pub(crate) fn end_undo(
        &mut self,
        answer: Answer,
        handle: &FileHandle,
        ending: Ending,
    ) -> Result<(), Status> {
        let Some(file) = self.cache.find(handle) else { return self.end_now(answer, &ending) };
        let ticket = self.cache.commit_begin(file, 0, 0, Stability::FileSync);
        let reply = CommitReply::Ending(ending);
        self.start(Task::Commit(answer, CommitTask { ticket, file, reply, borrowed: false }));
        Ok(())
    }

    /// What was changed is on stable storage.
    pub(crate) fn end_now(&mut self, answer: Answer, ending: &Ending) -> Result<(), Status> {
        match ending {
            Ending::Unlock(request) => self.unlock_now(answer, request),
            Ending::Close(request) => self.close_now(answer, request),
        }
    }

    fn unlock_now(&mut self, answer: Answer, request: &Unlock) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let wanted =
            self.range_request(request.state, &request.file, request.offset, request.length);
        let unlocked = self.filer.unlock(id, request.state, &wanted, self.now);
        let after = self.act_on_locks();
        unlocked?;
        self.reply_after(after, answer, &Response::LockU(Empty));
        Ok(())
    }

    fn abort_lock(&mut self, answer: Answer, request: &Lock) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let wanted =
            self.range_request(request.state, &request.file, request.offset, request.length);
        let aborted = self.filer.abort_lock(id, request.state, &wanted);
        let after = self.act_on_locks();
        let rollbacks = aborted?;
        match &mut self.ledger {
            // Answered when all is as it was.
            Some(ledger) if !rollbacks.is_empty() => ledger.undo.await_rollbacks(answer, rollbacks),
            _ => self.reply_after(after, answer, &Response::Lock(LockResult { conflict: None })),
        }
        Ok(())
    }

    /// A range of a file, and nothing more.
    fn range_request(
        &self,
        state: StateId,
        file: &FileHandle,
        offset: u64,
        length: u64,
    ) -> LockRequest {
        LockRequest {
            file: self.key_of(state, file),
            offset,
            length,
            mode: LockMode::Write,
            attributes: LockAttributes::PLAIN,
            claim: Claim::New,
            wait: Wait::No,
        }
    }

    // ---- waiting --------------------------------------------------------------------

    /// The name of a request that may have to wait: the one it has if it has asked before.
    fn waiter_of(&mut self, endpoint: EndpointId, request: &Lock, mode: LockMode) -> WaiterId {
        let Lock { file, state, offset, length, .. } = *request;
        let is_same = |waiter: &&LockWaiter| {
            let LockWaiter {
                endpoint: e, file: f, state: s, offset: o, length: l, mode: m, ..
            } = **waiter;
            (e, f, s, o, l, m) == (endpoint, file, state, offset, length, mode)
        };
        if let Some(waiter) = self.lock_waiters.iter().find(is_same) {
            return waiter.id;
        }
        self.last_waiter += 1;
        let id = WaiterId(self.last_waiter);
        self.lock_waiters.push(LockWaiter { id, endpoint, file, state, offset, length, mode });
        id
    }

    fn forget_waiter(&mut self, id: WaiterId) -> Option<LockWaiter> {
        let place = self.lock_waiters.iter().position(|waiter| waiter.id == id)?;
        Some(self.lock_waiters.swap_remove(place))
    }

    /// Does what locks ask for. Answers wait for the record that is returned.
    pub(crate) fn act_on_locks(&mut self) -> RecordNumber {
        let mut after = RecordNumber(0);
        while let Some(action) = self.filer.take_lock_action() {
            match action {
                LockAction::Ready { waiter, .. } => self.wake_waiter(waiter),
                LockAction::WaiterBroken { waiter, .. } | LockAction::WaiterGone { waiter } => {
                    self.forget_waiter(waiter);
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
                    if let Some(ledger) = &mut self.ledger {
                        ledger.undo.roll_back(rollback, file, range);
                    }
                }
            }
        }
        after
    }

    /// Tells a client that its turn has come, if there is a way to.
    fn wake_waiter(&mut self, id: WaiterId) {
        let Some(waiter) = self.lock_waiters.iter().find(|waiter| waiter.id == id).copied() else {
            return;
        };
        let LockWaiter { endpoint, file, state, offset, length, .. } = waiter;
        // Whoever does not hear of it asks again by itself.
        let _ = self.tell(endpoint, BackRequest::LockReady { file, state, offset, length });
    }

    /// A connection is gone, and what waited on it.
    pub(crate) fn forget_waiters_of(&mut self, endpoint: EndpointId) {
        self.lock_waiters.retain(|waiter| waiter.endpoint != endpoint);
    }
}
