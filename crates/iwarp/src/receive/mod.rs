//! The receiving half: tells where octets belong and what their arrival means.
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
//!   staged octets; read the payload straight to its place and report it with
//!   [`Receiver::on_payload`] or [`Receiver::on_placed`]; give
//!   [`Receiver::on_trailer`] the trailer.
//! * **Predicted:** one `recvmsg` has put header, payload and trailer of many
//!   frames where they were expected. For each: [`Receiver::check_header`],
//!   compare the [`Placement`] with the prediction, then as piecemeal. Where it
//!   differs, the octets from there on are merely staged in odd places.
//!
//! With CRC in use the last two place before the CRC is known, so a damaged
//! header may misplace octets before it is found out, within what the driver lets
//! the peer reach. Use the first way where that matters.

mod order;
mod reads;

use crate::connect::Established;
use crate::crc::Checksum;
use crate::ids::{MessageSequence, Stag, TaggedOffset};
use crate::read::{OpenRead, ReadRequest};
use crate::terminate::Terminate;
use crate::violation::{PlacementError, Refusal, Violation};

/// What the receiver wants next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// At least this many octets in one piece, for [`Receiver::on_header`]. No
    /// frame is shorter, so waiting for them cannot hang.
    Header {
        /// Octets needed: 20.
        octets: usize,
    },
    /// Payload octets to be placed.
    Payload {
        /// Octets still to come in this frame, never zero.
        octets: u32,
    },
    /// The trailer in one piece, for [`Receiver::on_trailer`].
    Trailer {
        /// Octets needed: 4 to 7.
        octets: usize,
    },
    /// Nothing; the stream is over.
    Closed,
}

/// Where the payload of one frame belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The place.
    pub target: Target,
    /// Octets of payload in this frame; may be zero.
    pub payload_length: u32,
    /// Octets of header in front: 16 or 20.
    pub header_length: u8,
    /// Octets of pad and CRC behind: 4 to 7.
    pub trailer_length: u8,
    /// Whether the message ends with this frame.
    pub last: bool,
}

/// The place of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// In a tagged buffer, by the peer's Write. With zero octets of payload
    /// neither field may be checked (RFC 5041 7.1).
    Write {
        /// Our buffer.
        stag: Stag,
        /// Where the payload of this frame goes.
        offset: TaggedOffset,
    },
    /// In the sink of our oldest open read, already matched against it.
    ReadResponse {
        /// The sink buffer.
        stag: Stag,
        /// Where the payload of this frame goes.
        offset: TaggedOffset,
        /// Octets of the read that came before this frame.
        message_offset: u32,
    },
    /// In the receive buffer for this Send; every Send consumes one, also an
    /// empty one.
    Send {
        /// The number of the Send.
        sequence: MessageSequence,
        /// Octets of the Send that came before this frame.
        message_offset: u32,
        /// Whether the receiver shall be woken.
        solicited: bool,
        /// The steering tag to invalidate on delivery.
        invalidate: Option<Stag>,
    },
    /// In this machine: a Read Request. Hand the octets to
    /// [`Receiver::on_payload`].
    ReadRequest {
        /// The number of the Read Request.
        sequence: MessageSequence,
    },
    /// In this machine: a Terminate. Hand the octets to [`Receiver::on_payload`].
    Terminate,
}

impl Target {
    /// Whether the payload is for the machine itself, at most 70 octets of it,
    /// and must be given to [`Receiver::on_payload`].
    #[inline]
    #[must_use]
    pub const fn is_control(&self) -> bool {
        match self {
            Self::ReadRequest { .. } | Self::Terminate => true,
            Self::Write { .. } | Self::ReadResponse { .. } | Self::Send { .. } => false,
        }
    }
}

/// What the completion of a frame means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The frame is placed; its message goes on.
    Continued,
    /// A Write is complete. RDMAP does not deliver this to its user; the data may
    /// be trusted only when a later Send arrives (RFC 5040 5.5).
    Written,
    /// A Send is complete: everything the peer sent before it is placed.
    Received {
        /// The number of the Send.
        sequence: MessageSequence,
        /// Octets of the message.
        length: u32,
        /// Whether the receiver shall be woken.
        solicited: bool,
        /// The steering tag to invalidate now, before delivery. If it cannot be:
        /// [`Receiver::refuse`].
        invalidate: Option<Stag>,
    },
    /// The peer wants to read. Answer with
    /// [`Outbound::answer_to`](crate::Outbound::answer_to), in the order of these
    /// events, also when the length is zero; then call
    /// [`Receiver::on_read_answered`]. If it may not: [`Receiver::refuse_read`].
    ReadRequested {
        /// The number of the request.
        sequence: MessageSequence,
        /// What it wants.
        request: ReadRequest,
    },
    /// The oldest of our open reads is complete.
    ReadCompleted {
        /// What it wanted.
        request: ReadRequest,
    },
    /// The peer has ended the stream: see [`Receiver::received_terminate`]. Close
    /// the connection; do not answer.
    Terminated,
}

/// One whole frame, taken off a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fpdu<'buffer> {
    /// Where the payload belongs.
    pub placement: Placement,
    /// The payload.
    pub payload: &'buffer [u8],
    /// Octets of the whole frame: where the next begins.
    pub total_length: usize,
    /// What its completion means, once the payload has been placed. If it cannot
    /// be, drop the event and call [`Receiver::refuse`].
    pub event: Event,
}

