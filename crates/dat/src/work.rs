//! What is posted and what comes back.

use crate::region::RegisterError;
use crate::{
    EndpointId, ListenerId, LocalSegment, Peer, PendingId, RemoteSegment, Stag, TlsFailure,
};

/// One element of a gather list for a send.
#[derive(Clone, Copy, Debug)]
pub enum Gather<'a> {
    /// Bytes taken over while posting; free again when the post returns.
    Bytes(&'a [u8]),
    /// A range of a registered region; belongs to the transport until completion.
    Segment(LocalSegment),
}

/// When a piece of work reports success. Failure is always reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signal {
    /// A completion is queued.
    #[default]
    Always,
    /// Success is silent.
    OnError,
}

/// Options of a send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Whether success is reported.
    pub signal: Signal,
    /// A region of the receiver that it must invalidate on delivery.
    pub invalidate: Option<Stag>,
}

/// What kind of work a completion ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `post_send`.
    Send,
    /// `post_receive`.
    Receive,
    /// `post_rdma_write`.
    RdmaWrite,
    /// `post_rdma_read`.
    RdmaRead,
}

/// How work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionStatus {
    /// Done.
    Success,
    /// This very work broke the connection.
    Failed,
    /// The connection was broken by something else.
    Flushed,
}

/// The end of one piece of posted work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Where it was posted.
    pub endpoint: EndpointId,
    /// The caller's own word, given at the post.
    pub context: u64,
    /// What kind of work.
    pub operation: Operation,
    /// How it ended.
    pub status: CompletionStatus,
    /// Bytes moved; for a receive the message's length.
    pub length: u32,
    /// For a receive: a region of ours that the sender had invalidated.
    pub invalidated: Option<Stag>,
}

/// Something the interface reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Posted work ended.
    Completion(Completion),
    /// Somebody wants to connect; answer with accept or reject.
    ConnectionRequest {
        /// Where it came in.
        listener: ListenerId,
        /// What to accept or reject.
        pending: PendingId,
        /// Who it is.
        peer: Peer,
        /// What it says.
        private_data: Box<[u8]>,
    },
    /// A connection stands, on either side.
    Established {
        /// Which.
        endpoint: EndpointId,
        /// What the acceptor said (empty on the acceptor's side).
        private_data: Box<[u8]>,
    },
    /// The peer rejected our connect.
    Rejected {
        /// Which.
        endpoint: EndpointId,
        /// What the peer said.
        private_data: Box<[u8]>,
    },
    /// A connection is gone; all its work has completed before this event.
    Broken {
        /// Which.
        endpoint: EndpointId,
        /// Why.
        reason: BreakReason,
    },
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BreakReason {
    /// This side called disconnect.
    #[error("closed by this side")]
    Local,
    /// The peer closed in order.
    #[error("closed by the peer")]
    Peer,
    /// The peer did not answer while connecting.
    #[error("could not connect: {0}")]
    Unreachable(String),
    /// The peer broke the transport's rules.
    #[error("peer violated the transport protocol: {0}")]
    PeerViolation(String),
    /// The peer says that we broke them.
    #[error("peer terminated the stream: {0}")]
    Terminated(String),
    /// A message came with no receive posted, or larger than the receive.
    #[error("message without a fitting posted receive")]
    ReceiverNotReady,
    /// Our own work named memory or rights the peer does not grant.
    #[error("remote access refused: {0}")]
    RemoteAccess(String),
    /// TLS did not come about, or the peer broke it.
    #[error(transparent)]
    Tls(#[from] TlsFailure),
    /// A region that the peer was to reach could not be registered with the RDMA device.
    #[error(transparent)]
    Registration(#[from] RegisterError),
    /// The operating system reported an error.
    #[error("transport failed: {0}")]
    System(String),
}

/// Why work could not be posted. Nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The endpoint is not established, broken or released.
    #[error("endpoint is not connected")]
    NotConnected,
    /// The cookie is one of those that inboxes have for themselves: 2^63 and above.
    #[error("cookies with the highest bit set belong to inboxes")]
    PrivateCookie,
    /// A segment names no region of this domain, or an inbox's, or leaves its bounds.
    #[error("segment outside a registered region of the endpoint's domain")]
    BadSegment,
    /// The endpoint's limit of outstanding work is reached.
    #[error("too much outstanding work on the endpoint")]
    QueueFull,
    /// The message is longer than the endpoint was configured for.
    #[error("message longer than the endpoint's limit")]
    TooLong,
    /// The RDMA device does not take the memory; the system's error number.
    #[error(
        "the RDMA device does not register the memory (system error {0}): is the limit of locked \
         memory (`ulimit -l`) too low?"
    )]
    Registration(i32),
}

/// What a peer is likely to answer with, in the order of the stream: only a hint.
#[derive(Clone, Copy, Debug)]
pub struct Forecast<'w> {
    /// Bytes of a message that comes before everything else, as the answer of a chain's first
    /// member does; 0 if none does.
    pub before: u32,
    /// What it writes into our memory, in this order.
    pub writes: &'w [RemoteSegment],
    /// Bytes of the message that follows.
    pub message: u32,
    /// Messages behind that one.
    pub behind: u32,
}

impl<'w> Forecast<'w> {
    /// Writes, and the message that answers the request for them.
    #[must_use]
    #[inline]
    pub fn answer(writes: &'w [RemoteSegment], message: u32) -> Self {
        Self { before: 0, writes, message, behind: 0 }
    }
}
