//! The Terminate message, which is the last message on a stream (RFC 5040 4.8).
//!
//! Invariant: a Terminate contains copied headers exactly where figure 10 of the RFC requires
//! them, and is never longer than [`TERMINATE_BYTES_MAX`].

use std::fmt;

use crate::fpdu::{TAGGED_DDP_BYTES, UNTAGGED_DDP_BYTES};
use crate::read::{READ_REQUEST_BYTES, ReadRequest};

/// The number of bytes of the longest Terminate payload: control word, segment length, an
/// untagged DDP header and a Read Request.
pub const TERMINATE_BYTES_MAX: usize =
    CONTROL_BYTES + SEGMENT_LENGTH_BYTES + UNTAGGED_DDP_BYTES + READ_REQUEST_BYTES;

const CONTROL_BYTES: usize = 4;
const SEGMENT_LENGTH_BYTES: usize = 2;
/// The M flag: the DDP segment length is valid.
const LENGTH_VALID: u8 = 0x80;
/// The D flag: a DDP header follows.
const DDP_HEADER: u8 = 0x40;
/// The R flag: a Read Request follows.
const READ_HEADER: u8 = 0x20;

const LAYER_RDMAP: u8 = 0;
const LAYER_DDP: u8 = 1;
const LAYER_MPA: u8 = 2;
const KIND_PROTECTION: u8 = 1;
const KIND_OPERATION: u8 = 2;
const KIND_TAGGED: u8 = 1;
const KIND_UNTAGGED: u8 = 2;

/// The reason for a Terminate: layer, error type and error code. The fields are public because a
/// peer may send any values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TerminateCode {
    /// The layer that found the error, in four bits: 0 RDMAP, 1 DDP, 2 MPA.
    pub layer: u8,
    /// The error type within the layer, in four bits.
    pub kind: u8,
    /// The error code within the error type.
    pub code: u8,
}

/// A copy of the header of the segment that caused a Terminate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TerminatedHeader {
    /// The number of bytes of the ULPDU that caused the Terminate.
    pub segment_length: u16,
    bytes: [u8; UNTAGGED_DDP_BYTES],
}

/// The contents of a Terminate message, sent or received.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Terminate {
    /// The reason for ending the stream.
    pub code: TerminateCode,
    /// The header of the segment that caused the error; `None` if no segment caused it.
    pub header: Option<TerminatedHeader>,
    /// The Read Request that caused the error; `None` except for protection errors of reads.
    pub read_request: Option<ReadRequest>,
}

