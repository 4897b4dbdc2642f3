//! Sends delayed requests again.
//!
//! Invariant: a delayed request was not executed. It is sent again after a pause, until the
//! session's time limit has passed; then the application gets the server's reply.

use std::time::Duration;

use crate::core::Core;
use crate::error::ClientError;
use crate::ids::SessionKey;
use crate::recovery::delay::Delay;
use crate::transfer::Transfer;
use crate::work::{Delayed, QueuedCall, Work};

impl Core {
    /// Schedules a retry for a delayed transfer. Returns the transfer if its time limit has passed.
    #[cold]
    pub(crate) fn defer_transfer(
        &mut self,
        key: SessionKey,
        mut transfer: Transfer,
    ) -> Option<Transfer> {
        match self.next_try(key, &mut transfer.delay) {
            Some(due) => self.defer(key, Delayed { due, work: Work::Transfer(transfer) }),
            None => return Some(transfer),
        }
        None
    }

    /// Schedules a retry for a delayed call. Returns the call if its time limit has passed.
    #[cold]
    pub(crate) fn defer_call(
        &mut self,
        key: SessionKey,
        mut call: QueuedCall,
    ) -> Option<QueuedCall> {
        match self.next_try(key, &mut call.delay) {
            Some(due) => self.defer(key, Delayed { due, work: Work::Call(call) }),
            None => return Some(call),
        }
        None
    }

    /// Returns the time at which to send a delayed request again; `None` without recovery, or if
    /// the time limit has passed.
    pub(super) fn next_try(
        &self,
        key: SessionKey,
        delay: &mut Option<Box<Delay>>,
    ) -> Option<Duration> {
        self.sessions[key].recovery.as_ref()?.next_try(delay)
    }

    pub(super) fn defer(&mut self, key: SessionKey, delayed: Delayed) {
        if let Some(machine) = &mut self.sessions[key].recovery {
            machine.defer(delayed);
            self.sessions.note_timer();
        }
    }

    /// Sends the delayed requests that are due.
    pub(crate) fn resend_delayed(&mut self, key: SessionKey, now: Duration) {
        let session = &mut self.sessions[key];
        let Some(machine) = &mut session.recovery else { return };
        let mut cancelled = Vec::new();
        for work in machine.take_due(now) {
            match work {
                Work::Call(call) => session.in_flight.push_call(call),
                Work::Chain(chain) => {
                    chain.borrow_mut().resume(false, machine.opens_mut());
                    session.in_flight.chains.push_back(chain);
                }
                // A member is delayed together with its chain.
                Work::Member(_) => {}
                Work::Transfer(transfer) if transfer.is_cancelled => cancelled.push(transfer),
                Work::Transfer(transfer) => session.in_flight.push_transfer(transfer),
            }
        }
        for transfer in cancelled {
            self.complete(&transfer, Err(ClientError::Cancelled));
        }
        self.pump(key);
    }
}
