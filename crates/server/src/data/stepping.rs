//! Starts, parks, resumes and ends tasks.

use dafs_filer::{ClientKey, IoKind};
use dafs_files::defect::Defect;
use dafs_files::io::IoFile;
use dafs_files::left::{SizeTask, TimesTask};
use dafs_files::needs::Need;
use dafs_files::outcome::NotDone;
use dafs_files::ranges::RangeTask;
use dafs_files::undo::UndoGate;
use dafs_files::undo::seen::UndoSeen;
use dafs_ops::Fault;
use dafs_store::StoreError;
use dafs_store::cache::{
    CachedFile, CommitStep, CommitTicket, FillJob, Progress, RangeDone, RangeStep, SizeStep,
};
use dafs_types::{FileHandle, StateId, Status};

use super::{FILLS_IN_PLACE_MAX, Step, step_grant};
use crate::handoff::Handoff;
use crate::pool::jobs::{Done, Job};
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::requests::answers::{handed_over_response, read_response};
use crate::task::{ReadTask, Task, Wait, Work, WriteTask};

impl Reactor<'_> {
    // ---- files ----------------------------------------------------------------------

    /// Returns the cached file of a READ or WRITE, after checking the request's state id.
    #[inline]
    pub(crate) fn io_file(
        &mut self,
        answer: ReplyTo,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, NotDone> {
        let channel = self.shared.channels.get(answer.endpoint).ok_or(Status::BadSession)?;
        if let Some(recent) = channel.recent.find(state, handle) {
            let undo_seen = self.undo_seen();
            return Ok(recent.pass(
                &mut self.shared.filer,
                channel.party.client,
                kind,
                (undo_seen, self.shared.life.now()),
            )?);
        }
        self.find_io_file(answer, state, handle, kind)
    }

    /// Returns the cached file for a state id that is not in the channel's list of recently used
    /// files. See [`Self::io_file`].
    #[inline(never)]
    fn find_io_file(
        &mut self,
        to: ReplyTo,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, NotDone> {
        let by = self.party_of(to)?;
        let Some(recent) = self.files().opened_file(by, state, handle, kind)? else {
            let by = self.caller(to)?;
            if by.party.client == ClientKey::NONE {
                // The session has ended after the request was admitted.
                return Err(Status::NotAuthenticated.into());
            }
            return self.files().unopened_file(&by, state, handle, kind);
        };
        if let Some(channel) = self.shared.channels.get_mut(to.endpoint) {
            channel.recent.remember(recent);
        }
        Ok(recent.opened(self.undo_seen()))
    }

    /// See [`dafs_files::Files::check_locks`].
    #[inline]
    pub(crate) fn check_locks(
        &mut self,
        state: StateId,
        handle: &FileHandle,
        reach: (u64, u64),
        kind: IoKind,
    ) -> Result<(), Status> {
        if self.shared.filer.has_no_locks() {
            return Ok(());
        }
        Ok(self.files().check_locks_of(state, handle, reach, kind)?)
    }

    pub(crate) fn give_back(&mut self, file: CachedFile, borrowed: bool) {
        if borrowed {
            self.shared.cache.close(file);
        }
    }

    // ---- tasks ----------------------------------------------------------------------

    /// Executes the first step of a new task, and parks the task if it must wait.
    pub(crate) fn start(&mut self, task: Task) {
        let id = self.shared.tasks.reserve();
        if !self.own.has(task.moves_over()) {
            // Until the other reactor starts the task, the task holds its file and counts as in
            // progress.
            let reactor = task.moves_over().owner();
            self.park(id, task, Wait::Reactor);
            return self.shared.handoffs.leave(reactor, Handoff::Resume(vec![id], None));
        }
        self.drive(id, task);
    }

    /// Executes the next step of a parked task. `error` is set if a job that the task may have
    /// waited for has failed.
    pub(crate) fn resume(&mut self, id: TaskId, error: Option<StoreError>) {
        if let Some(task) = self.shared.tasks.get(id)
            && !self.own.has(task.moves_over())
            && self.own.defect != Some(Defect::StepOthersTasks)
        {
            // Only the other reactor can wake the task, so the task is still parked when that
            // reactor resumes it.
            let reactor = task.moves_over().owner();
            return self.shared.handoffs.leave(reactor, Handoff::Resume(vec![id], error));
        }
        let Some(task) = self.shared.tasks.take(id) else { return };
        let held = task.work.file();
        self.continue_task(id, task, error);
        if let Some(file) = held {
            self.shared.cache.close(file);
        }
    }

    /// Parks a task. The parked task keeps its file in use, because the file's open may be closed
    /// or may end with its session.
    pub(crate) fn park(&mut self, id: TaskId, mut task: Task, wait: Wait) {
        self.shared.meter.wait(&mut task.reply_to.reading);
        if let Some(file) = task.work.file() {
            self.shared.cache.hold(file);
        }
        self.shared.tasks.park(id, task, wait);
    }

    fn continue_task(&mut self, id: TaskId, mut task: Task, error: Option<StoreError>) {
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

    /// Handles the failure of a job that a task may have waited for. Returns `None` if the task
    /// continues despite the failure.
    fn fail_work(&mut self, to: ReplyTo, work: &mut Work, error: StoreError) -> Option<Step> {
        match work {
            Work::Read(ReadTask { reading, .. }) => {
                self.give_back(reading.file, reading.borrowed);
                Some(Step::failed(error))
            }
            Work::Write(task) if task.writing.token.is_none() => {
                self.end_write(to, task);
                Some(Step::failed(error))
            }
            Work::Strand(strand) if strand.token.is_none() => {
                self.fail_strand(strand, error);
                Some(Step::Silent)
            }
            Work::Write(_)
            | Work::Strand(_)
            | Work::Size(_)
            | Work::Range(_)
            | Work::Commit(_)
            | Work::Flush(_)
            | Work::Times(_)
            | Work::Fetch(_)
            | Work::Grant(_)
            | Work::SealedBatch(_) => None,
        }
    }

    pub(crate) fn drive(&mut self, id: TaskId, mut task: Task) {
        loop {
            // The step borrows the task in place, because moving a task of several cache lines for
            // each step is slow.
            let to = task.reply_to;
            let step = match &mut task.work {
                Work::Read(read) => self.step_read(to, read),
                Work::Write(write) => self.step_write(id, to, write),
                Work::Commit(commit) => self.step_commit(to, commit),
                Work::Flush(flush) => self.step_flush(to, flush),
                Work::Size(size) => self.step_size(id, to, size),
                Work::Range(range) => self.step_range(id, to, range),
                Work::Times(times) => self.step_times(to, times),
                Work::Fetch(fetch) => self.step_fetch(to, fetch),
                Work::Grant(grant) => step_grant(grant, self.shared.tasks.under_way()),
                Work::Strand(strand) => self.step_strand(id, to, strand),
                Work::SealedBatch(sealed) => self.step_sealed_batch(id, to, sealed),
            };
            match self.conclude(id, task, step) {
                Some(next) => task = next,
                None => return,
            }
        }
    }

    /// Acts on the result of a step. Returns the changed task if it continues.
    pub(crate) fn conclude(&mut self, id: TaskId, task: Task, step: Step) -> Option<Task> {
        match step {
            Step::Done(outcome) => {
                self.report(task.reply_to, outcome);
                self.end_task(id);
            }
            Step::Read { length, is_end, checksum } => {
                self.reply(task.reply_to, &read_response(length, is_end, checksum));
                self.end_task(id);
            }
            Step::HandedOver(name) => {
                self.reply(task.reply_to, &handed_over_response(name));
                self.end_task(id);
            }
            Step::Silent => self.end_task(id),
            Step::Broken => {
                self.report_broken(task.reply_to);
                self.end_task(id);
            }
            Step::Wait(wait) => self.park(id, task, wait),
            Step::Become(left) => return Some(Task::new(task.reply_to, Work::from(*left))),
        }
        None
    }

    /// Releases the id of a task that has ended.
    #[inline]
    fn end_task(&mut self, id: TaskId) {
        self.shared.tasks.forget(id);
        self.shared.filer.leave_fence(crate::waiting::fencing::operation_of_task(id));
    }

    /// Records that one transfer of a task has completed.
    pub(crate) fn on_transfer_done(&mut self, id: TaskId, failed: bool) {
        let left = match self.shared.tasks.get_mut(id).map(|task| &mut task.work) {
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
            self.shared.channels.stalls().note_transfers(&self.shared.tasks, id);
            self.resume(id, None);
        }
    }

    /// Starts the work that must be done before an operation can continue. Returns the event to
    /// wait for, or `None` if the work is already done.
    pub(crate) fn meet(&mut self, need: Need) -> Option<Wait> {
        match need {
            Need::Fills(file, jobs) => self.fill_or_wait(file, jobs),
            Need::Progress(file) => Some(Wait::File(file)),
            Need::Room => {
                self.flush_due();
                Some(Wait::Room)
            }
        }
    }

    /// Saves the undo data for a range of a file before a task changes the range. Returns the event
    /// that the task must wait for; `None` if it can continue immediately.
    ///
    /// # Errors
    /// The error from saving the undo data.
    pub(crate) fn pass_undo(
        &mut self,
        task: TaskId,
        file: CachedFile,
        reach: (u64, u64),
        seen: UndoSeen,
    ) -> Result<Option<Wait>, Status> {
        loop {
            let need = match self.files().undo_gate(task, file, reach, seen) {
                UndoGate::Open => return Ok(None),
                UndoGate::Shut => return Ok(Some(Wait::Undo)),
                UndoGate::Refused(status) => return Err(status),
                UndoGate::Needs(need) => need,
            };
            if let Some(wait) = self.meet(need) {
                return Ok(Some(wait));
            }
        }
    }

    /// Advances a COMMIT as far as possible. Returns `None` if it must wait for progress of the
    /// file.
    pub(crate) fn push_commit(
        &mut self,
        ticket: &mut CommitTicket,
    ) -> Option<Result<(), StoreError>> {
        loop {
            let job = match self.shared.cache.commit_step(ticket) {
                CommitStep::Flush(job) => Job::Flush(job),
                CommitStep::Sync(job) => Job::Sync(job),
                CommitStep::Wait => return None,
                CommitStep::Done(result) => return Some(result),
            };
            if !self.run_or_submit(job) {
                return None;
            }
        }
    }

    /// Reads the missing blocks on this thread if that is likely to be quick. Otherwise submits the
    /// reads to the pool and returns the event to wait for.
    fn fill_or_wait(&mut self, file: CachedFile, jobs: Vec<FillJob>) -> Option<Wait> {
        if self.shared.pool.has_slow_disk(self.shared.life.now()) || jobs.len() > FILLS_IN_PLACE_MAX
        {
            self.submit_fills(jobs);
            return Some(Wait::File(file));
        }
        self.run_fills(jobs);
        None
    }

    /// Submits reads of missing blocks to the pool.
    pub(crate) fn submit_fills(&mut self, jobs: Vec<FillJob>) {
        for job in jobs {
            self.shared.pool.submit(Job::Fill(job));
        }
    }

    /// Reads missing blocks on this thread. A failure is not reported here, because the task then
    /// submits the read to the pool again and gets the error from the pool.
    pub(crate) fn run_fills(&mut self, jobs: Vec<FillJob>) {
        for job in jobs {
            self.run_or_submit(Job::Fill(job));
        }
    }

    // ---- sizes and times -------------------------------------------------------------

    pub(crate) fn step_times(&mut self, answer: ReplyTo, task: &mut TimesTask) -> Step {
        if self.push_commit(&mut task.ticket).is_none() {
            return Step::Wait(Wait::File(task.file));
        }
        let by = self.party_of(answer).ok();
        Step::Done(self.files().finish_times(by, task))
    }

    pub(crate) fn step_size(&mut self, id: TaskId, answer: ReplyTo, task: &mut SizeTask) -> Step {
        if self.is_barred(answer, task.file) {
            return self.finish_size(answer, task, Err(StoreError::Access));
        }
        match self.pass_undo(id, task.file, (task.size, u64::MAX), task.undo_seen) {
            Ok(None) => {}
            Ok(Some(wait)) => return Step::Wait(wait),
            Err(Status::NoSpc) => {
                return self.finish_size(answer, task, Err(StoreError::NoSpace));
            }
            Err(_) => return self.finish_size(answer, task, Err(StoreError::Io)),
        }
        match self.shared.cache.set_size(task.file, task.size) {
            SizeStep::Wait => Step::Wait(Wait::File(task.file)),
            SizeStep::Job(job) => {
                // A truncation changes only metadata, so the reactor executes it. This also keeps
                // it in order with other requests.
                let Done::Sized(done) = self.shared.pool.run_here(Job::Size(job)) else {
                    return Step::failed(Status::ServerFault);
                };
                let progress = self.shared.cache.on_sized(done);
                let step = self.finish_size(answer, task, progress.error.map_or(Ok(()), Err));
                self.on_progress(Progress { error: None, ..progress });
                step
            }
        }
    }

    fn finish_size(
        &mut self,
        answer: ReplyTo,
        task: &SizeTask,
        result: Result<(), StoreError>,
    ) -> Step {
        let by = self.party_of(answer).ok();
        self.files().finish_size(by, task, result).into()
    }

    // ---- ranges -----------------------------------------------------------------------

    /// Continues a task that works on a range of a file. The pool does the work, because it may
    /// take long.
    pub(crate) fn step_range(&mut self, id: TaskId, to: ReplyTo, task: &mut RangeTask) -> Step {
        let by = self.party_of(to).ok();
        if let Some(outcome) = self.files().check_range_task(by, task) {
            return Step::Done(outcome);
        }
        loop {
            while let Some(ticket) = task.flush() {
                match self.push_commit(ticket) {
                    None => return Step::Wait(Wait::File(task.file())),
                    Some(Err(error)) => return self.end_range(task, error.into()),
                    Some(Ok(())) => task.flushed(),
                }
            }
            if task.changes_file() {
                let reach = task.next_range();
                match self.pass_undo(id, task.target(), reach, task.undo_seen()) {
                    Ok(None) => {}
                    Ok(Some(wait)) => return Step::Wait(wait),
                    Err(status) => return self.end_range(task, status.into()),
                }
            }
            match self.files().range_job(task) {
                Err(fault) => return self.end_range(task, fault),
                Ok(RangeStep::Dirty) => {}
                Ok(RangeStep::Wait) => return Step::Wait(Wait::File(task.target())),
                Ok(RangeStep::Job(job)) => {
                    self.shared.pool.submit(Job::Range(id, Box::new(job)));
                    return Step::Wait(Wait::Job);
                }
            }
        }
    }

    fn end_range(&mut self, task: &RangeTask, fault: Fault) -> Step {
        Step::Done(self.files().end_range_task(task, Err(fault)))
    }

    /// Handles the result of a job of a task that works on a range of a file.
    pub(crate) fn on_ranged(&mut self, id: TaskId, mut done: RangeDone) {
        let progress = self.shared.cache.on_ranged(&done);
        if let Some(Work::Range(task)) = self.shared.tasks.get_mut(id).map(|task| &mut task.work) {
            task.note_result(&mut done);
        }
        self.resume(id, None);
        self.on_progress(progress);
    }

    // ---- ends of files ----------------------------------------------------------------

    /// Journals the offset of an append, if the append's outcome will be journaled. Returns true if
    /// the append must wait until the record of the offset is durable.
    pub(crate) fn intends(&mut self, id: TaskId, answer: ReplyTo, task: &mut WriteTask) -> bool {
        if !answer.logged || task.writing.has_intent {
            return false;
        }
        task.writing.has_intent = true;
        let asked = self.files().intended_append(&task.writing);
        self.intend_append(id, answer, asked, task.writing.offset);
        true
    }

    /// Gives up a reservation of a file's end, so that the next append to the file can start.
    pub(crate) fn leave_end(&mut self, file: CachedFile) {
        let progress = self.files().leave_end(file);
        self.on_progress(progress);
    }
}
