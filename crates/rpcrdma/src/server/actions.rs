//! What the driver of a server's connection must do.
//!
//! Invariant: no action gives the peer access to memory of the server. The driver reads from the
//! peer's memory, writes to it, and sends; the headers that it sends name only memory of the peer.

use super::layout::IncomingCall;
use crate::header::{Handle, Segment, TransportError, Xid};

/// The number of a call on its connection. No number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(super) u64);

/// The number of an RDMA read on its connection. No number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub(super) u64);

/// The number of a Send on its connection. No number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendId(pub(super) u64);

/// Something that the driver must do. Actions must be started in their order; only writes and
/// sends must also take effect in it, as RDMA guarantees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Provide a buffer for the Read chunks of a call.
    Reserve {
        /// The call that needs the buffer.
        call: CallId,
        /// The length of the buffer in bytes.
        bytes: usize,
    },
    /// Read from the peer's memory, then call `read_done` or `failed`.
    Read(Read),
    /// Execute a call, then call `reply` or `refuse`.
    Call(IncomingCall),
    /// Write to the peer's memory. If this fails, call `failed`.
    Write(Write),
    /// Send a message, then call `sent` or `failed`.
    Send(Send),
    /// Free the buffer of a call and the memory of its reply.
    Release(CallId),
    /// A callback has ended.
    Callback {
        /// The identifier of the callback.
        xid: Xid,
        /// The RPC reply, or the reason why there is none.
        outcome: Result<Vec<u8>, CallbackFault>,
    },
    /// End the connection. Nothing follows this action.
    End(EndReason),
}

/// An RDMA read from a segment of the peer to the buffer of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The number of the read, for `read_done`.
    pub id: ReadId,
    /// The call whose buffer receives the data.
    pub call: CallId,
    /// The memory of the peer.
    pub from: Segment,
    /// The offset in the buffer of the first byte.
    pub at: usize,
}

/// An RDMA write of a part of a reply to a segment of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The call to which the reply belongs.
    pub call: CallId,
    /// The bytes to write.
    pub from: Source,
    /// The memory of the peer, which is as long as `from`.
    pub to: Segment,
}

/// Bytes of a reply, which the caller of `reply` keeps until the reply has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Encoded bytes of the reply.
    Bytes {
        /// The offset in the encoded bytes.
        start: usize,
        /// The number of bytes.
        length: usize,
    },
    /// Data that is not among the encoded bytes.
    Item {
        /// The index of the item in the reply.
        index: usize,
        /// The offset in the data of the item.
        start: usize,
        /// The number of bytes.
        length: usize,
    },
}

impl Source {
    /// Returns the number of bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        match self {
            Self::Bytes { length, .. } | Self::Item { length, .. } => *length,
        }
    }

    /// Returns a part of these bytes.
    #[must_use]
    pub(super) const fn part(&self, from: usize, length: usize) -> Self {
        match *self {
            Self::Bytes { start, .. } => Self::Bytes { start: start + from, length },
            Self::Item { index, start, .. } => Self::Item { index, start: start + from, length },
        }
    }
}

/// A Send: a message that begins with `head`, followed by parts of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// The number of the Send, for `sent`.
    pub id: SendId,
    /// The call to which `body` belongs; `None` if the whole message is in `head`.
    pub call: Option<CallId>,
    pub(super) head: Vec<u8>,
    /// The parts of the reply that follow.
    pub body: Vec<Source>,
    /// The memory of the peer whose registration the Send invalidates.
    pub invalidate: Option<Handle>,
}

impl Send {
    /// Returns the first bytes of the message: the transport header, and in callbacks also the RPC
    /// message.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }
}

/// The reason why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum EndReason {
    /// The peer has sent more calls than it had credits for.
    #[error("the peer sent more calls than it had credits for")]
    Credits,
    /// The peer has more replies, errors or callbacks in flight than it can have by its credits.
    #[error("the peer does not take what is sent to it")]
    Congested,
    /// A transfer did not end in time.
    #[error("a transfer did not end in time")]
    Patience,
    /// A transfer failed, for example because the peer named memory that it has not registered.
    #[error("a transfer failed")]
    Transfer,
}

/// The reason why a callback has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CallbackFault {
    /// The peer could not accept the header of the callback.
    #[error("the peer reported a fault of the transport: {0:?}")]
    Refused(TransportError),
    /// The reply has chunks, which the replies to callbacks must not have.
    #[error("the reply has chunks")]
    Chunks,
    /// No reply has arrived in time.
    #[error("no reply arrived in time")]
    Patience,
}
