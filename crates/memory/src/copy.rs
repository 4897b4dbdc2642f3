//! Copies bytes into, out of and between memories.

use crate::{LINE_BYTES, Memory, forward};

impl Memory {
    /// Copies `bytes` into the memory at `offset`.
    ///
    /// # Panics
    /// Panics if the range is not within the memory.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.pointer(offset, bytes.len());
        // SAFETY: `to` is valid for `bytes.len()` bytes, which `pointer` has checked. A Rust slice
        // cannot overlap memory to which no reference was ever made.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Fills `bytes` with a copy of the memory's bytes from `offset` on.
    ///
    /// # Panics
    /// Panics if the range is not within the memory.
    #[inline]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.pointer(offset, bytes.len());
        // SAFETY: as in `write`, in the other direction.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Copies `length` bytes from one memory to another, which may be the same.
    ///
    /// # Panics
    /// Panics if either range is not within its memory.
    #[inline]
    pub fn copy(from: &Memory, from_offset: usize, to: &Memory, to_offset: usize, length: usize) {
        let source = from.pointer(from_offset, length);
        let target = to.pointer(to_offset, length);
        // SAFETY: both ranges were checked, and `copy` allows them to overlap.
        unsafe { std::ptr::copy(source, target, length) }
    }

    /// Copies as [`Memory::copy`] does, but always from front to back. Use it for blocks that are
    /// probably not in the processor's caches: the copy then starts with the lines that
    /// [`Memory::prefetch`] has fetched. The ranges must not overlap.
    ///
    /// # Panics
    /// Panics if either range is not within its memory.
    #[inline]
    pub fn copy_forward(
        from: &Memory,
        from_offset: usize,
        to: &Memory,
        to_offset: usize,
        length: usize,
    ) {
        let source = from.pointer(from_offset, length);
        let target = to.pointer(to_offset, length);
        if source.addr().abs_diff(target.addr()) < length {
            return Self::copy(from, from_offset, to, to_offset, length);
        }
        // SAFETY: both ranges were checked, and they do not overlap.
        unsafe { forward::copy(source, target, length) }
    }

    /// Fills a range with zeros.
    ///
    /// # Panics
    /// Panics if the range is not within the memory.
    pub fn zero(&self, offset: usize, length: usize) {
        let to = self.pointer(offset, length);
        // SAFETY: the range was checked.
        unsafe { std::ptr::write_bytes(to, 0, length) }
    }

    /// Returns a copy of a range on the heap.
    ///
    /// # Panics
    /// Panics if the range is not within the memory.
    #[must_use]
    pub fn to_vec(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes);
        bytes
    }

    /// Prefetches the first lines of a range that will be copied soon. The hardware prefetcher
    /// continues from there.
    #[inline]
    pub fn prefetch(&self, offset: usize, length: usize) {
        let lines = length.div_ceil(LINE_BYTES).min(PREFETCH_LINES_MAX);
        let from = self.pointer(offset, length);
        for line in 0..lines {
            prefetch(from.wrapping_add(line * LINE_BYTES));
        }
    }

    /// Prefetches every line of a range, which takes as long as reading the memory.
    ///
    /// # Panics
    /// Panics if the range is not within the memory.
    pub fn warm(&self, offset: usize, length: usize) {
        let from = self.pointer(offset, length);
        for skip in (0..length).step_by(LINE_BYTES) {
            prefetch(from.wrapping_add(skip));
        }
    }
}

/// Prefetches the cache line that contains an address.
#[inline]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is a hint and cannot fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The number of lines prefetched before a copy. Beyond them, the copy itself prefetches.
const PREFETCH_LINES_MAX: usize = 8;
