//! What can go wrong: on the peer's side ([`Violation`]), in placing what it sent
//! ([`PlacementError`]), and in a call of the local side ([`Refusal`]).
//!
//! Invariant: every violation maps to exactly one Terminate code, by a match
//! without a wildcard arm, so that a new violation cannot go without one.

use thiserror::Error;

use crate::terminate::TerminateCode;

/// A breach of protocol by the peer. The stream is over; see
/// [`Violation::terminate_code`] for what the peer is told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum Violation {
    /// The CRC of a frame does not match (RFC 5044 8, code 2).
    #[error("CRC of a frame does not match")]
    CrcMismatch,
    /// The length field is too small for the header it precedes.
    #[error("length of a frame is too small for its header")]
    FpduTooShort,
    /// A start-up frame does not begin with the expected key.
    #[error("MPA start-up frame has the wrong key")]
    FrameKey,
    /// A start-up frame has a revision that cannot be spoken.
    #[error("MPA start-up frame has an unsupported revision")]
    FrameRevision,
    /// A start-up frame announces more than 512 bytes of private data, or
    /// claims enhanced data (S) with fewer than four bytes.
    #[error("MPA start-up frame has a wrong private data length")]
    FramePrivateData,
    /// The peer's reply requires markers, which are not supported.
    #[error("peer requires markers")]
    MarkersRequired,
    /// The responder wants more inbound reads than this side can take.
    #[error("peer wants a greater read depth than there is")]
    InsufficientReadDepth,
    /// No ready-to-receive indication is common to both sides.
    #[error("no ready-to-receive indication in common")]
    NoMatchingReadyToReceive,
    /// A tagged segment has a DDP version other than 1.
    #[error("tagged segment with a wrong DDP version")]
    TaggedDdpVersion,
    /// An untagged segment has a DDP version other than 1.
    #[error("untagged segment with a wrong DDP version")]
    UntaggedDdpVersion,
    /// An untagged segment names a queue other than 0, 1 and 2.
    #[error("untagged segment on an unknown queue")]
    QueueNumber,
    /// A message sequence number is not the next one of its queue.
    #[error("message sequence number is out of order")]
    MessageSequence,
    /// A message offset does not continue its message.
    #[error("message offset does not continue the message")]
    MessageOffset,
    /// An untagged message is longer than 2^32 - 1 bytes or than its form allows.
    #[error("untagged message is too long")]
    MessageTooLong,
    /// A segment has an RDMAP version other than 1.
    #[error("segment with a wrong RDMAP version")]
    RdmapVersion,
    /// An opcode is unknown, on the wrong queue or of the wrong form, or changed
    /// within a message; or a read response came while no read was open.
    #[error("unexpected opcode")]
    Opcode,
    /// The peer has more reads open than were agreed.
    #[error("peer has more reads open than agreed")]
    ReadDepth,
    /// A Read Request is shorter than 28 bytes or split over segments.
    #[error("malformed Read Request")]
    ReadRequestForm,
    /// The range a Read Request names passes 2^64.
    #[error("range of a Read Request wraps")]
    ReadRequestWrap,
    /// A Write changed its steering tag, or a read response does not name the
    /// sink of the oldest open read.
    #[error("steering tag does not continue the message")]
    TaggedStag,
    /// A Write or read response does not go on where its last segment ended, or
    /// does not have the length that was asked for.
    #[error("tagged offset or length does not continue the message")]
    TaggedRange,
    /// The bytes of a tagged segment pass offset 2^64.
    #[error("tagged segment wraps")]
    TaggedWrap,
    /// The driver could not place what came.
    #[error("placement refused: {0} ({1:?})")]
    Placement(PlacementError, PlacementContext),
    /// This side broke, through no fault of the peer.
    #[error("local catastrophic error")]
    LocalCatastrophe,
}

/// Why the driver could not place, read or invalidate what the peer named.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum PlacementError {
    /// No receive buffer is posted for a Send.
    #[error("no receive buffer posted")]
    NoBuffer,
    /// A Send is longer than the receive buffer posted for it.
    #[error("message longer than its buffer")]
    TooLong,
    /// The steering tag does not exist.
    #[error("invalid steering tag")]
    InvalidStag,
    /// The range is not within the tagged buffer.
    #[error("outside the buffer")]
    Bounds,
    /// The buffer does not allow this kind of access.
    #[error("access not allowed")]
    Access,
    /// The steering tag belongs to another stream.
    #[error("steering tag is not of this stream")]
    StagNotOfStream,
    /// Offset and length pass 2^64.
    #[error("offset wraps")]
    ToWrap,
    /// The steering tag to be invalidated cannot be.
    #[error("steering tag cannot be invalidated")]
    CannotInvalidate,
}

/// What was being done when a [`PlacementError`] came up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PlacementContext {
    /// Placing a Write or a read response.
    Tagged,
    /// Placing a Send, or invalidating what a Send asks to invalidate.
    Send,
    /// Answering a Read Request.
    ReadRequest,
}

