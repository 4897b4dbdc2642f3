//! The types of work requests, of their completions, and of an interface's events.

use std::sync::Arc;

use crate::region::RegisterError;
use crate::{
    EndpointId, ListenerId, LocalSegment, Peer, PendingId, RemoteSegment, Stag, TlsFailure,
};

/// One element of a gather list for a send.
#[derive(Clone, Copy, Debug)]
pub enum Gather<'a> {
    /// Bytes that the post copies, so that the caller may reuse them when the post returns.
    Bytes(&'a [u8]),
    /// A range of a registered region. The transport reads it until the work completes.
    Segment(LocalSegment),
}

/// Controls when a work request queues a completion. A failed request always queues one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signal {
    /// Every work request queues a completion, whether it succeeds or fails.
    #[default]
    Always,
    /// Only a failed work request queues a completion.
    OnError,
}

/// The options of a posted send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// The cases in which a completion is queued.
    pub signal: Signal,
    /// The STag of a region that the receiver invalidates before it delivers the message.
    pub invalidate: Option<Stag>,
}

/// The kind of a posted work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A send, posted by [`Interface::post_send`](crate::Interface::post_send).
    Send,
    /// A receive, posted by [`Interface::post_receive`](crate::Interface::post_receive).
    Receive,
    /// An RDMA write, posted by [`Interface::post_rdma_write`](crate::Interface::post_rdma_write).
    RdmaWrite,
    /// An RDMA read, posted by [`Interface::post_rdma_read`](crate::Interface::post_rdma_read).
    RdmaRead,
}

/// The way in which a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionStatus {
    /// The work was executed completely.
    Success,
    /// The work failed, and this broke the connection.
    Failed,
    /// The connection broke for another reason before the work was done.
    Flushed,
}

/// The report that one posted work request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The endpoint to which the work request was posted.
    pub endpoint: EndpointId,
    /// The cookie that the caller passed to the post.
    pub cookie: u64,
    /// The kind of the work request.
    pub operation: Operation,
    /// The result of the work request.
    pub status: CompletionStatus,
    /// The number of bytes moved; for a receive the length of the message.
    pub length: u32,
    /// For a receive: the region of this side that the sender's message has invalidated.
    pub invalidated: Option<Stag>,
}

/// A report of an interface to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A posted work request has ended.
    Completion(Completion),
    /// A peer wants to connect. The application must accept or reject the connection.
    ConnectionRequest {
        /// The listener at which the request arrived.
        listener: ListenerId,
        /// The connection to accept or reject.
        pending: PendingId,
        /// The identity of the connecting peer.
        peer: Peer,
        /// The private data of the connection request.
        private_data: Box<[u8]>,
    },
    /// A connection is established, on either side.
    Established {
        /// The endpoint of the new connection.
        endpoint: EndpointId,
        /// The acceptor's private data; empty on the acceptor's side.
        private_data: Box<[u8]>,
    },
    /// The peer rejected a connect of this side.
    Rejected {
        /// The endpoint that tried to connect.
        endpoint: EndpointId,
        /// The private data of the rejection.
        private_data: Box<[u8]>,
    },
    /// A connection has ended. All its work has completed before this event.
    Broken {
        /// The endpoint of the connection that has ended.
        endpoint: EndpointId,
        /// The reason why the connection ended.
        reason: BreakReason,
    },
}

