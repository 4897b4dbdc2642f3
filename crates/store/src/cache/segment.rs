//! Segments of 64 blocks of a file, and the index that finds them.
//!
//! Invariants:
//! - A segment is in the index if and only if it belongs to a file.
//! - The blocks in a segment's `valid`, `filling` and `writing` sets are all mapped.
//! - `dirty` and `flushing` blocks are valid.
//! - `valid` has no block in common with `filling` or `writing`.

/// The cached blocks of an aligned 256 KiB range of a file. Block sets are bit masks.
#[repr(C, align(64))]
pub(super) struct Segment {
    /// A bit mask of the blocks that contain the file's content.
    pub valid: u64,
    /// The number of the segment in the file: the file offset divided by the segment size.
    pub number: u64,
    /// The index of the file; `NONE` after the file has released it.
    pub file: u32,
    /// The number of pinned pieces, which transfers use.
    pub pins: u32,
    /// The number of writes in progress into the segment.
    pub writers: u32,
    /// The number of times that the clock algorithm still skips the segment before evicting it.
    pub reference: u8,
    /// True if the slot is in use.
    pub is_live: bool,
    /// A counter that rises when the file's content changes. The result of a fill that was started
    /// at an earlier epoch is ignored.
    pub epoch: u32,
    /// If all mapped blocks of the segment are consecutive in the arena, the arena block number of
    /// the segment's block 0 (whether it is mapped or not), plus 1. Otherwise 0. This field saves a
    /// cache hit an access to `table`, which is in another cache line of the processor.
    pub origin: u32,
    /// A bit mask of the blocks that must be written to the file.
    pub dirty: u64,
    /// A bit mask of the blocks that are being written to the file.
    pub flushing: u64,
    /// A bit mask of the blocks that are not valid yet and that a client's write is filling.
    pub writing: u64,
    /// A bit mask of the blocks that are being read from the file. This field begins a cache line
    /// of the processor that cache hits do not access.
    pub filling: u64,
    /// For each block of the segment, its arena block number plus 1; 0 if the block is not mapped.
    pub table: [u32; SEGMENT_BLOCKS],
    /// The slot of the next segment of the file.
    pub next: u32,
    /// The slot of the previous segment of the file.
    pub previous: u32,
}

impl Segment {
    fn new(file: u32, number: u64) -> Self {
        Self {
            valid: 0,
            number,
            file,
            pins: 0,
            writers: 0,
            reference: 0,
            is_live: true,
            epoch: 0,
            origin: 0,
            dirty: 0,
            flushing: 0,
            filling: 0,
            writing: 0,
            table: [0; SEGMENT_BLOCKS],
            next: NONE,
            previous: NONE,
        }
    }

    /// Returns the arena block number, plus 1, of a mapped block, and the end of the contiguous run
    /// that starts there: the first later block, at most `stop`, that does not follow contiguously
    /// in the arena.
    #[inline]
    pub(super) fn run_from(&self, block: u32, stop: u32) -> (u32, u32) {
        if self.origin != 0 {
            return (self.origin + block, stop);
        }
        let place = self.table[block as usize];
        let mut end = block + 1;
        while end < stop && self.table[end as usize] == place + (end - block) {
            end += 1;
        }
        (place, end)
    }

    /// Recomputes `origin` after the table has changed.
    pub(super) fn find_origin(&mut self) {
        let mut origins = self.table.iter().enumerate().filter(|(_, place)| **place != 0);
        let origin_of = |(block, place): (usize, &u32)| place.checked_sub(block as u32);
        let first = origins.next().and_then(origin_of);
        self.origin = first
            .filter(|first| origins.all(|mapped| origin_of(mapped) == Some(*first)))
            .unwrap_or(0);
    }

    /// Returns true if nothing uses the segment's memory and the segment has no dirty data.
    pub(super) fn is_idle(&self) -> bool {
        self.pins | self.writers == 0
            && self.dirty | self.flushing | self.filling | self.writing == 0
    }

    /// Returns a bit mask of the blocks with data that the file does not have yet.
    pub(super) fn unflushed(&self) -> u64 {
        self.dirty | self.flushing
    }

    /// Invalidates blocks. If clients are writing to the segment, these blocks are treated as being
    /// written, so that no fill overwrites the clients' bytes.
    pub(super) fn invalidate(&mut self, blocks: u64) {
        let gone = self.valid & blocks;
        self.valid &= !blocks;
        if self.writers > 0 {
            self.writing |= gone;
        }
    }
}

/// All segments, and the index from (file, number) to them.
pub(super) struct Segments {
    slots: Vec<Segment>,
    free: Vec<u32>,
    /// A hash table with open addressing and linear probing, at most half full. Each entry is a
    /// slot plus 1; 0 means empty.
    index: Vec<u32>,
    shift: u32,
    count_max: usize,
    live_count: usize,
}

