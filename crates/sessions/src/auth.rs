//! Types for authentication (draft 3.1.1.1 and 6.2.2).
//!
//! Invariant: an identity comes only from the kernel (local peers), from the configuration
//! (anonymous remote peers), or from the server's check of a password or token.

use dafs_filer::Principal;
use dafs_types::{Credentials, Moment};

/// The proof of identity that a client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthRequest<'a> {
    /// AUTH_NONE: the client offers no proof of its identity.
    None,
    /// AUTH_TEXT: the client offers a user name and a password. The password is not passed to this
    /// crate.
    Text {
        /// The user name, at most [`dafs_types::limits::OWNER_BYTES_MAX`] bytes.
        user: &'a str,
    },
    /// AUTH_GSS: the client offers a token, which is not passed to this crate.
    Gss {
        /// True for the client's first token (INIT), false for a later token (CONTINUE).
        is_first: bool,
    },
    /// AUTH_DEFAULT: the client asks for the server's default identity. It is treated like
    /// AUTH_NONE.
    Default,
}

/// The next step of an authentication. For every step except `Reject`, the server must finally call
/// `finish_auth`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthDecision {
    /// The server must call `finish_auth` with these credentials.
    Accept(Credentials),
    /// The server must check the password, now or later, and call `finish_auth` with the result.
    VerifyPassword,
    /// The server must check the token, now or later, and call `finish_auth` with the result. If
    /// the mechanism needs another token, the server calls [`crate::Sessions::await_token`]
    /// instead.
    VerifyToken,
    /// The server must reply with this status. The channel stays in its phase.
    Reject(dafs_types::Status),
}

/// The identity and the rights that a successful check has established.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The credentials with which requests are executed.
    pub who: Credentials,
    /// The principal that a token has proved. `None` if the request itself named the principal.
    pub principal: Option<Principal>,
    /// True if the client may register credentials (draft 3.1.1.1.2).
    pub trusted: bool,
    /// The time at which the proof expires. `None` if it is valid for the whole session.
    pub expires: Option<Moment>,
}

impl From<Credentials> for Verified {
    /// Creates the value for an untrusted client that named its principal in the request itself.
    fn from(who: Credentials) -> Self {
        Self { who, principal: None, trusted: false, expires: None }
    }
}

/// The result of a successful authentication, which is reported to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Authenticated {
    /// True if the client may register credentials of other users.
    pub trusted: bool,
}
