//! What can go wrong, said so that the reader knows what to do.

use std::sync::Arc;

use dafs_types::Status;

/// Result of a client call.
pub type Result<T> = std::result::Result<T, ClientError>;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The server answered with an error.
    #[error("{what}: {status}")]
    Status {
        /// What was asked, with the path where there is one.
        what: String,
        /// The answer.
        status: Status,
    },
    /// No connection could be made.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// Where to.
        address: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// The server does not let this client in.
    #[error("{address} refused {}: {status}{}", named(user), login_advice(user, *status))]
    Login {
        /// Which server.
        address: String,
        /// As whom; `None` without a login.
        user: Option<String>,
        /// The answer.
        status: Status,
    },
    /// The client and the server could not prove to each other by Kerberos who they are.
    #[error("cannot log in to {address} by Kerberos: {reason}")]
    Kerberos {
        /// Which server.
        address: String,
        /// Why, and what to do.
        reason: String,
        /// The answer; `None` if it did not come to one.
        status: Option<Status>,
    },
    /// The server offers no way to log in that this client has.
    #[error("there is no way to log in to {address}: {}", reasons.join("; "))]
    NoLogin {
        /// Which server.
        address: String,
        /// Why not by each.
        reasons: Vec<String>,
    },
    /// The session has ended; everything outstanding has failed with it.
    #[error("session with {address} ended: {reason}")]
    SessionEnded {
        /// With whom.
        address: String,
        /// Why.
        reason: String,
    },
    /// The connection broke, and the server has lost what it had answered to this request,
    /// which is not one to be made twice: it kept results in memory and has restarted, or
    /// the client was away for longer than it keeps them. Look whether it was done before
    /// asking again.
    #[error(
        "{what}: the connection broke and the server no longer knows whether this was done; \
         look before doing it again"
    )]
    OutcomeUnknown {
        /// What was asked.
        what: String,
    },
    /// The server sent something that is no answer to what was asked.
    #[error("server {address} broke the protocol: {what}")]
    Protocol {
        /// Who.
        address: String,
        /// How.
        what: String,
    },
    /// The operation was cancelled before its end.
    #[error("cancelled")]
    Cancelled,
    /// Not done in the time given; it goes on.
    #[error("timed out")]
    TimedOut,
    /// A buffer range that lies outside its buffer.
    #[error("buffer range of {length} bytes at {offset} lies outside the buffer")]
    Range {
        /// Bytes from the buffer's start.
        offset: usize,
        /// Bytes.
        length: usize,
    },
    /// A file of another session, or a buffer of another client: each has its own handles
    /// and registrations.
    #[error("{what}: the file is of another session or the buffer of another client")]
    Foreign {
        /// Which file.
        what: String,
    },
    /// Unstable data was lost because the server has restarted or could not write it,
    /// and is not held here any more: write it again.
    #[error("{what}: the server lost data that was not committed; write it again")]
    DataLost {
        /// Which file.
        what: String,
    },
    /// Memory of a device cannot be moved to or from over this connection: it goes through no
    /// RDMA device, or through one that does not take the memory.
    #[error("device memory is out of reach over {address}: {reason}")]
    OutOfReach {
        /// The connection's address.
        address: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A path climbs too many symbolic links.
    #[error("{0}: more than 40 symbolic links")]
    TooManyLinks(String),
    /// A directory that was to be removed with all that is in it, and whose name cannot go. Nothing
    /// was removed.
    #[error(
        "{path} is the root of a server, of an export or of a mounted file system, which stays; \
         name what is in it"
    )]
    Kept {
        /// Its path.
        path: String,
    },
    /// This machine refused something.
    #[error("{what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: SystemCause,
    },
}

impl ClientError {
    /// The protocol's status, where the server gave one.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. } | Self::Login { status, .. } => Some(*status),
            Self::Kerberos { status, .. } => *status,
            Self::NoLogin { .. } => Some(Status::NotAuthorized),
            Self::Connect { .. }
            | Self::SessionEnded { .. }
            | Self::OutcomeUnknown { .. }
            | Self::Protocol { .. }
            | Self::Cancelled
            | Self::TimedOut
            | Self::Range { .. }
            | Self::Foreign { .. }
            | Self::DataLost { .. }
            | Self::OutOfReach { .. }
            | Self::TooManyLinks(_)
            | Self::Kept { .. }
            | Self::System { .. } => None,
        }
    }

    /// What failed and why, for people: the error with its causes.
    #[must_use]
    pub fn in_full(&self) -> String {
        match self {
            Self::System { source, .. } => format!("{self}: {source}"),
            other => other.to_string(),
        }
    }

    /// The nearest POSIX error number; what this machine has refused has its own.
    #[must_use]
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        match self {
            Self::Status { status, .. } | Self::Login { status, .. } => status.errno(),
            Self::Kerberos { .. } | Self::NoLogin { .. } => Errno::ACCESS.raw_os_error(),
            Self::Connect { .. } => Errno::CONNREFUSED.raw_os_error(),
            Self::SessionEnded { .. } | Self::OutcomeUnknown { .. } => {
                Errno::CONNRESET.raw_os_error()
            }
            Self::Protocol { .. } => Errno::PROTO.raw_os_error(),
            Self::Cancelled => Errno::CANCELED.raw_os_error(),
            Self::TimedOut => Errno::TIMEDOUT.raw_os_error(),
            Self::Range { .. } | Self::Foreign { .. } => Errno::INVAL.raw_os_error(),
            Self::DataLost { .. } => Errno::IO.raw_os_error(),
            Self::System { source, .. } => source.errno(),
            Self::OutOfReach { .. } => Errno::OPNOTSUPP.raw_os_error(),
            Self::TooManyLinks(_) => Errno::LOOP.raw_os_error(),
            Self::Kept { .. } => Errno::BUSY.raw_os_error(),
        }
    }
}

