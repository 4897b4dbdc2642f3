//! The sending half of a stream: cuts messages into frames (FPDUs).
//!
//! Invariants:
//!
//! - Messages get their sequence numbers in the order of the calls of [`Transmitter::begin`].
//! - Each segment fits the MULPDU, and the offsets within a message are contiguous.
//! - After a Terminate, nothing more is framed.

use crate::connect::{Established, ReadyToReceive, Role};
use crate::crc::Checksum;
use crate::fpdu::{
    CRC_BYTES, HEADER_BYTES_MAX, LENGTH_FIELD_BYTES, MULPDU_MAX, MULPDU_MIN, TAGGED_DDP_BYTES,
    TRAILER_BYTES_MAX, UNTAGGED_DDP_BYTES, UNTAGGED_HEADER_BYTES, fpdu_length, trailer_length,
};
use crate::header::{Form, Header, Opcode};
use crate::ids::{MessageSequence, Stag, TaggedOffset};
use crate::read::{OpenRead, READ_REQUEST_BYTES, ReadRequest};
use crate::receive::Receiver;
use crate::terminate::{TERMINATE_BYTES_MAX, Terminate};
use crate::violation::Refusal;

/// The number of bytes of the frame of a Read Request, which is always the same.
pub const READ_REQUEST_FPDU_BYTES: usize =
    fpdu_length((UNTAGGED_DDP_BYTES + READ_REQUEST_BYTES) as u16);
/// The maximum number of bytes of the frame of a Terminate.
pub const TERMINATE_FPDU_BYTES_MAX: usize =
    fpdu_length((UNTAGGED_DDP_BYTES + TERMINATE_BYTES_MAX) as u16);

// Both messages fit one segment under every legal MULPDU.
const _: () = assert!(UNTAGGED_DDP_BYTES + TERMINATE_BYTES_MAX <= MULPDU_MIN as usize);
const _: () = assert!(READ_REQUEST_FPDU_BYTES <= TERMINATE_FPDU_BYTES_MAX);

/// The alignment of payload lengths, in bytes. In every segment of a message except the last, the
/// payload length is a multiple of this number. Such segments need no pad, and the placement of
/// their payload stays aligned.
const PAYLOAD_ALIGNMENT: u32 = 8;

/// The sending half of an established stream. Framing allocates nothing; the example at the crate
/// root frames a write.
#[derive(Clone, Debug)]
pub struct Transmitter {
    crc: bool,
    closed: bool,
    /// True at a responder that has not received a frame from its initiator yet.
    peer_silent: bool,
    ready_to_receive: Option<ReadyToReceive>,
    tagged_payload_max: u32,
    untagged_payload_max: u32,
    send_sequence: MessageSequence,
    read_request_sequence: MessageSequence,
}

/// A message with payload, described by its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outbound {
    /// Any of the four kinds of Send (RFC 5040 4.1).
    Send {
        /// True for a Send with Solicited Event, which wakes the receiver.
        solicited: bool,
        /// The steering tag that the receiver invalidates before it delivers the message, if any.
        invalidate: Option<Stag>,
    },
    /// An RDMA Write into a buffer of the peer.
    Write {
        /// The steering tag of the peer's buffer.
        stag: Stag,
        /// The offset in that buffer at which the first byte is placed.
        offset: TaggedOffset,
    },
    /// The RDMA Read Response to the peer's oldest Read Request that has no response yet.
    ReadResponse {
        /// The steering tag of the sink that the request names.
        stag: Stag,
        /// The offset in the sink that the request names.
        offset: TaggedOffset,
    },
}

/// The remaining frames of one message. This is a plain value: it borrows nothing and may wait in a
/// queue. The frames of different messages must not be interleaved, and the messages must be sent
/// in the order in which they were begun.
#[derive(Clone, Debug)]
pub struct Segments {
    opcode: Opcode,
    exhausted: bool,
    form: Form,
    payload_max: u32,
    offset: u32,
    length: u32,
}

/// One frame, described by the lengths of its header, payload and trailer.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The number of bytes of the message that precede this payload.
    pub offset: u32,
    /// The length of the payload in bytes.
    pub length: u32,
    /// The length of the written header in bytes: 16 if tagged, 20 if untagged.
    pub header_length: usize,
    /// The length in bytes of the pad and CRC that must follow the payload: 4 to 7.
    pub trailer_length: usize,
    /// True if this is the last frame of the message.
    pub last: bool,
}

