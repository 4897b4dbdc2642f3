//! Records in memory, to be sorted: their bytes from the front, what is known of each from the
//! back, in one piece of memory.
//!
//! Invariant: the two never meet, so that records and what is known of them fit the arena
//! together, whatever their sizes are.

use std::cmp::Ordering;

use zerocopy::IntoBytes;

/// Records and their places in the order.
pub struct Arena {
    words: Vec<u64>,
    /// Bytes of records.
    filled: usize,
    count: usize,
}

/// The order of two records.
pub type Compare<'c> = dyn Fn(&[u8], &[u8]) -> Ordering + 'c;

/// A record's prefix, and where it lies: its offset above, its length below.
type Entry = [u64; 2];

impl Arena {
    /// Room for so many bytes, at most 4 GiB. The system gives pages when they are used.
    pub fn new(bytes: usize) -> Self {
        let words = bytes.min(BYTES_MAX) / 8;
        // The system has zeros without touching them.
        Self { words: vec![0; words], filled: 0, count: 0 }
    }

    /// Bytes there is room for in all.
    pub fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// How many records of a size fit besides those there are.
    pub fn room(&self, record_bytes: usize) -> usize {
        let taken = self.filled.next_multiple_of(8) + self.count * ENTRY_BYTES;
        (self.bytes() - taken) / (record_bytes + ENTRY_BYTES)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn clear(&mut self) {
        (self.filled, self.count) = (0, 0);
    }

    /// Room for the bytes of records of one size that [`Arena::note`] then names one by one.
    pub fn extend(&mut self, length: usize) -> &mut [u8] {
        let start = self.filled;
        self.filled += length;
        &mut self.words.as_mut_bytes()[start..start + length]
    }

    /// The bytes of a range that was filled.
    pub fn bytes_at(&self, start: usize, length: usize) -> &[u8] {
        &self.words.as_bytes()[start..start + length]
    }

    /// Where the next bytes come to lie.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Takes note of a record.
    pub fn note(&mut self, prefix: u64, start: usize, length: usize) {
        self.count += 1;
        let place = self.words.len() - 2 * self.count;
        self.words[place] = prefix;
        self.words[place + 1] = (start as u64) << 32 | length as u64;
    }

    /// Sorts what there is. `compare` is asked where prefixes are equal; without it they are all
    /// there is to compare. What is equal stays in the order it came in.
    pub fn sort(&mut self, compare: Option<&Compare<'_>>) {
        let (bytes, entries) = self.split();
        match compare {
            // Offsets grow with the order of coming.
            None => entries.sort_unstable(),
            Some(compare) => entries.sort_unstable_by(|left, right| {
                let by_prefix = left[0].cmp(&right[0]);
                by_prefix
                    .then_with(|| compare(record(bytes, left), record(bytes, right)))
                    .then_with(|| left[1].cmp(&right[1]))
            }),
        }
    }

    /// The records, in the order they are in now.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
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
/// Offsets have 32 bits.
const BYTES_MAX: usize = 1 << 32;
