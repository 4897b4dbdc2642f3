//! Checks the order of segments within and between messages.
//!
//! Invariant: at most one message of each kind is open. Its segments arrive without gaps, overlaps
//! or interleaving. Untagged messages arrive in the exact order of their sequence numbers. Linux
//! siw requires the same, and TCP preserves this order.

use super::Target;
use crate::header::Opcode;
use crate::ids::{MessageSequence, Stag, TaggedOffset};
use crate::read::READ_REQUEST_BYTES;
use crate::violation::Violation;

/// The fields of one untagged segment.
#[derive(Clone, Copy)]
pub(super) struct UntaggedSegment {
    pub opcode: Opcode,
    pub sequence: MessageSequence,
    pub message_offset: u32,
    pub ulp_word: u32,
    pub payload_length: u32,
    pub last: bool,
}

/// The fields of one tagged segment.
#[derive(Clone, Copy)]
pub(super) struct TaggedSegment {
    pub stag: Stag,
    pub offset: TaggedOffset,
    pub payload_length: u32,
    pub last: bool,
}

impl TaggedSegment {
    /// Checks that the range does not wrap. The fields of an empty segment are ignored (RFC 5041
    /// 7.1).
    #[inline]
    pub(super) fn check_wrap(&self) -> Result<(), Violation> {
        if self.payload_length != 0 && self.offset.checked_add(self.payload_length).is_none() {
            return Err(Violation::TaggedWrap);
        }
        Ok(())
    }
}

/// The order of incoming Sends, on queue 0.
#[derive(Debug)]
pub(super) struct SendOrder {
    /// The sequence number of the open message, or of the next message if none is open.
    sequence: MessageSequence,
    /// The opcode of the open message; `None` if no message is open.
    open: Option<Opcode>,
    /// The number of bytes of the open message that have arrived.
    length: u32,
}

impl SendOrder {
    pub(super) const fn new() -> Self {
        Self { sequence: MessageSequence::FIRST, open: None, length: 0 }
    }

    /// Returns true if the message with this number may begin now.
    #[inline]
    pub(super) fn is_next(&self, sequence: u32) -> bool {
        self.open.is_none() && self.sequence.0 == sequence
    }

    /// Records that the next message has arrived in one segment.
    #[inline]
    pub(super) fn on_whole(&mut self) {
        self.sequence = self.sequence.next();
    }

    #[inline]
    pub(super) fn on_segment(&mut self, segment: &UntaggedSegment) -> Result<Target, Violation> {
        if segment.sequence != self.sequence {
            return Err(Violation::MessageSequence);
        }
        if segment.message_offset != self.length {
            return Err(Violation::MessageOffset);
        }
        if self.open.is_some_and(|opcode| opcode != segment.opcode) {
            return Err(Violation::Opcode);
        }
        let length =
            self.length.checked_add(segment.payload_length).ok_or(Violation::MessageTooLong)?;
        if segment.last {
            self.sequence = segment.sequence.next();
            self.open = None;
            self.length = 0;
        } else {
            self.open = Some(segment.opcode);
            self.length = length;
        }
        Ok(Target::Send {
            sequence: segment.sequence,
            message_offset: segment.message_offset,
            solicited: segment.opcode.is_solicited(),
            invalidate: segment.opcode.invalidates().then_some(Stag(segment.ulp_word)),
        })
    }
}

/// The order of the segments of incoming Writes.
#[derive(Debug)]
pub(super) struct WriteOrder {
    /// The STag and offset at which the next segment of the open message must be placed.
    open: Option<(Stag, TaggedOffset)>,
}

