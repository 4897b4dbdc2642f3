//! The numbers of DDP, each of its own type.
//!
//! Invariant: a steering tag, an offset and a sequence number cannot be mistaken
//! for one another, nor for a length.

use std::fmt;

/// A steering tag: names a tagged buffer of the peer or of this side (RFC 5041 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Stag(pub u32);

/// A byte address within a tagged buffer. A buffer need not start at zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct TaggedOffset(pub u64);

impl TaggedOffset {
    /// This offset moved on by `bytes`, or `None` if it would pass 2^64.
    #[inline]
    #[must_use]
    pub fn checked_add(self, bytes: u32) -> Option<Self> {
        self.0.checked_add(u64::from(bytes)).map(Self)
    }

    /// This offset moved on by `bytes`; wraps at 2^64.
    #[inline]
    #[must_use]
    pub fn wrapping_add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(u64::from(bytes)))
    }
}

/// The number of a message on one untagged queue. Starts at 1, wraps (RFC 5041 4.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MessageSequence(pub u32);

impl MessageSequence {
    /// The number of the first message on every queue.
    pub const FIRST: Self = Self(1);

    /// The number after this one.
    #[inline]
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// The untagged queues RDMAP uses (RFC 5040 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum QueueNumber {
    /// Queue 0: the four kinds of Send.
    Send = 0,
    /// Queue 1: Read Requests.
    ReadRequest = 1,
    /// Queue 2: Terminate.
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
