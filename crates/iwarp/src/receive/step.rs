//! What a receiver says: its wants, the places of payload, and its events.
//!
//! Invariant: these are plain values; none borrows from the machine.

use crate::ids::{MessageSequence, Stag, TaggedOffset};
use crate::read::ReadRequest;
#[cfg(doc)]
use crate::receive::Receiver;

/// What the receiver wants next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// At least this many bytes in one piece, for [`Receiver::on_header`]. No
    /// frame is shorter, so waiting for them cannot hang.
    Header {
        /// Bytes needed: 20.
        bytes: usize,
    },
    /// Payload bytes to be placed.
    Payload {
        /// Bytes still to come in this frame, never zero.
        bytes: u32,
    },
    /// The trailer in one piece, for [`Receiver::on_trailer`].
    Trailer {
        /// Bytes needed: 4 to 7.
        bytes: usize,
    },
    /// Nothing; the stream is over.
    Closed,
}

/// Where the payload of one frame belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The place.
    pub target: Target,
    /// Bytes of payload in this frame; may be zero.
    pub payload_length: u32,
    /// Bytes of header in front: 16 or 20.
    pub header_length: u8,
    /// Bytes of pad and CRC behind: 4 to 7.
    pub trailer_length: u8,
    /// Whether the message ends with this frame.
    pub last: bool,
}

/// The place of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// In a tagged buffer, by the peer's Write. With zero bytes of payload
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
        /// Bytes of the read that came before this frame.
        message_offset: u32,
    },
    /// In the receive buffer for this Send; every Send consumes one, also an
    /// empty one.
    Send {
        /// The number of the Send.
        sequence: MessageSequence,
        /// Bytes of the Send that came before this frame.
        message_offset: u32,
        /// Whether the receiver shall be woken.
        solicited: bool,
        /// The steering tag to invalidate on delivery.
        invalidate: Option<Stag>,
    },
    /// In this machine: a Read Request. Hand the bytes to
    /// [`Receiver::on_payload`].
    ReadRequest {
        /// The number of the Read Request.
        sequence: MessageSequence,
    },
    /// In this machine: a Terminate. Hand the bytes to [`Receiver::on_payload`].
    Terminate,
}

impl Target {
    /// Whether the payload is for the machine itself, at most 52 bytes of
    /// it that count, and must be given to [`Receiver::on_payload`].
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
        /// Bytes of the message.
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
    /// Bytes of the whole frame: where the next begins.
    pub total_length: usize,
    /// What its completion means, once the payload has been placed. If it cannot
    /// be, drop the event and call [`Receiver::refuse`].
    pub event: Event,
}
