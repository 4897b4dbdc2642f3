//! The errors: violations by the peer ([`Violation`]), failures to place the peer's data
//! ([`PlacementError`]), and invalid calls by the local side ([`Refusal`]).
//!
//! Invariant: every violation maps to exactly one Terminate code. The match has no wildcard arm,
//! so a new violation does not compile without a code.

use thiserror::Error;

use crate::terminate::TerminateCode;

/// A breach of the protocol by the peer, which ends the stream. [`Violation::terminate_code`]
/// returns the code that is reported to the peer.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum Violation {
    /// The CRC of a frame does not match (RFC 5044 8, code 2).
    #[error("CRC of a frame does not match")]
    CrcMismatch,
    /// The length field of a frame is too small for the frame's header.
    #[error("length of a frame is too small for its header")]
    FpduTooShort,
    /// A start-up frame does not begin with the expected key (RFC 5044 7.1.1).
    #[error("MPA start-up frame has the wrong key")]
    FrameKey,
    /// A start-up frame has an unsupported revision, or a reply has a revision that the
    /// request does not allow.
    #[error("MPA start-up frame has an unsupported revision")]
    FrameRevision,
    /// A start-up frame announces more than 512 bytes of private data, or announces enhanced
    /// data (the S bit) with fewer than four bytes.
    #[error("MPA start-up frame has a wrong private data length")]
    FramePrivateData,
    /// The peer's reply requires markers, which this library does not support.
    #[error("peer requires markers")]
    MarkersRequired,
    /// The responder requires more inbound reads than this side supports (RFC 6581 9.1).
    #[error("peer requires a greater read depth than this side has")]
    InsufficientReadDepth,
    /// The two sides have no ready-to-receive indication in common (RFC 6581 9.2).
    #[error("the two sides have no ready-to-receive indication in common")]
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
    /// A message sequence number is not the next one of its queue (RFC 5041 4.3).
    #[error("message sequence number is out of order")]
    MessageSequence,
    /// The message offset of a segment does not follow the previous segment.
    #[error("message offset does not follow the previous segment")]
    MessageOffset,
    /// An untagged message is longer than 2^32 - 1 bytes, or longer than its kind of message
    /// allows.
    #[error("untagged message is too long")]
    MessageTooLong,
    /// A segment has an RDMAP version other than 1.
    #[error("segment with a wrong RDMAP version")]
    RdmapVersion,
    /// An opcode is unknown, arrived on the wrong queue or in the wrong form, or changed within a
    /// message; or a read response arrived while no read was open.
    #[error("unexpected opcode")]
    Opcode,
    /// The peer has more reads open than agreed (the IRD of this side).
    #[error("peer has more reads open than agreed")]
    ReadDepth,
    /// A Read Request is shorter than 28 bytes or split over several segments.
    #[error("malformed Read Request")]
    ReadRequestForm,
    /// The range that a Read Request names passes 2^64.
    #[error("range of a Read Request passes 2^64")]
    ReadRequestWrap,
    /// The steering tag changed within a Write, or a read response does not name the sink of the
    /// oldest open read.
    #[error("steering tag is not the expected one")]
    TaggedStag,
    /// A segment of a Write or a read response does not start where the previous segment ended, or
    /// the length of a read response differs from the requested length.
    #[error("tagged offset or length is not the expected one")]
    TaggedRange,
    /// The bytes of a tagged segment pass offset 2^64.
    #[error("range of a tagged segment passes 2^64")]
    TaggedWrap,
    /// The driver could not place the peer's data.
    #[error("placement refused: {0} ({1:?})")]
    Placement(PlacementError, PlacementContext),
    /// This side failed, and the peer did not cause the failure.
    #[error("local catastrophic error")]
    LocalCatastrophe,
}

/// The reason why the driver could not place data in, read, or invalidate a buffer that the peer
/// named.
#[non_exhaustive]
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
    /// The range exceeds the tagged buffer.
    #[error("range exceeds the buffer")]
    Bounds,
    /// The buffer does not allow this kind of access.
    #[error("access not allowed")]
    Access,
    /// The steering tag belongs to another stream.
    #[error("steering tag belongs to another stream")]
    StagNotOfStream,
    /// The sum of offset and length exceeds 2^64.
    #[error("range passes 2^64")]
    ToWrap,
    /// The steering tag cannot be invalidated.
    #[error("steering tag cannot be invalidated")]
    CannotInvalidate,
}

/// The operation during which a [`PlacementError`] occurred.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PlacementContext {
    /// The placement of the data of an RDMA Write or a Read Response.
    Tagged,
    /// The placement of a Send, or the invalidation of the steering tag that a Send names.
    Send,
    /// The response to a Read Request.
    ReadRequest,
}

/// The error of a call by the local side that is not allowed in the current state. The call has no
/// effect.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum Refusal {
    /// The stream has ended: a Terminate was sent or received, or a violation was found.
    #[error("stream is closed")]
    Closed,
    /// A responder must not send before it has received a frame (RFC 5044 7.1.2).
    #[error("responder may not send before the initiator has")]
    PeerSilent,
    /// The ready-to-receive indication must be sent first (RFC 6581 9.2).
    #[error("ready-to-receive indication must be sent first")]
    ReadyToReceivePending,
    /// As many reads are open as the peer accepts (this side's ORD).
    #[error("peer accepts no more open reads")]
    ReadDepth,
    /// A tagged range would pass offset 2^64.
    #[error("tagged range passes 2^64")]
    OffsetWrap,
    /// The private data exceeds 244 bytes.
    #[error("private data too long")]
    PrivateDataTooLong,
    /// The call does not fit the state of the machine: for example a reply before the request, or
    /// payload when a header was expected.
    #[error("call does not fit the state of the stream")]
    OutOfOrder,
}

impl Violation {
    /// Returns the code of the Terminate that reports this violation to the peer (RFC 5040 4.8,
    /// RFC 5041 7.2, RFC 5044 8, RFC 6581 8).
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
            // The RFCs define no code for these two. Linux siw sends the same code.
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
    /// Returns the Terminate code for this error in `context`. Every pair has a code, even pairs
    /// that cannot occur.
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
            // DDP has no code for access rights. From the peer's view, no buffer under this STag
            // "allows Placement" (RFC 5041 7.1).
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
            // These errors can only concern the STag to invalidate (RFC 5040 7.2).
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
