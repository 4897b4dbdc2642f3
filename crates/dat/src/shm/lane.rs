//! One direction of the shared memory: its words and the lines of its frames.
//!
//! Invariant: a position counts bytes since the connection began and is cut to the
//! ring's size here, so that none leads outside; frames start on lines. The pointers
//! stay good as long as the lane, which keeps the mapping.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dafs_memory::Memory;

use super::delta::LINE_WORDS;

/// Where one direction's words and bytes lie in the shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Offset of this direction's control words.
    control: usize,
    /// Offset of this direction's frames.
    data: usize,
    /// Bytes of frames, a power of two.
    capacity: usize,
}

impl Layout {
    /// The layouts of both directions: initiator to acceptor, then back.
    pub fn pair(capacity: usize) -> [Self; 2] {
        [0, 1].map(|direction| Self {
            control: direction * CONTROL_BYTES,
            data: 2 * CONTROL_BYTES + direction * capacity,
            capacity,
        })
    }

    /// Bytes of shared memory for both directions.
    pub fn total_bytes(capacity: usize) -> usize {
        2 * CONTROL_BYTES + 2 * capacity
    }

    /// Whether a capacity that a peer announces is acceptable.
    pub fn is_valid_capacity(capacity: usize) -> bool {
        capacity.is_power_of_two() && (CAPACITY_MIN..=CAPACITY_MAX).contains(&capacity)
    }

    /// The capacity that suits messages of up to `message_bytes` bytes.
    pub fn capacity_for(message_bytes: u32) -> usize {
        let wanted = (message_bytes as usize).saturating_mul(4).saturating_add(4 * LINE);
        wanted.next_power_of_two().clamp(CAPACITY_DEFAULT, CAPACITY_MAX)
    }

    /// Longest body one frame may have.
    pub fn body_bytes_max(capacity: usize) -> u32 {
        u32::try_from(capacity / 2 - LINE).unwrap_or(u32::MAX)
    }
}

/// One direction as either end sees it.
#[derive(Debug)]
pub struct Lane {
    /// Keeps what the pointers lead to.
    _mapping: Memory,
    control: NonNull<u8>,
    frames: NonNull<u8>,
    /// Offset of the frames in the memory.
    data: usize,
    capacity: u64,
}

// SAFETY: the pointers are into a mapping that the lane keeps, wherever it goes.
unsafe impl Send for Lane {}

impl Lane {
    pub fn new(memory: Memory, layout: Layout) -> Self {
        let Layout { control, data, capacity } = layout;
        let at = |offset, length| {
            NonNull::new(memory.pointer(offset, length)).unwrap_or(NonNull::dangling())
        };
        let (control, frames) = (at(control, CONTROL_BYTES), at(data, capacity));
        Self { _mapping: memory, control, frames, data, capacity: capacity as u64 }
    }

    /// Bytes of frames.
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Where in the ring a position lies.
    #[inline]
    pub fn place(&self, position: u64) -> u64 {
        position & (self.capacity - 1)
    }

    /// Offset in the shared memory of the byte behind a frame's header.
    #[inline]
    pub fn body(&self, position: u64) -> usize {
        self.data + self.place(position) as usize + HEADER_BYTES
    }

    /// The header word of the frame at a position.
    #[inline]
    pub fn header(&self, position: u64) -> &AtomicU64 {
        // SAFETY: a line of the ring, see `line`; aligned; both processes use its first
        // word atomically.
        unsafe { AtomicU64::from_ptr(self.line(position).cast()) }
    }

    /// Bytes consumed; written by the consumer.
    #[inline]
    pub fn head(&self) -> &AtomicU64 {
        self.word::<0>()
    }

    /// Count of wake units at which to wake the consumer, zero while it is awake.
    #[inline]
    pub fn wake_at(&self) -> &AtomicU64 {
        self.word::<128>()
    }

    /// Whether the sleeper wants to be woken somewhat ahead; written by the consumer.
    #[inline]
    pub fn wants_early(&self) -> &AtomicU64 {
        self.word::<136>()
    }

