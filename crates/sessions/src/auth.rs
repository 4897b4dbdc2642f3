//! Types for authentication (draft 3.1.1.1 and 6.2.2).
//!
//! Invariant: an identity comes only from the kernel (local peers), from the configuration
//! (anonymous remote peers) or from the driver's check of a password or token.

use dafs_filer::Principal;
use dafs_types::{Credentials, Moment};

/// The proof that a client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthRequest<'a> {
    /// AUTH_NONE: the client offers no proof.
    None,
    /// AUTH_TEXT: a user name; the driver keeps the password.
    Text {
        /// The user name, at most [`dafs_types::limits::OWNER_BYTES_MAX`] bytes.
        user: &'a str,
    },
    /// AUTH_GSS: a token, which the driver keeps.
    Gss {
        /// True for INIT, false for CONTINUE.
        is_first: bool,
    },
    /// AUTH_DEFAULT: the server's default identity; treated as NONE.
    Default,
}

/// The next step of an authentication. Except after `Reject`, the driver must call `finish_auth`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthDecision {
    /// Call `finish_auth` with these credentials.
    Accept(Credentials),
    /// Check the password, now or later, and call `finish_auth` with the result.
    VerifyPassword,
    /// Check the token, now or later, and call `finish_auth` with the result. If the mechanism
    /// wants another token, call [`crate::Sessions::await_token`] instead.
    VerifyToken,
    /// Reply with this status; the phase of the channel has not changed.
    Reject(dafs_types::Status),
}

/// The result of a successful check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The identity that requests are executed with.
    pub who: Credentials,
    /// The principal that a token has proved; `None` if the request itself named it.
    pub principal: Option<Principal>,
    /// True if the client may register credentials (draft 3.1.1.1.2).
    pub trusted: bool,
    /// When the proof expires; `None` if it lasts as long as the session.
    pub expires: Option<Moment>,
}

impl From<Credentials> for Verified {
    /// Makes the result for an untrusted client whose request named its principal.
    fn from(who: Credentials) -> Self {
        Self { who, principal: None, trusted: false, expires: None }
    }
}

/// What a successful authentication reports to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Authenticated {
    /// True if the client may register credentials.
    pub trusted: bool,
}