impl Transmitter {
    /// Creates the sending half of an established stream. `mulpdu` is the maximum ULPDU in bytes,
    /// see [`mulpdu_for_segment_size`](crate::mulpdu_for_segment_size). Values outside 128..=64768
    /// are clamped to that range.
    #[must_use]
    pub fn new(established: &Established, mulpdu: u16) -> Self {
        let mut transmitter = Self {
            crc: established.crc,
            closed: false,
            peer_silent: established.role == Role::Responder,
            ready_to_receive: established.ready_to_receive,
            tagged_payload_max: 0,
            untagged_payload_max: 0,
            send_sequence: MessageSequence::FIRST,
            read_request_sequence: MessageSequence::FIRST,
        };
        transmitter.set_mulpdu(mulpdu);
        transmitter
    }

    /// Sets the maximum ULPDU in bytes for messages that are begun from now on. Clamps the value as
    /// [`Transmitter::new`] does.
    pub fn set_mulpdu(&mut self, mulpdu: u16) {
        self.tagged_payload_max = payload_max(mulpdu, true);
        self.untagged_payload_max = payload_max(mulpdu, false);
    }

    /// Returns true if trailers must carry a CRC. If this is false, send
    /// [`TRAILER_WITHOUT_CRC`](crate::fpdu::TRAILER_WITHOUT_CRC) instead.
    #[inline]
    #[must_use]
    pub fn crc_in_use(&self) -> bool {
        self.crc
    }

    /// Returns true if nothing more can be sent on this stream.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the ready-to-receive indication that must be sent before everything else, if one
    /// is pending. [`Transmitter::ready_to_receive`] frames it.
    #[must_use]
    pub fn ready_to_receive_pending(&self) -> Option<ReadyToReceive> {
        self.ready_to_receive
    }

    /// Records that the receiving half has received a frame. Only then may a responder send
    /// (RFC 5044 7.1.2).
    #[inline]
    pub fn on_peer_spoke(&mut self) {
        self.peer_silent = false;
    }

    /// Closes this half without sending a Terminate.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Begins a message of `length` bytes. Zero is legal for every kind of message.
    ///
    /// # Errors
    /// - [`Refusal::Closed`] if the stream has ended.
    /// - [`Refusal::PeerSilent`] if a responder has not yet received a frame.
    /// - [`Refusal::ReadyToReceivePending`] if the indication has not been sent.
    /// - [`Refusal::OffsetWrap`] if the tagged range passes 2^64.
    #[inline]
    pub fn begin(&mut self, message: Outbound, length: u32) -> Result<Segments, Refusal> {
        self.may_send()?;
        if self.ready_to_receive.is_some() {
            return Err(Refusal::ReadyToReceivePending);
        }
        self.segments(message, length)
    }

    /// Writes the whole frame of a Read Request and returns its length in bytes.
    ///
    /// # Errors
    /// The errors of [`Transmitter::begin`] except [`Refusal::OffsetWrap`]. After an error, the
    /// receiver still counts `read` as open. After [`Refusal::Closed`] this does not matter,
    /// because the stream has ended. The two other errors cannot occur once this side has sent a
    /// message.
    #[inline]
    pub fn read_request(
        &mut self,
        read: &OpenRead,
        bytes: &mut [u8; READ_REQUEST_FPDU_BYTES],
    ) -> Result<usize, Refusal> {
        self.may_send()?;
        if self.ready_to_receive.is_some() {
            return Err(Refusal::ReadyToReceivePending);
        }
        Ok(self.frame_read_request(read, bytes))
    }

