//! Requests that a server puts off: DELAY, and GRACE while clients of its former life take back
//! what they held (draft 5.3).
//!
//! Invariant: what was put off was not carried out.

use std::time::Duration;

use dafs_types::Status;

/// How often, and since when, a request was put off.
#[derive(Debug)]
pub(crate) struct Delay {
    since: Duration,
    count: u32,
}

impl Delay {
    /// It is put off for the first time.
    pub fn since(now: Duration) -> Self {
        Self { since: now, count: 0 }
    }

    /// How long it has waited.
    pub fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since)
    }

    /// It is put off once more. How often it was before.
    pub fn count_one(&mut self) -> u32 {
        let before = self.count;
        self.count += 1;
        before
    }
}

/// Whether a status only means that a request must wait.
#[inline]
pub(crate) fn is_put_off(status: Status) -> bool {
    matches!(status, Status::Delay | Status::Grace)
}
