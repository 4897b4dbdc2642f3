//! An established context: who the peer is, and the protection of messages.
//!
//! Invariant: the peer has proven who it is, and has had the same proof of us.

use std::fmt;
use std::time::Duration;

use crate::calls::{ContextHandle, Turn};
use crate::error::{GssError, Reason};
use crate::name::Principal;
use crate::raw::{INDEFINITE, flag};
use crate::{MESSAGE_BYTES_MAX, TOKEN_BYTES_MAX};

/// What one token led to, for an acceptor or initiator `P`.
#[derive(Debug)]
pub enum Step<P> {
    /// Send the token and bring the peer's answer to `party`.
    Continue {
        /// Who goes on.
        party: P,
        /// Bytes for the peer.
        token: Vec<u8>,
    },
    /// Both sides are proven, once the peer has the token.
    Done {
        /// What was established.
        context: Context,
        /// Bytes the peer still needs.
        token: Option<Vec<u8>>,
    },
}

/// Protection of a message: the draft's GSS services (6.1.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protection {
    /// DAFS_GSS_SVC_AUTH: none; messages stay as they are.
    Authentication,
    /// DAFS_GSS_SVC_INTEGRITY: nobody can change them.
    Integrity,
    /// DAFS_GSS_SVC_PRIVACY: nobody else can read them either.
    Privacy,
}

impl Protection {
    /// What a context must have been made with. Messages that could come twice or in any
    /// order unnoticed would not be protected.
    fn flags(self) -> u32 {
        match self {
            Self::Authentication => 0,
            Self::Integrity => flag::INTEGRITY | flag::REPLAY | flag::SEQUENCE,
            Self::Privacy => Self::Integrity.flags() | flag::PRIVACY,
        }
    }
}

/// Which side of a context is the peer.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Initiator,
    Acceptor,
}

/// A context both sides have established. It lives as long as the session (draft
/// 3.1.1.1.1) and is deleted when dropped.
pub struct Context {
    handle: ContextHandle,
    peer: Principal,
    flags: u32,
    lifetime: Duration,
}

impl Context {
    /// Judges what was established with the peer on `side`.
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
        Ok(Self { handle, peer, flags: turn.flags, lifetime })
    }

    /// Who the peer is. For an acceptor the client; for an initiator the service.
    #[must_use]
    pub fn peer(&self) -> &Principal {
        &self.peer
    }

    /// How long from its establishment on the context is good; an acceptor's includes the
    /// difference of clocks that is allowed (five minutes unless `krb5.conf` says
    /// otherwise). Whoever is served longer must authenticate anew.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Whether both sides gave the same data to bind the context to. Only an acceptor learns
    /// it, with MIT krb5 1.19 or later; with an earlier one it is never so, but whoever did
    /// not bind to the same was refused.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.flags & flag::BOUND != 0
    }

    /// Whether messages can be protected so. `Authentication` always; a context of our own
    /// client has all three.
    #[must_use]
    pub fn offers(&self, protection: Protection) -> bool {
        let needed = protection.flags();
        self.flags & needed == needed
    }

    /// Makes of a message of at most [`MESSAGE_BYTES_MAX`] bytes one that is protected;
    /// with `Authentication` it is the message itself.
    ///
    /// # Errors
    /// If the context does not offer it, is past its time, or the message is too long.
    pub fn wrap(&mut self, protection: Protection, message: &[u8]) -> Result<Vec<u8>, GssError> {
        self.demand("cannot protect a message", protection, message, MESSAGE_BYTES_MAX)?;
        match protection {
            Protection::Authentication => Ok(message.to_vec()),
            Protection::Integrity => self.handle.wrap(false, message),
            Protection::Privacy => self.handle.wrap(true, message),
        }
    }

    /// The message in what the peer's [`wrap`](Self::wrap) made with the same protection.
    ///
    /// # Errors
    /// If it was altered, came before, came in another order, was protected less than
    /// `protection` says, or is too long.
    pub fn unwrap(&mut self, protection: Protection, token: &[u8]) -> Result<Vec<u8>, GssError> {
        const ACTION: &str = "cannot open a protected message";
        self.demand(ACTION, protection, token, MESSAGE_BYTES_MAX + TOKEN_BYTES_MAX)?;
        if protection == Protection::Authentication {
            return Ok(token.to_vec());
        }
        let (message, hidden) = self.handle.unwrap(token)?;
        if protection == Protection::Privacy && !hidden {
            return Err(GssError::found(ACTION, Reason::NotProtected));
        }
        Ok(message)
    }

    /// A signature (message integrity code) for a message that travels beside it.
    ///
    /// # Errors
    /// As [`wrap`](Self::wrap).
    pub fn get_mic(&mut self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        let action = "cannot sign a message";
        self.demand(action, Protection::Integrity, message, MESSAGE_BYTES_MAX)?;
        self.handle.get_mic(message)
    }

    /// Holds the peer's signature against a message.
    ///
    /// # Errors
    /// If it is not the message's, came before or in another order.
    pub fn verify_mic(&mut self, message: &[u8], mic: &[u8]) -> Result<(), GssError> {
        const ACTION: &str = "cannot verify a signature";
        self.demand(ACTION, Protection::Integrity, message, MESSAGE_BYTES_MAX)?;
        self.demand(ACTION, Protection::Integrity, mic, TOKEN_BYTES_MAX)?;
        self.handle.verify_mic(message, mic)
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

/// Whether two sides with these flags are proven, and the initiator is somebody.
fn judge(flags: u32, initiator: &str, peer: Side) -> Result<(), Reason> {
    if flags & flag::MUTUAL == 0 {
        return Err(match peer {
            Side::Initiator => Reason::NotMutual,
            Side::Acceptor => Reason::ServerUnproven,
        });
    }
    // Anybody is this principal, in whatever realm (RFC 8062).
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