    /// Writes the whole frame of the pending ready-to-receive indication (RFC 6581 9.2) and
    /// returns its length in bytes.
    ///
    /// # Errors
    /// - [`Refusal::Closed`] if the stream has ended.
    /// - [`Refusal::OutOfOrder`] if no indication is pending.
    /// - [`Refusal::ReadDepth`] if the indication is a read and the receiver has no room for it.
    ///   A negotiated [`Established`] always has room.
    pub fn ready_to_receive(
        &mut self,
        receiver: &mut Receiver,
        bytes: &mut [u8; READ_REQUEST_FPDU_BYTES],
    ) -> Result<usize, Refusal> {
        self.may_send()?;
        // The receiver ignores the STag and offset of a message without payload. Linux siw also
        // sends STag 1 and offset 0.
        let (stag, offset) = (Stag(1), TaggedOffset(0));
        let length = match self.ready_to_receive.ok_or(Refusal::OutOfOrder)? {
            ReadyToReceive::Write => self.frame_empty(Outbound::Write { stag, offset }, bytes)?,
            ReadyToReceive::Send => {
                let send = Outbound::Send { solicited: false, invalidate: None };
                self.frame_empty(send, bytes)?
            }
            ReadyToReceive::Read => {
                let request =
                    ReadRequest { sink_stag: stag, source_stag: stag, ..ReadRequest::default() };
                let read = receiver.open_read(request)?;
                self.frame_read_request(&read, bytes)
            }
        };
        self.ready_to_receive = None;
        Ok(length)
    }

    /// Writes the whole frame of a Terminate, returns its length in bytes and closes this half.
    /// On the wire, it must follow a complete frame.
    ///
    /// # Errors
    /// [`Refusal::Closed`] if a Terminate has been sent or [`Transmitter::close`] was called.
    pub fn terminate(
        &mut self,
        terminate: &Terminate,
        bytes: &mut [u8; TERMINATE_FPDU_BYTES_MAX],
    ) -> Result<usize, Refusal> {
        if self.closed {
            return Err(Refusal::Closed);
        }
        self.closed = true;
        let mut payload = [0; TERMINATE_BYTES_MAX];
        let length = terminate.encode(&mut payload);
        Ok(self.frame_untagged(
            Opcode::Terminate,
            MessageSequence::FIRST,
            &payload[..length],
            bytes,
        ))
    }

    #[inline]
    fn may_send(&self) -> Result<(), Refusal> {
        if self.closed {
            return Err(Refusal::Closed);
        }
        if self.peer_silent {
            return Err(Refusal::PeerSilent);
        }
        Ok(())
    }

    #[inline]
    fn segments(&mut self, message: Outbound, length: u32) -> Result<Segments, Refusal> {
        let (opcode, form, payload_max) = match message {
            Outbound::Send { solicited, invalidate } => {
                let sequence = self.send_sequence;
                self.send_sequence = sequence.next();
                let ulp_word = invalidate.map_or(0, |stag| stag.0);
                let form = Form::Untagged { sequence, message_offset: 0, ulp_word };
                let opcode = Opcode::of_send(solicited, invalidate.is_some());
                (opcode, form, self.untagged_payload_max)
            }
            Outbound::Write { stag, offset } => {
                (Opcode::Write, tagged_form(stag, offset, length)?, self.tagged_payload_max)
            }
            Outbound::ReadResponse { stag, offset } => {
                (Opcode::ReadResponse, tagged_form(stag, offset, length)?, self.tagged_payload_max)
            }
        };
        Ok(Segments { opcode, exhausted: false, form, payload_max, offset: 0, length })
    }

    fn frame_read_request(
        &mut self,
        read: &OpenRead,
        bytes: &mut [u8; READ_REQUEST_FPDU_BYTES],
    ) -> usize {
        let sequence = self.read_request_sequence;
        self.read_request_sequence = sequence.next();
        self.frame_untagged(Opcode::ReadRequest, sequence, &read.0.encode(), bytes)
    }

    /// Writes the whole frame of a message without payload.
    fn frame_empty(&mut self, message: Outbound, bytes: &mut [u8]) -> Result<usize, Refusal> {
        let mut header = [0; HEADER_BYTES_MAX];
        let mut trailer = [0; TRAILER_BYTES_MAX];
        let Some(segment) = self.segments(message, 0)?.next_segment(&mut header) else {
            return Err(Refusal::OutOfOrder);
        };
        if self.crc {
            segment.finish(segment.checksum(&header), &mut trailer);
        }
        let (front, rest) = bytes.split_at_mut(segment.header_length);
        front.copy_from_slice(&header[..segment.header_length]);
        rest[..segment.trailer_length].copy_from_slice(&trailer[..segment.trailer_length]);
        Ok(segment.header_length + segment.trailer_length)
    }

