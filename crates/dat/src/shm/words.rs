//! The memory that a ring works on, as a trait.
//!
//! The ring's code is generic over its memory, so that a model checker can run the same code, with
//! the same memory orderings, on words of its own.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::delta::LINE_WORDS;

/// A word that both sides of a ring access atomically.
pub(super) trait Word: Debug {
    /// The type of the integer in the word.
    type Value;

    fn load(&self, ordering: Ordering) -> Self::Value;
    fn store(&self, value: Self::Value, ordering: Ordering);
    fn swap(&self, value: Self::Value, ordering: Ordering) -> Self::Value;
    fn fetch_add(&self, value: Self::Value, ordering: Ordering) -> Self::Value;
    fn compare_exchange(
        &self,
        current: Self::Value,
        new: Self::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Value, Self::Value>;
}

/// The memory of one direction of a connection: control words and the lines of frames. A position
/// is the number of bytes since the connection began.
pub(super) trait RingMemory: Debug {
    type Word: Word<Value = u64>;
    type Flag: Word<Value = u32>;

    /// Returns the number of bytes for frames, a power of two.
    fn capacity(&self) -> u64;

    /// Returns the offset in the ring of a position, which counts the bytes since the connection
    /// began.
    #[inline]
    fn place(&self, position: u64) -> u64 {
        position & (self.capacity() - 1)
    }

    /// Returns the offset in the shared memory of the byte after a frame's header.
    fn body(&self, position: u64) -> usize;

    /// Returns the header word of the frame at a position.
    fn header(&self, position: u64) -> &Self::Word;

    /// Returns the word that counts the consumed bytes. The consumer writes it.
    fn head(&self) -> &Self::Word;

    /// Returns the word with the count of wake units (weighted messages) at which the producer must
    /// wake the consumer; it is zero while the consumer is awake.
    fn wake_at(&self) -> &Self::Word;

    /// Returns the word that is nonzero if the sleeping consumer wants an early wakeup. The
    /// consumer writes it.
    fn wants_early(&self) -> &Self::Word;

    /// Returns the word that counts the wake units (weighted messages) produced so far. The
    /// producer writes it.
    fn produced(&self) -> &Self::Word;

    /// Returns the word that counts how many regions the producer's side has withdrawn. The
    /// producer writes it.
    fn revision(&self) -> &Self::Word;

    /// Returns the word that is nonzero if the producer waits for free space. The producer sets it.
    fn blocked(&self) -> &Self::Flag;

    /// Copies bytes into the body of the frame at a position, `skip` bytes after the header. The
    /// bytes must not extend beyond the end of the ring.
    fn write(&self, position: u64, skip: usize, bytes: &[u8]);

    /// Copies the bytes after the frame header at a position into `bytes`.
    fn read(&self, position: u64, bytes: &mut [u8]);

    /// Stores the words of a body that fills the remainder of its header's line. The body is stored
    /// word by word, because the words were stored recently, and loading them back as vectors would
    /// wait for each store.
    fn write_line(&self, position: u64, words: &[u64; LINE_WORDS]);

    /// Loads the words of a body that fills the remainder of its header's line.
    fn read_line(&self, position: u64) -> [u64; LINE_WORDS];

    /// Prefetches a line that will be written soon. Has no effect on processors without such an
    /// instruction.
    fn prefetch_for_write(&self, position: u64);

    /// Orders this thread's accesses as [`std::sync::atomic::fence`] does.
    fn fence(&self, ordering: Ordering);
}

/// Implements [`Word`] for an atomic type by its methods of the same names.
macro_rules! word_of {
    ($atomic:ty, $value:ty) => {
        impl Word for $atomic {
            type Value = $value;

            #[inline(always)]
            fn load(&self, ordering: Ordering) -> $value {
                self.load(ordering)
            }

            #[inline(always)]
            fn store(&self, value: $value, ordering: Ordering) {
                self.store(value, ordering);
            }

            #[inline(always)]
            fn swap(&self, value: $value, ordering: Ordering) -> $value {
                self.swap(value, ordering)
            }

            #[inline(always)]
            fn fetch_add(&self, value: $value, ordering: Ordering) -> $value {
                self.fetch_add(value, ordering)
            }

            #[inline(always)]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    };
}

word_of!(AtomicU32, u32);
word_of!(AtomicU64, u64);
