//! A sorted set of integers that is optimized for at most one element.
//!
//! Invariant: either `only` holds the single element, or all elements are in `tree`.

use std::collections::BTreeSet;
use std::ops::Range;

/// A set of integers. A single element, the usual case for a small file, needs no allocation.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    only: Option<u64>,
    tree: BTreeSet<u64>,
}

impl Numbers {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.only.is_none() && self.tree.is_empty()
    }

    pub(super) fn insert(&mut self, number: u64) {
        if self.is_empty() {
            self.only = Some(number);
        } else {
            self.tree.extend(self.only.take());
            self.tree.insert(number);
        }
    }

    pub(super) fn remove(&mut self, number: u64) {
        if self.only == Some(number) {
            self.only = None;
        } else if !self.tree.is_empty() {
            self.tree.remove(&number);
        }
    }

    /// Returns the smallest element within a range, which must not be empty.
    pub(super) fn first_in(&self, range: Range<u64>) -> Option<u64> {
        match self.only {
            Some(only) => range.contains(&only).then_some(only),
            None if self.tree.is_empty() => None,
            None => self.tree.range(range).next().copied(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.only = None;
        self.tree.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_many_are_the_same_set() {
        let mut numbers = Numbers::default();
        let mut known = BTreeSet::new();
        let steps = [3, 3, 7, 1, 7, 3, 1, 9, 9, 2, 4, 2, 9, 4];
        for number in steps {
            if known.remove(&number) {
                numbers.remove(number);
            } else {
                known.insert(number);
                numbers.insert(number);
            }
            assert_eq!(numbers.is_empty(), known.is_empty());
            for from in 0..10 {
                let first = known.range(from..11).next().copied();
                assert_eq!(numbers.first_in(from..11), first, "{known:?} from {from}");
            }
        }
        numbers.clear();
        assert!(numbers.is_empty());
        numbers.insert(5);
        numbers.insert(5);
        numbers.remove(8);
        assert_eq!((numbers.first_in(0..5), numbers.first_in(0..6)), (None, Some(5)));
    }
}
