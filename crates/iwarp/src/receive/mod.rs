//! The receiving half of a stream: determines where bytes must be placed and which events they
//! complete.
//!
//! Invariants:
//!
//! - Frames are checked in stream order, each exactly once.
//! - An [`Event`] reports a message only after its last frame has been placed and, if CRC is in
//!   use, verified.
//! - After a [`Violation`] or a Terminate, the receiver accepts nothing more.
//!
//! There are three ways to drive a receiver. A driver may switch at every frame boundary:
//!
//! - **Whole frames in a buffer:** [`Receiver::on_fpdu`] processes one frame at the start of a
//!   slice and checks the CRC first. The driver places the returned payload, then handles the
//!   event.
//! - **Piece by piece:** the driver calls [`Receiver::next_step`]. It passes the header bytes to
//!   [`Receiver::on_header`], reads the payload directly to its destination and reports this by
//!   [`Receiver::on_payload`] or [`Receiver::on_placed`], and passes the trailer to
//!   [`Receiver::on_trailer`].
//! - **Predicted:** one `recvmsg` call has put the headers, payloads and trailers of many frames
//!   where the driver expected them. For each frame, the driver calls [`Receiver::check_header`]
//!   and compares the [`Placement`] with the prediction, then continues as for piece by piece. If
//!   the prediction was wrong, the driver treats the bytes from there on as staged and moves them.
//!   Most frames are whole messages; [`Receiver::on_whole_write`] and [`Receiver::whole_send`] are
//!   a faster path for these.
//!
//! With CRC in use, the last two ways place payload before the CRC is checked. A damaged header
//! may then place bytes wrongly, within the memory that the driver exposes to the peer, before the
//! damage is detected. Use the first way if that matters.

mod order;
mod reads;
mod step;
mod whole;

pub use step::{Event, Fpdu, Placement, Step, Target};
pub use whole::{WriteHeader, write_header};

use order::{
    ReadRequestOrder, SendOrder, TaggedSegment, UntaggedSegment, WriteOrder, on_terminate_segment,
};
use reads::OpenReads;

use crate::connect::Established;
use crate::crc::Checksum;
use crate::fpdu::{
    CRC_BYTES, FpduShape, HEADER_BYTES_MAX, LENGTH_FIELD_BYTES, TAGGED_HEADER_BYTES, trailer_length,
};
use crate::header::{Form, Header, Opcode, parse};
use crate::ids::MessageSequence;
use crate::read::{OpenRead, READ_REQUEST_BYTES, ReadRequest};
use crate::terminate::{TERMINATE_BYTES_MAX, Terminate, TerminatedHeader};
use crate::violation::{PlacementContext, PlacementError, Refusal, Violation};

/// The receiving half of an established stream.
#[derive(Debug)]
pub struct Receiver {
    phase: Phase,
    crc: bool,
    heard: bool,
    /// The checksum of the current frame, if CRC is in use.
    checksum: Checksum,
    payload_left: u32,
    /// The placement of the current frame or, between two frames, of the previous frame.
    current: Placement,
    /// The received header bytes of the frame in `current`, which a Terminate may have to quote.
    header: [u8; HEADER_BYTES_MAX],
    sends: SendOrder,
    writes: WriteOrder,
    read_requests: ReadRequestOrder,
    reads: OpenReads,
    control: Control,
    ending: Ending,
}

/// The position of the stream within a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Header,
    /// Payload is due until all of it has arrived, and then the trailer.
    Body,
    Closed,
}

/// The payload of the current control message: a Read Request or a Terminate.
#[derive(Debug)]
struct Control {
    bytes: [u8; TERMINATE_BYTES_MAX],
    length: usize,
}

/// The reason why the stream ended.
#[derive(Debug, Default)]
struct Ending {
    violation: Option<Violation>,
    /// The Terminate to send; `None` once the driver has taken it.
    outgoing: Option<Terminate>,
    /// The Terminate that the peer sent.
    incoming: Option<Terminate>,
}

const _: () = assert!(READ_REQUEST_BYTES <= TERMINATE_BYTES_MAX);

