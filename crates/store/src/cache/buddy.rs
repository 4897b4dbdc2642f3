//! Which blocks of the arena are free.
//!
//! Invariant: every block is either allocated or inside exactly one free run; a free
//! run is a power of two long, aligned to its length, and its twin is not free.

/// A buddy allocator over blocks numbered from 0.
pub(super) struct Buddy {
    /// First free run of each order; `NONE` ends a list.
    heads: [u32; ORDER_COUNT],
    next: Vec<u32>,
    previous: Vec<u32>,
    /// Order + 1 of the free run that starts here; 0 elsewhere.
    state: Vec<u8>,
    /// Chunks whose pages were given back, or never touched: used last.
    cold: Vec<u32>,
    /// Chunks from here on were never handed out.
    fresh: u32,
    chunk_count: u32,
    used_blocks: usize,
    /// Free chunks that still hold pages.
    warm_chunks: usize,
}

impl Buddy {
    /// All free. The tables come from zeroed pages and cost nothing until used.
    pub fn new(chunk_count: u32) -> Self {
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
        }
    }

    /// Blocks allocated.
    pub fn used_blocks(&self) -> usize {
        self.used_blocks
    }

    /// Free chunks that hold pages.
    pub fn warm_chunks(&self) -> usize {
        self.warm_chunks
    }

    /// Allocates `1 << order` blocks in a row.
    pub fn allocate(&mut self, order: usize) -> Option<u32> {
        let mut found = (order..ORDER_COUNT).find(|o| self.heads[*o] != NONE);
        if found.is_none() && self.open_chunk() {
            found = Some(TOP);
        }
        let mut at = found?;
        let block = self.heads[at];
        self.unlink(block, at);
        while at > order {
            at -= 1;
            self.link(block + (1 << at), at);
        }
        self.used_blocks += 1 << order;
        Some(block)
    }

    /// Frees a run of any length.
    pub fn free_run(&mut self, first: u32, count: u32) {
        let (mut at, end) = (first, first + count);
        while at < end {
            let aligned = (at.trailing_zeros() as usize).min(TOP);
            let order = aligned.min((end - at).ilog2() as usize);
            self.free(at, order);
            at += 1 << order;
        }
    }

    /// Takes a free chunk that holds pages out of quick reach; the caller discards its
    /// pages. Returns its first block.
    pub fn cool_chunk(&mut self) -> Option<u32> {
        let block = self.heads[TOP];
        if block == NONE {
            return None;
        }
        self.unlink(block, TOP);
        self.cold.push(block);
        Some(block)
    }

    fn open_chunk(&mut self) -> bool {
        let block = match self.cold.pop() {
            Some(block) => block,
            None if self.fresh < self.chunk_count => {
                self.fresh += 1;
                (self.fresh - 1) * CHUNK_BLOCKS as u32
            }
            None => return false,
        };
        self.link(block, TOP);
        true
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

/// Blocks in a chunk: one huge page.
pub(super) const CHUNK_BLOCKS: usize = 1 << TOP;
const TOP: usize = 9;
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
