//! The allocator of the arena's blocks.
//!
//! Invariant: every block is either allocated or in exactly one free run. The length of a free run
//! is a power of two, its start is aligned to its length, and its buddy is not free.

/// A buddy allocator for blocks numbered from 0.
pub(super) struct Buddy {
    /// For each order, the first block of the first free run of that order; `NONE` if there is no
    /// such run.
    heads: [u32; ORDER_COUNT],
    next: Vec<u32>,
    previous: Vec<u32>,
    /// For each block, the order plus 1 of the free run that starts at the block; 0 if no free run
    /// starts there.
    state: Vec<u8>,
    /// Free chunks (parts of the arena of the size of a huge page) without pages, because their
    /// pages were released to the kernel. They are used after all other free chunks.
    cold: Vec<u32>,
    /// The first chunk (a part of the arena of the size of a huge page) that was never allocated.
    /// No later chunk was ever allocated.
    fresh: u32,
    chunk_count: u32,
    used_blocks: usize,
    /// The number of free chunks (of the size of a huge page) that have pages.
    warm_chunks: usize,
    /// The number of chunks (of the size of a huge page) whose pages are being cleared in advance.
    warming: usize,
    /// True if a whole free chunk was split since a chunk was last cleared in advance, so that more
    /// cleared chunks are needed.
    has_grown: bool,
}

impl Buddy {
    /// Creates an allocator with all blocks free. Its tables use zeroed pages, which cost no memory
    /// until they are touched.
    pub(super) fn new(chunk_count: u32) -> Self {
        let blocks = chunk_count as usize * CHUNK_BLOCKS;
        Self {
            heads: [NONE; ORDER_COUNT],
            next: vec![0; blocks],
            previous: vec![0; blocks],
            state: vec![0; blocks],
            cold: Vec::new(),
            fresh: 0,
            chunk_count,
            used_blocks: 0,
            warm_chunks: 0,
            warming: 0,
            has_grown: false,
        }
    }

    /// Returns the number of allocated blocks.
    pub(super) fn used_blocks(&self) -> usize {
        self.used_blocks
    }

    /// Returns the number of free chunks (of the size of a huge page) that have pages.
    pub(super) fn warm_chunks(&self) -> usize {
        self.warm_chunks
    }

    /// Allocates `1 << order` consecutive blocks. Returns the first block, or `None` if there is no
    /// free run of that length.
    pub(super) fn allocate(&mut self, order: usize) -> Option<u32> {
        let mut found = (order..ORDER_COUNT).find(|o| self.heads[*o] != NONE);
        if found.is_none() && self.open_chunk() {
            found = Some(TOP);
        }
        let mut at = found?;
        self.has_grown |= at == TOP;
        let block = self.heads[at];
        self.unlink(block, at);
        while at > order {
            at -= 1;
            self.link(block + (1 << at), at);
        }
        self.used_blocks += 1 << order;
        Some(block)
    }

    /// Frees a run of `count` blocks, which may be any number.
    pub(super) fn free_run(&mut self, first: u32, count: u32) {
        let (mut at, end) = (first, first + count);
        while at < end {
            let aligned = (at.trailing_zeros() as usize).min(TOP);
            let order = aligned.min((end - at).ilog2() as usize);
            self.free(at, order);
            at += 1 << order;
        }
    }

    /// Removes the pages of a free chunk: moves the chunk to the chunks without pages and returns
    /// its first block, so that the caller can release the pages. Returns `None` if no whole chunk
    /// with pages is free.
    pub(super) fn cool_chunk(&mut self) -> Option<u32> {
        let block = self.heads[TOP];
        if block == NONE {
            return None;
        }
        self.unlink(block, TOP);
        self.cold.push(block);
        Some(block)
    }

    /// Returns true if a chunk should be cleared in advance, because memory is needed and few free
    /// chunks have pages.
    pub(super) fn wants_warm(&self) -> bool {
        self.has_grown && self.warm_chunks < WARM_AHEAD && self.warming == 0
    }

    /// Takes a chunk without pages for clearing, and returns its first block. Returns `None` if no
    /// chunk should be cleared. The caller returns the chunk with [`Buddy::add_warm`].
    pub(super) fn take_to_warm(&mut self) -> Option<u32> {
        if !self.wants_warm() {
            return None;
        }
        let block = self.next_cold();
        // Without such a chunk, nothing is cleared until memory was freed and is needed again.
        self.has_grown = block.is_some() && self.warm_chunks + 1 < WARM_AHEAD;
        self.warming += usize::from(block.is_some());
        block
    }

    /// Takes back a cleared chunk, which can then be allocated.
    pub(super) fn add_warm(&mut self, block: u32) {
        self.warming -= 1;
        self.link(block, TOP);
    }

    fn open_chunk(&mut self) -> bool {
        let Some(block) = self.next_cold() else { return false };
        self.link(block, TOP);
        true
    }

    fn next_cold(&mut self) -> Option<u32> {
        if let Some(block) = self.cold.pop() {
            return Some(block);
        }
        if self.fresh == self.chunk_count {
            return None;
        }
        self.fresh += 1;
        Some((self.fresh - 1) * CHUNK_BLOCKS as u32)
    }

