//! The contents of large files before a process is killed while it changes them.

pub(crate) const BLOCK_BYTES: usize = 1 << 20;

/// Returns the contents of a block. No two blocks are equal.
pub(crate) fn old_block(number: u64) -> Vec<u8> {
    let words = BLOCK_BYTES as u64 / 8;
    let word = |index: u64| (number * words + index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..words).flat_map(|index| word(index).to_le_bytes()).collect()
}
