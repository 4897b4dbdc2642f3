//! Records in memory that are to be sorted. One piece of memory holds the bytes of the records,
//! from the front, and an entry for each record, from the back.
//!
//! Invariant: the two parts never overlap, so records and entries together fit the arena, whatever
//! the sizes of the records.

use std::cmp::Ordering;

use zerocopy::IntoBytes;

/// A set of records with the prefixes of their sort keys.
pub(super) struct Arena {
    words: Vec<u64>,
    /// The number of bytes of records.
    filled: usize,
    count: usize,
}

/// A function that compares two records.
pub(super) type Compare<'c> = dyn Fn(&[u8], &[u8]) -> Ordering + 'c;

/// The prefix of a record's key, and the record's offset (upper half) and length (lower half).
type Entry = [u64; 2];

impl Arena {
    /// Creates an arena of `bytes` bytes, at most 4 GiB. The system allocates pages at first use.
    pub(super) fn new(bytes: usize) -> Self {
        let words = bytes.min(BYTES_MAX) / 8;
        // The system provides zeroed memory without touching it.
        Self { words: vec![0; words], filled: 0, count: 0 }
    }

    /// Returns the size of the arena in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// Returns how many more records of `record_bytes` bytes fit.
    pub(super) fn room(&self, record_bytes: usize) -> usize {
        let taken = self.filled.next_multiple_of(8) + self.count * ENTRY_BYTES;
        (self.bytes() - taken) / (record_bytes + ENTRY_BYTES)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn clear(&mut self) {
        (self.filled, self.count) = (0, 0);
    }

    /// Returns room for the bytes of records, which [`Arena::note`] then adds one by one.
    pub(super) fn extend(&mut self, length: usize) -> &mut [u8] {
        let start = self.filled;
        self.filled += length;
        &mut self.words.as_mut_bytes()[start..start + length]
    }

    /// Returns the bytes of a filled range.
    pub(super) fn bytes_at(&self, start: usize, length: usize) -> &[u8] {
        &self.words.as_bytes()[start..start + length]
    }

    /// Returns the offset of the next bytes.
    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    /// Adds a record whose bytes are already in the arena.
    pub(super) fn note(&mut self, prefix: u64, start: usize, length: usize) {
        self.count += 1;
        let place = self.words.len() - 2 * self.count;
        self.words[place] = prefix;
        self.words[place + 1] = (start as u64) << 32 | length as u64;
    }

    /// Sorts the records. Calls `compare` for records with equal prefixes; if it is `None`, only
    /// the prefixes are compared. Equal records stay in the order of arrival.
    pub(super) fn sort(&mut self, compare: Option<&Compare<'_>>) {
        let (bytes, entries) = self.split();
        match compare {
            // Offsets grow in the order of arrival, so comparing whole entries is stable.
            None => entries.sort_unstable(),
            Some(compare) => entries.sort_unstable_by(|left, right| {
                let by_prefix = left[0].cmp(&right[0]);
                by_prefix
                    .then_with(|| compare(record(bytes, left), record(bytes, right)))
                    .then_with(|| left[1].cmp(&right[1]))
            }),
        }
    }

    /// Returns the records in their present order.
    pub(super) fn records(&self) -> impl Iterator<Item = &[u8]> {
        let place = self.words.len() - 2 * self.count;
        let (bytes, entries) = (self.words[..place].as_bytes(), &self.words[place..]);
        entries.as_chunks::<2>().0.iter().map(|entry| record(bytes, entry))
    }

    fn split(&mut self) -> (&[u8], &mut [Entry]) {
        let place = self.words.len() - 2 * self.count;
        let (bytes, entries) = self.words.split_at_mut(place);
        (bytes.as_bytes(), entries.as_chunks_mut::<2>().0)
    }
}

fn record<'o>(bytes: &'o [u8], entry: &Entry) -> &'o [u8] {
    let (start, length) = ((entry[1] >> 32) as usize, entry[1] as u32 as usize);
    &bytes[start..start + length]
}

const ENTRY_BYTES: usize = size_of::<Entry>();
/// The greatest size of an arena: offsets have 32 bits.
const BYTES_MAX: usize = 1 << 32;
