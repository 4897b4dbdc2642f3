//! Sums that were asked for, and what waits for them.

use dafs_types::Status;

use super::{SumDone, SumJob, Summed};
use crate::jobs::Job;
use crate::reactor::Reactor;
use crate::task::{Work, WriteSource};

impl Reactor {
    /// Has stretches summed for a task, which waits for that.
    pub(crate) fn submit_sum(&mut self, job: SumJob) {
        self.pool.submit(Job::Sum(Box::new(job)));
    }

    /// A task's memory is summed.
    pub(crate) fn on_summed(&mut self, done: SumDone) {
        let SumDone { task: id, result } = done;
        match self.tasks.get_mut(id).map(|task| &mut task.work) {
            Some(Work::Write(write)) => {
                if let WriteSource::Fetched { sum, .. } = &mut write.source {
                    let first = |summed: Vec<Summed>| summed.first().map(|summed| summed.sum);
                    *sum = Some(result.and_then(|all| first(all).ok_or(Status::ServerFault)));
                }
            }
            Some(Work::SealedBatch(sealed)) => sealed.note_summed(result),
            _ => return,
        }
        self.resume(id, None);
    }
}