impl TerminateCode {
    /// RDMAP, local catastrophic error: the side that sends this has failed.
    pub const LOCAL_CATASTROPHE: Self = Self::new(LAYER_RDMAP, 0, 0);
    /// RDMAP, remote protection error: invalid STag.
    pub const PROTECTION_STAG: Self = Self::new(LAYER_RDMAP, KIND_PROTECTION, 0);
    /// RDMAP, remote protection error: base or bounds violation.
    pub const PROTECTION_BOUNDS: Self = Self::new(LAYER_RDMAP, KIND_PROTECTION, 1);
    /// RDMAP, remote protection error: access rights violation.
    pub const PROTECTION_ACCESS: Self = Self::new(LAYER_RDMAP, KIND_PROTECTION, 2);
    /// RDMAP, remote protection error: the STag belongs to another stream.
    pub const PROTECTION_STAG_NOT_OF_STREAM: Self = Self::new(LAYER_RDMAP, KIND_PROTECTION, 3);
    /// RDMAP, remote protection error: the tagged offset wraps.
    pub const PROTECTION_OFFSET_WRAP: Self = Self::new(LAYER_RDMAP, KIND_PROTECTION, 4);
    /// RDMAP, remote protection error: the STag cannot be invalidated.
    pub const PROTECTION_CANNOT_INVALIDATE: Self = Self::new(LAYER_RDMAP, KIND_PROTECTION, 9);
    /// RDMAP, remote operation error: invalid RDMAP version.
    pub const OPERATION_VERSION: Self = Self::new(LAYER_RDMAP, KIND_OPERATION, 5);
    /// RDMAP, remote operation error: unexpected opcode.
    pub const OPERATION_OPCODE: Self = Self::new(LAYER_RDMAP, KIND_OPERATION, 6);
    /// RDMAP, remote operation error: catastrophic error, limited to this stream.
    pub const OPERATION_STREAM: Self = Self::new(LAYER_RDMAP, KIND_OPERATION, 7);
    /// DDP, tagged buffer error: invalid STag.
    pub const TAGGED_STAG: Self = Self::new(LAYER_DDP, KIND_TAGGED, 0);
    /// DDP, tagged buffer error: base or bounds violation.
    pub const TAGGED_BOUNDS: Self = Self::new(LAYER_DDP, KIND_TAGGED, 1);
    /// DDP, tagged buffer error: the STag belongs to another stream.
    pub const TAGGED_STAG_NOT_OF_STREAM: Self = Self::new(LAYER_DDP, KIND_TAGGED, 2);
    /// DDP, tagged buffer error: the tagged offset wraps.
    pub const TAGGED_OFFSET_WRAP: Self = Self::new(LAYER_DDP, KIND_TAGGED, 3);
    /// DDP, tagged buffer error: invalid DDP version.
    pub const TAGGED_VERSION: Self = Self::new(LAYER_DDP, KIND_TAGGED, 4);
    /// DDP, untagged buffer error: invalid queue number.
    pub const UNTAGGED_QUEUE_NUMBER: Self = Self::new(LAYER_DDP, KIND_UNTAGGED, 1);
    /// DDP, untagged buffer error: no buffer is available for the message.
    pub const UNTAGGED_NO_BUFFER: Self = Self::new(LAYER_DDP, KIND_UNTAGGED, 2);
    /// DDP, untagged buffer error: the message sequence number is out of range.
    pub const UNTAGGED_SEQUENCE_RANGE: Self = Self::new(LAYER_DDP, KIND_UNTAGGED, 3);
    /// DDP, untagged buffer error: invalid message offset.
    pub const UNTAGGED_OFFSET: Self = Self::new(LAYER_DDP, KIND_UNTAGGED, 4);
    /// DDP, untagged buffer error: the message is too long for its buffer.
    pub const UNTAGGED_TOO_LONG: Self = Self::new(LAYER_DDP, KIND_UNTAGGED, 5);
    /// DDP, untagged buffer error: invalid DDP version.
    pub const UNTAGGED_VERSION: Self = Self::new(LAYER_DDP, KIND_UNTAGGED, 6);
    /// MPA: the CRC does not match.
    pub const MPA_CRC: Self = Self::new(LAYER_MPA, 0, 2);
    /// MPA: the start of a frame does not agree with its length.
    pub const MPA_FPDU_START: Self = Self::new(LAYER_MPA, 0, 3);
    /// MPA: invalid request or reply frame.
    pub const MPA_START_UP_FRAME: Self = Self::new(LAYER_MPA, 0, 4);
    /// MPA: the inbound read depth (IRD) is insufficient.
    pub const MPA_READ_DEPTH: Self = Self::new(LAYER_MPA, 0, 6);
    /// MPA: the two sides have no ready-to-receive indication in common.
    pub const MPA_READY_TO_RECEIVE: Self = Self::new(LAYER_MPA, 0, 7);

    const fn new(layer: u8, kind: u8, code: u8) -> Self {
        Self { layer, kind, code }
    }

    /// Returns true if a Terminate with this code carries the DDP header (RFC 5040 figure 10).
    #[must_use]
    pub const fn carries_header(self) -> bool {
        match self.layer {
            LAYER_RDMAP => self.kind != 0,
            LAYER_DDP => true,
            _ => false,
        }
    }

    /// True if a Terminate with this code carries the Read Request when a Read Request caused
    /// the error.
    #[must_use]
    pub const fn carries_read_request(self) -> bool {
        self.layer == LAYER_RDMAP && self.kind == KIND_PROTECTION
    }

    /// Returns true if the tables of the RFCs define this code.
    #[must_use]
    pub const fn is_known(self) -> bool {
        matches!(
            (self.layer, self.kind, self.code),
            (LAYER_RDMAP | LAYER_DDP, 0, _)
                | (LAYER_RDMAP, KIND_PROTECTION, 0..=4 | 9 | 0xff)
                | (LAYER_RDMAP, KIND_OPERATION, 5..=9 | 0xff)
                | (LAYER_DDP, KIND_TAGGED, 0..=4)
                | (LAYER_DDP, KIND_UNTAGGED, 1..=6)
                | (LAYER_MPA, 0, 1..=7)
        )
    }
}

impl fmt::Display for TerminateCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{:#04x}", self.layer, self.kind, self.code)
    }
}

