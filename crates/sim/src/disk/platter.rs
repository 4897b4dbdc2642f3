//! Blocks of data, each as processes see it and as it is on the disk.
//!
//! Invariant: the two differ in dirty blocks alone, and in those whose write-back failed.
//! A block belongs to one file from the first write into it to its end, so that nothing
//! ever shows another file's bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dafs_types::{Entropy, Random};

use super::journal::Position;
use super::tree::Number;

/// Names a block; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockId(u64);

type Bytes = Arc<[u8; BLOCK_BYTES]>;

struct Block {
    current: Bytes,
    durable: Bytes,
    /// How long the journal was when `durable` was written. Its cuts of the file up to
    /// there are in the bytes already.
    as_of: Position,
}

/// All blocks of all files.
pub(super) struct Platter {
    blocks: BTreeMap<BlockId, Block>,
    dirty: BTreeSet<(Number, BlockId)>,
    next: u64,
    zeros: Bytes,
}

/// What became of the dirty blocks when the power failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fates {
    pub kept: u64,
    pub lost: u64,
    pub torn: u64,
}

impl Platter {
    pub fn new() -> Self {
        let zeros = Arc::new([0; BLOCK_BYTES]);
        Self { blocks: BTreeMap::new(), dirty: BTreeSet::new(), next: 0, zeros }
    }

    /// A block of zeros.
    pub fn allocate(&mut self) -> BlockId {
        let id = BlockId(self.next);
        self.next += 1;
        let (current, durable) = (self.zeros.clone(), self.zeros.clone());
        self.blocks.insert(id, Block { current, durable, as_of: Position::default() });
        id
    }

    /// The bytes that processes see.
    pub fn read(&self, id: BlockId) -> &[u8; BLOCK_BYTES] {
        self.blocks.get(&id).map_or(&self.zeros, |block| &block.current)
    }

    /// Changes what processes see.
    pub fn write(&mut self, file: Number, id: BlockId, change: impl FnOnce(&mut [u8])) {
        if let Some(block) = self.blocks.get_mut(&id) {
            change(Arc::make_mut(&mut block.current).as_mut_slice());
            self.dirty.insert((file, id));
        }
    }

    /// What nobody sees any more is never written.
    pub fn drop_dirty(&mut self, file: Number, id: BlockId) {
        self.dirty.remove(&(file, id));
    }

    /// A block belongs to no file on the disk any more.
    pub fn free(&mut self, id: BlockId) {
        self.blocks.remove(&id);
    }

    /// The journal's cut at `position` has reached the disk: from `within` on the block
    /// has zeros, if it was written before that cut.
    pub fn zero_durable(&mut self, id: BlockId, within: usize, position: Position) {
        if let Some(block) = self.blocks.get_mut(&id).filter(|block| block.as_of < position) {
            zero_tail(&mut block.durable, within);
        }
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.blocks.len()
    }

    pub fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    /// The dirty blocks of a file.
    pub fn dirty_of(&self, file: Number) -> Vec<BlockId> {
        let range = (file, BlockId(0))..=(file, BlockId(u64::MAX));
        self.dirty.range(range).map(|(_, id)| *id).collect()
    }

    /// So many dirty blocks from a random place on.
    pub fn some_dirty(&self, count: usize, random: &mut Random) -> Vec<(Number, BlockId)> {
        let (Some(first), Some(last)) = (self.dirty.first(), self.dirty.last()) else {
            return Vec::new();
        };
        let file = first.0 + random.next_u64() % (last.0 - first.0 + 1);
        let from = (file, BlockId(random.next_u64() % self.next));
        let rest = self.dirty.range(from..).chain(self.dirty.range(..from));
        rest.take(count).copied().collect()
    }

    /// Writes a block to the disk as it is now.
    pub fn write_back(&mut self, file: Number, id: BlockId, position: Position) {
        self.dirty.remove(&(file, id));
        if let Some(block) = self.blocks.get_mut(&id) {
            block.durable = block.current.clone();
            block.as_of = position;
        }
    }

    /// The power fails: each dirty block is written, not written, or in part.
    pub fn strike(&mut self, random: &mut Random) -> Fates {
        let mut fates = Fates::default();
        let all_alike = match random.below(4) {
            0 => Some(0),
            1 => Some(1),
            _ => None,
        };
        for (_, id) in std::mem::take(&mut self.dirty) {
            let Some(block) = self.blocks.get_mut(&id) else { continue };
            match all_alike.unwrap_or_else(|| random.below(3)) {
                0 => fates.lost += 1,
                1 => {
                    fates.kept += 1;
                    block.durable = block.current.clone();
                }
                _ => {
                    fates.torn += 1;
                    tear(block, random.next_u64());
                }
            }
        }
        fates
    }

    /// What the disk has is all there is; of the blocks only those wanted.
    pub fn restart(&mut self, wanted: &BTreeSet<BlockId>) {
        self.dirty.clear();
        self.blocks.retain(|id, _| wanted.contains(id));
        for block in self.blocks.values_mut() {
            block.current = block.durable.clone();
        }
    }

    /// Nothing on the disk lies behind a file's end.
    pub fn trim(&mut self, id: BlockId, within: usize) {
        if let Some(block) = self.blocks.get_mut(&id) {
            zero_tail(&mut block.durable, within);
        }
    }
}

/// Each sector of the block is the old one or the new one.
fn tear(block: &mut Block, sectors: u64) {
    let durable = Arc::make_mut(&mut block.durable);
    for (index, new) in block.current.chunks_exact(SECTOR_BYTES).enumerate() {
        if sectors >> index & 1 == 1 {
            durable[index * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(new);
        }
    }
}

fn zero_tail(bytes: &mut Bytes, within: usize) {
    if bytes[within..].iter().any(|byte| *byte != 0) {
        Arc::make_mut(bytes)[within..].fill(0);
    }
}

/// What is written back or not, each for itself.
pub(super) const BLOCK_BYTES: usize = 4096;
/// What is written whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;
const _: () = assert!(BLOCK_BYTES / SECTOR_BYTES <= u64::BITS as usize);