impl Receiver {
    /// Creates the receiving half of an established stream. Allocates the table of open reads
    /// (`established.ord` entries) and allocates nothing afterwards.
    #[must_use]
    pub fn new(established: &Established) -> Self {
        Self {
            phase: Phase::Header,
            crc: established.crc,
            heard: false,
            checksum: Checksum::new(),
            payload_left: 0,
            current: Placement {
                target: Target::Terminate,
                payload_length: 0,
                header_length: 0,
                trailer_length: 0,
                last: true,
            },
            header: [0; HEADER_BYTES_MAX],
            sends: SendOrder::new(),
            writes: WriteOrder::new(),
            read_requests: ReadRequestOrder::new(established.ird),
            reads: OpenReads::new(established.ord),
            control: Control { bytes: [0; TERMINATE_BYTES_MAX], length: 0 },
            ending: Ending::default(),
        }
    }

    /// Returns the bytes that the receiver needs next.
    #[inline]
    #[must_use]
    pub fn next_step(&self) -> Step {
        match self.phase {
            Phase::Header => Step::Header { bytes: HEADER_BYTES_MAX },
            Phase::Body if self.payload_left > 0 => Step::Payload { bytes: self.payload_left },
            Phase::Body => Step::Trailer { bytes: usize::from(self.current.trailer_length) },
            Phase::Closed => Step::Closed,
        }
    }

    /// Returns true if frames carry a CRC, in both directions.
    #[inline]
    #[must_use]
    pub fn crc_in_use(&self) -> bool {
        self.crc
    }

    /// True once a complete valid frame has arrived. Only then may a responder send, see
    /// [`Transmitter::on_peer_spoke`](crate::Transmitter::on_peer_spoke).
    #[inline]
    #[must_use]
    pub fn has_heard(&self) -> bool {
        self.heard
    }

    /// Processes the header at the start of `staged`, which may contain more bytes. On success,
    /// `placement.header_length` bytes have been consumed. `Ok(None)` means that more bytes are
    /// needed, at most 20 in total, and that nothing has changed.
    ///
    /// # Errors
    /// The violation found, which ends the stream.
    #[inline]
    pub fn on_header(&mut self, staged: &[u8]) -> Result<Option<Placement>, Violation> {
        let Some(shape) = FpduShape::peek(staged) else { return Ok(None) };
        // A length that is too small is detected before the rest of the header arrives, which
        // might never arrive.
        if staged.len() < shape.header_length() && shape.covers_header() {
            return Ok(None);
        }
        self.check_header(staged).map(Some)
    }

    /// Processes a header, which has 16 bytes if tagged and 20 if untagged. Further bytes are
    /// ignored. Fewer bytes are a violation.
    ///
    /// # Errors
    /// The violation found, which ends the stream.
    #[inline]
    pub fn check_header(&mut self, header: &[u8]) -> Result<Placement, Violation> {
        if self.phase != Phase::Header {
            return Err(self.out_of_order());
        }
        let placement = self.admit(header)?;
        if self.crc {
            self.checksum = Checksum::new();
            self.checksum.update(&header[..usize::from(placement.header_length)]);
        }
        Ok(placement)
    }

    /// Processes payload bytes, in pieces of any size. Adds them to the checksum if CRC is in use,
    /// copies them only if they belong to a control message, and otherwise only counts them.
    ///
    /// # Errors
    /// [`Refusal::OutOfOrder`] if there are more bytes than the frame holds.
    #[inline]
    pub fn on_payload(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        if self.phase != Phase::Body || bytes.len() > self.payload_left as usize {
            return Err(Refusal::OutOfOrder);
        }
        if self.crc {
            self.checksum.update(bytes);
        }
        if self.current.target.is_control() {
            self.control.append(bytes);
        }
        self.payload_left -= bytes.len() as u32;
        Ok(())
    }

