//! An established context: the peer's identity, and the protection of messages.
//!
//! Invariant: each side has proved its identity to the other.

use std::fmt;
use std::time::Duration;

use crate::calls::{ContextHandle, Turn};
use crate::error::{GssError, Reason};
use crate::name::Principal;
use crate::raw::{INDEFINITE, flag};
use crate::{MESSAGE_BYTES_MAX, TOKEN_BYTES_MAX};

/// The result of processing one token, for an acceptor or initiator `P`.
#[derive(Debug)]
pub enum Step<P> {
    /// Send the token to the peer, and pass the peer's reply to `party`.
    Continue {
        /// The acceptor or initiator that continues.
        party: P,
        /// The bytes to send to the peer.
        token: Vec<u8>,
    },
    /// Both sides are authenticated, once the peer has received the token.
    Done {
        /// The established context.
        context: Context,
        /// The bytes to send to the peer, if it needs any.
        token: Option<Vec<u8>>,
    },
}

/// The protection of a message: the GSS services of the draft (6.1.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protection {
    /// DAFS_GSS_SVC_AUTH: no protection; messages are sent unchanged.
    Authentication,
    /// DAFS_GSS_SVC_INTEGRITY: messages cannot be changed unnoticed.
    Integrity,
    /// DAFS_GSS_SVC_PRIVACY: in addition, only the two sides can read messages.
    Privacy,
}

impl Protection {
    /// Returns the flags that a context needs for this protection. For signed or
    /// encrypted messages, they include the detection of repeated and reordered messages.
    fn flags(self) -> u32 {
        match self {
            Self::Authentication => 0,
            Self::Integrity => flag::INTEGRITY | flag::REPLAY | flag::SEQUENCE,
            Self::Privacy => Self::Integrity.flags() | flag::PRIVACY,
        }
    }
}

/// The role of the peer in a context.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Initiator,
    Acceptor,
}

/// A context that both sides have established. It lives as long as the session (draft 3.1.1.1.1)
/// and is deleted on drop.
pub struct Context {
    handle: ContextHandle,
    peer: Principal,
    flags: u32,
    lifetime: Duration,
    /// True if the library must detect repeated and reordered messages.
    is_ordered: bool,
}

impl Context {
    /// Checks the established context with the peer on `side`.
    pub(crate) fn establish(
        handle: ContextHandle,
        turn: &Turn,
        side: Side,
        action: &'static str,
    ) -> Result<Self, GssError> {
        let (initiator, acceptor) = handle.parties(action)?;
        judge(turn.flags, &initiator, side).map_err(|reason| GssError::found(action, reason))?;
        let peer = match side {
            Side::Initiator => initiator,
            Side::Acceptor => acceptor,
        };
        let peer = Principal::new(peer).map_err(|error| GssError::misnamed(action, &error))?;
        let lifetime = match turn.lifetime {
            INDEFINITE => Duration::MAX,
            seconds => Duration::from_secs(seconds.into()),
        };
        Ok(Self { handle, peer, flags: turn.flags, lifetime, is_ordered: true })
    }

    /// Accepts messages in any order, and more than once. This is for protocols that number their
    /// messages themselves, such as RPCSEC_GSS (RFC 2203 section 5.2.2).
    #[must_use]
    pub fn without_order(self) -> Self {
        Self { is_ordered: false, ..self }
    }

    /// Returns the peer's principal: for an acceptor the client, for an initiator the service.
    #[must_use]
    pub fn peer(&self) -> &Principal {
        &self.peer
    }

