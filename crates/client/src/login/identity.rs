//! Who a client says it is, and as what a session was established.
//!
//! Invariant: a password is in no log.

use std::time::{Duration, Instant};

use dafs_dat::Address;
use dafs_gss::{Context, CredentialSource, ServiceName};
use dafs_types::{AuthType, limits};
use dafs_wire::messages::AuthRequest;

use crate::sizes::SLOT_BYTES;

/// Proof of identity.
///
/// Connecting by Kerberos may block the calling thread for longer than the server does, futures
/// too: it reads the ticket cache and, unless a ticket for the service is there, talks to a key
/// distribution centre, for many seconds if that is silent. Get the ticket beforehand
/// (`kvno dafs/HOST`) or connect on another thread where that matters. So does coming back after
/// a loss of the connection, which takes another look at the tickets.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Login {
    /// None: over shared memory the kernel vouches for the user.
    #[default]
    None,
    /// User name and password, in clear text.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// Kerberos, or nothing.
    Kerberos(Tickets),
    /// What is best of what the server offers and this client has: over shared memory the
    /// kernel's word, then Kerberos if there is a ticket, then none.
    /// [`Session::identity`](crate::Session::identity) says what it was, and why it was nothing
    /// better.
    Automatic,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            // The password is in no log.
            Self::Password { user, .. } => {
                f.debug_struct("Password").field("user", user).finish_non_exhaustive()
            }
            Self::Kerberos(tickets) => f.debug_tuple("Kerberos").field(tickets).finish(),
            Self::Automatic => f.write_str("Automatic"),
        }
    }
}

impl Login {
    /// What it shows in the request that makes a session or binds a channel. Who proves
    /// himself by tickets shows nothing there.
    pub(crate) fn plain(&self) -> AuthRequest<'_> {
        match self {
            Self::Password { user, password } => AuthRequest::Text { identity: user, password },
            Self::None | Self::Automatic | Self::Kerberos(_) => AuthRequest::None,
        }
    }
}

/// Tickets, and for which service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tickets {
    /// The service to speak with; `None` is `dafs@` and the server's host.
    pub service: Option<ServiceName>,
    /// Where they come from.
    pub source: CredentialSource,
}

/// As what a session was established.
#[derive(Clone, Debug)]
pub struct Identity {
    /// How the client has proved itself.
    pub method: AuthType,
    /// Whether it may act for others.
    pub trusted: bool,
    /// Credentials it may register.
    pub credentials_max: u32,
    /// The service that has proved itself, by Kerberos.
    pub server: Option<String>,
    /// When the proof is good no longer. [`Session::renew`](crate::Session::renew) gives it anew.
    pub expires: Option<Instant>,
    /// What the server would have taken, where that was asked.
    pub offered: Vec<AuthType>,
    /// Why better methods were not used, for people.
    pub passed_over: Vec<String>,
}

impl Identity {
    /// By a method, and nothing else known.
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

    /// How long the proof is still good; `None` for as long as the session.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.expires.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// The longest message of a connection that may carry a ticket.
pub(crate) fn message_bytes_max(address: &Address, login: &Login) -> u32 {
    let may_be_long = matches!(login, Login::Kerberos(_) | Login::Automatic);
    match address {
        Address::Tcp(_) | Address::Verbs(_) | Address::Sim { .. } if may_be_long => {
            limits::REQUEST_BYTES_MAX as u32
        }
        // A ring is made for the longest message, and other messages pay for that.
        Address::Tcp(_) | Address::Verbs(_) | Address::Sim { .. } | Address::Shm(_) => {
            SLOT_BYTES as u32
        }
    }
}

/// When a proof is good no longer.
pub(crate) fn expiry(context: &Context) -> Option<Instant> {
    Instant::now().checked_add(context.lifetime())
}

/// Why a session is made anew whose connection stands.
pub(crate) const LAPSED: &str = "the ticket that the session was established by has expired";