/// The receiving half of a stream.
#[derive(Debug)]
pub struct Receiver {
    crc: Option<Checksum>,
}

impl Receiver {
    /// A receiver for an established stream. Allocates the table of open reads,
    /// `established.ord` entries, and nothing thereafter.
    #[must_use]
    pub fn new(established: &Established) -> Self {
        let _ = established;
        todo!()
    }

    /// What is wanted next.
    #[must_use]
    pub fn next_step(&self) -> Step {
        todo!()
    }

    /// Whether a frame's header has ever been accepted: then a responder may
    /// speak ([`Transmitter::on_peer_spoke`](crate::Transmitter::on_peer_spoke)).
    #[must_use]
    pub fn has_heard(&self) -> bool {
        todo!()
    }

    /// Takes in a header from staged octets, which may hold more than that.
    /// `Ok(None)` asks for more octets (at most 20) and changes nothing. On
    /// success `placement.header_length` octets have been used.
    ///
    /// # Errors
    /// The violation found; the stream is over.
    pub fn on_header(&mut self, staged: &[u8]) -> Result<Option<Placement>, Violation> {
        let _ = staged;
        todo!()
    }

    /// Takes in a header of exactly the right length: 16 octets tagged, 20
    /// untagged. More octets are ignored, fewer are a violation.
    ///
    /// # Errors
    /// The violation found; the stream is over.
    pub fn check_header(&mut self, header: &[u8]) -> Result<Placement, Violation> {
        let _ = header;
        todo!()
    }

    /// Takes in payload octets: checksummed where CRC is in use, copied only for
    /// control messages, otherwise merely counted. May be called piece by piece.
    ///
    /// # Errors
    /// `OutOfOrder` if more came than the frame holds.
    pub fn on_payload(&mut self, octets: &[u8]) -> Result<(), Refusal> {
        let _ = octets;
        todo!()
    }

    /// Counts payload octets that went to their place unseen.
    ///
    /// # Errors
    /// `OutOfOrder` if more came than the frame holds, if CRC is in use, or if
    /// the target is a control message.
    pub fn on_placed(&mut self, octets: u32) -> Result<(), Refusal> {
        let _ = octets;
        todo!()
    }

    /// Takes in the trailer (exactly `placement.trailer_length` octets) and
    /// completes the frame.
    ///
    /// # Errors
    /// The violation found; the stream is over. A call when no trailer is due, or
    /// with the wrong number of octets, counts as `LocalCatastrophe`.
    pub fn on_trailer(&mut self, trailer: &[u8]) -> Result<Event, Violation> {
        let _ = trailer;
        todo!()
    }

    /// Takes one whole frame off the front of `buffer`; `Ok(None)` if it is not
    /// whole yet (see [`FpduShape`](crate::FpduShape) for how much is missing).
    ///
    /// # Errors
    /// The violation found; the stream is over.
    pub fn on_fpdu<'buffer>(
        &mut self,
        buffer: &'buffer [u8],
    ) -> Result<Option<Fpdu<'buffer>>, Violation> {
        let _ = buffer;
        todo!()
    }

    /// Opens a read: its response is awaited from now on.
    ///
    /// # Errors
    /// `Closed`; `ReadDepth` if as many are open as agreed (ORD); `OffsetWrap` if
    /// a range passes 2^64.
    pub fn open_read(&mut self, request: ReadRequest) -> Result<OpenRead, Refusal> {
        let _ = request;
        todo!()
    }

    /// Reads whose responses are not complete.
    #[must_use]
    pub fn open_read_count(&self) -> usize {
        todo!()
    }

    /// Reads that may be opened at once (ORD).
    #[must_use]
    pub fn open_read_count_max(&self) -> usize {
        todo!()
    }

    /// The oldest unanswered Read Request has been answered. Call it no later
    /// than when the last octets of the response go to the socket: the peer may
    /// ask anew as soon as it has them.
    ///
    /// # Errors
    /// `OutOfOrder` if none is unanswered.
    pub fn on_read_answered(&mut self) -> Result<(), Refusal> {
        todo!()
    }

    /// The driver cannot place, or invalidate, what the current frame names; the
    /// current frame is the one whose header or event was given out last. The
    /// stream is over.
    pub fn refuse(&mut self, error: PlacementError) -> Violation {
        let _ = error;
        todo!()
    }

    /// The driver may not answer that Read Request. The stream is over.
    pub fn refuse_read(
        &mut self,
        sequence: MessageSequence,
        request: &ReadRequest,
        error: PlacementError,
    ) -> Violation {
        let _ = (sequence, request, error);
        todo!()
    }

    /// This side broke. The stream is over.
    pub fn fail(&mut self) -> Violation {
        todo!()
    }

    /// What to tell the peer about the violation, once; `None` if there was none,
    /// if it has been taken, or if the peer ended the stream.
    pub fn take_terminate(&mut self) -> Option<Terminate> {
        todo!()
    }

    /// The peer's Terminate, if it sent one that could be read.
    #[must_use]
    pub fn received_terminate(&self) -> Option<&Terminate> {
        todo!()
    }

    /// The violation that ended the stream.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        todo!()
    }
}
