//! The connect exchange's nine values (draft 3.1.2.2 and 6.2.1).
//!
//! Invariant: whatever a client asks for, the result lies within the server's bounds
//! and can be kept.

use dafs_types::{ClientId, SessionId, Status, Verifier};

/// The one protocol version served. The draft gives no number for version 1.0.
pub const PROTOCOL_VERSION: u32 = 1;

/// The nine values in the order of the draft; 0 in a request asks for the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// Whether messages and direct data carry checksums.
    pub use_checksums: u32,
    /// Whether the server keeps a response cache. Always 0 in an answer.
    pub use_response_cache: u32,
    /// Credentials the client may register. Always 0 in an answer: no client is trusted.
    pub max_credentials: u32,
    /// Largest request, in octets.
    pub max_request_size: u32,
    /// Largest response, in octets.
    pub max_response_size: u32,
    /// Requests that may be outstanding; in an answer the first number of credits.
    pub max_requests: u32,
    /// Where data begins in a padded WRITE_INLINE, in octets from the message's start.
    pub inline_write_header_size: u32,
    /// Whether a back-control channel may be bound. Always 0 in an answer.
    pub use_back_control_channel: u32,
    /// Whether an RDMA-read channel may be bound. Always 0 in an answer.
    pub use_rdma_read_channel: u32,
}

/// Arguments of CLIENT_CONNECT and of the first half of CLIENT_CONNECT_AUTH.
#[derive(Clone, Copy, Debug)]
pub struct ConnectArguments<'a> {
    /// From the message header.
    pub protocol_version: u32,
    /// What the client asks for.
    pub wanted: Negotiated,
    /// Name for fencing, at most [`dafs_types::limits::FENCE_ID_BYTES_MAX`] octets.
    pub fence_id: &'a str,
    /// Name of the client, 1 to [`dafs_types::limits::OWNER_BYTES_MAX`] octets.
    pub client_id_string: &'a [u8],
    /// Changes when the client has restarted.
    pub client_verifier: Verifier,
}

/// Results of CLIENT_CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectResults {
    /// The new session.
    pub session_id: SessionId,
    /// The client's short name.
    pub client_id: ClientId,
    /// What both sides now keep to.
    pub granted: Negotiated,
}

/// Why no session was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRefusal {
    /// For the response header.
    pub status: Status,
    /// The version to put into the response header.
    pub protocol_version: u32,
}
