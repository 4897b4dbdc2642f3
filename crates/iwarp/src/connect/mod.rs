//! Start-up: one request frame, one reply frame (RFC 5044 7.1, RFC 6581).
//!
//! Invariant: a machine here reads at most one start-up frame, keeps at most
//! [`FRAME_BYTES_MAX`] bytes of it, and never takes a byte beyond it: what
//! follows belongs to the [`Receiver`](crate::Receiver).

mod frame;
mod initiator;
mod responder;

pub use frame::{
    DEPTH_NOT_NEGOTIATED, FRAME_BYTES_MAX, FRAME_HEADER_BYTES, PRIVATE_DATA_BYTES_MAX,
    PRIVATE_DATA_OUT_BYTES_MAX,
};
pub use initiator::{Initiator, InitiatorOutcome};
pub use responder::{Request, Responder};

/// Who began the connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Sent the request. Must send the first frame.
    Initiator,
    /// Sent the reply. May not send before it has received a frame.
    Responder,
}

/// What this side brings to the start-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectConfig {
    /// Whether this side wants CRC. In use if either side wants it.
    pub crc: bool,
    /// Whether to use the enhanced form (revision 2): it negotiates read depths
    /// and ready-to-receive. A plain responder refuses enhanced requests.
    pub enhanced: bool,
    /// Reads the peer may have open to this side (IRD), at most 0x3ffe.
    pub ird: u16,
    /// Reads this side wants open to the peer (ORD), at most 0x3ffe.
    pub ord: u16,
    /// Whether to negotiate the depths; if not, `ird` and `ord` stand as they are
    /// (0x3fff travels).
    pub negotiate_depth: bool,
    /// Ready-to-receive indications this side can do. An initiator asks for the
    /// peer-to-peer model exactly if this is not empty. A responder offers to one
    /// that does what both can do, Send only if it is nothing else; if they have none
    /// in common or its own set is empty, Write and Read.
    pub ready_to_receive: ReadyToReceiveSet,
}

impl Default for ConnectConfig {
    /// Enhanced, without CRC, client-server, 16 reads each way.
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

/// The empty message by which an initiator says that it is ready (RFC 6581 9.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReadyToReceive {
    /// A Write without bytes.
    Write,
    /// A read without bytes.
    Read,
    /// A Send without bytes; consumes a receive buffer of the responder.
    Send,
}

/// Some of the ready-to-receive indications.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ReadyToReceiveSet {
    /// Write is among them.
    pub write: bool,
    /// Read is among them.
    pub read: bool,
    /// Send is among them.
    pub send: bool,
}

impl ReadyToReceiveSet {
    /// None of them: the client-server model.
    pub const EMPTY: Self = Self { write: false, read: false, send: false };
    /// Send alone.
    pub const SEND: Self = Self { write: false, read: false, send: true };
    /// The two that need no receive buffer.
    pub const WRITE_AND_READ: Self = Self { write: true, read: true, send: false };

    /// Whether none is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        !(self.write || self.read || self.send)
    }
}

/// What two sides have agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Established {
    /// Which side this is.
    pub role: Role,
    /// Whether CRC is in use, both ways.
    pub crc: bool,
    /// The revision of the frames: 0, 1 or 2.
    pub revision: u8,
    /// Reads the peer may have open to this side.
    pub ird: u16,
    /// Reads this side may have open to the peer.
    pub ord: u16,
    /// The depths the peer stated, if it did: (its IRD, its ORD).
    pub peer_depth: Option<(u16, u16)>,
    /// Initiator only: the indication it must send before anything else.
    pub ready_to_receive: Option<ReadyToReceive>,
    /// Responder only: the initiator says that it is ready by a Send without bytes, the first
    /// message of the stream. It is no message to the user.
    pub ready_by_send: bool,
}

impl Established {
    /// An agreement without ready-to-receive, as the plain form makes it.
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

/// How far a start-up machine got with the bytes it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress<Outcome> {
    /// Bytes used; the rest is not part of the start-up frame.
    pub consumed: usize,
    /// The result, once the frame is whole.
    pub outcome: Option<Outcome>,
}