    /// Counts payload bytes that were placed without passing them to the receiver.
    ///
    /// # Errors
    /// [`Refusal::OutOfOrder`] if there are more bytes than the frame holds, if CRC is in use, or
    /// if the frame belongs to a control message.
    #[inline]
    pub fn on_placed(&mut self, bytes: u32) -> Result<(), Refusal> {
        let unseen_allowed = !self.crc && !self.current.target.is_control();
        if self.phase != Phase::Body || bytes > self.payload_left || !(unseen_allowed || bytes == 0)
        {
            return Err(Refusal::OutOfOrder);
        }
        self.payload_left -= bytes;
        Ok(())
    }

    /// Processes the trailer, exactly `placement.trailer_length` bytes, and completes the frame.
    ///
    /// # Errors
    /// The violation found, which ends the stream. A call when no trailer is due, or with a wrong
    /// number of bytes, counts as [`Violation::LocalCatastrophe`].
    #[inline]
    pub fn on_trailer(&mut self, trailer: &[u8]) -> Result<Event, Violation> {
        let due = self.phase == Phase::Body
            && self.payload_left == 0
            && trailer.len() == usize::from(self.current.trailer_length);
        if !due {
            return Err(self.out_of_order());
        }
        if self.crc {
            let (pad, crc) = trailer.split_at(trailer.len() - CRC_BYTES);
            self.checksum.update(pad);
            if crc != self.checksum.bytes() {
                return Err(self.end(Violation::CrcMismatch));
            }
        }
        self.complete()
    }

