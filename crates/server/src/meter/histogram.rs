//! A histogram of request times.
//!
//! Invariant: every time is counted in exactly one bucket. The bucket bounds are the same in every
//! server at all times.

use std::time::Duration;

/// Counts of request times, in buckets whose bounds are powers of two. If one measured time stands
/// for several requests, it is counted once for each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    /// The sum of all counted times, in nanoseconds.
    sum_ns: u64,
}

impl Histogram {
    /// Iterates over the upper bounds of all buckets except the last, which has no upper bound.
    pub fn bounds() -> impl Iterator<Item = Duration> {
        (0..BUCKETS - 1).map(|index| Duration::from_nanos(FIRST_BOUND_NS << index))
    }

    /// Returns the count of each bucket, in the order of [`Histogram::bounds`]. The last count is
    /// the number of times above the last bound.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.buckets
    }

    /// Returns the sum of all counted times.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// Returns the number of counted times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Counts one measured time for this many requests.
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

/// Returns the index of the first bucket whose bound is at least `nanoseconds`.
fn bucket_of(nanoseconds: u64) -> usize {
    let steps = nanoseconds.div_ceil(FIRST_BOUND_NS).max(1).next_power_of_two().trailing_zeros();
    (steps as usize).min(BUCKETS - 1)
}

/// The upper bound of the first bucket. A cache hit over shared memory takes about this long.
const FIRST_BOUND_NS: u64 = 256;
/// The number of buckets. The last bound is 34 seconds; only requests that wait for locks take
/// longer.
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
