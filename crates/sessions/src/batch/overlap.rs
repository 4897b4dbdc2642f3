//! An index that finds the transfers that overlap a range of a file.
//!
//! Invariant: when a transfer was added to the index, there were fewer than [`OVERLAPS_MAX`] other
//! transfers near it. So looking up every transfer once takes at most that many steps for each
//! transfer, whatever ranges a client chooses, and only a few steps if the ranges do not overlap.
//!
//! Transfers are grouped into classes by the power of two of their length. A transfer that overlaps
//! a range starts less than twice its class's length before the range, so one long transfer does
//! not slow down searches among many short ones. Reads and writes are kept separately, because two
//! reads never conflict.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use dafs_base::Key;
use dafs_filer::{FileKey, IoKind};

use super::queue::TransferKey;

/// The maximum number of transfers near a new transfer. If there are more, the new batch is
/// refused.
pub(super) const OVERLAPS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    file: FileKey,
    is_write: bool,
    /// The length class: the binary logarithm of the transfer's length, rounded down.
    class: u32,
    offset: u64,
    index: TransferKey,
}

/// The transfers, by file, direction, length class and offset.
#[derive(Debug, Default)]
pub(super) struct OverlapIndex {
    entries: BTreeSet<Entry>,
    /// For each file, the length classes of its reads and of its writes, as two bit sets. A bit is
    /// set if a transfer of the class was added since the file last had no transfers.
    classes: BTreeMap<FileKey, [u32; 2]>,
}

impl OverlapIndex {
    /// Adds a transfer.
    pub(super) fn insert(
        &mut self,
        file: FileKey,
        kind: IoKind,
        range: Range<u64>,
        index: TransferKey,
    ) {
        let entry = entry(file, kind, range, index);
        self.classes.entry(file).or_default()[usize::from(entry.is_write)] |= 1 << entry.class;
        self.entries.insert(entry);
    }

    /// Removes a transfer.
    pub(super) fn remove(
        &mut self,
        file: FileKey,
        kind: IoKind,
        range: Range<u64>,
        index: TransferKey,
    ) {
        let was_there = self.entries.remove(&entry(file, kind, range, index));
        debug_assert!(was_there);
    }

    /// Removes the entry of a file whose last transfer has been removed.
    pub(super) fn forget(&mut self, file: FileKey) {
        self.classes.remove(&file);
    }

    /// Returns every transfer that may conflict with a transfer of this direction in this range.
    /// The result may contain up to about twice as many transfers, because some that end just
    /// before the range are included.
    pub(super) fn near(
        &self,
        file: FileKey,
        kind: IoKind,
        range: Range<u64>,
    ) -> impl Iterator<Item = TransferKey> + '_ {
        let [reads, writes] = self.classes.get(&file).copied().unwrap_or_default();
        let reads = if kind == IoKind::Write { reads } else { 0 };
        [(false, reads), (true, writes)].into_iter().flat_map(move |(is_write, classes)| {
            let range = range.clone();
            bits(classes).flat_map(move |class| {
                let first = range.start.saturating_sub((2u64 << class) - 1);
                let from = Entry { file, is_write, class, offset: first, index: Key::MIN };
                let to = Entry { offset: range.end, ..from };
                self.entries.range(from..to).map(|entry| entry.index)
            })
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.classes.is_empty()
    }
}

fn entry(file: FileKey, kind: IoKind, range: Range<u64>, index: TransferKey) -> Entry {
    let class = (range.end - range.start).ilog2();
    Entry { file, is_write: kind == IoKind::Write, class, offset: range.start, index }
}

/// Iterates over the positions of the bits that are set in `word`, from the lowest to the highest.
fn bits(mut word: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lowest = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (lowest < u32::BITS).then_some(lowest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dafs_types::Random;

    #[test]
    fn every_overlap_is_found_and_few_other_transfers_are_visited() {
        for seed in 0..50 {
            let mut dice = Random::new(seed);
            let mut index = OverlapIndex::default();
            let mut all = vec![];
            for number in (1..=200).map(TransferKey::from_bits) {
                let start = dice.below(2000) as u64;
                let class = dice.below(9);
                let range = start..start + 1 + dice.below(1 << class) as u64;
                let kind = if dice.percent(50) { IoKind::Read } else { IoKind::Write };
                let file = FileKey(dice.below(2) as u64);
                index.insert(file, kind, range.clone(), number);
                all.push((file, kind, range, number));
            }
            for (file, kind, range, _) in &all {
                let found: BTreeSet<_> = index.near(*file, *kind, range.clone()).collect();
                for (other_file, other_kind, other, number) in &all {
                    let writes = *kind == IoKind::Write || *other_kind == IoKind::Write;
                    let overlaps = range.start < other.end && other.start < range.end;
                    if file == other_file && writes && overlaps {
                        assert!(found.contains(number), "seed {seed}: missed {number:?}");
                    }
                    let length = other.end - other.start;
                    let far = other.start + 2 * length <= range.start || other.start >= range.end;
                    if file != other_file || !writes || far {
                        assert!(
                            !found.contains(number),
                            "seed {seed}: visited {number:?} needlessly"
                        );
                    }
                }
            }
            for (file, kind, range, number) in all {
                index.remove(file, kind, range, number);
            }
            index.forget(FileKey(0));
            index.forget(FileKey(1));
            assert!(index.is_empty());
        }
    }
}
