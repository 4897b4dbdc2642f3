//! The identifiers of DDP, each with its own type.
//!
//! Invariant: a steering tag, an offset and a sequence number cannot be confused with one another
//! or with a length.

use std::fmt;

/// A steering tag, which names a tagged buffer of the peer or of this side (RFC 5041 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Stag(pub u32);

/// A byte offset in a tagged buffer. The first byte of a buffer may have any offset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct TaggedOffset(pub u64);

impl TaggedOffset {
    /// Returns this offset plus `bytes`, or `None` if the sum exceeds `u64::MAX`.
    #[inline]
    #[must_use]
    pub fn checked_add(self, bytes: u32) -> Option<Self> {
        self.0.checked_add(u64::from(bytes)).map(Self)
    }

    /// Returns this offset plus `bytes`, modulo 2^64.
    #[inline]
    #[must_use]
    pub fn wrapping_add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(u64::from(bytes)))
    }
}

/// The sequence number of a message on one untagged queue. It starts at 1 and wraps (RFC 5041 4.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MessageSequence(pub u32);

impl MessageSequence {
    /// The sequence number of the first message on every queue.
    pub const FIRST: Self = Self(1);

    /// Returns the sequence number of the next message.
    #[inline]
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// The untagged queues that RDMAP uses (RFC 5040 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum QueueNumber {
    /// Queue 0, for the four kinds of Send.
    Send = 0,
    /// Queue 1, for Read Requests.
    ReadRequest = 1,
    /// Queue 2, for Terminate messages.
    Terminate = 2,
}

impl fmt::Display for Stag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#010x}", self.0)
    }
}

impl fmt::Display for TaggedOffset {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}", self.0)
    }
}

impl fmt::Display for MessageSequence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
