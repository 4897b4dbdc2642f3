//! Time and randomness as arguments. Machines never ask for either themselves,
//! so that the simulator can replay them.

use std::time::Duration;

/// A point on a monotonic clock, in nanoseconds since that clock's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// This moment plus a duration; saturates.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Time from `earlier` to here; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Calendar time of a file attribute (draft 6: seconds s64, nseconds u32).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// Where a driver gets the time from.
pub trait Clock {
    /// The present moment.
    fn now(&self) -> Moment;
}

/// Where a driver gets unpredictable numbers from.
pub trait Entropy {
    /// Sixty-four unpredictable bits.
    fn next_u64(&mut self) -> u64;
}