    /// Returns how long the context is valid after it was established. An acceptor's value includes
    /// the allowed clock skew (five minutes unless `krb5.conf` says otherwise). When this time has
    /// passed, the client must authenticate again.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// True if both sides bound the context to the same data. Only an acceptor learns it, with MIT
    /// krb5 1.19 or later. With an earlier version it is always false, but a client that bound to
    /// other data was refused.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.flags & flag::BOUND != 0
    }

    /// True if the context supports this protection. `Authentication` is always supported. Contexts
    /// with this crate's initiator support all three, if their order matters on both sides or on
    /// neither.
    #[must_use]
    pub fn offers(&self, protection: Protection) -> bool {
        let order = if self.is_ordered { 0 } else { flag::REPLAY | flag::SEQUENCE };
        let needed = protection.flags() & !order;
        self.flags & needed == needed
    }

    /// Protects a message of at most [`MESSAGE_BYTES_MAX`] bytes. With `Authentication`, returns
    /// the message unchanged.
    ///
    /// # Errors
    /// [`GssError`] if the context does not support the protection or has expired, or if the
    /// message is too long.
    pub fn wrap(&mut self, protection: Protection, message: &[u8]) -> Result<Vec<u8>, GssError> {
        self.demand("cannot protect a message", protection, message, MESSAGE_BYTES_MAX)?;
        match protection {
            Protection::Authentication => Ok(message.to_vec()),
            Protection::Integrity => self.handle.wrap(false, message),
            Protection::Privacy => self.handle.wrap(true, message),
        }
    }

    /// Opens a message that the peer has protected by [`wrap`](Self::wrap) with the same
    /// protection.
    ///
    /// # Errors
    /// [`GssError`] if the message was altered, is protected less than `protection` says, or is too
    /// long; and if it was received before or is out of order, unless order does not matter.
    pub fn unwrap(&mut self, protection: Protection, token: &[u8]) -> Result<Vec<u8>, GssError> {
        const ACTION: &str = "cannot open a protected message";
        self.demand(ACTION, protection, token, MESSAGE_BYTES_MAX + TOKEN_BYTES_MAX)?;
        if protection == Protection::Authentication {
            return Ok(token.to_vec());
        }
        let (message, hidden) = self.handle.unwrap(token, self.is_ordered)?;
        if protection == Protection::Privacy && !hidden {
            return Err(GssError::found(ACTION, Reason::NotProtected));
        }
        Ok(message)
    }

    /// Returns a signature (message integrity code) for a message that is sent separately.
    ///
    /// # Errors
    /// The errors of [`wrap`](Self::wrap).
    pub fn get_mic(&mut self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        let action = "cannot sign a message";
        self.demand(action, Protection::Integrity, message, MESSAGE_BYTES_MAX)?;
        self.handle.get_mic(message)
    }

    /// Checks the peer's signature of a message.
    ///
    /// # Errors
    /// [`GssError`] if the signature does not match the message; and if it was received before or
    /// is out of order, unless order does not matter.
    pub fn verify_mic(&mut self, message: &[u8], mic: &[u8]) -> Result<(), GssError> {
        const ACTION: &str = "cannot verify a signature";
        self.demand(ACTION, Protection::Integrity, message, MESSAGE_BYTES_MAX)?;
        self.demand(ACTION, Protection::Integrity, mic, TOKEN_BYTES_MAX)?;
        self.handle.verify_mic(message, mic, self.is_ordered)
    }

    fn demand(
        &self,
        action: &'static str,
        protection: Protection,
        bytes: &[u8],
        bytes_max: usize,
    ) -> Result<(), GssError> {
        if !self.offers(protection) {
            return Err(GssError::found(action, Reason::NotProtected));
        }
        if bytes.len() > bytes_max {
            return Err(GssError::found(action, Reason::TokenTooLong));
        }
        Ok(())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Context")
            .field("peer", &self.peer)
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

/// Checks that both sides have proved their identity and that the initiator has a name.
fn judge(flags: u32, initiator: &str, peer: Side) -> Result<(), Reason> {
    if flags & flag::MUTUAL == 0 {
        return Err(match peer {
            Side::Initiator => Reason::NotMutual,
            Side::Acceptor => Reason::ServerUnproven,
        });
    }
    // Any client can get this principal, in any realm (RFC 8062).
    let is_anybody = initiator.starts_with("WELLKNOWN/ANONYMOUS@");
    if flags & flag::ANONYMOUS != 0 || is_anybody { Err(Reason::Anonymous) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_proven_by_half_a_proof() {
        let rest = flag::INTEGRITY | flag::REPLAY;
        assert_eq!(judge(rest, "alice@R", Side::Initiator), Err(Reason::NotMutual));
        assert_eq!(judge(rest, "alice@R", Side::Acceptor), Err(Reason::ServerUnproven));
        assert_eq!(judge(rest | flag::MUTUAL, "alice@R", Side::Initiator), Ok(()));
    }

    #[test]
    fn the_anonymous_are_nobody() {
        let anonymous = flag::MUTUAL | flag::ANONYMOUS;
        assert_eq!(judge(anonymous, "alice@R", Side::Initiator), Err(Reason::Anonymous));
        let name = "WELLKNOWN/ANONYMOUS@WELLKNOWN:ANONYMOUS";
        assert_eq!(judge(flag::MUTUAL, name, Side::Initiator), Err(Reason::Anonymous));
    }

    #[test]
    fn protection_needs_order() {
        let lax = flag::INTEGRITY | flag::PRIVACY;
        assert_ne!(lax & Protection::Privacy.flags(), Protection::Privacy.flags());
        assert_eq!(Protection::Authentication.flags(), 0);
    }
}
