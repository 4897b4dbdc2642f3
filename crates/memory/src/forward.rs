//! Copies pages and longer ranges, always from front to back.
//!
//! If source and target have the same offset within their pages, as the blocks of a cache and the
//! buffers of clients usually do, the C library copies from back to front. The lines
//! that the hardware has prefetched are then copied last. If the source or the target is not in the
//! processor's caches, such a copy takes up to 50% longer (docs/decisions/0003).

#[cfg(target_arch = "x86_64")]
use crate::{LINE_BYTES, PAGE_BYTES};

/// Copies `length` bytes from front to back.
///
/// # Safety
/// `from` must be valid for reads and `to` for writes of `length` bytes, and the two ranges must
/// not overlap.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    #[cfg(target_arch = "x86_64")]
    if length >= LONG_BYTES && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the caller ensures it, and the processor has these instructions.
        return unsafe { copy_long(from, to, length) };
    }
    // SAFETY: the caller ensures it.
    unsafe { std::ptr::copy_nonoverlapping(from, to, length) }
}

/// Copies at least one cache line, as [`copy`] does.
///
/// # Safety
/// The same as for [`copy`]; in addition, the processor must have AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_long(from: *const u8, to: *mut u8, length: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};
    // SAFETY: every call has `at + LINE_BYTES <= length`, for both ranges.
    let line = |at: usize| unsafe {
        let (source, target) = (from.add(at).cast::<__m256i>(), to.add(at).cast::<__m256i>());
        let (first, second) = (_mm256_loadu_si256(source), _mm256_loadu_si256(source.add(1)));
        _mm256_storeu_si256(target, first);
        _mm256_storeu_si256(target.add(1), second);
    };
    let fetch = |at: usize| crate::prefetch(from.wrapping_add(at + AHEAD_BYTES));
    // The first line reaches at least to the target's first aligned address.
    line(0);
    let mut at = LINE_BYTES - to.addr() % 32;
    while at + PAGES_AT_ONCE * PAGE_BYTES + AHEAD_BYTES <= length {
        for place in (at..at + PAGE_BYTES).step_by(LINE_BYTES) {
            for page in 0..PAGES_AT_ONCE {
                fetch(place + page * PAGE_BYTES);
                line(place + page * PAGE_BYTES);
            }
        }
        at += PAGES_AT_ONCE * PAGE_BYTES;
    }
    while at + 2 * LINE_BYTES + AHEAD_BYTES <= length {
        fetch(at);
        fetch(at + LINE_BYTES);
        line(at);
        line(at + LINE_BYTES);
        at += 2 * LINE_BYTES;
    }
    while at + LINE_BYTES <= length {
        line(at);
        at += LINE_BYTES;
    }
    if at < length {
        // This line overlaps bytes that were just copied, and stores the same bytes again.
        line(length - LINE_BYTES);
    }
}

/// The length in bytes below which copies use the C library.
#[cfg(target_arch = "x86_64")]
const LONG_BYTES: usize = 1024;
/// The distance in bytes at which lines are prefetched ahead of the copy. The hardware prefetcher
/// stops at the end of each page.
#[cfg(target_arch = "x86_64")]
const AHEAD_BYTES: usize = 512;
/// The number of pages copied in parallel, if the range has that many. Each page uses a separate
/// prefetcher.
#[cfg(target_arch = "x86_64")]
const PAGES_AT_ONCE: usize = 4;

#[cfg(test)]
mod tests {
    #[test]
    fn every_byte_arrives_whatever_the_length_and_the_alignment() {
        let source: Vec<u8> = (0..50_000u32).map(|n| (n * 7 + n / 251) as u8).collect();
        for length in
            (0..300).chain((1000..1400).step_by(7)).chain([4096, 9999, 16_384, 17_000, 40_961])
        {
            for (skip, shift) in [(0, 0), (1, 0), (0, 1), (31, 5), (7, 63), (33, 32)] {
                let mut target = vec![0; length + shift + 64];
                let from = &source[skip..skip + length];
                // SAFETY: these are two allocations, both long enough.
                unsafe { super::copy(from.as_ptr(), target[shift..].as_mut_ptr(), length) };
                assert_eq!(&target[shift..shift + length], from, "{length} {skip} {shift}");
                assert!(target[..shift].iter().all(|byte| *byte == 0));
                assert!(target[shift + length..].iter().all(|byte| *byte == 0));
            }
        }
    }
}
