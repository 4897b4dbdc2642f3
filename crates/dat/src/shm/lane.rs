//! One direction of the shared memory: its control words and the lines of its frames.
//!
//! Invariant: a position is the number of bytes since the connection began. This module reduces
//! positions modulo the ring's size, so that none is outside the ring. Frames start on cache lines.
//! The pointers are valid as long as the lane exists, because the lane keeps the mapping.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dafs_memory::Memory;

use super::delta::LINE_WORDS;
use super::words::RingMemory;

/// The position of one direction's words and bytes in the shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// The offset in bytes of this direction's control words.
    control: usize,
    /// The offset in bytes of this direction's frames.
    data: usize,
    /// The number of bytes for frames, a power of two.
    capacity: usize,
}

impl Layout {
    /// Returns the layouts of both directions: from initiator to acceptor, then from acceptor to
    /// initiator.
    pub(super) fn pair(capacity: usize) -> [Self; 2] {
        [0, 1].map(|direction| Self {
            control: direction * CONTROL_BYTES,
            data: 2 * CONTROL_BYTES + direction * capacity,
            capacity,
        })
    }

    /// Returns the number of bytes of shared memory for both directions.
    pub(super) fn total_bytes(capacity: usize) -> usize {
        2 * CONTROL_BYTES + 2 * capacity
    }

    /// Returns true if a capacity that a peer announces is acceptable to this side.
    pub(super) fn is_valid_capacity(capacity: usize) -> bool {
        capacity.is_power_of_two() && (CAPACITY_MIN..=CAPACITY_MAX).contains(&capacity)
    }

    /// Returns the capacity in bytes for a ring that carries messages of up to `message_bytes`
    /// bytes.
    pub(super) fn capacity_for(message_bytes: u32) -> usize {
        let wanted = (message_bytes as usize).saturating_mul(4).saturating_add(4 * LINE);
        wanted.next_power_of_two().clamp(CAPACITY_DEFAULT, CAPACITY_MAX)
    }

    /// Returns the maximum length of a frame's body in bytes.
    pub(super) fn body_bytes_max(capacity: usize) -> u32 {
        u32::try_from(capacity / 2 - LINE).unwrap_or(u32::MAX)
    }
}

/// One direction of the shared memory, used by either end.
#[derive(Debug)]
pub(super) struct Lane {
    /// The mapping of the shared memory, held so that the memory stays mapped as long as the
    /// pointers into it exist.
    _mapping: Memory,
    control: NonNull<u8>,
    frames: NonNull<u8>,
    /// The offset in bytes of the frames in the memory.
    data: usize,
    capacity: u64,
}

// SAFETY: the pointers lead into a mapping that the lane keeps alive on whichever thread owns it.
unsafe impl Send for Lane {}

impl Lane {
    pub(super) fn new(memory: Memory, layout: Layout) -> Self {
        let Layout { control, data, capacity } = layout;
        let at = |offset, length| {
            NonNull::new(memory.pointer(offset, length)).unwrap_or(NonNull::dangling())
        };
        let (control, frames) = (at(control, CONTROL_BYTES), at(data, capacity));
        Self { _mapping: memory, control, frames, data, capacity: capacity as u64 }
    }

    /// Returns the words after the header in the line of a position.
    #[inline]
    fn line_words(&self, position: u64) -> impl Iterator<Item = &AtomicU64> {
        let line: *mut u64 = self.line(position).cast();
        // SAFETY: a line is inside the frames and aligned; see `header`.
        (1..=LINE_WORDS).map(move |index| unsafe { AtomicU64::from_ptr(line.add(index)) })
    }

    #[inline]
    fn word<const AT: usize>(&self) -> &AtomicU64 {
        const { assert!(AT.is_multiple_of(8) && AT + 8 <= CONTROL_BYTES) };
        // SAFETY: the word is inside the control words and aligned, because mappings and layouts
        // are. The other process accesses it atomically, or damages only its own connection.
        unsafe { AtomicU64::from_ptr(self.control.as_ptr().add(AT).cast()) }
    }

