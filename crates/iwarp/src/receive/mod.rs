//! The receiving half: tells where bytes belong and what their arrival means.
//!
//! Invariant: frames are judged in stream order, each exactly once; a message is
//! announced by an [`Event`] only when its last frame has been placed and, where
//! CRC is in use, verified; after a [`Violation`] or a Terminate nothing more is
//! accepted.
//!
//! Three ways to drive it, free to change at every frame boundary:
//!
//! * **Whole frames in a buffer:** [`Receiver::on_fpdu`] takes one frame off a
//!   slice, CRC first. Place the payload it returns, then act on its event.
//! * **Piecemeal:** ask [`Receiver::next_step`]; give [`Receiver::on_header`] the
//!   staged bytes; read the payload straight to its place and report it with
//!   [`Receiver::on_payload`] or [`Receiver::on_placed`]; give
//!   [`Receiver::on_trailer`] the trailer.
//! * **Predicted:** one `recvmsg` has put header, payload and trailer of many
//!   frames where they were expected. For each: [`Receiver::check_header`],
//!   compare the [`Placement`] with the prediction, then as piecemeal. Where it
//!   differs, the bytes from there on are merely staged in odd places. Frames that are
//!   whole messages, which most are, have a shorter way: [`Receiver::on_whole_write`] and
//!   [`Receiver::whole_send`].
//!
//! With CRC in use the last two place before the CRC is known, so a damaged
//! header may misplace bytes before it is found out, within what the driver lets
//! the peer reach. Use the first way where that matters.

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

/// The receiving half of a stream.
#[derive(Debug)]
pub struct Receiver {
    phase: Phase,
    crc: bool,
    heard: bool,
    /// Over the current frame, where CRC is in use.
    checksum: Checksum,
    payload_left: u32,
    /// The current frame, or the last one once it is complete.
    current: Placement,
    /// Its header as it came, for the Terminate that may have to quote it.
    header: [u8; HEADER_BYTES_MAX],
    sends: SendOrder,
    writes: WriteOrder,
    read_requests: ReadRequestOrder,
    reads: OpenReads,
    control: Control,
    ending: Ending,
}

/// Where in a frame the stream is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Header,
    /// Payload while there is some left, then the trailer.
    Body,
    Closed,
}

/// The payload of the current control message.
#[derive(Debug)]
struct Control {
    bytes: [u8; TERMINATE_BYTES_MAX],
    length: usize,
}

/// How the stream ended.
#[derive(Debug, Default)]
struct Ending {
    violation: Option<Violation>,
    /// What to tell the peer, until it is taken.
    outgoing: Option<Terminate>,
    /// What the peer told.
    incoming: Option<Terminate>,
}

const _: () = assert!(READ_REQUEST_BYTES <= TERMINATE_BYTES_MAX);

impl Receiver {
    /// A receiver for an established stream. Allocates the table of open reads,
    /// `established.ord` entries, and nothing thereafter.
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

    /// What is wanted next.
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

    /// Whether CRC is in use.
    #[inline]
    #[must_use]
    pub fn crc_in_use(&self) -> bool {
        self.crc
    }

    /// Whether a whole valid frame has ever come: then a responder may speak
    /// ([`Transmitter::on_peer_spoke`](crate::Transmitter::on_peer_spoke)).
    #[inline]
    #[must_use]
    pub fn has_heard(&self) -> bool {
        self.heard
    }

    /// Takes in a header from staged bytes, which may hold more than that.
    /// `Ok(None)` asks for more bytes (at most 20) and changes nothing. On
    /// success `placement.header_length` bytes have been used.
    ///
    /// # Errors
    /// The violation found; the stream is over.
    #[inline]
    pub fn on_header(&mut self, staged: &[u8]) -> Result<Option<Placement>, Violation> {
        let Some(shape) = FpduShape::peek(staged) else { return Ok(None) };
        // A length that is too small is known before the rest of the header comes,
        // and the rest might never come.
        if staged.len() < shape.header_length() && shape.covers_header() {
            return Ok(None);
        }
        self.check_header(staged).map(Some)
    }

    /// Takes in a header of exactly the right length: 16 bytes tagged, 20
    /// untagged. More bytes are ignored, fewer are a violation.
    ///
    /// # Errors
    /// The violation found; the stream is over.
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

    /// Takes in payload bytes: checksummed where CRC is in use, copied only for
    /// control messages, otherwise merely counted. May be called piece by piece.
    ///
    /// # Errors
    /// `OutOfOrder` if more came than the frame holds.
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

