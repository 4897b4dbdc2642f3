//! The DDP and RDMAP headers: fixed offsets, every field checked once.
//!
//! Invariant: a [`Header`] that [`parse`] returned has valid versions, a known queue, an opcode
//! that fits its form and queue, and a length field that covers the header. This module does not
//! check the order relative to earlier segments.

use crate::fpdu::{
    HEADER_BYTES_MAX, LENGTH_FIELD_BYTES, TAGGED_DDP_BYTES, TAGGED_HEADER_BYTES,
    UNTAGGED_DDP_BYTES, UNTAGGED_HEADER_BYTES,
};
use crate::ids::{MessageSequence, QueueNumber, Stag, TaggedOffset};
use crate::violation::Violation;

/// DDP control bit: the segment has the tagged form.
const TAGGED: u8 = 0x80;
/// DDP control bit: the segment is the last of its message.
const LAST: u8 = 0x40;
/// The two bits of the DDP version in the DDP control byte; RFC 5041 defines version 1.
const DDP_VERSION_MASK: u8 = 0x03;
const DDP_VERSION: u8 = 0x01;
/// The two bits of the RDMAP version in the RDMAP control byte; RFC 5040 defines version 1.
const RDMAP_VERSION_MASK: u8 = 0xc0;
const RDMAP_VERSION: u8 = 0x40;
const OPCODE_MASK: u8 = 0x0f;

/// The kind of a message (RFC 5040 4.1, figure 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub(crate) enum Opcode {
    /// RDMA Write: places data in a buffer that the sender names.
    Write = 0,
    /// RDMA Read Request: requests data from a buffer of the receiver.
    ReadRequest = 1,
    /// RDMA Read Response: carries the requested data.
    ReadResponse = 2,
    /// Send: a message for the next posted receive buffer.
    Send = 3,
    /// Send with Invalidate: also invalidates a steering tag of the receiver.
    SendInvalidate = 4,
    /// Send with Solicited Event: also wakes the receiver.
    SendSolicited = 5,
    /// Send with Solicited Event and Invalidate: wakes the receiver and invalidates a steering tag.
    SendSolicitedInvalidate = 6,
    /// Terminate: ends the stream and contains the reason.
    Terminate = 7,
}

impl Opcode {
    /// Returns the opcode with this number, or `None` if it is unknown.
    #[inline]
    #[must_use]
    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3 => Self::Send,
            4 => Self::SendInvalidate,
            5 => Self::SendSolicited,
            6 => Self::SendSolicitedInvalidate,
            7 => Self::Terminate,
            _ => return None,
        })
    }

    /// Returns the opcode of the kind of Send that has these two properties.
    #[inline]
    #[must_use]
    pub(crate) const fn of_send(solicited: bool, invalidates: bool) -> Self {
        match (solicited, invalidates) {
            (false, false) => Self::Send,
            (false, true) => Self::SendInvalidate,
            (true, false) => Self::SendSolicited,
            (true, true) => Self::SendSolicitedInvalidate,
        }
    }

    /// Returns the untagged queue of this opcode, or `None` if its messages are tagged.
    #[inline]
    #[must_use]
    pub(crate) const fn queue(self) -> Option<QueueNumber> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::ReadRequest => Some(QueueNumber::ReadRequest),
            Self::Send
            | Self::SendInvalidate
            | Self::SendSolicited
            | Self::SendSolicitedInvalidate => Some(QueueNumber::Send),
            Self::Terminate => Some(QueueNumber::Terminate),
        }
    }

    /// Returns true if messages with this opcode wake the receiver.
    #[inline]
    #[must_use]
    pub(crate) const fn is_solicited(self) -> bool {
        matches!(self, Self::SendSolicited | Self::SendSolicitedInvalidate)
    }

    /// Returns true if messages with this opcode name a steering tag to invalidate.
    #[inline]
    #[must_use]
    pub(crate) const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }
}

/// The header of a frame, after all checks that do not depend on earlier segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// The kind of the message.
    pub opcode: Opcode,
    /// True if this is the last segment of its message.
    pub last: bool,
    /// The length field: the number of bytes of the ULPDU.
    pub ulpdu_length: u16,
    /// The form of the header, with its fields.
    pub form: Form,
}

/// The two forms of a DDP header (RFC 5041 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// The header names the buffer in which the payload is placed.
    Tagged {
        /// The steering tag of the buffer.
        stag: Stag,
        /// The position of the payload in the buffer.
        offset: TaggedOffset,
    },
    /// The header names a message on a queue.
    Untagged {
        /// The number of the message on its queue.
        sequence: MessageSequence,
        /// The number of bytes of the message that precede this segment.
        message_offset: u32,
        /// The STag to invalidate, if the opcode has one; otherwise unused.
        ulp_word: u32,
    },
}

