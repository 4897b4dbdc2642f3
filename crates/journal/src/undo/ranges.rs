//! A set of byte ranges of a file, such as the saved or the changed ranges.
//!
//! Invariant: ranges neither overlap nor touch, so their number is minimal.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of bytes of a file, stored as ranges of offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// For each range, its start and its end.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Returns the number of separate ranges.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Adds a range, and merges it with the ranges that it overlaps or touches.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Visit the range that begins at or before the start, and all that begin up to the end.
        while let Some((&other, &other_end)) = self.ends.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.ends.remove(&other);
            start = start.min(other);
            end = end.max(other_end);
        }
        self.ends.insert(start, end);
    }

    /// Returns the parts of a range that are in the set, in ascending order.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.ends.range(..=range.start).next_back();
        let first = before.map_or(range.start, |(start, _)| *start);
        let inside = self.ends.range(first..range.end.max(first));
        inside
            .map(move |(start, end)| (*start).max(range.start)..(*end).min(range.end))
            .filter(|part| part.start < part.end)
    }

    /// Returns the parts of a range that are not in the set, in ascending order.
    pub fn missing(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.ends.range(..=range.start).next_back().map(|(_, end)| *end);
        let mut at = range.start.max(before.unwrap_or(0));
        let inside = self.ends.range(at..range.end.max(at)).map(|(start, end)| (*start, *end));
        let last = std::iter::once((range.end, range.end));
        inside.chain(last).filter_map(move |(start, end)| {
            let gap = at..start.max(at);
            at = at.max(end);
            (gap.start < gap.end).then_some(gap)
        })
    }
}

#[cfg(test)]
mod tests {
    use dafs_types::Random;

    use super::*;

    #[test]
    fn a_set_of_ranges_is_a_set_of_bytes() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let (mut ranges, mut bytes) = (Ranges::default(), [false; 64]);
            for _ in 0..20 {
                let start = random.below(64);
                let end = start + random.below(65 - start);
                if random.percent(50) {
                    ranges.insert(start as u64..end as u64);
                    bytes[start..end].fill(true);
                }
                let missing: Vec<_> = ranges.missing(start as u64..end as u64).flatten().collect();
                let expected: Vec<_> =
                    (start..end).filter(|at| !bytes[*at]).map(|at| at as u64).collect();
                assert_eq!(missing, expected, "seed {seed}");
                let within: Vec<_> = ranges.within(start as u64..end as u64).flatten().collect();
                let expected: Vec<_> =
                    (start..end).filter(|at| bytes[*at]).map(|at| at as u64).collect();
                assert_eq!(within, expected, "seed {seed}");
                let runs = bytes.chunk_by(|a, b| a == b).filter(|run| run[0]).count();
                assert_eq!(ranges.count(), runs, "seed {seed}");
            }
        }
    }
}