/// The local side asked for what it may not have now. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum Refusal {
    /// The stream is over: a Terminate was sent or received, or a violation seen.
    #[error("stream is closed")]
    Closed,
    /// A responder may not send before it has received a frame (RFC 5044 7.1.2).
    #[error("responder may not send before the initiator has")]
    PeerSilent,
    /// The ready-to-receive indication must go first (RFC 6581 9.2).
    #[error("ready-to-receive indication must be sent first")]
    ReadyToReceivePending,
    /// As many reads are open as the peer takes (ORD).
    #[error("as many reads are open as the peer takes")]
    ReadDepth,
    /// A tagged range would pass offset 2^64.
    #[error("tagged range wraps")]
    OffsetWrap,
    /// The private data is longer than fits (244 bytes).
    #[error("private data too long")]
    PrivateDataTooLong,
    /// The call does not fit the state of the machine, e.g. an answer before the
    /// request, or payload when a header was due.
    #[error("call out of order")]
    OutOfOrder,
}

impl Violation {
    /// What the peer is told in a Terminate (RFC 5040 4.8, 5041 7.2, 5044 8, 6581 8).
    #[must_use]
    pub const fn terminate_code(self) -> TerminateCode {
        match self {
            Self::CrcMismatch => TerminateCode::MPA_CRC,
            Self::FpduTooShort => TerminateCode::MPA_FPDU_START,
            Self::FrameKey
            | Self::FrameRevision
            | Self::FramePrivateData
            | Self::MarkersRequired => TerminateCode::MPA_START_UP_FRAME,
            Self::InsufficientReadDepth => TerminateCode::MPA_READ_DEPTH,
            Self::NoMatchingReadyToReceive => TerminateCode::MPA_READY_TO_RECEIVE,
            Self::TaggedDdpVersion => TerminateCode::TAGGED_VERSION,
            Self::UntaggedDdpVersion => TerminateCode::UNTAGGED_VERSION,
            Self::QueueNumber => TerminateCode::UNTAGGED_QUEUE_NUMBER,
            Self::MessageSequence => TerminateCode::UNTAGGED_SEQUENCE_RANGE,
            Self::MessageOffset => TerminateCode::UNTAGGED_OFFSET,
            Self::MessageTooLong => TerminateCode::UNTAGGED_TOO_LONG,
            Self::RdmapVersion => TerminateCode::OPERATION_VERSION,
            Self::Opcode => TerminateCode::OPERATION_OPCODE,
            // The RFCs leave these two open; Linux siw says the same.
            Self::ReadDepth | Self::ReadRequestForm => TerminateCode::OPERATION_STREAM,
            Self::ReadRequestWrap => TerminateCode::PROTECTION_OFFSET_WRAP,
            Self::TaggedStag => TerminateCode::TAGGED_STAG,
            Self::TaggedRange => TerminateCode::TAGGED_BOUNDS,
            Self::TaggedWrap => TerminateCode::TAGGED_OFFSET_WRAP,
            Self::Placement(error, context) => error.terminate_code(context),
            Self::LocalCatastrophe => TerminateCode::LOCAL_CATASTROPHE,
        }
    }
}

impl PlacementError {
    /// The code for this error in that context; every pair has one, also those
    /// that make no sense.
    #[must_use]
    pub const fn terminate_code(self, context: PlacementContext) -> TerminateCode {
        match context {
            PlacementContext::Tagged => self.tagged_code(),
            PlacementContext::Send => self.send_code(),
            PlacementContext::ReadRequest => self.read_request_code(),
        }
    }

    const fn tagged_code(self) -> TerminateCode {
        match self {
            // DDP has no code for access rights: to the peer there is no buffer
            // "that allows Placement" under this STag (RFC 5041 7.1).
            Self::InvalidStag | Self::Access | Self::NoBuffer | Self::CannotInvalidate => {
                TerminateCode::TAGGED_STAG
            }
            Self::Bounds | Self::TooLong => TerminateCode::TAGGED_BOUNDS,
            Self::StagNotOfStream => TerminateCode::TAGGED_STAG_NOT_OF_STREAM,
            Self::ToWrap => TerminateCode::TAGGED_OFFSET_WRAP,
        }
    }

    const fn send_code(self) -> TerminateCode {
        match self {
            Self::NoBuffer => TerminateCode::UNTAGGED_NO_BUFFER,
            Self::TooLong | Self::Bounds | Self::ToWrap => TerminateCode::UNTAGGED_TOO_LONG,
            // These can only be about the STag to be invalidated (RFC 5040 7.2).
            Self::InvalidStag => TerminateCode::PROTECTION_STAG,
            Self::Access => TerminateCode::PROTECTION_ACCESS,
            Self::StagNotOfStream => TerminateCode::PROTECTION_STAG_NOT_OF_STREAM,
            Self::CannotInvalidate => TerminateCode::PROTECTION_CANNOT_INVALIDATE,
        }
    }

    const fn read_request_code(self) -> TerminateCode {
        match self {
            Self::InvalidStag => TerminateCode::PROTECTION_STAG,
            Self::Bounds | Self::TooLong => TerminateCode::PROTECTION_BOUNDS,
            Self::Access => TerminateCode::PROTECTION_ACCESS,
            Self::StagNotOfStream => TerminateCode::PROTECTION_STAG_NOT_OF_STREAM,
            Self::ToWrap => TerminateCode::PROTECTION_OFFSET_WRAP,
            Self::CannotInvalidate => TerminateCode::PROTECTION_CANNOT_INVALIDATE,
            Self::NoBuffer => TerminateCode::UNTAGGED_NO_BUFFER,
        }
    }
}