    fn free(&mut self, block: u32, order: usize) {
        self.used_blocks -= 1 << order;
        let (mut block, mut order) = (block, order);
        while order < TOP {
            let twin = block ^ (1 << order);
            if self.state[twin as usize] != order as u8 + 1 {
                break;
            }
            self.unlink(twin, order);
            block &= !(1 << order);
            order += 1;
        }
        self.link(block, order);
    }

    fn link(&mut self, block: u32, order: usize) {
        let head = self.heads[order];
        self.next[block as usize] = head;
        self.previous[block as usize] = NONE;
        if head != NONE {
            self.previous[head as usize] = block;
        }
        self.heads[order] = block;
        self.state[block as usize] = order as u8 + 1;
        self.warm_chunks += usize::from(order == TOP);
    }

    fn unlink(&mut self, block: u32, order: usize) {
        let (next, previous) = (self.next[block as usize], self.previous[block as usize]);
        if previous == NONE {
            self.heads[order] = next;
        } else {
            self.next[previous as usize] = next;
        }
        if next != NONE {
            self.previous[next as usize] = previous;
        }
        self.state[block as usize] = 0;
        self.warm_chunks -= usize::from(order == TOP);
    }
}

/// The number of blocks in a chunk, which is one huge page.
pub(super) const CHUNK_BLOCKS: usize = 1 << TOP;
const TOP: usize = 9;
/// The number of free chunks with pages that are kept ready for allocations. Chunks are cleared one
/// at a time, and allocations use these free chunks in the meantime.
const WARM_AHEAD: usize = 2;
const ORDER_COUNT: usize = TOP + 1;
const NONE: u32 = u32::MAX;
const _: () = assert!(CHUNK_BLOCKS * super::BLOCK_BYTES == dafs_memory::HUGE_PAGE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn freed_twins_make_whole_chunks_again() {
        let mut buddy = Buddy::new(2);
        let blocks: Vec<u32> = (0..1024).map(|_| buddy.allocate(0).unwrap()).collect();
        assert_eq!(buddy.allocate(0), None);
        for block in blocks {
            buddy.free_run(block, 1);
        }
        assert_eq!((buddy.used_blocks(), buddy.warm_chunks()), (0, 2));
        assert!(buddy.allocate(TOP).is_some() && buddy.allocate(TOP).is_some());
    }

    #[test]
    fn chunks_are_cleared_ahead_one_by_one_while_memory_is_needed() {
        let mut buddy = Buddy::new(6);
        assert_eq!(buddy.take_to_warm(), None, "nothing is needed");
        let first = buddy.allocate(0).unwrap();
        let warmed: Vec<u32> = std::iter::from_fn(|| {
            let block = buddy.take_to_warm()?;
            assert_eq!(buddy.take_to_warm(), None, "one is under way");
            buddy.add_warm(block);
            Some(block)
        })
        .collect();
        assert_eq!((warmed.len(), buddy.warm_chunks()), (WARM_AHEAD, WARM_AHEAD));
        // The rest of the first chunk and the cleared chunks come before any other.
        let rest: Vec<u32> = (1..3 * CHUNK_BLOCKS).map(|_| buddy.allocate(0).unwrap()).collect();
        assert_eq!(buddy.fresh, 3);
        // A chunk that is being cleared cannot be allocated.
        let warming = buddy.take_to_warm().unwrap();
        let others: Vec<u32> = std::iter::from_fn(|| buddy.allocate(TOP)).collect();
        assert!(others.len() == 2 && !others.contains(&warming));
        buddy.add_warm(warming);
        assert_eq!(buddy.allocate(TOP), Some(warming));
        assert_eq!(buddy.take_to_warm(), None, "there is no other");
        assert!(!buddy.wants_warm(), "and nobody asks again for that");
        buddy.free_run(first, 1);
        rest.into_iter().for_each(|block| buddy.free_run(block, 1));
        assert_eq!(buddy.warm_chunks(), 3);
        let _ = buddy.allocate(0);
        assert_eq!(buddy.take_to_warm(), None, "enough is at hand");
    }

    proptest! {
        #[test]
        fn no_block_is_handed_out_twice(orders in proptest::collection::vec(0usize..7, 1..200)) {
            let mut buddy = Buddy::new(2);
            let mut owner = vec![false; 1024];
            let mut held: Vec<(u32, usize)> = Vec::new();
            for (step, order) in orders.into_iter().enumerate() {
                if step % 3 == 2 {
                    let (block, order) = held.swap_remove(step % held.len());
                    (0..1 << order).for_each(|i| owner[block as usize + i] = false);
                    buddy.free_run(block, 1 << order);
                } else if let Some(block) = buddy.allocate(order) {
                    for i in 0..1 << order {
                        prop_assert!(!std::mem::replace(&mut owner[block as usize + i], true));
                    }
                    held.push((block, order));
                }
                if held.is_empty() { break; }
                prop_assert_eq!(buddy.used_blocks(), owner.iter().filter(|o| **o).count());
            }
        }
    }
}
