//! Words of authentication (draft 3.1.1.1 and 6.2.2).
//!
//! Invariant: an identity comes only from the kernel (local peers), from the
//! configuration (anonymous remote peers) or from the driver's password check.

use dafs_types::Credentials;

use crate::{ChannelId, Closed};

/// What the client offers as proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthRequest<'a> {
    /// AUTH_NONE: no proof.
    None,
    /// AUTH_TEXT: a user name; the driver keeps the password.
    Text {
        /// The name, at most [`dafs_types::limits::OWNER_BYTES_MAX`] octets.
        user: &'a str,
    },
    /// AUTH_GSS.
    Gss,
    /// AUTH_DEFAULT: the server's default identity; treated as NONE.
    Default,
}

/// What happens next. Except after `Reject`, the driver calls `finish_auth`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthDecision {
    /// Call `finish_auth` with these credentials.
    Accept(Credentials),
    /// Check the password, now or later, and call `finish_auth` with the outcome.
    VerifyPassword,
    /// Answer with this status; the channel is where it was before.
    Reject(dafs_types::Status),
}

/// Results of a successful authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authenticated {
    /// Whether the client may register credentials. Always false in this version.
    pub trusted: bool,
    /// Opens of the client's earlier life, released because it has restarted.
    pub released: Vec<Closed>,
    /// Channels of the client's earlier life; the driver closes them.
    pub close: Vec<ChannelId>,
}