impl TerminatedHeader {
    /// Copies a DDP header of 14 (tagged) or 18 (untagged) bytes. Ignores bytes past that length
    /// and fills missing bytes with zero.
    #[must_use]
    pub fn new(segment_length: u16, header: &[u8]) -> Self {
        let mut bytes = [0; UNTAGGED_DDP_BYTES];
        let tagged = header.first().is_some_and(|first| first & 0x80 != 0);
        let form_length = if tagged { TAGGED_DDP_BYTES } else { UNTAGGED_DDP_BYTES };
        let length = header.len().min(form_length);
        bytes[..length].copy_from_slice(&header[..length]);
        Self { segment_length, bytes }
    }

    /// Returns the bytes of the DDP header: 14 if tagged, 18 if untagged.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        if self.bytes[0] & 0x80 != 0 { &self.bytes[..TAGGED_DDP_BYTES] } else { &self.bytes }
    }
}

impl Terminate {
    /// Creates a Terminate. Leaves out headers that the code does not allow.
    #[must_use]
    pub fn new(
        code: TerminateCode,
        header: Option<TerminatedHeader>,
        read_request: Option<ReadRequest>,
    ) -> Self {
        Self {
            code,
            header: header.filter(|_| code.carries_header()),
            read_request: read_request.filter(|_| code.carries_read_request()),
        }
    }

    /// Writes the payload of the message into `bytes` and returns its length in bytes.
    pub fn encode(&self, bytes: &mut [u8; TERMINATE_BYTES_MAX]) -> usize {
        bytes[0] = self.code.layer << 4 | self.code.kind & 0x0f;
        bytes[1] = self.code.code;
        bytes[2] = 0;
        bytes[3] = 0;
        let mut length = CONTROL_BYTES;
        if let Some(header) = &self.header {
            bytes[2] |= LENGTH_VALID | DDP_HEADER;
            bytes[length..length + 2].copy_from_slice(&header.segment_length.to_be_bytes());
            length += SEGMENT_LENGTH_BYTES;
            let copy = header.bytes();
            bytes[length..length + copy.len()].copy_from_slice(copy);
            length += copy.len();
        }
        if let Some(request) = &self.read_request {
            bytes[2] |= READ_HEADER;
            bytes[length..length + READ_REQUEST_BYTES].copy_from_slice(&request.encode());
            length += READ_REQUEST_BYTES;
        }
        length
    }

    /// Decodes the payload of a message, in the layout of the RFC or in that of Linux siw on
    /// little-endian machines. Returns `None` if the control word is incomplete. Headers that
    /// are announced but incomplete are omitted.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (control, rest) = bytes.split_first_chunk::<CONTROL_BYTES>()?;
        let (code, flags) = decode_control(*control);
        let (header, rest) = decode_header(flags, rest);
        // Without a DDP header, the position of the Read Request is undefined.
        let read_request = (flags & READ_HEADER != 0 && header.is_some())
            .then(|| rest.first_chunk().map(ReadRequest::decode))
            .flatten();
        Some(Self { code, header, read_request })
    }
}

/// Returns the code, and the flags M, D and R in the bit positions of the RFC.
///
/// Linux siw fills the control word through bit fields of the host: it swaps the nibbles of the
/// first byte and puts the flags into the three low bits of the third. The flags show which of the
/// two layouts is in use. If no flag is set, the RFC's layout is tried first; a layout that yields
/// a code from the tables of the RFC is preferred.
fn decode_control(control: [u8; CONTROL_BYTES]) -> (TerminateCode, u8) {
    let [kinds, code, flags, _] = control;
    let by_rfc = TerminateCode { layer: kinds >> 4, kind: kinds & 0x0f, code };
    let by_siw = TerminateCode { layer: kinds & 0x0f, kind: kinds >> 4, code };
    if flags & (LENGTH_VALID | DDP_HEADER | READ_HEADER) != 0 {
        return (by_rfc, flags);
    }
    if flags & 0x07 != 0 {
        let length = (flags & 1) << 7;
        let ddp = (flags & 2) << 5;
        let read = (flags & 4) << 3;
        return (by_siw, length | ddp | read);
    }
    // Without headers, most codes are local catastrophic or MPA errors. A first byte of 02 is an
    // MPA error of siw, unless its code can only be that of an operation error.
    let siw_says_mpa = by_siw.layer == LAYER_MPA && by_siw.kind == 0 && by_siw.is_known();
    if siw_says_mpa || (by_siw.is_known() && !by_rfc.is_known()) {
        return (by_siw, 0);
    }
    (by_rfc, 0)
}

