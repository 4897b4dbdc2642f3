//! The limits of headers and connections, and the settings of the two ends.
//!
//! Invariant: everything that a peer can make grow has a limit here.

use std::time::Duration;

/// The maximum number of segments in all chunks of one header. RFC 8267 requires 16.
pub const SEGMENTS_MAX: usize = 64;
/// The maximum number of Write chunks in one header.
pub const WRITE_CHUNKS_MAX: usize = 16;
/// The maximum number of Read chunks in one header, including the one with position zero.
pub const READ_CHUNKS_MAX: usize = 16;

/// The size in bytes of the largest message that every peer can receive (RFC 8166 section 3.3.2).
pub const INLINE_BYTES_DEFAULT: u32 = 1024;
/// The size in bytes of the largest message that RFC 8797 can express.
pub const INLINE_BYTES_MAX: u32 = 256 << 10;

/// The maximum number of credits of one connection and one direction.
pub const CREDITS_MAX: u32 = 1024;
/// The maximum number of RDMA reads of one connection that are in flight.
pub const READS_MAX: usize = 128;
/// The maximum size in bytes of a call: the largest data of an NFS WRITE, and its arguments.
pub const CALL_BYTES_MAX: usize = (8 << 20) + (64 << 10);
/// The maximum number of callbacks of one connection that are in flight.
pub const CALLBACKS_MAX: u32 = 64;
/// The maximum length in bytes of the private data of a connection (MPA: 512).
pub const PRIVATE_DATA_BYTES_MAX: usize = 512;

/// The settings of a server's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The maximum number of calls in flight, from 1 to [`CREDITS_MAX`].
    pub credits: u32,
    /// The size in bytes of the receive buffers, which limits the messages of the peer.
    pub receive_bytes: u32,
    /// The size in bytes of the largest message that this end sends.
    pub send_bytes: u32,
    /// True if the transport can send with invalidation.
    pub remote_invalidation: bool,
    /// The maximum number of RDMA reads in flight, from 1 to [`READS_MAX`]. It must not exceed what
    /// was negotiated for the connection.
    pub reads: usize,
    /// The maximum size in bytes of a call, at most [`CALL_BYTES_MAX`].
    pub call_bytes: usize,
    /// The maximum number of bytes that the buffers for the Read chunks of the connection have
    /// together. It is at least `call_bytes`.
    pub connection_bytes: usize,
    /// The time after which a transfer that does not end is taken for a fault of the peer.
    pub patience: Duration,
    /// The number of callbacks that this end wants to have in flight, from 1 to [`CALLBACKS_MAX`].
    pub callbacks: u32,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            credits: 64,
            receive_bytes: 4096,
            send_bytes: 4096,
            remote_invalidation: true,
            reads: 16,
            call_bytes: CALL_BYTES_MAX,
            connection_bytes: 4 * CALL_BYTES_MAX,
            patience: Duration::from_secs(30),
            callbacks: 16,
        }
    }
}

impl ServerConfig {
    /// Returns the settings with every value moved into its range.
    #[must_use]
    pub fn bounded(self) -> Self {
        let inline = |bytes: u32| bytes.clamp(INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX);
        let call_bytes = self.call_bytes.clamp(1, CALL_BYTES_MAX);
        Self {
            credits: self.credits.clamp(1, CREDITS_MAX),
            receive_bytes: inline(self.receive_bytes),
            send_bytes: inline(self.send_bytes),
            reads: self.reads.clamp(1, READS_MAX),
            call_bytes,
            connection_bytes: self.connection_bytes.max(call_bytes),
            callbacks: self.callbacks.clamp(1, CALLBACKS_MAX),
            ..self
        }
    }
}

/// The settings of a client's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// The number of calls that this end wants to have in flight, from 1 to [`CREDITS_MAX`].
    pub credits: u32,
    /// The size in bytes of the receive buffers, which limits the messages of the peer.
    pub receive_bytes: u32,
    /// The size in bytes of the largest message that this end sends.
    pub send_bytes: u32,
    /// True if the peer may invalidate the registrations of a call with its reply.
    pub remote_invalidation: bool,
    /// The maximum number of callbacks in flight, from 1 to [`CALLBACKS_MAX`].
    pub callbacks: u32,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            credits: 64,
            receive_bytes: 4096,
            send_bytes: 4096,
            remote_invalidation: true,
            callbacks: 16,
        }
    }
}

impl ClientConfig {
    /// Returns the settings with every value moved into its range.
    #[must_use]
    pub fn bounded(self) -> Self {
        let inline = |bytes: u32| bytes.clamp(INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX);
        Self {
            credits: self.credits.clamp(1, CREDITS_MAX),
            receive_bytes: inline(self.receive_bytes),
            send_bytes: inline(self.send_bytes),
            callbacks: self.callbacks.clamp(1, CALLBACKS_MAX),
            ..self
        }
    }
}
