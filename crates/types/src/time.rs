//! Types for time and randomness, which are passed as arguments. State machines never read a clock
//! or a generator themselves, so that the simulator can replay their steps.

use std::time::Duration;

/// A point on a monotonic clock, in nanoseconds since that clock's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// Returns this moment plus a duration. If the sum is too large, returns the largest moment.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns the time from `earlier` to this moment. Returns zero if `earlier` is after this
    /// moment.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The calendar time in a file attribute, as seconds and nanoseconds (draft 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC.
    pub seconds: i64,
    /// The nanoseconds within the second, less than 1,000,000,000.
    pub nanoseconds: u32,
}

/// The source of time for a driver.
pub trait Clock {
    /// Returns the current time of the driver's monotonic clock.
    fn now(&self) -> Moment;
}

/// The source of random numbers for a driver.
pub trait Entropy {
    /// Returns 64 unpredictable bits.
    fn next_u64(&mut self) -> u64;
}
