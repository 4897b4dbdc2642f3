//! Computes which written bytes were not overwritten later.
//!
//! Invariant: the result for a range contains, in ascending order, all of its bytes that no
//! later range contains.

use std::collections::BTreeMap;
use std::ops::Range;

/// Returns, for each of these ranges in the order they were written, the parts that no later range
/// covers.
pub(crate) fn uncovered(written: &[Range<u64>]) -> Vec<Vec<Range<u64>>> {
    let mut covered = Cover::default();
    let mut found: Vec<_> = written.iter().rev().map(|range| covered.add(range)).collect();
    found.reverse();
    found
}

/// Ranges that neither overlap nor touch, as a map from start to end.
#[derive(Default)]
struct Cover(BTreeMap<u64, u64>);

impl Cover {
    /// Adds a range. Returns the parts that were not covered before.
    fn add(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        if range.is_empty() {
            return Vec::new();
        }
        let meets = |(_, end): &(&u64, &u64)| **end >= range.start;
        let first = self.0.range(..range.start).next_back().filter(meets);
        let from = first.map_or(range.start, |(start, _)| *start);
        let met: Vec<_> = self.0.range(from..=range.end).map(|(s, e)| (*s, *e)).collect();
        let (mut new, mut at, mut whole) = (Vec::new(), range.start, range.clone());
        for (start, end) in met {
            if at < start {
                new.push(at..start);
            }
            at = at.max(end);
            whole = whole.start.min(start)..whole.end.max(end);
            self.0.remove(&start);
        }
        if at < range.end {
            new.push(at..range.end);
        }
        self.0.insert(whole.start, whole.end);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_pieces_cover_earlier_ones() {
        let written = [0..10, 20..30, 5..25, 7..8, 40..40, 30..40];
        let ends = |range: &Range<u64>| (range.start, range.end);
        let left: Vec<Vec<_>> =
            uncovered(&written).iter().map(|ranges| ranges.iter().map(ends).collect()).collect();
        let expected: [Vec<(u64, u64)>; 6] = [
            vec![(0, 5)],
            vec![(25, 30)],
            vec![(5, 7), (8, 25)],
            vec![(7, 8)],
            vec![],
            vec![(30, 40)],
        ];
        assert_eq!(left, expected);
    }

    #[test]
    fn each_byte_belongs_to_the_last_piece_that_has_it() {
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..200 {
            let mut range = |_| {
                let start = next(60);
                start..start + next(20)
            };
            let written: Vec<_> = (0..12).map(&mut range).collect();
            let mut last = [None; 80];
            for (number, range) in written.iter().enumerate() {
                range.clone().for_each(|byte| last[byte as usize] = Some(number));
            }
            let mut told = [None; 80];
            for (number, ranges) in uncovered(&written).into_iter().enumerate() {
                for byte in ranges.into_iter().flatten() {
                    assert_eq!(told[byte as usize].replace(number), None);
                }
            }
            assert_eq!(last, told, "{written:?}");
        }
    }
}
