//! Sizes and times on their way: what waits for data ([`crate::files`] has what is done then).

use dafs_store::StoreError;
use dafs_store::cache::{Progress, SizeStep};
use dafs_types::Status;

use crate::data::Step;
use crate::files::left::{SizeTask, TimesTask};
use crate::jobs::{Done, Job};
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::Wait;
use crate::undo::UndoGate;

impl Reactor {
    pub(crate) fn step_times(&mut self, answer: ReplyTo, task: &mut TimesTask) -> Step {
        if self.push_commit(&mut task.ticket).is_none() {
            return Step::Wait(Wait::File(task.file));
        }
        let by = self.channel_of(answer).ok();
        Step::Done(self.files().finish_times(by, task))
    }

    pub(crate) fn step_size(&mut self, id: TaskId, answer: ReplyTo, task: &mut SizeTask) -> Step {
        if self.is_barred(answer, task.file) {
            return self.finish_size(answer, task, Err(StoreError::Access));
        }
        match self.undo_gate(id, task.file, (task.size, u64::MAX), task.undo_seen) {
            UndoGate::Open => {}
            UndoGate::Shut(wait) => return Step::Wait(wait),
            UndoGate::Refused(Status::NoSpc) => {
                return self.finish_size(answer, task, Err(StoreError::NoSpace));
            }
            UndoGate::Refused(_) => return self.finish_size(answer, task, Err(StoreError::Io)),
        }
        match self.cache.set_size(task.file, task.size) {
            SizeStep::Wait => Step::Wait(Wait::File(task.file)),
            SizeStep::Job(job) => {
                // Truncation touches metadata only; it is done here, in order.
                let Done::Sized(done) = self.pool.run_here(Job::Size(job)) else {
                    return Step::failed(Status::ServerFault);
                };
                let progress = self.cache.on_sized(done);
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
        let by = self.channel_of(answer).ok();
        self.files().finish_size(by, task, result).into()
    }
}