    /// Counts payload bytes that went to their place unseen.
    ///
    /// # Errors
    /// `OutOfOrder` if more came than the frame holds, if CRC is in use, or if
    /// the target is a control message.
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

    /// Takes in the trailer (exactly `placement.trailer_length` bytes) and
    /// completes the frame.
    ///
    /// # Errors
    /// The violation found; the stream is over. A call when no trailer is due, or
    /// with the wrong number of bytes, counts as `LocalCatastrophe`.
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

    /// Takes one whole frame off the front of `buffer`; `Ok(None)` if it is not
    /// whole yet (see [`FpduShape`] for how much is missing).
    ///
    /// # Errors
    /// The violation found; the stream is over.
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

    /// Opens a read: its response is awaited from now on.
    ///
    /// # Errors
    /// `Closed`; `ReadDepth` if as many are open as agreed (ORD); `OffsetWrap` if
    /// a range passes 2^64.
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

    /// Reads whose responses are not complete.
    #[inline]
    #[must_use]
    pub fn open_read_count(&self) -> usize {
        self.reads.count()
    }

    /// Reads that may be opened at once (ORD).
    #[inline]
    #[must_use]
    pub fn open_read_count_max(&self) -> usize {
        self.reads.count_max()
    }

    /// The oldest unanswered Read Request has been answered. Call it no later
    /// than when the last bytes of the response go to the socket: the peer may
    /// ask anew as soon as it has them.
    ///
    /// # Errors
    /// `OutOfOrder` if none is unanswered.
    #[inline]
    pub fn on_read_answered(&mut self) -> Result<(), Refusal> {
        if self.read_requests.on_answered() { Ok(()) } else { Err(Refusal::OutOfOrder) }
    }

    /// The driver cannot place, or invalidate, what the current frame names; the
    /// current frame is the one whose header or event was given out last. The
    /// stream is over.
    #[cold]
    pub fn refuse(&mut self, error: PlacementError) -> Violation {
        let context = match self.current.target {
            Target::Write { .. } | Target::ReadResponse { .. } => PlacementContext::Tagged,
            Target::Send { .. } | Target::Terminate => PlacementContext::Send,
            Target::ReadRequest { .. } => PlacementContext::ReadRequest,
        };
        self.end(Violation::Placement(error, context))
    }

    /// The driver may not answer that Read Request, which need not be the current
    /// frame any more. The stream is over.
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

    /// This side broke. The stream is over.
    #[cold]
    pub fn fail(&mut self) -> Violation {
        self.end(Violation::LocalCatastrophe)
    }

    /// What to tell the peer about the violation, once; `None` if there was none,
    /// if it has been taken, or if the peer ended the stream.
    #[must_use]
    pub fn take_terminate(&mut self) -> Option<Terminate> {
        self.ending.outgoing.take()
    }

    /// The peer's Terminate, if it sent one that could be read.
    #[must_use]
    pub fn received_terminate(&self) -> Option<&Terminate> {
        self.ending.incoming.as_ref()
    }

    /// The violation that ended the stream.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        self.ending.violation
    }

    /// Judges a header and makes its frame the current one.
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

    /// Copies the header before it is judged, so that a Terminate can quote it.
    #[inline]
    fn keep_header(&mut self, bytes: &[u8]) {
        if let Some(untagged) = bytes.first_chunk::<HEADER_BYTES_MAX>() {
            self.header = *untagged;
        } else if let Some(tagged) = bytes.first_chunk::<TAGGED_HEADER_BYTES>() {
            self.header[..TAGGED_HEADER_BYTES].copy_from_slice(tagged);
        }
    }

    /// Holds a header against the frames that came before it.
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

    /// The current frame is whole and valid: what does that mean?
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

    /// Ends the stream, quoting the current frame.
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

    /// Ends the stream, unless it has ended: the first ending stands.
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

    /// A call that does not fit: repeats the violation that ended the stream, or
    /// ends it, because bytes and machine no longer agree.
    #[cold]
    fn out_of_order(&mut self) -> Violation {
        match self.ending.violation {
            Some(violation) => violation,
            None => self.fail(),
        }
    }
}

impl Control {
    /// Keeps what fits; what does not is of no use.
    fn append(&mut self, bytes: &[u8]) {
        let length = bytes.len().min(TERMINATE_BYTES_MAX - self.length);
        self.bytes[self.length..self.length + length].copy_from_slice(&bytes[..length]);
        self.length += length;
    }

    fn read_request(&self) -> Option<ReadRequest> {
        self.bytes[..self.length].first_chunk().map(ReadRequest::decode)
    }
}