    /// Writes the whole frame of an untagged message of one segment. `bytes` must have room.
    #[inline]
    fn frame_untagged(
        &self,
        opcode: Opcode,
        sequence: MessageSequence,
        payload: &[u8],
        bytes: &mut [u8],
    ) -> usize {
        let ulpdu_length = (UNTAGGED_DDP_BYTES + payload.len()) as u16;
        let form = Form::Untagged { sequence, message_offset: 0, ulp_word: 0 };
        let mut header = [0; HEADER_BYTES_MAX];
        Header { opcode, last: true, ulpdu_length, form }.encode(&mut header);
        let total = fpdu_length(ulpdu_length);
        let payload_end = UNTAGGED_HEADER_BYTES + payload.len();
        bytes[..UNTAGGED_HEADER_BYTES].copy_from_slice(&header);
        bytes[UNTAGGED_HEADER_BYTES..payload_end].copy_from_slice(payload);
        bytes[payload_end..total].fill(0);
        if self.crc {
            let crc_start = total - CRC_BYTES;
            let crc = crate::crc::checksum_of(&bytes[..crc_start]);
            bytes[crc_start..total].copy_from_slice(&crc);
        }
        total
    }
}

impl Segments {
    /// Writes the header of the next frame and returns its segment, or `None` after the last
    /// frame. A message without payload has one frame.
    #[inline]
    pub fn next_segment(&mut self, header: &mut [u8; HEADER_BYTES_MAX]) -> Option<Segment> {
        if self.exhausted {
            return None;
        }
        let left = self.length - self.offset;
        let length = left.min(self.payload_max);
        let last = length == left;
        let (form, ddp_bytes) = match self.form {
            Form::Tagged { stag, offset } => {
                let offset = offset.wrapping_add(self.offset);
                (Form::Tagged { stag, offset }, TAGGED_DDP_BYTES)
            }
            Form::Untagged { sequence, ulp_word, .. } => {
                let message_offset = self.offset;
                (Form::Untagged { sequence, message_offset, ulp_word }, UNTAGGED_DDP_BYTES)
            }
        };
        let ulpdu_length = (ddp_bytes as u32 + length) as u16;
        let header_length = Header { opcode: self.opcode, last, ulpdu_length, form }.encode(header);
        let offset = self.offset;
        self.offset += length;
        self.exhausted = last;
        let trailer_length = trailer_length(ulpdu_length);
        Some(Segment { offset, length, header_length, trailer_length, last })
    }

    /// Returns the number of bytes of the message that are not yet framed.
    #[must_use]
    pub fn bytes_left(&self) -> u32 {
        self.length - self.offset
    }

    /// Returns true if all frames of the message have been returned.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.exhausted
    }
}

impl Segment {
    /// Returns a checksum over the header. Update it with the payload bytes in order.
    #[inline]
    #[must_use]
    pub fn checksum(&self, header: &[u8; HEADER_BYTES_MAX]) -> Checksum {
        let mut checksum = Checksum::new();
        checksum.update(&header[..self.header_length]);
        checksum
    }

    /// Adds the pad to the checksum, writes pad and CRC into `trailer`, and returns
    /// `trailer_length` in bytes.
    #[inline]
    pub fn finish(&self, mut checksum: Checksum, trailer: &mut [u8; TRAILER_BYTES_MAX]) -> usize {
        let pad = self.trailer_length - CRC_BYTES;
        trailer[..pad].fill(0);
        checksum.update(&trailer[..pad]);
        trailer[pad..self.trailer_length].copy_from_slice(&checksum.bytes());
        self.trailer_length
    }

    /// Returns the length of the whole frame in bytes.
    #[inline]
    #[must_use]
    pub fn total_length(&self) -> usize {
        self.header_length + self.length as usize + self.trailer_length
    }
}

impl Outbound {
    /// Returns the Read Response to `request`. The length of the message is `request.length`.
    #[inline]
    #[must_use]
    pub fn answer_to(request: &ReadRequest) -> Self {
        Self::ReadResponse { stag: request.sink_stag, offset: request.sink_offset }
    }
}

/// Returns the payload length, in bytes, of every segment of a message except the last.
#[must_use]
pub const fn payload_max(mulpdu: u16, tagged: bool) -> u32 {
    let mulpdu = if mulpdu < MULPDU_MIN {
        MULPDU_MIN
    } else if mulpdu > MULPDU_MAX {
        MULPDU_MAX
    } else {
        mulpdu
    };
    let ddp_bytes = if tagged { TAGGED_DDP_BYTES } else { UNTAGGED_DDP_BYTES };
    let room = mulpdu as u32 - ddp_bytes as u32;
    room - room % PAYLOAD_ALIGNMENT
}

