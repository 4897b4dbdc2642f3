//! Tasks: started, parked, resumed, ended.

use dafs_filer::IoKind;
use dafs_store::StoreError;
use dafs_store::cache::{CachedFile, FillJob};
use dafs_types::{FileHandle, StateId, Status};

use super::{FILLS_IN_PLACE_MAX, IoFile, Step};
use crate::channel::RecentFile;
use crate::jobs::Job;
use crate::outcome::NotDone;
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::{Task, Wait, Work};

impl Reactor {
    // ---- which file -----------------------------------------------------------------

    /// The cached file of a READ or WRITE, checked against its state.
    #[inline]
    pub(crate) fn io_file(
        &mut self,
        answer: ReplyTo,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, NotDone> {
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?;
        let id = channel.id;
        if let Some(recent) = channel.recent(state, handle) {
            let (key, file) = (dafs_filer::FileKey(recent.key.0), recent.file);
            self.filer.check_io(id, state, key, kind)?;
            return Ok(IoFile { file, borrowed: false, undo_seen: self.undo_seen() });
        }
        if state == StateId::ANONYMOUS {
            return self.anonymous_file(answer, handle, kind);
        }
        let record = self.opened.record(state);
        if record.is_none() && self.filer.is_of_delegation(state) {
            return self.delegated_file(answer, state, handle, kind);
        }
        // The filer tells stale, old and plainly wrong state ids apart.
        self.filer.check_io(id, state, self.opened.key_of(state, handle), kind)?;
        let record = record.ok_or(Status::BadStateId)?;
        let recent = RecentFile { state, handle: *handle, key: record.key, file: record.file };
        if let Some(channel) = self.channels.get_mut(answer.endpoint) {
            channel.remember(recent);
        }
        Ok(IoFile { file: recent.file, borrowed: false, undo_seen: self.undo_seen() })
    }

    /// As [`crate::files::Files::anonymous_file`].
    #[inline(never)]
    fn anonymous_file(
        &mut self,
        to: ReplyTo,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, NotDone> {
        let by = self.caller(to)?;
        self.files().anonymous_file(&by, handle, kind)
    }

    /// As [`crate::files::Files::delegated_file`].
    #[cold]
    fn delegated_file(
        &mut self,
        to: ReplyTo,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, NotDone> {
        let by = self.caller(to)?;
        Ok(self.files().delegated_file(&by, state, handle, kind)?)
    }

    /// As [`crate::files::Files::check_locks`].
    #[inline]
    pub(crate) fn check_locks(
        &mut self,
        state: StateId,
        handle: &FileHandle,
        reach: (u64, u64),
        kind: IoKind,
    ) -> Result<(), Status> {
        if self.filer.has_no_locks() {
            return Ok(());
        }
        self.files().check_locks_of(state, handle, reach, kind)
    }

    pub(crate) fn give_back(&mut self, file: CachedFile, borrowed: bool) {
        if borrowed {
            self.cache.close(file);
        }
    }

    // ---- tasks ----------------------------------------------------------------------

    /// Steps a new task; parks it if it must wait.
    pub(crate) fn start(&mut self, task: Task) {
        let id = self.tasks.reserve();
        self.drive(id, task);
    }

    /// Steps a parked task again. With `error` a job it may have waited for failed.
    pub(crate) fn resume(&mut self, id: TaskId, error: Option<StoreError>) {
        let Some(task) = self.tasks.take(id) else { return };
        let held = task.work.file();
        self.go_on(id, task, error);
        if let Some(file) = held {
            self.cache.close(file);
        }
    }

    /// Parks a task. Its file is held meanwhile: the open it came through may be closed,
    /// or go with its session.
    pub(crate) fn park(&mut self, id: TaskId, mut task: Task, wait: Wait) {
        self.meter.wait(&mut task.reply_to.reading);
        if let Some(file) = task.work.file() {
            self.cache.hold(file);
        }
        self.tasks.park(id, task, wait);
    }

    fn go_on(&mut self, id: TaskId, mut task: Task, error: Option<StoreError>) {
        let failed = error.and_then(|error| self.fail_work(task.reply_to, &mut task.work, error));
        match failed {
            Some(step) => {
                if let Some(next) = self.conclude(id, task, step) {
                    self.drive(id, next);
                }
            }
            None => self.drive(id, task),
        }
    }

    /// A job has failed that a task may have waited for. `None` if it goes on all the same.
    fn fail_work(&mut self, to: ReplyTo, work: &mut Work, error: StoreError) -> Option<Step> {
        match work {
            Work::Read(task) => {
                self.give_back(task.file, task.borrowed);
                Some(Step::failed(error))
            }
            Work::Write(task) if task.token.is_none() => {
                self.end_write(to, task);
                Some(Step::failed(error))
            }
            Work::Strand(strand) if strand.token.is_none() => {
                self.fail_strand(strand, error);
                Some(Step::Silent)
            }
            Work::Size(task) if task.started => Some(self.finish_size(to, task, Err(error))),
            Work::Write(_)
            | Work::Strand(_)
            | Work::Size(_)
            | Work::Commit(_)
            | Work::Times(_)
            | Work::Fetch(_)
            | Work::Grant(_)
            | Work::SealedBatch(_) => None,
        }
    }

    pub(crate) fn drive(&mut self, id: TaskId, mut task: Task) {
        loop {
            // In place: a task is a few cache lines, not to be moved for every step.
            let to = task.reply_to;
            let step = match &mut task.work {
                Work::Read(read) => self.step_read(to, read),
                Work::Write(write) => self.step_write(id, to, write),
                Work::Commit(commit) => self.step_commit(to, commit),
                Work::Size(size) => self.step_size(id, to, size),
                Work::Times(times) => self.step_times(to, times),
                Work::Fetch(fetch) => self.step_fetch(to, fetch),
                Work::Grant(grant) => self.step_grant(grant),
                Work::Strand(strand) => self.step_strand(id, to, strand),
                Work::SealedBatch(sealed) => self.step_sealed_batch(id, to, sealed),
            };
            match self.conclude(id, task, step) {
                Some(next) => task = next,
                None => return,
            }
        }
    }

    /// Does what a step came to. What the task became, if it goes on.
    pub(crate) fn conclude(&mut self, id: TaskId, task: Task, step: Step) -> Option<Task> {
        match step {
            Step::Done(outcome) => {
                self.report(task.reply_to, outcome);
                self.end_task(id);
            }
            Step::Silent => self.end_task(id),
            Step::Broken => {
                self.report_broken(task.reply_to);
                self.end_task(id);
            }
            Step::Wait(wait) => self.park(id, task, wait),
            Step::Become(next) => return Some(Task::new(task.reply_to, *next)),
        }
        None
    }

    /// Gives the name of a task back that has ended.
    #[inline]
    fn end_task(&mut self, id: TaskId) {
        self.tasks.forget(id);
        self.filer.leave_fence(crate::fencing::operation_of_task(id));
    }

    /// Part of a task's own transfer ended.
    pub(crate) fn on_transfer_done(&mut self, id: TaskId, failed: bool) {
        let left = match self.tasks.get_mut(id).map(|task| &mut task.work) {
            Some(Work::Write(write)) => {
                write.transfers_left -= 1;
                write.transfer_failed |= failed;
                write.transfers_left
            }
            Some(Work::Fetch(fetch)) => {
                fetch.transfers_left -= 1;
                fetch.failed |= failed;
                fetch.transfers_left
            }
            Some(Work::Strand(strand)) => {
                strand.transfers_left -= 1;
                strand.transfer_failed |= failed;
                strand.transfers_left
            }
            Some(Work::SealedBatch(sealed)) => {
                sealed.transfers_left -= 1;
                sealed.transfer_failed |= failed;
                sealed.transfers_left
            }
            _ => return,
        };
        if left == 0 {
            self.note_transfers(id);
            self.resume(id, None);
        }
    }

    /// Runs fills in place if they are likely to be quick. Else what to wait for.
    pub(crate) fn fill_or_wait(&mut self, file: CachedFile, jobs: Vec<FillJob>) -> Option<Wait> {
        if self.pool.has_slow_disk(self.life.now()) || jobs.len() > FILLS_IN_PLACE_MAX {
            self.submit_fills(jobs);
            return Some(Wait::File(file));
        }
        self.run_fills(jobs);
        None
    }

    /// Has others do fills.
    pub(crate) fn submit_fills(&mut self, jobs: Vec<FillJob>) {
        for job in jobs {
            self.pool.submit(Job::Fill(job));
        }
    }

    /// Runs fills in place; a failure shows when the read is tried again.
    pub(crate) fn run_fills(&mut self, jobs: Vec<FillJob>) {
        for job in jobs {
            self.run_or_submit(Job::Fill(job));
        }
    }
}