    /// Processes one whole frame at the start of `buffer`. Returns `Ok(None)` if the frame is not
    /// complete yet; [`FpduShape`] contains the length of the whole frame.
    ///
    /// # Errors
    /// The violation found, which ends the stream.
    #[inline]
    pub fn on_fpdu<'buffer>(
        &mut self,
        buffer: &'buffer [u8],
    ) -> Result<Option<Fpdu<'buffer>>, Violation> {
        if self.phase != Phase::Header {
            return Err(self.out_of_order());
        }
        let Some(shape) = FpduShape::peek(buffer) else { return Ok(None) };
        if !shape.covers_header() {
            return Err(self.end(Violation::FpduTooShort));
        }
        let Some(frame) = buffer.get(..shape.total_length()) else { return Ok(None) };
        if self.crc {
            let (covered, crc) = frame.split_at(frame.len() - CRC_BYTES);
            if crc != crate::crc::checksum_of(covered) {
                return Err(self.end(Violation::CrcMismatch));
            }
        }
        let placement = self.admit(frame)?;
        let payload = &frame[shape.header_length()..frame.len() - shape.trailer_length()];
        self.payload_left = 0;
        if placement.target.is_control() {
            self.control.append(payload);
        }
        let event = self.complete()?;
        Ok(Some(Fpdu { placement, payload, total_length: frame.len(), event }))
    }

    /// Opens a read: from now on the receiver expects its response.
    ///
    /// # Errors
    /// - [`Refusal::Closed`] if the stream has ended.
    /// - [`Refusal::ReadDepth`] if as many reads are open as agreed (ORD).
    /// - [`Refusal::OffsetWrap`] if a range passes 2^64.
    #[inline]
    pub fn open_read(&mut self, request: ReadRequest) -> Result<OpenRead, Refusal> {
        if self.phase == Phase::Closed {
            return Err(Refusal::Closed);
        }
        if request.wraps() {
            return Err(Refusal::OffsetWrap);
        }
        if self.reads.open(request) { Ok(OpenRead(request)) } else { Err(Refusal::ReadDepth) }
    }

    /// Returns the number of reads whose responses are not complete.
    #[inline]
    #[must_use]
    pub fn open_read_count(&self) -> usize {
        self.reads.count()
    }

    /// Returns the maximum number of reads that may be open at the same time (ORD).
    #[inline]
    #[must_use]
    pub fn open_read_count_max(&self) -> usize {
        self.reads.count_max()
    }

    /// Records that the oldest pending Read Request has received its response. The driver must call
    /// this before or when it passes the last bytes of the response to the socket, because the peer
    /// may send its next request as soon as it has these bytes.
    ///
    /// # Errors
    /// [`Refusal::OutOfOrder`] if no Read Request is pending.
    #[inline]
    pub fn on_read_answered(&mut self) -> Result<(), Refusal> {
        if self.read_requests.on_answered() { Ok(()) } else { Err(Refusal::OutOfOrder) }
    }

    /// Ends the stream because the driver cannot place the payload of the current frame, or cannot
    /// invalidate the STag that the frame names. The current frame is the one whose placement or
    /// event was returned last.
    #[cold]
    pub fn refuse(&mut self, error: PlacementError) -> Violation {
        let context = match self.current.target {
            Target::Write { .. } | Target::ReadResponse { .. } => PlacementContext::Tagged,
            Target::Send { .. } | Target::Terminate => PlacementContext::Send,
            Target::ReadRequest { .. } => PlacementContext::ReadRequest,
        };
        self.end(Violation::Placement(error, context))
    }

    /// Ends the stream because the driver must not respond to `request`. The request need not be
    /// in the current frame.
    #[cold]
    pub fn refuse_read(
        &mut self,
        sequence: MessageSequence,
        request: &ReadRequest,
        error: PlacementError,
    ) -> Violation {
        let ulpdu_length = (HEADER_BYTES_MAX - LENGTH_FIELD_BYTES + READ_REQUEST_BYTES) as u16;
        let form = Form::Untagged { sequence, message_offset: 0, ulp_word: 0 };
        let mut header = [0; HEADER_BYTES_MAX];
        Header { opcode: Opcode::ReadRequest, last: true, ulpdu_length, form }.encode(&mut header);
        let quoted = TerminatedHeader::new(ulpdu_length, &header[LENGTH_FIELD_BYTES..]);
        let violation = Violation::Placement(error, PlacementContext::ReadRequest);
        self.end_quoting(violation, quoted, Some(*request))
    }

    /// Ends the stream because this side has failed.
    #[cold]
    pub fn fail(&mut self) -> Violation {
        self.end(Violation::LocalCatastrophe)
    }

    /// Removes and returns the Terminate that reports the violation to the peer. Returns `None` if
    /// there was no violation, if the Terminate was taken before, or if the peer ended the stream.
    #[must_use]
    pub fn take_terminate(&mut self) -> Option<Terminate> {
        self.ending.outgoing.take()
    }

    /// Returns the peer's Terminate, if it sent one that could be decoded.
    #[must_use]
    pub fn received_terminate(&self) -> Option<&Terminate> {
        self.ending.incoming.as_ref()
    }

    /// Returns the violation that ended the stream, if one did.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        self.ending.violation
    }

    /// Checks a header and makes its frame the current frame.
    #[inline]
    fn admit(&mut self, bytes: &[u8]) -> Result<Placement, Violation> {
        self.keep_header(bytes);
        self.control.length = 0;
        match parse(bytes).and_then(|header| self.judge(&header)) {
            Ok(placement) => {
                self.current = placement;
                self.payload_left = placement.payload_length;
                self.phase = Phase::Body;
                Ok(placement)
            }
            Err(violation) => Err(self.end(violation)),
        }
    }

    /// Copies the header before it is checked, so that a Terminate can quote it.
    #[inline]
    fn keep_header(&mut self, bytes: &[u8]) {
        if let Some(untagged) = bytes.first_chunk::<HEADER_BYTES_MAX>() {
            self.header = *untagged;
        } else if let Some(tagged) = bytes.first_chunk::<TAGGED_HEADER_BYTES>() {
            self.header[..TAGGED_HEADER_BYTES].copy_from_slice(tagged);
        }
    }

    /// Checks a header against the preceding frames.
    #[inline]
    fn judge(&mut self, header: &Header) -> Result<Placement, Violation> {
        let payload_length = header.payload_length();
        let last = header.last;
        let target = match header.form {
            Form::Tagged { stag, offset } => {
                let segment = TaggedSegment { stag, offset, payload_length, last };
                match header.opcode {
                    Opcode::ReadResponse => self.reads.on_segment(&segment)?,
                    _ => self.writes.on_segment(&segment)?,
                }
            }
            Form::Untagged { sequence, message_offset, ulp_word } => {
                let opcode = header.opcode;
                let segment = UntaggedSegment {
                    opcode,
                    sequence,
                    message_offset,
                    ulp_word,
                    payload_length,
                    last,
                };
                match opcode {
                    Opcode::ReadRequest => self.read_requests.on_segment(&segment)?,
                    Opcode::Terminate => on_terminate_segment(&segment)?,
                    _ => self.sends.on_segment(&segment)?,
                }
            }
        };
        Ok(Placement {
            target,
            payload_length,
            header_length: header.header_length() as u8,
            trailer_length: trailer_length(header.ulpdu_length) as u8,
            last,
        })
    }

    /// Completes the current frame, which is valid, and returns its event.
    #[inline]
    fn complete(&mut self) -> Result<Event, Violation> {
        self.phase = Phase::Header;
        self.heard = true;
        if !self.current.last && !self.current.target.is_control() {
            return Ok(Event::Continued);
        }
        match self.current.target {
            Target::Write { .. } => Ok(Event::Written),
            Target::Send { sequence, message_offset, solicited, invalidate } => {
                let length = message_offset + self.current.payload_length;
                Ok(Event::Received { sequence, length, solicited, invalidate })
            }
            Target::ReadResponse { .. } => match self.reads.complete() {
                Some(request) => Ok(Event::ReadCompleted { request }),
                None => Err(self.fail()),
            },
            Target::ReadRequest { sequence } => self.complete_read_request(sequence),
            Target::Terminate => Ok(self.complete_terminate()),
        }
    }

    fn complete_read_request(&mut self, sequence: MessageSequence) -> Result<Event, Violation> {
        match self.control.read_request() {
            Some(request) if request.wraps() => Err(self.end(Violation::ReadRequestWrap)),
            Some(request) => Ok(Event::ReadRequested { sequence, request }),
            None => Err(self.fail()),
        }
    }

    #[cold]
    fn complete_terminate(&mut self) -> Event {
        self.phase = Phase::Closed;
        self.ending.incoming = Terminate::decode(&self.control.bytes[..self.control.length]);
        Event::Terminated
    }

    /// Ends the stream with a Terminate that quotes the current frame.
    #[cold]
    fn end(&mut self, violation: Violation) -> Violation {
        let length = u16::from_be_bytes([self.header[0], self.header[1]]);
        let quoted = TerminatedHeader::new(length, &self.header[LENGTH_FIELD_BYTES..]);
        let request = match self.current.target {
            Target::ReadRequest { .. } => self.control.read_request(),
            Target::Write { .. }
            | Target::ReadResponse { .. }
            | Target::Send { .. }
            | Target::Terminate => None,
        };
        self.end_quoting(violation, quoted, request)
    }

    /// Ends the stream unless it has already ended; only the first violation is recorded.
    fn end_quoting(
        &mut self,
        violation: Violation,
        quoted: TerminatedHeader,
        request: Option<ReadRequest>,
    ) -> Violation {
        if self.phase != Phase::Closed {
            self.phase = Phase::Closed;
            self.payload_left = 0;
            self.ending.violation = Some(violation);
            self.ending.outgoing =
                Some(Terminate::new(violation.terminate_code(), Some(quoted), request));
        }
        violation
    }

    /// Handles a call that does not fit the state. Returns the violation that ended the stream, or
    /// ends the stream now, because the driver and the machine no longer agree about the stream.
    #[cold]
    fn out_of_order(&mut self) -> Violation {
        match self.ending.violation {
            Some(violation) => violation,
            None => self.fail(),
        }
    }
}

impl Control {
    /// Appends as many bytes as there is room for. Further bytes are not needed.
    fn append(&mut self, bytes: &[u8]) {
        let length = bytes.len().min(TERMINATE_BYTES_MAX - self.length);
        self.bytes[self.length..self.length + length].copy_from_slice(&bytes[..length]);
        self.length += length;
    }

    fn read_request(&self) -> Option<ReadRequest> {
        self.bytes[..self.length].first_chunk().map(ReadRequest::decode)
    }
}
