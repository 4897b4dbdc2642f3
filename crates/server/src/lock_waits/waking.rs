//! Grants that wait, and clients whose turn has come.

use super::LockWaiter;
use crate::back::BackRequest;
use crate::data::Step;
use crate::files::left::GrantTask;
use crate::outcome::{Ended, Now};
use crate::reactor::Reactor;
use crate::task::Wait as TaskWait;

impl Reactor {
    /// A lock is granted; its owner learns of it when nobody else's transfers are under way
    /// in its range any more.
    pub(crate) fn step_grant(&mut self, task: &GrantTask) -> Step {
        match task.waits(self.tasks.under_way()) {
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