/// The reason why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BreakReason {
    /// This side called [`Interface::disconnect`](crate::Interface::disconnect).
    #[error("closed by this side")]
    Local,
    /// The peer closed the connection in the regular way.
    #[error("closed by the peer")]
    Peer,
    /// The peer did not reply to the connect.
    #[error("could not connect: {0}")]
    Unreachable(Cause),
    /// The peer violated the protocol of the transport.
    #[error("peer violated the transport protocol: {0}")]
    PeerViolation(String),
    /// The peer reports that this side violated the transport's protocol.
    #[error("peer terminated the stream: {0}")]
    Terminated(String),
    /// A message arrived when no receive was posted, or it exceeds the posted receive.
    #[error("a message arrived without a posted receive that has room for it")]
    ReceiverNotReady,
    /// A work request of this side named memory that the peer does not expose, or lacked a right to
    /// it.
    #[error("remote access refused: {0}")]
    RemoteAccess(String),
    /// The TLS handshake failed, or the peer violated TLS.
    #[error(transparent)]
    Tls(#[from] TlsFailure),
    /// A region for the peer could not be registered with the RDMA device.
    #[error(transparent)]
    Registration(#[from] RegisterError),
    /// The operating system reported an error of the connection.
    #[error("transport failed: {0}")]
    System(Cause),
}

impl BreakReason {
    /// Returns the operating system's error that broke the connection, if there is one.
    #[must_use]
    pub fn system_error(&self) -> Option<&Arc<std::io::Error>> {
        match self {
            Self::Unreachable(cause) | Self::System(cause) => cause.error.as_ref(),
            Self::Local
            | Self::Peer
            | Self::PeerViolation(_)
            | Self::Terminated(_)
            | Self::ReceiverNotReady
            | Self::RemoteAccess(_)
            | Self::Tls(_)
            | Self::Registration(_) => None,
        }
    }
}

/// What failed in a transport: a text, and the operating system's error if it reported one.
#[derive(Clone, Debug)]
pub struct Cause {
    text: String,
    error: Option<Arc<std::io::Error>>,
}

impl Cause {
    /// Creates a cause with a text of its own, which also tells the system's error.
    #[must_use]
    pub fn new(text: impl Into<String>, error: std::io::Error) -> Self {
        Self { text: text.into(), error: Some(Arc::new(error)) }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<std::io::Error> for Cause {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string(), error)
    }
}

impl From<String> for Cause {
    fn from(text: String) -> Self {
        Self { text, error: None }
    }
}

impl From<&str> for Cause {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl PartialEq for Cause {
    /// Compares the texts, and the system's error numbers.
    fn eq(&self, other: &Self) -> bool {
        let number = |cause: &Self| cause.error.as_ref().and_then(|error| error.raw_os_error());
        self.text == other.text && number(self) == number(other)
    }
}

impl Eq for Cause {}

/// The reason why work could not be posted. Nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The endpoint is broken, released or not yet established.
    #[error("endpoint is not connected")]
    NotConnected,
    /// The cookie is 2^63 or above; such cookies are reserved for inboxes.
    #[error("cookies with the highest bit set belong to inboxes")]
    PrivateCookie,
    /// A segment names no region of the endpoint's domain, names an inbox's region, or exceeds the
    /// bounds of its region.
    #[error("segment outside a registered region of the endpoint's domain")]
    BadSegment,
    /// The endpoint has reached its limit of outstanding work.
    #[error("too much outstanding work on the endpoint")]
    QueueFull,
    /// The message exceeds the endpoint's configured limit.
    #[error("message longer than the endpoint's limit")]
    TooLong,
    /// The RDMA device does not register the memory. Contains the error number of the system.
    #[error(
        "the RDMA device does not register the memory (system error {0}): is the limit of locked \
         memory (`ulimit -l`) too low?"
    )]
    Registration(i32),
}

/// A hint about the data that the peer is likely to send as its reply, in the order of the stream.
#[derive(Clone, Copy, Debug)]
pub struct Forecast<'w> {
    /// The length in bytes of a message that comes before everything else, such as the reply to
    /// the first member of a chain; 0 if there is none.
    pub before: u32,
    /// The peer's writes into memory of this side, in order.
    pub writes: &'w [RemoteSegment],
    /// The length in bytes of the message that follows the writes.
    pub message: u32,
    /// The number of messages that follow the message of length [`Forecast::message`].
    pub behind: u32,
}

impl<'w> Forecast<'w> {
    /// Creates the forecast of some writes and the reply to the request for them.
    #[must_use]
    #[inline]
    pub fn answer(writes: &'w [RemoteSegment], message: u32) -> Self {
        Self { before: 0, writes, message, behind: 0 }
    }
}
