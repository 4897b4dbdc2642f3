//! Our open reads: what we asked for and how much of the oldest has come.
//!
//! Invariant: at most the agreed number is open, and every response byte that is
//! let through belongs to the oldest, at exactly the place asked for. RFC 5040
//! 5.2.2 lets a requester check this; a peer that could write elsewhere under a
//! read response would write into memory it was never given.

use std::collections::VecDeque;

use super::Target;
use super::order::TaggedSegment;
use crate::read::ReadRequest;
use crate::violation::Violation;

/// The table of open reads, oldest first.
#[derive(Debug)]
pub(super) struct OpenReads {
    requests: VecDeque<ReadRequest>,
    count_max: usize,
    /// Bytes of the oldest that have come.
    placed_length: u32,
}

impl OpenReads {
    /// Allocates room for `count_max` reads.
    pub(super) fn new(count_max: u16) -> Self {
        let count_max = usize::from(count_max);
        Self { requests: VecDeque::with_capacity(count_max), count_max, placed_length: 0 }
    }

    pub(super) fn count(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn count_max(&self) -> usize {
        self.count_max
    }

    /// Whether there was room.
    #[inline]
    pub(super) fn open(&mut self, request: ReadRequest) -> bool {
        if self.requests.len() >= self.count_max {
            return false;
        }
        self.requests.push_back(request);
        true
    }

    #[inline]
    pub(super) fn on_segment(&mut self, segment: &TaggedSegment) -> Result<Target, Violation> {
        // A response without a read is an operation nobody expected.
        let request = self.requests.front().ok_or(Violation::Opcode)?;
        segment.check_wrap()?;
        let message_offset = self.placed_length;
        let left = request.length - message_offset;
        if segment.payload_length != 0 {
            if segment.stag != request.sink_stag {
                return Err(Violation::TaggedStag);
            }
            if segment.offset != request.sink_offset.wrapping_add(message_offset)
                || segment.payload_length > left
            {
                return Err(Violation::TaggedRange);
            }
        }
        if segment.last && segment.payload_length != left {
            return Err(Violation::TaggedRange);
        }
        self.placed_length = message_offset + segment.payload_length;
        Ok(Target::ReadResponse { stag: segment.stag, offset: segment.offset, message_offset })
    }

    /// The oldest has come whole: takes it off.
    #[inline]
    pub(super) fn complete(&mut self) -> Option<ReadRequest> {
        self.placed_length = 0;
        self.requests.pop_front()
    }
}
