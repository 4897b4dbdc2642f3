//! Requests that the server delays: with the status DELAY, or with GRACE while clients reclaim
//! state of the server's previous incarnation (draft 5.3).
//!
//! Invariant: a delayed request was not executed.

use std::time::Duration;

use dafs_types::Status;

/// The number of times that a request was delayed, and the time of the first delay.
#[derive(Debug)]
pub(crate) struct Delay {
    since: Duration,
    count: u32,
}

impl Delay {
    /// Creates the record of a request that is delayed for the first time.
    pub(crate) fn since(now: Duration) -> Self {
        Self { since: now, count: 0 }
    }

    /// Returns the time since the request was first delayed.
    pub(crate) fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since)
    }

    /// Counts another delay and returns the number of earlier ones.
    pub(crate) fn count_one(&mut self) -> u32 {
        let before = self.count;
        self.count += 1;
        before
    }
}

/// Returns true if a status means that the request must be sent again later.
#[inline]
pub(crate) fn means_delay(status: Status) -> bool {
    matches!(status, Status::Delay | Status::Grace)
}
