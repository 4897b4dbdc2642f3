//! A histogram of the times that requests take.
//!
//! Invariant: every time is counted in exactly one bucket, and the bounds of the buckets are the
//! same in every server at all times.

use std::time::Duration;

/// Times in buckets by powers of two. A time that stands for several requests counts that often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    /// The sum of all times, in nanoseconds.
    sum_ns: u64,
}

impl Histogram {
    /// The upper bounds of all buckets except the last, which has none.
    pub fn bounds() -> impl Iterator<Item = Duration> {
        (0..BUCKETS - 1).map(|index| Duration::from_nanos(FIRST_BOUND_NS << index))
    }

    /// The count of each bucket: first those of [`Histogram::bounds`], then that of longer times.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.buckets
    }

    /// The sum of all times.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// The number of times counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Counts a time for this many requests.
    pub(crate) fn add(&mut self, nanoseconds: u64, requests: u64) {
        self.buckets[bucket_of(nanoseconds)] += requests;
        self.sum_ns = self.sum_ns.saturating_add(nanoseconds.saturating_mul(requests));
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum_ns: 0 }
    }
}

/// The index of the first bucket whose bound is not less than a time.
fn bucket_of(nanoseconds: u64) -> usize {
    let steps = nanoseconds.div_ceil(FIRST_BOUND_NS).max(1).next_power_of_two().trailing_zeros();
    (steps as usize).min(BUCKETS - 1)
}

/// The first bound. A cache hit over shared memory takes about this long.
const FIRST_BOUND_NS: u64 = 256;
/// The number of buckets. The last bound is 34 seconds; requests that take longer wait for locks.
const BUCKETS: usize = 29;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_in_the_first_bucket_that_reaches_it() {
        for (index, bound) in Histogram::bounds().enumerate() {
            let bound = bound.as_nanos() as u64;
            for (nanoseconds, expected) in [(bound, index), (bound + 1, index + 1)] {
                let mut histogram = Histogram::default();
                histogram.add(nanoseconds, 3);
                assert_eq!(histogram.counts()[expected], 3, "{nanoseconds}");
                assert_eq!(histogram.count(), 3);
                assert_eq!(histogram.sum(), Duration::from_nanos(3 * nanoseconds));
            }
        }
    }

    #[test]
    fn nothing_is_too_short_or_too_long() {
        let mut histogram = Histogram::default();
        histogram.add(0, 1);
        histogram.add(u64::MAX - 300, 1);
        assert_eq!(histogram.counts()[0], 1);
        assert_eq!(histogram.counts()[BUCKETS - 1], 1);
    }
}
