//! The two start-up frames: `key 16 | flags u8 | revision u8 | length u16 | data`.
//!
//! Invariant: this module consumes bytes only up to the end of the frame and reports a wrong key
//! at its first wrong byte. A frame that it returns has a known revision and private data of a
//! legal length.

use super::{ReadyToReceiveSet, Role};
use crate::violation::Violation;

/// The number of bytes of a frame without private data.
pub const FRAME_HEADER_BYTES: usize = 20;
/// The maximum number of bytes of private data in a frame (RFC 5044 7.1.1).
pub const PRIVATE_DATA_BYTES_MAX: usize = 512;
/// The number of bytes of the longest frame.
pub const FRAME_BYTES_MAX: usize = FRAME_HEADER_BYTES + PRIVATE_DATA_BYTES_MAX;
/// The maximum number of bytes of user data that this side puts into a frame. Linux siw accepts 256
/// bytes of private data in total and miscounts lengths slightly below that.
pub const PRIVATE_DATA_OUT_BYTES_MAX: usize = 248 - ENHANCED_BYTES;
/// The read depth value that means "not negotiated here" (RFC 6581 9.1).
pub const DEPTH_NOT_NEGOTIATED: u16 = 0x3fff;
/// The largest read depth that a frame can state.
pub(super) const DEPTH_MAX: u16 = DEPTH_NOT_NEGOTIATED - 1;
/// The newest supported revision (RFC 6581).
pub(super) const REVISION_ENHANCED: u8 = 2;
/// The revision of RFC 5044.
pub(super) const REVISION_PLAIN: u8 = 1;

const KEY_BYTES: usize = 16;
const KEY_REQUEST: &[u8; KEY_BYTES] = b"MPA ID Req Frame";
const KEY_REPLY: &[u8; KEY_BYTES] = b"MPA ID Rep Frame";
/// The number of bytes of enhanced data at the start of the private data.
const ENHANCED_BYTES: usize = 4;

const FLAG_MARKERS: u8 = 0x80;
const FLAG_CRC: u8 = 0x40;
const FLAG_REJECT: u8 = 0x20;
const FLAG_ENHANCED: u8 = 0x10;

/// The A bit of the first word, which requests the peer-to-peer model.
const PEER_TO_PEER: u16 = 0x8000;
/// The B bit of the first word: the initiator can show its readiness by a Send.
const BY_SEND: u16 = 0x4000;
/// The C bit of the second word: the initiator can show its readiness by a Write.
const BY_WRITE: u16 = 0x8000;
/// The D bit of the second word: the initiator can show its readiness by a Read.
const BY_READ: u16 = 0x4000;
const DEPTH_MASK: u16 = 0x3fff;

/// A request frame or a reply frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub revision: u8,
    pub markers: bool,
    pub crc: bool,
    pub reject: bool,
    pub enhanced: Option<Enhanced>,
    /// The private data of the user, without the enhanced data.
    pub private_data: Vec<u8>,
}

/// The four bytes of enhanced data (RFC 6581 9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Enhanced {
    pub ird: u16,
    pub ord: u16,
    /// The ready-to-receive indications offered; `None` for the client-server model.
    pub peer_to_peer: Option<ReadyToReceiveSet>,
}

impl Enhanced {
    /// Returns the depths as (IRD, ORD), as they are reported to the user.
    pub(super) fn depth(&self) -> (u16, u16) {
        (self.ird, self.ord)
    }

    fn encode(&self) -> [u8; ENHANCED_BYTES] {
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        let set = self.peer_to_peer.unwrap_or_default();
        let first = self.ird & DEPTH_MASK
            | bit(self.peer_to_peer.is_some(), PEER_TO_PEER)
            | bit(set.send, BY_SEND);
        let second = self.ord & DEPTH_MASK | bit(set.write, BY_WRITE) | bit(set.read, BY_READ);
        let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
        [a, b, c, d]
    }

    fn decode(bytes: [u8; ENHANCED_BYTES]) -> Self {
        let first = u16::from_be_bytes([bytes[0], bytes[1]]);
        let second = u16::from_be_bytes([bytes[2], bytes[3]]);
        // Without the A bit, the other three bits have no meaning.
        let peer_to_peer = (first & PEER_TO_PEER != 0).then_some(ReadyToReceiveSet {
            write: second & BY_WRITE != 0,
            read: second & BY_READ != 0,
            send: first & BY_SEND != 0,
        });
        Self { ird: first & DEPTH_MASK, ord: second & DEPTH_MASK, peer_to_peer }
    }
}

