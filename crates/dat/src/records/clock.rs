//! The clock by which connections are judged: that of the machine, or that of a simulation.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A clock. Times are durations since some moment that stays the same.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    /// The monotonic clock of the machine.
    System,
    /// A clock that the owner of the connections sets.
    Virtual(Duration),
}

impl Clock {
    /// Returns the current time.
    pub(super) fn now(&self) -> Duration {
        match self {
            Self::System => {
                let time = clock_gettime(ClockId::Monotonic);
                let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
                Duration::new(time.tv_sec.unsigned_abs(), nanoseconds)
            }
            Self::Virtual(now) => *now,
        }
    }
}
