//! The open reads of this side: their requests, and the number of bytes of the oldest response that
//! have arrived.
//!
//! Invariant: the number of open reads never exceeds the agreed number. Every response byte that is
//! accepted belongs to the oldest read and to exactly the requested position. RFC 5040 5.2.2 allows
//! a requester to check this. Without the check, a peer could use a read response to write into
//! memory that this side never exposed to it.

use std::collections::VecDeque;

use super::Target;
use super::order::TaggedSegment;
use crate::read::ReadRequest;
use crate::violation::Violation;

/// The open reads, oldest first.
#[derive(Debug)]
pub(super) struct OpenReads {
    requests: VecDeque<ReadRequest>,
    count_max: usize,
    /// The number of bytes of the oldest read that have arrived.
    placed_length: u32,
}

impl OpenReads {
    /// Creates the table and allocates room for `count_max` reads.
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

    /// Adds a read. Returns false if there is no room.
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
        // A response without an open read is an unexpected opcode.
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

    /// Removes the oldest read, whose response is complete.
    #[inline]
    pub(super) fn complete(&mut self) -> Option<ReadRequest> {
        self.placed_length = 0;
        self.requests.pop_front()
    }
}
