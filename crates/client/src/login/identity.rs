//! The identity that a client claims, and the one under which a session was established.
//!
//! Invariant: no password is written to a log.

use std::time::{Duration, Instant};

use dafs_dat::Address;
use dafs_gss::{Context, CredentialSource, ServiceName};
use dafs_types::{AuthType, limits};
use dafs_wire::messages::AuthRequest;

use crate::setters::setters;
use crate::sizes::SLOT_BYTES;

/// The method by which a client proves its identity.
///
/// Connecting by Kerberos may block the calling thread for longer than the exchange with the server
/// takes, even in futures. The client reads the ticket cache and, unless the cache has a ticket for
/// the service, asks a key distribution centre, which takes many seconds if the centre does not
/// reply. To avoid this, get the ticket in advance (`kvno dafs/HOST`) or connect on another thread.
/// Reconnecting reads the tickets again and can block too.
#[non_exhaustive]
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Login {
    /// No proof. Over shared memory the kernel reports the client's user to the server.
    #[default]
    None,
    /// A user name and a password, sent in clear text.
    Password {
        /// The name of the user.
        user: String,
        /// The user's password.
        password: String,
    },
    /// Kerberos only; connecting fails without a ticket.
    Kerberos(Tickets),
    /// The best method that both sides support: over shared memory the user that the kernel
    /// reports, otherwise Kerberos if there is a ticket, otherwise none.
    /// [`Session::identity`](crate::Session::identity) returns the method that was used, and the
    /// reasons why better methods were not.
    Automatic,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            // Passwords must not be logged.
            Self::Password { user, .. } => {
                f.debug_struct("Password").field("user", user).finish_non_exhaustive()
            }
            Self::Kerberos(tickets) => f.debug_tuple("Kerberos").field(tickets).finish(),
            Self::Automatic => f.write_str("Automatic"),
        }
    }
}

impl Login {
    /// Returns the proof for the request that establishes a session or binds a channel. With
    /// Kerberos that request has no proof; tokens follow in later requests.
    pub(crate) fn plain(&self) -> AuthRequest<'_> {
        match self {
            Self::Password { user, password } => AuthRequest::Text { identity: user, password },
            Self::None | Self::Automatic | Self::Kerberos(_) => AuthRequest::None,
        }
    }
}

/// The source of Kerberos tickets, and the service that they are for.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tickets {
    /// The service to authenticate to; `None` means `dafs@` followed by the server's host.
    pub service: Option<ServiceName>,
    /// The ticket cache or keytab that the tickets come from.
    pub source: CredentialSource,
}

setters! { Tickets:
    service: Option<ServiceName>,
    source: CredentialSource,
}

/// The identity under which a session was established.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Identity {
    /// The method by which the client authenticated.
    pub method: AuthType,
    /// True if the client may impersonate other users.
    pub trusted: bool,
    /// The maximum number of credentials that the client may register.
    pub credentials_max: u32,
    /// The name of the service that has proved its identity; `None` without Kerberos.
    pub server: Option<String>,
    /// The time when the proof expires; `None` if it does not.
    /// [`Session::renew`](crate::Session::renew) renews the proof.
    pub expires: Option<Instant>,
    /// The methods that the server accepts; empty if the client did not ask the server.
    pub offered: Vec<AuthType>,
    /// The reasons why better methods were not used, as text for users.
    pub passed_over: Vec<String>,
}

impl Identity {
    /// Creates an identity of which only the method is known.
    pub(crate) fn of(method: AuthType) -> Self {
        Self {
            method,
            trusted: false,
            credentials_max: 0,
            server: None,
            expires: None,
            offered: Vec::new(),
            passed_over: Vec::new(),
        }
    }

    /// Returns the time for which the proof is still valid; `None` if it is valid as long as the
    /// session.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.expires.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// Returns the maximum size in bytes of messages on a connection that may carry a Kerberos ticket.
pub(crate) fn message_bytes_max(address: &Address, login: &Login) -> u32 {
    let may_be_long = matches!(login, Login::Kerberos(_) | Login::Automatic);
    match address {
        Address::Tcp(_) | Address::Verbs(_) | Address::Sim { .. } if may_be_long => {
            limits::REQUEST_BYTES_MAX as u32
        }
        // A shared-memory ring is sized for its longest message, and a larger ring makes all other
        // messages slower.
        Address::Tcp(_) | Address::Verbs(_) | Address::Sim { .. } | Address::Shm(_) => {
            SLOT_BYTES as u32
        }
    }
}

/// Returns the time at which a proof expires; `None` if it does not expire.
pub(crate) fn expiry(context: &Context) -> Option<Instant> {
    Instant::now().checked_add(context.lifetime())
}

/// The reason shown when a session reconnects although its connection is not lost.
pub(crate) const LAPSED: &str = "the session's ticket has expired";
