//! Sizes and times on their way: changes of attributes that wait for data.

use dafs_ops::AttributeSet;
use dafs_store::StoreError;
use dafs_store::cache::{CommitStep, Progress, SizeStep};
use dafs_types::Status;

use crate::data::Step;
use crate::files::attributes::{BEHIND_DATA, SIZE, all_set, set_in_part};
use crate::jobs::Job;
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::{SizeReply, SizeTask, TimesTask, Wait};
use crate::undo::UndoGate;

impl Reactor {
    pub(crate) fn step_times(&mut self, answer: ReplyTo, task: &mut TimesTask) -> Step {
        loop {
            match self.cache.commit_step(&mut task.ticket) {
                CommitStep::Flush(job) => {
                    if !self.run_or_submit(Job::Flush(job)) {
                        return Step::Wait(Wait::File(task.file));
                    }
                }
                // It asks for none.
                CommitStep::Sync(_) | CommitStep::Wait => {
                    return Step::Wait(Wait::File(task.file));
                }
                // Who asks about the data hears of what is lost.
                CommitStep::Done(_) => break,
            }
        }
        let who = &task.who;
        let done = match self.is_barred(answer, task.file) {
            true => Err(StoreError::Access),
            false => who.store().set_attributes(who, &task.handle, &task.times).map(|_| ()),
        };
        self.files().revalidate(&task.handle);
        self.give_back(task.file, task.borrowed);
        Step::Done(match done {
            Ok(()) => all_set(task.set),
            Err(error) => set_in_part(error, task.set.without(BEHIND_DATA)),
        })
    }

    pub(crate) fn step_size(&mut self, id: TaskId, answer: ReplyTo, task: &mut SizeTask) -> Step {
        if task.started {
            return self.finish_size(answer, task, Ok(()));
        }
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
                let crate::jobs::Done::Sized(done) = self.pool.run_here(Job::Size(job)) else {
                    return Step::failed(Status::ServerFault);
                };
                let progress = self.cache.on_sized(done);
                let step = self.finish_size(answer, task, progress.error.map_or(Ok(()), Err));
                self.on_progress(Progress { error: None, ..progress });
                step
            }
        }
    }

    /// The size is set, or could not be; what else was asked for follows.
    pub(crate) fn finish_size(
        &mut self,
        answer: ReplyTo,
        task: &SizeTask,
        result: Result<(), StoreError>,
    ) -> Step {
        let outcome = match (&task.reply, result) {
            (SizeReply::Open(opened), result) => {
                let channel = self.channels.get(answer.endpoint).map(|channel| channel.id);
                self.files().finish_open(channel, opened, result)
            }
            (SizeReply::SetAttributes, Err(error)) => set_in_part(error, AttributeSet::NONE),
            (SizeReply::SetAttributes, Ok(())) => match self.files().set_rest(task) {
                Ok(None) => all_set(task.set),
                Ok(Some(work)) => return Step::Become(Box::new(work)),
                Err(error) => set_in_part(error, SIZE),
            },
        };
        self.give_back(task.file, task.borrowed);
        Step::Done(outcome)
    }
}
