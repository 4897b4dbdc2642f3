//! Copies into, out of and between memories.

use crate::Memory;

impl Memory {
    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.pointer(offset, bytes.len());
        // SAFETY: `to` is valid for bytes.len() octets (checked by `pointer`), and a
        // Rust slice cannot overlap memory no reference was ever made to.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies from `offset` into `bytes`.
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.pointer(offset, bytes.len());
        // SAFETY: as in `write`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Copies `length` octets from one memory to another, which may be the same.
    ///
    /// # Panics
    /// If either range is not inside.
    #[inline]
    pub fn copy(from: &Memory, from_offset: usize, to: &Memory, to_offset: usize, length: usize) {
        let source = from.pointer(from_offset, length);
        let target = to.pointer(to_offset, length);
        if (BLOCK_BYTES..=VECTOR_BYTES_MAX).contains(&length) && !from.is_same(to) && has_avx() {
            // SAFETY: both ranges were checked, and lie in different memories.
            unsafe { copy_by_vectors(source, target, length) };
            return;
        }
        // SAFETY: both ranges were checked; `copy` allows them to overlap.
        unsafe { std::ptr::copy(source, target, length) }
    }

    /// Sets a range to zeros.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn zero(&self, offset: usize, length: usize) {
        let to = self.pointer(offset, length);
        // SAFETY: the range was checked.
        unsafe { std::ptr::write_bytes(to, 0, length) }
    }

    /// A copy of a range on the heap.
    ///
    /// # Panics
    /// If the range is not inside.
    #[must_use]
    pub fn to_vec(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes);
        bytes
    }

    /// Asks the processor for the line at `offset`, to be written soon. Does nothing
    /// where the processor has no such instruction.
    #[inline]
    pub fn prefetch_for_write(&self, offset: usize) {
        let at = self.pointer(offset, 1);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch of any address cannot fault; this one is inside.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// Asks the processor to fetch the first lines of a range, whose copy follows
    /// soon; the hardware prefetcher goes on from there.
    #[inline]
    pub fn prefetch(&self, offset: usize, length: usize) {
        let lines = length.div_ceil(64).min(PREFETCH_LINES_MAX);
        let from = self.pointer(offset, length);
        for line in 0..lines {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a prefetch of any address cannot fault; this one is inside.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(from.add(line * 64).cast_const().cast::<i8>());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = (from, line);
        }
    }
}

/// Lines fetched ahead of a copy. One page: beyond it the copy itself runs ahead.
const PREFETCH_LINES_MAX: usize = 8;

/// Whether the processor has 256-bit moves. Asked once; the answer is cached.
#[inline]
fn has_avx() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Copies ranges that do not overlap.
///
/// The C library turns to string instructions from 2 KiB on, which cost more here than
/// plain vector moves where the target's lines are not in the nearest cache: for blocks
/// of a page, 32 in turn, 0.66 against 0.57 µs for a whole operation (`shm_cost`).
///
/// # Safety
/// Both ranges are valid for `length` octets and do not overlap; AVX is there.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_by_vectors(from: *const u8, to: *mut u8, length: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};
    let mut done = 0;
    while length - done >= BLOCK_BYTES {
        // SAFETY: done + BLOCK_BYTES <= length, the range both pointers are valid for.
        unsafe {
            let source = from.add(done).cast::<__m256i>();
            let target = to.add(done).cast::<__m256i>();
            let first = _mm256_loadu_si256(source);
            let second = _mm256_loadu_si256(source.add(1));
            let third = _mm256_loadu_si256(source.add(2));
            let fourth = _mm256_loadu_si256(source.add(3));
            _mm256_storeu_si256(target, first);
            _mm256_storeu_si256(target.add(1), second);
            _mm256_storeu_si256(target.add(2), third);
            _mm256_storeu_si256(target.add(3), fourth);
        }
        done += BLOCK_BYTES;
    }
    // SAFETY: what is left of both ranges.
    unsafe { std::ptr::copy_nonoverlapping(from.add(done), to.add(done), length - done) }
}

/// Never called: [`has_avx`] says no.
///
/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_by_vectors(_from: *const u8, _to: *mut u8, _length: usize) {}

/// Octets moved by one turn of the vector loop.
const BLOCK_BYTES: usize = 128;
/// Beyond this the C library's choice is as good.
const VECTOR_BYTES_MAX: usize = 32 << 10;