impl Segments {
    pub(super) fn new(count_max: usize) -> Self {
        let size = (count_max * 2).next_power_of_two().max(16);
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            index: vec![0; size],
            shift: 64 - size.ilog2(),
            count_max,
            live_count: 0,
        }
    }

    #[inline]
    pub(super) fn find(&self, file: u32, number: u64) -> Option<u32> {
        let mask = self.index.len() - 1;
        let mut at = self.home(file, number);
        loop {
            let slot = self.index[at & mask].wrapping_sub(1);
            if slot == NONE {
                return None;
            }
            let segment = &self.slots[slot as usize];
            if segment.number == number && segment.file == file {
                return Some(slot);
            }
            at += 1;
        }
    }

    /// Prefetches the segment that [`Segments::find`] would compare first, which is almost always
    /// the segment that it finds.
    #[inline]
    pub(super) fn prefetch(&self, file: u32, number: u64) {
        let mask = self.index.len() - 1;
        let slot = self.index[self.home(file, number) & mask].wrapping_sub(1);
        if let Some(segment) = self.slots.get(slot as usize) {
            dafs_memory::prefetch(&segment.valid);
        }
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> &Segment {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Segment {
        &mut self.slots[slot as usize]
    }

    /// Returns the number of slots that were ever used. The clock algorithm cycles over these
    /// slots.
    pub(super) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.live_count >= self.count_max
    }

    /// Adds an empty segment. The caller must add it to its file's list of segments.
    pub(super) fn insert(&mut self, file: u32, number: u64) -> u32 {
        debug_assert!(!self.is_full() && self.find(file, number).is_none());
        let segment = Segment::new(file, number);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = segment;
                slot
            }
            None => {
                self.slots.push(segment);
                (self.slots.len() - 1) as u32
            }
        };
        let mask = self.index.len() - 1;
        let mut at = self.home(file, number) & mask;
        while self.index[at] != 0 {
            at = (at + 1) & mask;
        }
        self.index[at] = slot + 1;
        self.live_count += 1;
        slot
    }

    /// Removes a segment from the index, because the segment no longer belongs to a file.
    pub(super) fn detach(&mut self, slot: u32) {
        let (file, number) = {
            let segment = &self.slots[slot as usize];
            (segment.file, segment.number)
        };
        let mask = self.index.len() - 1;
        let mut hole = self.home(file, number) & mask;
        while self.index[hole] != slot + 1 {
            hole = (hole + 1) & mask;
        }
        // Move later entries into the gap if they could no longer be found because of it.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let other = self.index[at].wrapping_sub(1);
            if other == NONE {
                break;
            }
            let segment = &self.slots[other as usize];
            let home = self.home(segment.file, segment.number) & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.index[hole] = other + 1;
                hole = at;
            }
        }
        self.index[hole] = 0;
        self.slots[slot as usize].file = NONE;
    }

    /// Frees a detached slot.
    pub(super) fn release(&mut self, slot: u32) {
        self.slots[slot as usize].is_live = false;
        self.free.push(slot);
        self.live_count -= 1;
    }

    /// Returns the index position at which the search for a segment starts. Sixteen consecutive
    /// segments of a file have consecutive positions, so that their index entries share one or two
    /// cache lines of the processor.
    #[inline]
    fn home(&self, file: u32, number: u64) -> usize {
        let key = u64::from(file).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ (number / NEIGHBOURS);
        let start = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize;
        start + (number % NEIGHBOURS) as usize
    }
}

/// Returns a bit mask of the blocks `first..end` of a segment.
#[inline]
pub(super) fn block_bits(first: u32, end: u32) -> u64 {
    debug_assert!(first < end && end <= SEGMENT_BLOCKS as u32);
    (u64::MAX >> (64 - (end - first))) << first
}

/// Calls `each(first, end)` for every run of set bits.
pub(super) fn for_runs(bits: u64, mut each: impl FnMut(u32, u32)) {
    let mut rest = bits;
    while rest != 0 {
        let first = rest.trailing_zeros();
        let end = first + (rest >> first).trailing_ones();
        each(first, end);
        rest &= !block_bits(first, end);
    }
}

/// The number of blocks in a segment, one for each bit of a `u64`.
pub(super) const SEGMENT_BLOCKS: usize = 64;
/// The size of a segment in bytes.
pub(super) const SEGMENT_BYTES: u64 = (SEGMENT_BLOCKS * super::BLOCK_BYTES) as u64;
/// The number of consecutive segments with consecutive index positions.
const NEIGHBOURS: u64 = 16;
/// A slot or file index that means "none".
pub(super) const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_finds_all_that_is_there_after_many_removals() {
        let mut segments = Segments::new(64);
        let mut slots = std::collections::HashMap::new();
        for round in 0..1000u64 {
            let key = ((round * 7 % 5) as u32, round * 13 % 40);
            match slots.remove(&key) {
                Some(slot) => {
                    segments.detach(slot);
                    segments.release(slot);
                }
                None if !segments.is_full() => {
                    slots.insert(key, segments.insert(key.0, key.1));
                }
                None => {}
            }
            for file in 0..5 {
                for number in 0..40 {
                    let found = segments.find(file, number);
                    assert_eq!(found, slots.get(&(file, number)).copied());
                }
            }
        }
    }

    #[test]
    fn runs_cover_exactly_the_bits() {
        for bits in [0, 1, u64::MAX, 1 << 63, 0xf0f0_0000_0000_000f] {
            let mut seen = 0;
            for_runs(bits, |first, end| seen |= block_bits(first, end));
            assert_eq!(seen, bits);
        }
    }
}