    /// Wake units produced; written by the producer.
    #[inline]
    pub fn produced(&self) -> &AtomicU64 {
        self.word::<256>()
    }

    /// Counts what the producer's side has taken back from its peer; written by the
    /// producer's side.
    #[inline]
    pub fn revision(&self) -> &AtomicU64 {
        self.word::<448>()
    }

    /// Whether the producer waits for room; set by the producer.
    #[inline]
    pub fn blocked(&self) -> &AtomicU32 {
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(self.control.as_ptr().add(384).cast()) }
    }

    /// Copies bytes into the bodies of frames at a position: behind its header, up to
    /// the ring's end at most.
    #[inline]
    pub fn write(&self, position: u64, skip: usize, bytes: &[u8]) {
        let at = self.place(position) as usize + HEADER_BYTES + skip;
        assert!(at + bytes.len() <= self.capacity as usize, "a frame beyond the ring's end");
        // SAFETY: inside the frames, just checked; no reference to them is ever made.
        unsafe {
            let to = self.frames.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Copies bytes from behind the header at a position.
    #[inline]
    pub fn read(&self, position: u64, bytes: &mut [u8]) {
        let at = self.place(position) as usize + HEADER_BYTES;
        assert!(at + bytes.len() <= self.capacity as usize, "a frame beyond the ring's end");
        // SAFETY: as in `write`.
        unsafe {
            let from = self.frames.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
    }

    /// Stores the words of a body that fills its header's line. Word by word: it is made
    /// of words of late, and loaded back as vectors each would wait for its stores.
    #[inline]
    pub fn write_line(&self, position: u64, words: &[u64; LINE_WORDS]) {
        for (word, value) in self.line_words(position).zip(words) {
            word.store(*value, Ordering::Relaxed);
        }
    }

    /// Loads the words of a body that fills its header's line.
    #[inline]
    pub fn read_line(&self, position: u64) -> [u64; LINE_WORDS] {
        let mut words = [0; LINE_WORDS];
        for (word, value) in self.line_words(position).zip(&mut words) {
            *value = word.load(Ordering::Relaxed);
        }
        words
    }

    /// The words behind the header in the line of a position.
    #[inline]
    fn line_words(&self, position: u64) -> impl Iterator<Item = &AtomicU64> {
        let line: *mut u64 = self.line(position).cast();
        // SAFETY: a line is inside the frames and aligned; see `header`.
        (1..=LINE_WORDS).map(move |index| unsafe { AtomicU64::from_ptr(line.add(index)) })
    }

    /// Asks the processor for a line that is to be written soon. Does nothing where the
    /// processor has no such instruction.
    #[inline]
    pub fn prefetch_for_write(&self, position: u64) {
        let at = self.line(position);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch of any address cannot fault; this one is inside.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    #[inline]
    fn word<const AT: usize>(&self) -> &AtomicU64 {
        const { assert!(AT.is_multiple_of(8) && AT + 8 <= CONTROL_BYTES) };
        // SAFETY: inside the control words; aligned, since mappings and layouts are; the
        // other process uses the same word atomically or spoils only its own connection.
        unsafe { AtomicU64::from_ptr(self.control.as_ptr().add(AT).cast()) }
    }

    /// The line that a position lies in.
    #[inline]
    fn line(&self, position: u64) -> *mut u8 {
        let at = self.place(position) as usize & !(LINE - 1);
        // SAFETY: below the capacity, which is a multiple of a line.
        unsafe { self.frames.as_ptr().add(at) }
    }
}

/// Bytes of a frame header.
pub const HEADER_BYTES: usize = 8;
/// Frames start on multiples of this: a cache line.
pub const LINE: usize = 64;
const _: () = assert!(HEADER_BYTES + LINE_WORDS * 8 == LINE);
const CONTROL_BYTES: usize = 512;
const CAPACITY_DEFAULT: usize = 64 << 10;
pub const CAPACITY_MIN: usize = 16 << 10;
const CAPACITY_MAX: usize = 2 << 20;

const _: () = assert!(CAPACITY_MAX / 2 <= 1 << 20, "a body's length must fit its 20 bits");