fn decode_header(flags: u8, bytes: &[u8]) -> (Option<TerminatedHeader>, &[u8]) {
    if flags & DDP_HEADER == 0 {
        return (None, bytes);
    }
    let Some((length, rest)) = bytes.split_first_chunk::<SEGMENT_LENGTH_BYTES>() else {
        return (None, &[]);
    };
    let tagged = rest.first().is_some_and(|first| first & 0x80 != 0);
    let form_length = if tagged { TAGGED_DDP_BYTES } else { UNTAGGED_DDP_BYTES };
    match rest.split_at_checked(form_length) {
        Some((header, rest)) => {
            (Some(TerminatedHeader::new(u16::from_be_bytes(*length), header)), rest)
        }
        None => (None, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(terminate: &Terminate) -> Vec<u8> {
        let mut bytes = [0xee; TERMINATE_BYTES_MAX];
        let length = terminate.encode(&mut bytes);
        bytes[..length].to_vec()
    }

    #[test]
    fn control_word_layout() {
        let terminate = Terminate::new(TerminateCode::MPA_CRC, None, None);
        assert_eq!(encoded(&terminate), [0x20, 2, 0, 0]);
        assert_eq!(Terminate::decode(&[0x20, 2, 0, 0]), Some(terminate));
    }

    #[test]
    fn tagged_header_is_fourteen_bytes() {
        let header: Vec<u8> = [0xc1, 0x40].into_iter().chain(2..14).collect();
        let copy = TerminatedHeader::new(1000, &header);
        let terminate = Terminate::new(TerminateCode::TAGGED_BOUNDS, Some(copy), None);
        let bytes = encoded(&terminate);
        assert_eq!(bytes[..6], [0x11, 1, 0xc0, 0, 0x03, 0xe8]);
        assert_eq!(bytes[6..], header);
        assert_eq!(Terminate::decode(&bytes), Some(terminate));
    }

    #[test]
    fn read_request_follows_untagged_header() {
        let header: Vec<u8> = [0x41, 0x41].into_iter().chain(2..18).collect();
        let request = ReadRequest { length: 7, ..ReadRequest::default() };
        let copy = Some(TerminatedHeader::new(46, &header));
        let terminate = Terminate::new(TerminateCode::PROTECTION_ACCESS, copy, Some(request));
        let bytes = encoded(&terminate);
        assert_eq!(bytes.len(), TERMINATE_BYTES_MAX);
        assert_eq!(bytes[..6], [0x01, 2, 0xe0, 0, 0, 46]);
        assert_eq!(bytes[24..], request.encode());
        assert_eq!(Terminate::decode(&bytes), Some(terminate));
    }

    #[test]
    fn headers_only_where_the_table_wants_them() {
        let copy = Some(TerminatedHeader::new(46, &[0x41; 18]));
        let request = Some(ReadRequest::default());
        let mpa = Terminate::new(TerminateCode::MPA_CRC, copy, request);
        assert_eq!((mpa.header, mpa.read_request), (None, None));
        let local = Terminate::new(TerminateCode::LOCAL_CATASTROPHE, copy, request);
        assert_eq!((local.header, local.read_request), (None, None));
        let ddp = Terminate::new(TerminateCode::TAGGED_STAG, copy, request);
        assert_eq!((ddp.header, ddp.read_request), (copy, None));
        let operation = Terminate::new(TerminateCode::OPERATION_OPCODE, copy, request);
        assert_eq!((operation.header, operation.read_request), (copy, None));
    }

    #[test]
    fn siw_layout_is_understood() {
        let header = [0xc1u8; 14];
        // DDP layer, tagged buffer error, bounds, with M and D in the low bits.
        let mut bytes = vec![0x11, 1, 0x03, 0, 0, 14];
        bytes.extend_from_slice(&header);
        let terminate = Terminate::decode(&bytes).unwrap();
        assert_eq!(terminate.code, TerminateCode::TAGGED_BOUNDS);
        assert_eq!(terminate.header.unwrap().bytes(), header);
        // An RDMAP remote operation error with its nibbles swapped.
        bytes[0] = 0x20;
        bytes[1] = 6;
        assert_eq!(Terminate::decode(&bytes).unwrap().code, TerminateCode::OPERATION_OPCODE);
        // An MPA CRC error without headers.
        assert_eq!(Terminate::decode(&[0x02, 2, 0, 0]).unwrap().code, TerminateCode::MPA_CRC);
    }

    #[test]
    fn torn_terminate_is_read_as_far_as_it_goes() {
        assert_eq!(Terminate::decode(&[0x20, 2, 0]), None);
        let torn = Terminate::decode(&[0x11, 0, 0xe0, 0, 0, 14, 0xc1]).unwrap();
        assert_eq!((torn.header, torn.read_request), (None, None));
    }
}
