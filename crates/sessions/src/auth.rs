//! Words of authentication (draft 3.1.1.1 and 6.2.2).
//!
//! Invariant: an identity comes only from the kernel (local peers), from the
//! configuration (anonymous remote peers) or from the driver's check of a password or token.

use dafs_filer::Principal;
use dafs_types::{Credentials, Moment};

/// What the client offers as proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthRequest<'a> {
    /// AUTH_NONE: no proof.
    None,
    /// AUTH_TEXT: a user name; the driver keeps the password.
    Text {
        /// The name, at most [`dafs_types::limits::OWNER_BYTES_MAX`] bytes.
        user: &'a str,
    },
    /// AUTH_GSS: a token, which the driver keeps.
    Gss {
        /// INIT, not CONTINUE.
        is_first: bool,
    },
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
    /// Have the token looked at, now or later, and call `finish_auth` with the outcome, or
    /// [`crate::Sessions::await_token`] if the mechanism wants another.
    VerifyToken,
    /// Answer with this status; the channel is where it was before.
    Reject(dafs_types::Status),
}

/// What a check has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The identity requests act with.
    pub who: Credentials,
    /// As whom a token has proved the client; `None` where the request itself said it.
    pub principal: Option<Principal>,
    /// Whether the client may register credentials (draft 3.1.1.1.2).
    pub trusted: bool,
    /// When the proof is good no longer; `None` for one that lasts as long as the session.
    pub expires: Option<Moment>,
}

impl From<Credentials> for Verified {
    /// An untrusted client as the request said.
    fn from(who: Credentials) -> Self {
        Self { who, principal: None, trusted: false, expires: None }
    }
}

/// Results of a successful authentication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Authenticated {
    /// Whether the client may register credentials.
    pub trusted: bool,
}
