//! The Read Request: 28 bytes that name the range to read and the range in which to place it.
//!
//! Invariant: an [`OpenRead`] exists only for a request whose response the receiver expects, so
//! that every response to a request of this side is expected.

use crate::ids::{Stag, TaggedOffset};

/// The number of bytes of an encoded Read Request (RFC 5040 4.4).
pub const READ_REQUEST_BYTES: usize = 28;

/// The fields of a Read Request (RFC 5040 4.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ReadRequest {
    /// The steering tag of the requester's buffer in which the data is placed.
    pub sink_stag: Stag,
    /// The offset in that buffer at which the first byte is placed.
    pub sink_offset: TaggedOffset,
    /// The number of bytes to read. Zero is legal, and such a request gets a response too.
    pub length: u32,
    /// The steering tag of the responder's buffer to read from.
    pub source_stag: Stag,
    /// The offset in that buffer of the first byte to read.
    pub source_offset: TaggedOffset,
}

/// A read whose response the [`Receiver`](crate::Receiver) expects. Pass it to
/// [`Transmitter::read_request`](crate::Transmitter::read_request), which frames the request.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a read that is not sent blocks all later ones"]
pub struct OpenRead(pub(crate) ReadRequest);

impl OpenRead {
    /// Returns the request of this read.
    #[must_use]
    pub fn request(&self) -> &ReadRequest {
        &self.0
    }
}

impl ReadRequest {
    /// Returns the request as encoded in messages.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; READ_REQUEST_BYTES] {
        let mut bytes = [0; READ_REQUEST_BYTES];
        bytes[0..4].copy_from_slice(&self.sink_stag.0.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.sink_offset.0.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.source_stag.0.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.source_offset.0.to_be_bytes());
        bytes
    }

    /// Decodes a request. Any 28 bytes are a valid encoding; the ranges are not checked.
    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8; READ_REQUEST_BYTES]) -> Self {
        Self {
            sink_stag: Stag(u32_at(bytes, 0)),
            sink_offset: TaggedOffset(u64_at(bytes, 4)),
            length: u32_at(bytes, 12),
            source_stag: Stag(u32_at(bytes, 16)),
            source_offset: TaggedOffset(u64_at(bytes, 20)),
        }
    }

    /// Returns true if the sink range or the source range passes offset 2^64.
    #[inline]
    #[must_use]
    pub(crate) fn wraps(&self) -> bool {
        self.length != 0
            && (self.sink_offset.checked_add(self.length).is_none()
                || self.source_offset.checked_add(self.length).is_none())
    }
}

#[inline]
fn u32_at(bytes: &[u8; READ_REQUEST_BYTES], index: usize) -> u32 {
    u32::from_be_bytes([bytes[index], bytes[index + 1], bytes[index + 2], bytes[index + 3]])
}

#[inline]
fn u64_at(bytes: &[u8; READ_REQUEST_BYTES], index: usize) -> u64 {
    u64::from(u32_at(bytes, index)) << 32 | u64::from(u32_at(bytes, index + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_and_round_trip() {
        let request = ReadRequest {
            sink_stag: Stag(0x0102_0304),
            sink_offset: TaggedOffset(0x0506_0708_090a_0b0c),
            length: 0x0d0e_0f10,
            source_stag: Stag(0x1112_1314),
            source_offset: TaggedOffset(0x1516_1718_191a_1b1c),
        };
        let bytes = request.encode();
        let expected: Vec<u8> = (1..=28).collect();
        assert_eq!(bytes.as_slice(), expected.as_slice());
        assert_eq!(ReadRequest::decode(&bytes), request);
    }

    #[test]
    fn wrap_is_seen_on_either_side() {
        let mut request = ReadRequest { length: 2, ..ReadRequest::default() };
        assert!(!request.wraps());
        request.sink_offset = TaggedOffset(u64::MAX - 1);
        assert!(request.wraps());
        request.sink_offset = TaggedOffset(u64::MAX - 2);
        assert!(!request.wraps());
        request.source_offset = TaggedOffset(u64::MAX);
        assert!(request.wraps());
        request.length = 0;
        assert!(!request.wraps());
    }
}
