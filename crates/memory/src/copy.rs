//! Copies into, out of and between memories.

use crate::{LINE_BYTES, Memory, forward};

impl Memory {
    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.pointer(offset, bytes.len());
        // SAFETY: `to` is valid for bytes.len() bytes (checked by `pointer`), and a
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

    /// Copies `length` bytes from one memory to another, which may be the same.
    ///
    /// # Panics
    /// If either range is not inside.
    #[inline]
    pub fn copy(from: &Memory, from_offset: usize, to: &Memory, to_offset: usize, length: usize) {
        let source = from.pointer(from_offset, length);
        let target = to.pointer(to_offset, length);
        // SAFETY: both ranges were checked; `copy` allows them to overlap.
        unsafe { std::ptr::copy(source, target, length) }
    }

    /// As [`Memory::copy`], for blocks out of memory that is likely not in the processor's
    /// caches: from front to back, whatever the addresses, so that what
    /// [`Memory::prefetch`] has asked for comes first.
    ///
    /// # Panics
    /// If either range is not inside.
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
        // SAFETY: both ranges were checked, and they lie apart.
        unsafe { forward::copy(source, target, length) }
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

    /// Asks the processor to fetch the first lines of a range, whose copy follows
    /// soon; the hardware prefetcher goes on from there.
    #[inline]
    pub fn prefetch(&self, offset: usize, length: usize) {
        let lines = length.div_ceil(LINE_BYTES).min(PREFETCH_LINES_MAX);
        let from = self.pointer(offset, length);
        for line in 0..lines {
            prefetch(from.wrapping_add(line * LINE_BYTES));
        }
    }

    /// Asks the processor for every line of a range, which takes as long as the memory does.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn warm(&self, offset: usize, length: usize) {
        let from = self.pointer(offset, length);
        for skip in (0..length).step_by(LINE_BYTES) {
            prefetch(from.wrapping_add(skip));
        }
    }
}

/// Asks the processor for the cache line that holds an address.
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

/// Lines fetched ahead of a copy: beyond them the copy itself runs ahead.
const PREFETCH_LINES_MAX: usize = 8;