/// Why this machine refused something: an error number, and words for it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
pub struct SystemCause {
    errno: i32,
    error: Arc<std::io::Error>,
}

impl SystemCause {
    /// A reason of the library's own, with the number that comes nearest.
    #[must_use]
    pub fn new(errno: i32, reason: impl Into<String>) -> Self {
        let kind = std::io::Error::from_raw_os_error(errno).kind();
        Self { errno, error: Arc::new(std::io::Error::new(kind, reason.into())) }
    }

    /// A reason in the library's own words, with the number of the system's error behind it.
    pub(crate) fn after(error: &(dyn std::error::Error + 'static), reason: String) -> Self {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        let said = causes.find_map(|cause| cause.downcast_ref::<std::io::Error>()?.raw_os_error());
        Self::new(said.unwrap_or(rustix::io::Errno::IO.raw_os_error()), reason)
    }

    /// A table of the library's is full (ENOBUFS).
    pub(crate) fn no_room(reason: &str) -> Self {
        Self::new(rustix::io::Errno::NOBUFS.raw_os_error(), reason)
    }

    /// The error number: the system's own where it gave one.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// The system's error.
    #[must_use]
    pub fn io_error(&self) -> &std::io::Error {
        &self.error
    }

    /// Whether this machine has run out of something: descriptors, memory, buffers.
    #[must_use]
    pub fn is_exhaustion(&self) -> bool {
        use rustix::io::Errno;
        let all = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
        all.iter().any(|errno| errno.raw_os_error() == self.errno)
    }
}

impl From<std::io::Error> for SystemCause {
    fn from(error: std::io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
        Self { errno, error: Arc::new(error) }
    }
}

impl PartialEq for SystemCause {
    /// The same number, and the same words.
    fn eq(&self, other: &Self) -> bool {
        self.errno == other.errno && self.error.to_string() == other.error.to_string()
    }
}

impl Eq for SystemCause {}

impl From<ClientError> for std::io::Error {
    fn from(error: ClientError) -> Self {
        let kind = std::io::Error::from_raw_os_error(error.errno()).kind();
        std::io::Error::new(kind, error)
    }
}

fn named(user: &Option<String>) -> String {
    user.as_ref().map_or_else(|| "a client without a login".into(), |user| format!("user {user}"))
}

/// What to do where the identity is at fault.
fn login_advice(user: &Option<String>, status: Status) -> &'static str {
    let is_refusal = matches!(status, Status::Access | Status::Perm | Status::NotAuthorized);
    match user {
        _ if status == Status::Delay => {
            "; too many logins from here wait to be checked: try again in a moment"
        }
        Some(_) if is_refusal => {
            "; check the name and the password; if they are right, a rule of the server keeps \
             you out, and its log says which"
        }
        Some(_) if status == Status::NotSupp => "; this server has no passwords",
        None if is_refusal => {
            "; a rule of the server keeps clients without a login out (its log says which): name \
             a user, as in dafs://USER@host/, or get a ticket with kinit"
        }
        None if status == Status::NotSupp => {
            "; name a user, as in dafs://USER@host/, or get a ticket with kinit"
        }
        Some(_) | None => "",
    }
}

pub(crate) fn system(what: &'static str, error: std::io::Error) -> ClientError {
    ClientError::System { what, source: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_login_says_who_and_what_to_do() {
        let refused = |user: Option<&str>, status| {
            let (address, user) = ("tcp:x:1".to_owned(), user.map(str::to_owned));
            ClientError::Login { address, user, status }.to_string()
        };
        let text = refused(Some("ann"), Status::Access);
        assert!(text.starts_with("tcp:x:1 refused user ann: permission denied"), "{text}");
        assert!(text.contains("check the name and the password"), "{text}");
        assert!(refused(Some("ann"), Status::NotSupp).ends_with("has no passwords"));
        let text = refused(None, Status::NotSupp);
        assert!(text.contains("without a login") && text.contains("USER@"), "{text}");
        assert!(!refused(None, Status::Resource).contains("USER@"));
    }
}