impl Header {
    /// Returns the number of bytes from the start of the frame to its payload: 16 or 20.
    #[inline]
    #[must_use]
    pub(crate) const fn header_length(&self) -> usize {
        match self.form {
            Form::Tagged { .. } => TAGGED_HEADER_BYTES,
            Form::Untagged { .. } => UNTAGGED_HEADER_BYTES,
        }
    }

    /// Returns the number of payload bytes of this frame.
    #[inline]
    #[must_use]
    pub(crate) const fn payload_length(&self) -> u32 {
        self.ulpdu_length as u32 + LENGTH_FIELD_BYTES as u32 - self.header_length() as u32
    }

    /// Writes the header and returns its length in bytes: 16 if tagged, 20 if untagged.
    #[inline]
    pub(crate) fn encode(&self, bytes: &mut [u8; HEADER_BYTES_MAX]) -> usize {
        let last = if self.last { LAST } else { 0 };
        bytes[0..2].copy_from_slice(&self.ulpdu_length.to_be_bytes());
        bytes[3] = RDMAP_VERSION | self.opcode as u8;
        match self.form {
            Form::Tagged { stag, offset } => {
                bytes[2] = TAGGED | last | DDP_VERSION;
                bytes[4..8].copy_from_slice(&stag.0.to_be_bytes());
                bytes[8..16].copy_from_slice(&offset.0.to_be_bytes());
                TAGGED_HEADER_BYTES
            }
            Form::Untagged { sequence, message_offset, ulp_word } => {
                let queue = self.opcode.queue().map_or(0, |queue| queue as u32);
                bytes[2] = last | DDP_VERSION;
                bytes[4..8].copy_from_slice(&ulp_word.to_be_bytes());
                bytes[8..12].copy_from_slice(&queue.to_be_bytes());
                bytes[12..16].copy_from_slice(&sequence.0.to_be_bytes());
                bytes[16..20].copy_from_slice(&message_offset.to_be_bytes());
                UNTAGGED_HEADER_BYTES
            }
        }
    }
}

/// Parses the header at the start of `bytes`, which needs at least 16 bytes for a tagged header
/// and 20 for an untagged one.
///
/// # Errors
/// The first violation found. DDP's fields are checked before those of RDMAP (RFC 5040 7.2).
/// Missing bytes count as [`Violation::FpduTooShort`].
#[inline]
pub(crate) fn parse(bytes: &[u8]) -> Result<Header, Violation> {
    let tagged: &[u8; TAGGED_HEADER_BYTES] = bytes.first_chunk().ok_or(Violation::FpduTooShort)?;
    if tagged[2] & TAGGED != 0 {
        return parse_tagged(tagged);
    }
    let untagged: &[u8; UNTAGGED_HEADER_BYTES] =
        bytes.first_chunk().ok_or(Violation::FpduTooShort)?;
    parse_untagged(untagged)
}

#[inline]
fn parse_tagged(bytes: &[u8; TAGGED_HEADER_BYTES]) -> Result<Header, Violation> {
    let ulpdu_length = u16::from_be_bytes([bytes[0], bytes[1]]);
    if usize::from(ulpdu_length) < TAGGED_DDP_BYTES {
        return Err(Violation::FpduTooShort);
    }
    if bytes[2] & DDP_VERSION_MASK != DDP_VERSION {
        return Err(Violation::TaggedDdpVersion);
    }
    let opcode = parse_opcode(bytes[3])?;
    if opcode.queue().is_some() {
        return Err(Violation::Opcode);
    }
    let stag = Stag(u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]));
    let offset = TaggedOffset(u64::from_be_bytes([
        bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15],
    ]));
    let last = bytes[2] & LAST != 0;
    Ok(Header { opcode, last, ulpdu_length, form: Form::Tagged { stag, offset } })
}

#[inline]
fn parse_untagged(bytes: &[u8; UNTAGGED_HEADER_BYTES]) -> Result<Header, Violation> {
    let word = |index: usize| {
        u32::from_be_bytes([bytes[index], bytes[index + 1], bytes[index + 2], bytes[index + 3]])
    };
    let ulpdu_length = u16::from_be_bytes([bytes[0], bytes[1]]);
    if usize::from(ulpdu_length) < UNTAGGED_DDP_BYTES {
        return Err(Violation::FpduTooShort);
    }
    if bytes[2] & DDP_VERSION_MASK != DDP_VERSION {
        return Err(Violation::UntaggedDdpVersion);
    }
    let queue = match word(8) {
        0 => QueueNumber::Send,
        1 => QueueNumber::ReadRequest,
        2 => QueueNumber::Terminate,
        _ => return Err(Violation::QueueNumber),
    };
    let opcode = parse_opcode(bytes[3])?;
    if opcode.queue() != Some(queue) {
        return Err(Violation::Opcode);
    }
    let form = Form::Untagged {
        sequence: MessageSequence(word(12)),
        message_offset: word(16),
        ulp_word: word(4),
    };
    Ok(Header { opcode, last: bytes[2] & LAST != 0, ulpdu_length, form })
}

