//! The results of a receiver: the bytes needed next, the destination of payload, and events.
//!
//! Invariant: these are plain values. None of them borrows from the receiver.

use crate::ids::{MessageSequence, Stag, TaggedOffset};
use crate::read::ReadRequest;
#[cfg(doc)]
use crate::receive::Receiver;

/// The bytes that the receiver needs next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// At least this many contiguous bytes are needed for [`Receiver::on_header`]. No frame is
    /// shorter, so waiting for them cannot hang.
    Header {
        /// The number of bytes needed: 20.
        bytes: usize,
    },
    /// The next bytes are payload; the driver must place them in the target.
    Payload {
        /// The number of payload bytes of this frame that are still missing, never zero.
        bytes: u32,
    },
    /// The whole trailer, contiguous, is needed for [`Receiver::on_trailer`].
    Trailer {
        /// The number of bytes needed: 4 to 7.
        bytes: usize,
    },
    /// No bytes are needed, because the stream has ended.
    Closed,
}

/// The destination of the payload of one frame.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The kind of message and the position of the payload.
    pub target: Target,
    /// The number of payload bytes in this frame; may be zero.
    pub payload_length: u32,
    /// The number of header bytes before the payload: 16 or 20.
    pub header_length: u8,
    /// The number of pad and CRC bytes after the payload: 4 to 7.
    pub trailer_length: u8,
    /// True if this is the last frame of its message.
    pub last: bool,
}

/// The kind of message that a payload belongs to, and the position of the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The payload of the peer's Write must be placed in a tagged buffer. If the payload is empty,
    /// neither field may be checked (RFC 5041 7.1).
    Write {
        /// The steering tag of a buffer of this side.
        stag: Stag,
        /// The position in the buffer of this frame's payload.
        offset: TaggedOffset,
    },
    /// The payload must be placed in the sink of this side's oldest open read. The receiver has
    /// checked the range against that read.
    ReadResponse {
        /// The steering tag of the sink.
        stag: Stag,
        /// The position in the sink of this frame's payload.
        offset: TaggedOffset,
        /// The number of bytes of the response before this frame.
        message_offset: u32,
    },
    /// The payload must be placed in the receive buffer for this Send. Every Send, even an empty
    /// one, consumes a receive buffer.
    Send {
        /// The sequence number of the Send.
        sequence: MessageSequence,
        /// The number of bytes of the Send before this frame.
        message_offset: u32,
        /// True for a Send with Solicited Event, which wakes the receiver.
        solicited: bool,
        /// The steering tag to invalidate before delivery, if the Send names one.
        invalidate: Option<Stag>,
    },
    /// The bytes of a Read Request must be passed to [`Receiver::on_payload`].
    ReadRequest {
        /// The sequence number of the Read Request.
        sequence: MessageSequence,
    },
    /// The bytes of a Terminate must be passed to [`Receiver::on_payload`].
    Terminate,
}

impl Target {
    /// Returns true if the payload belongs to a control message and must be passed to
    /// [`Receiver::on_payload`], which uses at most 52 bytes.
    #[inline]
    #[must_use]
    pub const fn is_control(&self) -> bool {
        match self {
            Self::ReadRequest { .. } | Self::Terminate => true,
            Self::Write { .. } | Self::ReadResponse { .. } | Self::Send { .. } => false,
        }
    }
}

/// The result of completing a frame.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The frame is complete, but its message continues.
    Continued,
    /// A Write is complete. RDMAP does not report a Write to its user. The data is guaranteed to be
    /// in place only when a later Send arrives (RFC 5040 5.5).
    Written,
    /// A Send is complete, and all earlier data of the peer has been placed.
    Received {
        /// The sequence number of the Send.
        sequence: MessageSequence,
        /// The length of the message in bytes.
        length: u32,
        /// True for a Send with Solicited Event, which wakes the receiver.
        solicited: bool,
        /// The steering tag that must be invalidated now, before delivery. If that fails, call
        /// [`Receiver::refuse`].
        invalidate: Option<Stag>,
    },
    /// The peer requests a read. Send the responses
    /// ([`Outbound::answer_to`](crate::Outbound::answer_to)) in the order of these events, even
    /// if the length is zero, and call [`Receiver::on_read_answered`] for each. If the peer must
    /// not read this range, call [`Receiver::refuse_read`].
    ReadRequested {
        /// The sequence number of the request.
        sequence: MessageSequence,
        /// The requested range and its destination.
        request: ReadRequest,
    },
    /// The oldest open read of this side is complete.
    ReadCompleted {
        /// The request of that read.
        request: ReadRequest,
    },
    /// The peer has ended the stream, see [`Receiver::received_terminate`]. Close the connection
    /// without a reply.
    Terminated,
}

/// One whole frame at the start of a buffer.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fpdu<'buffer> {
    /// The destination of the payload.
    pub placement: Placement,
    /// The payload bytes, within the caller's buffer.
    pub payload: &'buffer [u8],
    /// The number of bytes of the whole frame. The next frame begins there.
    pub total_length: usize,
    /// The event of the completed frame. Handle it once the payload has been placed. If placing
    /// fails, drop the event and call [`Receiver::refuse`].
    pub event: Event,
}