impl Frame {
    /// Encodes the frame with the key of `sender`.
    pub(super) fn encode(&self, sender: Role) -> Vec<u8> {
        let key = key_of(sender);
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = bit(self.markers, FLAG_MARKERS)
            | bit(self.crc, FLAG_CRC)
            | bit(self.reject, FLAG_REJECT)
            | bit(self.enhanced.is_some(), FLAG_ENHANCED);
        let enhanced = self.enhanced.map(|enhanced| enhanced.encode());
        let enhanced: &[u8] = enhanced.as_ref().map_or(&[], |bytes| bytes);
        let length = enhanced.len() + self.private_data.len();
        let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES + length);
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(&[flags, self.revision]);
        bytes.extend_from_slice(&(length as u16).to_be_bytes());
        bytes.extend_from_slice(enhanced);
        bytes.extend_from_slice(&self.private_data);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        let (flags, revision) = (bytes[KEY_BYTES], bytes[KEY_BYTES + 1]);
        let private_data = &bytes[FRAME_HEADER_BYTES..];
        // Before revision 2, the bit is reserved and must be ignored (RFC 6581 6).
        let has_enhanced = flags & FLAG_ENHANCED != 0 && revision >= REVISION_ENHANCED;
        let (enhanced, private_data) = if has_enhanced {
            let (bytes, rest) =
                private_data.split_first_chunk().ok_or(Violation::FramePrivateData)?;
            (Some(Enhanced::decode(*bytes)), rest)
        } else {
            (None, private_data)
        };
        Ok(Self {
            revision,
            markers: flags & FLAG_MARKERS != 0,
            crc: flags & FLAG_CRC != 0,
            reject: flags & FLAG_REJECT != 0,
            enhanced,
            private_data: private_data.to_vec(),
        })
    }
}

/// Collects the bytes of one frame as they arrive.
#[derive(Clone, Debug, Default)]
pub(super) struct Gatherer {
    bytes: Vec<u8>,
}

impl Gatherer {
    /// Returns true if no byte has arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds bytes of the frame that `sender` sends. Returns the number of bytes that belong to the
    /// frame, and the frame once it is complete.
    pub(super) fn on_bytes(
        &mut self,
        sender: Role,
        bytes: &[u8],
    ) -> Result<(usize, Option<Frame>), Violation> {
        let before = self.bytes.len();
        self.take_up_to(FRAME_HEADER_BYTES, bytes);
        let key_length = self.bytes.len().min(KEY_BYTES);
        if self.bytes[..key_length] != key_of(sender)[..key_length] {
            return Err(Violation::FrameKey);
        }
        if self.bytes.len() < FRAME_HEADER_BYTES {
            return Ok((bytes.len(), None));
        }
        let total = self.total_length()?;
        let header_part = self.bytes.len() - before;
        self.take_up_to(total, &bytes[header_part..]);
        let consumed = self.bytes.len() - before;
        if self.bytes.len() < total {
            return Ok((consumed, None));
        }
        Frame::decode(&self.bytes).map(|frame| (consumed, Some(frame)))
    }

    fn take_up_to(&mut self, length: usize, bytes: &[u8]) {
        let missing = length.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..missing.min(bytes.len())]);
    }

    /// Returns the length that the header announces, after checking revision and length.
    fn total_length(&self) -> Result<usize, Violation> {
        if self.bytes[KEY_BYTES + 1] > REVISION_ENHANCED {
            return Err(Violation::FrameRevision);
        }
        let length = u16::from_be_bytes([self.bytes[18], self.bytes[19]]);
        if usize::from(length) > PRIVATE_DATA_BYTES_MAX {
            return Err(Violation::FramePrivateData);
        }
        Ok(FRAME_HEADER_BYTES + usize::from(length))
    }
}

fn key_of(sender: Role) -> &'static [u8; KEY_BYTES] {
    match sender {
        Role::Initiator => KEY_REQUEST,
        Role::Responder => KEY_REPLY,
    }
}
