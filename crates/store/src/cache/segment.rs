//! Segments: 64 blocks of a file each, and the index that finds them.
//!
//! Invariant: a segment is in the index if and only if it belongs to a file; its
//! `valid`, `filling` and `writing` blocks are all mapped; `dirty` and `flushing`
//! are valid; `valid` shares no block with `filling` or `writing`.

/// 256 KiB of a file, or what is cached of it.
#[repr(C, align(64))]
pub(super) struct Segment {
    /// Blocks whose content is the file's.
    pub valid: u64,
    /// Number in the file.
    pub number: u64,
    /// Index of the file; `NONE` once the file has let go of it.
    pub file: u32,
    /// Pieces in use by transfers.
    pub pins: u32,
    /// Writes under way into it.
    pub writers: u32,
    /// Times the clock spares it.
    pub reference: u8,
    /// Whether it is in use at all.
    pub is_live: bool,
    /// Rises when the file's content was found changed: fills begun before are void.
    pub epoch: u32,
    /// Where block 0 is or would be, plus 1, if all mapped blocks lie in one row; else 0.
    /// Spares a hit the look into the table, which is a cache line of its own.
    pub origin: u32,
    /// Blocks to be written to the file.
    pub dirty: u64,
    /// Blocks being written to the file.
    pub flushing: u64,
    /// Invalid blocks being written by a client.
    pub writing: u64,
    /// Blocks being read from the file. No hit of either kind looks here, or beyond, where
    /// another cache line begins.
    pub filling: u64,
    /// Where each block is in the arena, plus 1; 0 is nowhere.
    pub table: [u32; SEGMENT_BLOCKS],
    /// The file's other segments.
    pub next: u32,
    /// The file's other segments.
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

    /// Where a mapped block is, plus 1, and the block before `stop` that does not follow it
    /// in the arena.
    #[inline]
    pub fn run_from(&self, block: u32, stop: u32) -> (u32, u32) {
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

    /// Finds out whether the mapped blocks lie in one row, after the table has changed.
    pub fn find_origin(&mut self) {
        let mut origins = self.table.iter().enumerate().filter(|(_, place)| **place != 0);
        let origin_of = |(block, place): (usize, &u32)| place.checked_sub(block as u32);
        let first = origins.next().and_then(origin_of);
        self.origin = first
            .filter(|first| origins.all(|mapped| origin_of(mapped) == Some(*first)))
            .unwrap_or(0);
    }

    /// Whether nothing uses its memory and nothing would be lost with it.
    pub fn is_idle(&self) -> bool {
        self.pins | self.writers == 0
            && self.dirty | self.flushing | self.filling | self.writing == 0
    }

    /// Blocks that hold or will hold what the file does not have.
    pub fn unflushed(&self) -> u64 {
        self.dirty | self.flushing
    }

    /// Forgets the content of blocks; what is being written to them becomes all they
    /// have.
    pub fn invalidate(&mut self, blocks: u64) {
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
    /// Open addressing, linear probing; slot + 1, 0 is empty. At most half full.
    index: Vec<u32>,
    shift: u32,
    count_max: usize,
    live_count: usize,
}

impl Segments {
    pub fn new(count_max: usize) -> Self {
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
    pub fn find(&self, file: u32, number: u64) -> Option<u32> {
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

    /// Asks the processor for a segment that [`Segments::find`] will look at, which for
    /// nearly all is the first.
    #[inline]
    pub fn prefetch(&self, file: u32, number: u64) {
        let mask = self.index.len() - 1;
        let slot = self.index[self.home(file, number) & mask].wrapping_sub(1);
        if let Some(segment) = self.slots.get(slot as usize) {
            dafs_memory::prefetch(&segment.valid);
        }
    }

    #[inline]
    pub fn get(&self, slot: u32) -> &Segment {
        &self.slots[slot as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> &mut Segment {
        &mut self.slots[slot as usize]
    }

    /// Slots ever used; the clock's circle.
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    pub fn is_full(&self) -> bool {
        self.live_count >= self.count_max
    }

    /// Adds an empty segment; the caller links it into its file.
    pub fn insert(&mut self, file: u32, number: u64) -> u32 {
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

    /// Takes a segment out of the index: its file does not have it any more.
    pub fn detach(&mut self, slot: u32) {
        let (file, number) = {
            let segment = &self.slots[slot as usize];
            (segment.file, segment.number)
        };
        let mask = self.index.len() - 1;
        let mut hole = self.home(file, number) & mask;
        while self.index[hole] != slot + 1 {
            hole = (hole + 1) & mask;
        }
        // Entries behind the hole that would not be found across it move into it.
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

    /// Gives a detached slot back.
    pub fn release(&mut self, slot: u32) {
        self.slots[slot as usize].is_live = false;
        self.free.push(slot);
        self.live_count -= 1;
    }

    /// Sixteen segments of a file that follow each other have homes that do so too: they
    /// share a cache line or two of the index.
    #[inline]
    fn home(&self, file: u32, number: u64) -> usize {
        let key = u64::from(file).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ (number / NEIGHBOURS);
        let start = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize;
        start + (number % NEIGHBOURS) as usize
    }
}

/// Bits of blocks `first..end` of a segment.
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

/// Blocks in a segment: as many as a word has bits.
pub(super) const SEGMENT_BLOCKS: usize = 64;
/// Bytes in a segment.
pub(super) const SEGMENT_BYTES: u64 = (SEGMENT_BLOCKS * super::BLOCK_BYTES) as u64;
/// Segments whose index entries lie together.
const NEIGHBOURS: u64 = 16;
/// No slot, no file.
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