/// Returns the number of frames of a message of `length` bytes.
#[must_use]
pub const fn segment_count(length: u32, mulpdu: u16, tagged: bool) -> u32 {
    if length == 0 { 1 } else { length.div_ceil(payload_max(mulpdu, tagged)) }
}

#[inline]
fn tagged_form(stag: Stag, offset: TaggedOffset, length: u32) -> Result<Form, Refusal> {
    // The receiver must refuse a range that wraps (RFC 5041 7.1), so it is never sent.
    if length != 0 && offset.checked_add(length).is_none() {
        return Err(Refusal::OffsetWrap);
    }
    Ok(Form::Tagged { stag, offset })
}

// The ULPDU of a full segment fits the 16-bit length field.
const _: () = assert!(MULPDU_MAX as usize + LENGTH_FIELD_BYTES <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    fn transmitter(mulpdu: u16) -> Transmitter {
        Transmitter::new(&Established::client_server(Role::Initiator, false, 1, 1), mulpdu)
    }

    fn segments_of(mulpdu: u16, message: Outbound, length: u32) -> Vec<Segment> {
        let mut segments = transmitter(mulpdu).begin(message, length).unwrap();
        let mut header = [0; HEADER_BYTES_MAX];
        std::iter::from_fn(|| segments.next_segment(&mut header)).collect()
    }

    #[test]
    fn segments_fill_the_message_and_fit_the_mulpdu() {
        let write = Outbound::Write { stag: Stag(1), offset: TaggedOffset(0) };
        let send = Outbound::Send { solicited: false, invalidate: None };
        for (message, tagged) in [(write, true), (send, false)] {
            for mulpdu in [128, 129, 1442, 8954, 64_768] {
                for length in [0, 1, 103, 104, 105, 112, 4096, 100_000] {
                    let segments = segments_of(mulpdu, message, length);
                    assert_eq!(segments.len() as u32, segment_count(length, mulpdu, tagged));
                    let mut end = 0;
                    for segment in &segments {
                        assert_eq!(segment.offset, end);
                        end += segment.length;
                        let ulpdu = segment.header_length - LENGTH_FIELD_BYTES;
                        assert!(ulpdu + segment.length as usize <= usize::from(mulpdu));
                        assert_eq!(segment.last, end == length);
                        assert!(segment.last || segment.trailer_length == CRC_BYTES);
                        assert_eq!(segment.total_length() % 4, 0);
                    }
                    assert_eq!(end, length);
                }
            }
        }
    }

    #[test]
    fn sequence_numbers_by_queue() {
        let mut transmitter = transmitter(1440);
        let send = Outbound::Send { solicited: true, invalidate: Some(Stag(0x0102_0304)) };
        let mut header = [0; HEADER_BYTES_MAX];
        for sequence in 1..4u8 {
            transmitter.begin(send, 1).unwrap().next_segment(&mut header).unwrap();
            assert_eq!(header[..4], [0, 19, 0x41, 0x46]);
            assert_eq!(header[4..8], [1, 2, 3, 4]);
            assert_eq!(header[15], sequence);
        }
        let mut bytes = [0; READ_REQUEST_FPDU_BYTES];
        let read = OpenRead(ReadRequest { length: 9, ..ReadRequest::default() });
        for sequence in 1..4u8 {
            assert_eq!(transmitter.read_request(&read, &mut bytes), Ok(52));
            assert_eq!(bytes[..4], [0, 46, 0x41, 0x41]);
            assert_eq!((bytes[11], bytes[15]), (1, sequence));
            assert_eq!(bytes[20..48], read.0.encode());
        }
    }

    #[test]
    fn a_range_that_wraps_is_not_sent() {
        let write = |offset| Outbound::Write { stag: Stag(1), offset: TaggedOffset(offset) };
        let mut transmitter = transmitter(1440);
        assert_eq!(transmitter.begin(write(u64::MAX), 1).err(), Some(Refusal::OffsetWrap));
        assert!(transmitter.begin(write(u64::MAX), 0).is_ok());
        assert!(transmitter.begin(write(u64::MAX - 1), 1).is_ok());
    }
}