#[inline]
fn parse_opcode(control: u8) -> Result<Opcode, Violation> {
    if control & RDMAP_VERSION_MASK != RDMAP_VERSION {
        return Err(Violation::RdmapVersion);
    }
    Opcode::from_number(control & OPCODE_MASK).ok_or(Violation::Opcode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_bytes(opcode: Opcode) -> [u8; 2] {
        let form = match opcode.queue() {
            None => Form::Tagged { stag: Stag(1), offset: TaggedOffset(2) },
            Some(_) => {
                Form::Untagged { sequence: MessageSequence::FIRST, message_offset: 0, ulp_word: 0 }
            }
        };
        let header = Header { opcode, last: true, ulpdu_length: 100, form };
        let mut bytes = [0; HEADER_BYTES_MAX];
        let length = header.encode(&mut bytes);
        assert_eq!(length, header.header_length());
        assert_eq!(parse(&bytes), Ok(header));
        [bytes[2], bytes[3]]
    }

    #[test]
    fn first_bytes_by_opcode() {
        assert_eq!(first_bytes(Opcode::Write), [0xc1, 0x40]);
        assert_eq!(first_bytes(Opcode::ReadRequest), [0x41, 0x41]);
        assert_eq!(first_bytes(Opcode::ReadResponse), [0xc1, 0x42]);
        assert_eq!(first_bytes(Opcode::Send), [0x41, 0x43]);
        assert_eq!(first_bytes(Opcode::SendInvalidate), [0x41, 0x44]);
        assert_eq!(first_bytes(Opcode::SendSolicited), [0x41, 0x45]);
        assert_eq!(first_bytes(Opcode::SendSolicitedInvalidate), [0x41, 0x46]);
        assert_eq!(first_bytes(Opcode::Terminate), [0x41, 0x47]);
    }

    #[test]
    fn every_field_in_its_place() {
        let tagged = Header {
            opcode: Opcode::ReadResponse,
            last: false,
            ulpdu_length: 0x0e10,
            form: Form::Tagged {
                stag: Stag(0x1122_3344),
                offset: TaggedOffset(0x5566_7788_99aa_bbcc),
            },
        };
        let mut bytes = [0; HEADER_BYTES_MAX];
        assert_eq!(tagged.encode(&mut bytes), 16);
        let expected = [
            0x0e, 0x10, 0x81, 0x42, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa,
            0xbb, 0xcc,
        ];
        assert_eq!(bytes[..16], expected);
        let untagged = Header {
            opcode: Opcode::SendInvalidate,
            last: true,
            ulpdu_length: 18,
            form: Form::Untagged {
                sequence: MessageSequence(0x0102_0304),
                message_offset: 0x0506_0708,
                ulp_word: 0x090a_0b0c,
            },
        };
        assert_eq!(untagged.encode(&mut bytes), 20);
        let expected = [0, 18, 0x41, 0x44, 9, 10, 11, 12, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(bytes, expected);
        assert_eq!(untagged.payload_length(), 0);
    }

    #[test]
    fn breaches_are_told_apart() {
        let tagged = [0, 14, 0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut untagged = [0; 20];
        untagged[1] = 18;
        untagged[2..4].copy_from_slice(&[0x41, 0x43]);
        let changed = |base: &[u8], index: usize, value: u8| {
            let mut bytes = base.to_vec();
            bytes[index] = value;
            parse(&bytes)
        };
        assert!(parse(&tagged).is_ok());
        assert!(parse(&untagged).is_ok());
        assert_eq!(changed(&tagged, 1, 13), Err(Violation::FpduTooShort));
        assert_eq!(changed(&untagged, 1, 17), Err(Violation::FpduTooShort));
        assert_eq!(changed(&tagged, 2, 0xc0), Err(Violation::TaggedDdpVersion));
        assert_eq!(changed(&untagged, 2, 0x42), Err(Violation::UntaggedDdpVersion));
        assert_eq!(changed(&untagged, 11, 3), Err(Violation::QueueNumber));
        assert_eq!(changed(&untagged, 8, 1), Err(Violation::QueueNumber));
        assert_eq!(changed(&tagged, 3, 0x80), Err(Violation::RdmapVersion));
        assert_eq!(changed(&untagged, 3, 0x03), Err(Violation::RdmapVersion));
        assert_eq!(changed(&tagged, 3, 0x43), Err(Violation::Opcode));
        assert_eq!(changed(&untagged, 3, 0x40), Err(Violation::Opcode));
        assert_eq!(changed(&untagged, 3, 0x48), Err(Violation::Opcode));
        assert_eq!(changed(&untagged, 11, 1), Err(Violation::Opcode));
        // The parser ignores reserved bits.
        assert!(changed(&tagged, 2, 0xfd).is_ok());
        assert!(changed(&tagged, 3, 0x70).is_ok());
        assert_eq!(parse(&tagged[..15]), Err(Violation::FpduTooShort));
    }
}
