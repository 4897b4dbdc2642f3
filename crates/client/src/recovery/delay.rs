//! Requests that a server puts off: DELAY, and GRACE while clients of its former life
//! take back what they held (draft 5.3).
//!
//! Invariant: what was put off was not carried out; it is asked anew after a pause, until
//! the session's limit, and then the application has the server's answer.

use std::time::Duration;

use dafs_dat::coarse_now;
use dafs_types::Status;

use super::stranded::Work;
use crate::core::{Core, QueuedCall};
use crate::data::Transfer;
use crate::error::ClientError;

/// How often, and since when, a request was put off.
#[derive(Debug)]
pub(crate) struct Delay {
    since: Duration,
    count: u32,
}

/// A request that waits to be asked anew.
pub(crate) struct Delayed {
    pub due: Duration,
    pub work: Work,
}

/// Whether a status only means that a request must wait.
#[inline]
pub(crate) fn is_put_off(status: Status) -> bool {
    matches!(status, Status::Delay | Status::Grace)
}

impl Core {
    /// Keeps a transfer for later; gives it back if it has waited long enough.
    #[cold]
    pub fn put_off_transfer(&mut self, index: usize, mut transfer: Transfer) -> Option<Transfer> {
        match self.next_try(index, &mut transfer.delay) {
            Some(due) => self.put_off(index, Delayed { due, work: Work::Transfer(transfer) }),
            None => return Some(transfer),
        }
        None
    }

    /// As [`Core::put_off_transfer`].
    #[cold]
    pub fn put_off_call(&mut self, index: usize, mut call: QueuedCall) -> Option<QueuedCall> {
        match self.next_try(index, &mut call.delay) {
            Some(due) => self.put_off(index, Delayed { due, work: Work::Call(call) }),
            None => return Some(call),
        }
        None
    }

    /// When to ask anew; `None` without recovery, or if the limit is over.
    pub(super) fn next_try(
        &self,
        index: usize,
        delay: &mut Option<Box<Delay>>,
    ) -> Option<Duration> {
        let keeper = self.sessions[index].keeper.as_ref()?;
        let now = coarse_now();
        let delay = delay.get_or_insert_with(|| Box::new(Delay { since: now, count: 0 }));
        if now.saturating_sub(delay.since) >= keeper.recovery.give_up_after {
            return None;
        }
        let pause = keeper.pause(delay.count);
        delay.count += 1;
        Some(now + pause)
    }

    pub(super) fn put_off(&mut self, index: usize, delayed: Delayed) {
        if let Some(keeper) = &mut self.sessions[index].keeper {
            keeper.delayed.push(delayed);
            self.has_timers = true;
        }
    }

    /// Asks anew for what is due.
    pub fn take_up_delayed(&mut self, index: usize, now: Duration) {
        let session = &mut self.sessions[index];
        let Some(keeper) = &mut session.keeper else { return };
        let (mut place, mut cancelled) = (0, Vec::new());
        while let Some(delayed) = keeper.delayed.get(place) {
            if delayed.due > now {
                place += 1;
                continue;
            }
            match keeper.delayed.remove(place).work {
                Work::Call(call) => session.calls.push_back(call),
                Work::Chain(chain) => {
                    chain.borrow_mut().take_up(false, &mut keeper.opens);
                    session.chains.push_back(chain);
                }
                // A member is put off with its chain.
                Work::Member(_) => {}
                Work::Transfer(transfer) if transfer.is_cancelled => cancelled.push(transfer),
                Work::Transfer(transfer) => session.queue.push_back(transfer),
            }
        }
        for transfer in cancelled {
            self.complete(&transfer, Err(ClientError::Cancelled));
        }
        self.pump(index);
    }
}
