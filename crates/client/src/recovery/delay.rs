//! Requests that the server delays: with DELAY, or with GRACE while clients reclaim what they held
//! in its previous incarnation (draft 5.3).
//!
//! Invariant: a delayed request was not carried out.

use std::time::Duration;

use dafs_types::Status;

/// How often a request was delayed, and since when.
#[derive(Debug)]
pub(crate) struct Delay {
    since: Duration,
    count: u32,
}

impl Delay {
    /// A request that is delayed for the first time.
    pub(crate) fn since(now: Duration) -> Self {
        Self { since: now, count: 0 }
    }

    /// Returns how long the request has waited.
    pub(crate) fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since)
    }

    /// Counts another delay and returns how many there were before.
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