impl WriteOrder {
    pub(super) const fn new() -> Self {
        Self { open: None }
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    #[inline]
    pub(super) fn on_segment(&mut self, segment: &TaggedSegment) -> Result<Target, Violation> {
        segment.check_wrap()?;
        let TaggedSegment { stag, offset, payload_length, last } = *segment;
        if payload_length != 0 {
            if let Some((open_stag, open_offset)) = self.open {
                if stag != open_stag {
                    return Err(Violation::TaggedStag);
                }
                if offset != open_offset {
                    return Err(Violation::TaggedRange);
                }
            }
            self.open = Some((stag, offset.wrapping_add(payload_length)));
        }
        if last {
            self.open = None;
        }
        Ok(Target::Write { stag, offset })
    }
}

/// The order of the peer's Read Requests, on queue 1, and the number of requests without a
/// response.
#[derive(Debug)]
pub(super) struct ReadRequestOrder {
    sequence: MessageSequence,
    unanswered_count: u16,
    unanswered_count_max: u16,
}

impl ReadRequestOrder {
    pub(super) const fn new(unanswered_count_max: u16) -> Self {
        Self { sequence: MessageSequence::FIRST, unanswered_count: 0, unanswered_count_max }
    }

    #[inline]
    pub(super) fn on_segment(&mut self, segment: &UntaggedSegment) -> Result<Target, Violation> {
        if segment.sequence != self.sequence {
            return Err(Violation::MessageSequence);
        }
        if segment.message_offset != 0 {
            return Err(Violation::MessageOffset);
        }
        if self.unanswered_count >= self.unanswered_count_max {
            return Err(Violation::ReadDepth);
        }
        // Every legal MULPDU is large enough for a whole request, so a split request is an error.
        if segment.payload_length as usize > READ_REQUEST_BYTES {
            return Err(Violation::MessageTooLong);
        }
        if segment.payload_length as usize != READ_REQUEST_BYTES || !segment.last {
            return Err(Violation::ReadRequestForm);
        }
        self.sequence = segment.sequence.next();
        self.unanswered_count += 1;
        Ok(Target::ReadRequest { sequence: segment.sequence })
    }

    /// Records a response. Returns false if no request was waiting for one.
    #[inline]
    pub(super) fn on_answered(&mut self) -> bool {
        match self.unanswered_count.checked_sub(1) {
            Some(left) => {
                self.unanswered_count = left;
                true
            }
            None => false,
        }
    }
}

/// Checks a Terminate, on queue 2. A stream carries only one (RFC 5040 5.4). A Terminate that is
/// too long or split is decoded as far as possible, because the stream ends in any case.
#[inline]
pub(super) fn on_terminate_segment(segment: &UntaggedSegment) -> Result<Target, Violation> {
    if segment.sequence != MessageSequence::FIRST {
        return Err(Violation::MessageSequence);
    }
    if segment.message_offset != 0 {
        return Err(Violation::MessageOffset);
    }
    Ok(Target::Terminate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(
        sequence: u32,
        message_offset: u32,
        payload_length: u32,
        last: bool,
    ) -> UntaggedSegment {
        let sequence = MessageSequence(sequence);
        UntaggedSegment {
            opcode: Opcode::Send,
            sequence,
            message_offset,
            ulp_word: 0,
            payload_length,
            last,
        }
    }

    #[test]
    fn sequence_wraps() {
        let mut order = SendOrder { sequence: MessageSequence(u32::MAX), open: None, length: 0 };
        assert!(order.on_segment(&send(u32::MAX, 0, 1, true)).is_ok());
        assert_eq!(order.on_segment(&send(1, 0, 1, true)), Err(Violation::MessageSequence));
        assert!(order.on_segment(&send(0, 0, 1, true)).is_ok());
    }

    #[test]
    fn message_longer_than_its_offset_can_say() {
        let length = u32::MAX - 10;
        let mut order = SendOrder { sequence: MessageSequence::FIRST, open: None, length };
        assert_eq!(order.on_segment(&send(1, length, 11, true)), Err(Violation::MessageTooLong));
        let mut order = SendOrder { sequence: MessageSequence::FIRST, open: None, length };
        assert!(order.on_segment(&send(1, length, 10, true)).is_ok());
    }
}