    /// Returns the line that contains a position.
    #[inline]
    fn line(&self, position: u64) -> *mut u8 {
        let at = self.place(position) as usize & !(LINE - 1);
        // SAFETY: the offset is below the capacity, which is a multiple of a line.
        unsafe { self.frames.as_ptr().add(at) }
    }
}

impl RingMemory for Lane {
    type Word = AtomicU64;
    type Flag = AtomicU32;

    #[inline]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    #[inline]
    fn body(&self, position: u64) -> usize {
        self.data + self.place(position) as usize + HEADER_BYTES
    }

    #[inline]
    fn header(&self, position: u64) -> &AtomicU64 {
        // SAFETY: the word is in a line of the ring, see `line`, and aligned. Our side makes no
        // reference to it that is not atomic. The bytes of bodies are copied in and out of such
        // words only while the other side does not read them as a header, see `ring`. A peer that
        // does otherwise damages only its own connection.
        unsafe { AtomicU64::from_ptr(self.line(position).cast()) }
    }

    #[inline]
    fn head(&self) -> &AtomicU64 {
        self.word::<0>()
    }

    #[inline]
    fn wake_at(&self) -> &AtomicU64 {
        self.word::<128>()
    }

    #[inline]
    fn wants_early(&self) -> &AtomicU64 {
        self.word::<136>()
    }

    #[inline]
    fn produced(&self) -> &AtomicU64 {
        self.word::<256>()
    }

    #[inline]
    fn revision(&self) -> &AtomicU64 {
        self.word::<448>()
    }

    #[inline]
    fn blocked(&self) -> &AtomicU32 {
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(self.control.as_ptr().add(384).cast()) }
    }

    #[inline]
    fn write(&self, position: u64, skip: usize, bytes: &[u8]) {
        let at = self.place(position) as usize + HEADER_BYTES + skip;
        assert!(at + bytes.len() <= self.capacity as usize, "a frame beyond the ring's end");
        // SAFETY: inside the frames, as just checked. No reference to these bytes is ever made.
        unsafe {
            let to = self.frames.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    #[inline]
    fn read(&self, position: u64, bytes: &mut [u8]) {
        let at = self.place(position) as usize + HEADER_BYTES;
        assert!(at + bytes.len() <= self.capacity as usize, "a frame beyond the ring's end");
        // SAFETY: as in `write`.
        unsafe {
            let from = self.frames.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
    }

    #[inline]
    fn write_line(&self, position: u64, words: &[u64; LINE_WORDS]) {
        for (word, value) in self.line_words(position).zip(words) {
            word.store(*value, Ordering::Relaxed);
        }
    }

    #[inline]
    fn read_line(&self, position: u64) -> [u64; LINE_WORDS] {
        let mut words = [0; LINE_WORDS];
        for (word, value) in self.line_words(position).zip(&mut words) {
            *value = word.load(Ordering::Relaxed);
        }
        words
    }

    #[inline]
    fn prefetch_for_write(&self, position: u64) {
        let at = self.line(position);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch of any address cannot fault, and this one is inside the ring.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    #[inline]
    fn fence(&self, ordering: Ordering) {
        std::sync::atomic::fence(ordering);
    }
}

/// The number of bytes of a frame header.
pub(super) const HEADER_BYTES: usize = 8;
/// The size of a cache line in bytes. Frames start on multiples of it.
pub(super) const LINE: usize = 64;
const _: () = assert!(HEADER_BYTES + LINE_WORDS * 8 == LINE);
const CONTROL_BYTES: usize = 512;
const CAPACITY_DEFAULT: usize = 64 << 10;
pub(super) const CAPACITY_MIN: usize = 16 << 10;
const CAPACITY_MAX: usize = 2 << 20;

const _: () = assert!(CAPACITY_MAX / 2 <= 1 << 20, "a body's length must fit its 20 bits");
