//! The blocks of data, each in two versions: as processes see it, and as it is on the disk.
//!
//! Invariant: the two versions differ only in dirty blocks and in blocks whose write-back has
//! failed. A block belongs to one file from its first write until it is freed, so that no file ever
//! shows another file's bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dafs_types::{Entropy, Random};

use super::journal::Position;
use super::tree::Number;

/// The number of a block. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockId(u64);

type Bytes = Arc<[u8; BLOCK_BYTES]>;

struct Block {
    current: Bytes,
    durable: Bytes,
    /// The position in the journal at which `durable` was written. `durable` includes all
    /// truncations of the file before this position.
    as_of: Position,
}

/// All blocks of all files.
pub(super) struct Platter {
    blocks: BTreeMap<BlockId, Block>,
    dirty: BTreeSet<(Number, BlockId)>,
    next: u64,
    zeros: Bytes,
}

/// The numbers of dirty blocks that a power failure has kept, lost and torn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockFates {
    pub kept: u64,
    pub lost: u64,
    pub torn: u64,
}

impl Platter {
    pub(super) fn new() -> Self {
        let zeros = Arc::new([0; BLOCK_BYTES]);
        Self { blocks: BTreeMap::new(), dirty: BTreeSet::new(), next: 0, zeros }
    }

    /// Allocates a block of zeros.
    pub(super) fn allocate(&mut self) -> BlockId {
        let id = BlockId(self.next);
        self.next += 1;
        let (current, durable) = (self.zeros.clone(), self.zeros.clone());
        self.blocks.insert(id, Block { current, durable, as_of: Position::default() });
        id
    }

    /// Returns the bytes that processes see.
    pub(super) fn read(&self, id: BlockId) -> &[u8; BLOCK_BYTES] {
        self.blocks.get(&id).map_or(&self.zeros, |block| &block.current)
    }

    /// Changes the bytes that processes see.
    pub(super) fn write(&mut self, file: Number, id: BlockId, change: impl FnOnce(&mut [u8])) {
        if let Some(block) = self.blocks.get_mut(&id) {
            change(Arc::make_mut(&mut block.current).as_mut_slice());
            self.dirty.insert((file, id));
        }
    }

    /// Marks a block that no process can see any more as clean, so that it is never written.
    pub(super) fn drop_dirty(&mut self, file: Number, id: BlockId) {
        self.dirty.remove(&(file, id));
    }

    /// Frees a block that no longer belongs to any file on the disk.
    pub(super) fn free(&mut self, id: BlockId) {
        self.blocks.remove(&id);
    }

    /// Applies to the disk a truncation that has this position in the journal. Zeros the block from
    /// byte `within` on, if the block was written before the truncation.
    pub(super) fn zero_durable(&mut self, id: BlockId, within: usize, position: Position) {
        if let Some(block) = self.blocks.get_mut(&id).filter(|block| block.as_of < position) {
            zero_tail(&mut block.durable, within);
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    /// Returns the dirty blocks of a file.
    pub(super) fn dirty_of(&self, file: Number) -> Vec<BlockId> {
        let range = (file, BlockId(0))..=(file, BlockId(u64::MAX));
        self.dirty.range(range).map(|(_, id)| *id).collect()
    }

    /// Returns up to `count` dirty blocks, starting at a random block.
    pub(super) fn some_dirty(&self, count: usize, random: &mut Random) -> Vec<(Number, BlockId)> {
        let (Some(first), Some(last)) = (self.dirty.first(), self.dirty.last()) else {
            return Vec::new();
        };
        let file = first.0 + random.next_u64() % (last.0 - first.0 + 1);
        let from = (file, BlockId(random.next_u64() % self.next));
        let rest = self.dirty.range(from..).chain(self.dirty.range(..from));
        rest.take(count).copied().collect()
    }

    /// Writes a block, as it is now, to the disk.
    pub(super) fn write_back(&mut self, file: Number, id: BlockId, position: Position) {
        self.dirty.remove(&(file, id));
        if let Some(block) = self.blocks.get_mut(&id) {
            block.durable = block.current.clone();
            block.as_of = position;
        }
    }

    /// Simulates a power failure: each dirty block is written completely, in part, or not at all.
    pub(super) fn strike(&mut self, random: &mut Random) -> BlockFates {
        let mut fates = BlockFates::default();
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

    /// Sets the version that processes see to the version on the disk. Keeps only the blocks in
    /// `wanted`.
    pub(super) fn restart(&mut self, wanted: &BTreeSet<BlockId>) {
        self.dirty.clear();
        self.blocks.retain(|id, _| wanted.contains(id));
        for block in self.blocks.values_mut() {
            block.current = block.durable.clone();
        }
    }

    /// Zeros the part of a block on the disk that is beyond the end of its file.
    pub(super) fn trim(&mut self, id: BlockId, within: usize) {
        if let Some(block) = self.blocks.get_mut(&id) {
            zero_tail(&mut block.durable, within);
        }
    }
}

/// Gives each sector of the block on the disk either its old or its new content.
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

/// The size in bytes of a block, which is the unit of write-back.
pub(super) const BLOCK_BYTES: usize = 4096;
/// The size in bytes of a sector, which a disk writes completely or not at all.
pub(super) const SECTOR_BYTES: usize = 512;
const _: () = assert!(BLOCK_BYTES / SECTOR_BYTES <= u64::BITS as usize);
