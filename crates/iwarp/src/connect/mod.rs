//! The start-up of a stream: one request frame and one reply frame (RFC 5044 7.1, RFC 6581).
//!
//! Invariant: a state machine of this module reads at most one start-up frame, stores at most
//! [`FRAME_BYTES_MAX`] bytes, and never consumes a byte after the frame, because the following
//! bytes belong to the [`Receiver`](crate::Receiver).

mod frame;
mod initiator;
mod responder;

pub use frame::{
    DEPTH_NOT_NEGOTIATED, FRAME_BYTES_MAX, FRAME_HEADER_BYTES, PRIVATE_DATA_BYTES_MAX,
    PRIVATE_DATA_OUT_BYTES_MAX,
};
pub use initiator::{Initiator, InitiatorOutcome};
pub use responder::{ConnectRequest, Responder};

/// The role of one side in the start-up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// The side that sends the request. It must send the first frame of the stream.
    Initiator,
    /// The side that sends the reply. It must not send a frame before it has received one.
    Responder,
}

/// The terms that one side proposes in the start-up.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectConfig {
    /// True if this side requests CRC. CRC is in use if either side requests it.
    pub crc: bool,
    /// True to use the enhanced form (revision 2), which negotiates the read depths and the
    /// ready-to-receive indication. A plain responder refuses enhanced requests.
    pub enhanced: bool,
    /// The maximum number of reads that the peer may have open to this side (IRD), at most 0x3ffe.
    pub ird: u16,
    /// The maximum number of reads that this side wants to have open to the peer (ORD), at most
    /// 0x3ffe.
    pub ord: u16,
    /// True to negotiate the depths. If false, `ird` and `ord` are used unchanged, and the frame
    /// states 0x3fff for both.
    pub negotiate_depth: bool,
    /// The ready-to-receive indications that this side supports.
    ///
    /// An initiator requests the peer-to-peer model if and only if the set is not empty. A
    /// responder offers the indications that both sides support, but offers Send only if no other
    /// indication is common to both. If the sides have none in common, or the responder's set is
    /// empty, the responder offers Write and Read.
    pub ready_to_receive: ReadyToReceiveSet,
}

impl Default for ConnectConfig {
    /// Returns terms with the enhanced form, no CRC, the client-server model, and 16 reads in each
    /// direction.
    fn default() -> Self {
        Self {
            crc: false,
            enhanced: true,
            ird: 16,
            ord: 16,
            negotiate_depth: true,
            ready_to_receive: ReadyToReceiveSet::EMPTY,
        }
    }
}

/// The empty message with which an initiator shows that it is ready to receive (RFC 6581 9.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReadyToReceive {
    /// An RDMA Write without payload.
    Write,
    /// An RDMA Read of zero bytes.
    Read,
    /// A Send without payload. It consumes a receive buffer of the responder.
    Send,
}

/// A set of ready-to-receive indications.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ReadyToReceiveSet {
    /// True if the set contains [`ReadyToReceive::Write`].
    pub write: bool,
    /// True if the set contains [`ReadyToReceive::Read`].
    pub read: bool,
    /// True if the set contains [`ReadyToReceive::Send`].
    pub send: bool,
}

impl ReadyToReceiveSet {
    /// The empty set, which stands for the client-server model.
    pub const EMPTY: Self = Self { write: false, read: false, send: false };
    /// The set that contains only Send.
    pub const SEND: Self = Self { write: false, read: false, send: true };
    /// The set of the two indications that need no receive buffer.
    pub const WRITE_AND_READ: Self = Self { write: true, read: true, send: false };

    /// Returns true if the set contains no indication.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        !(self.write || self.read || self.send)
    }
}

/// The terms on which the two sides have agreed.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Established {
    /// The role of this side.
    pub role: Role,
    /// True if CRC is in use, in both directions.
    pub crc: bool,
    /// The revision of the start-up frames: 0, 1 or 2.
    pub revision: u8,
    /// The maximum number of reads that the peer may have open to this side.
    pub ird: u16,
    /// The maximum number of reads that this side may have open to the peer.
    pub ord: u16,
    /// The depths that the peer stated, as (its IRD, its ORD); `None` if it stated none.
    pub peer_depth: Option<(u16, u16)>,
    /// At the initiator: the indication that it must send before everything else; otherwise `None`.
    pub ready_to_receive: Option<ReadyToReceive>,
    /// At the responder: true if the initiator announces with a Send without payload that it is
    /// ready to receive, which is the first message of the stream. That message must not be
    /// delivered to the user.
    pub ready_by_send: bool,
}

impl Established {
    /// Creates terms without a ready-to-receive indication, as the plain form does.
    #[must_use]
    pub const fn client_server(role: Role, crc: bool, ird: u16, ord: u16) -> Self {
        Self {
            role,
            crc,
            revision: 1,
            ird,
            ord,
            peer_depth: None,
            ready_to_receive: None,
            ready_by_send: false,
        }
    }
}

/// The progress of a start-up machine after it was given some bytes.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress<Outcome> {
    /// The number of bytes consumed. The bytes after them do not belong to the start-up frame.
    pub consumed: usize,
    /// The result; `None` until the frame is complete.
    pub outcome: Option<Outcome>,
}
