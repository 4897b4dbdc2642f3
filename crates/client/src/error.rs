//! The errors of the client, worded so that the reader knows what to do.

use std::sync::Arc;

use dafs_types::Status;

/// The result of a client call.
pub type Result<T> = std::result::Result<T, ClientError>;

/// The reason why a call of this library failed.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The server replied with an error status.
    #[error("{what}: {status}")]
    Status {
        /// The request that failed, with its path if it has one.
        what: String,
        /// The status in the reply.
        status: Status,
    },
    /// No connection to the server could be made.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// The transport address that the client tried to connect to.
        address: String,
        /// The reason, and what to do about it.
        reason: String,
        /// The error of the local system, if it made the attempt fail; `reason` contains its text.
        system: Option<SystemCause>,
    },
    /// The server refused this client's identity.
    #[error("{address} refused {}: {status}{}", named(user), login_advice(user, *status))]
    Login {
        /// The address of the server that refused.
        address: String,
        /// The user name that was refused; `None` if the client did not name a user.
        user: Option<String>,
        /// The status in the reply.
        status: Status,
    },
    /// Mutual authentication by Kerberos failed.
    #[error("cannot log in to {address} by Kerberos: {reason}")]
    Kerberos {
        /// The address of the server whose authentication failed.
        address: String,
        /// The reason, and what to do about it.
        reason: String,
        /// The status in the server's reply; `None` if there was no reply.
        status: Option<Status>,
    },
    /// The server offers no authentication method that this client supports.
    #[error("there is no way to log in to {address}: {}", reasons.join("; "))]
    NoLogin {
        /// The address of the server that offered no usable method.
        address: String,
        /// One reason for each authentication method that was not used.
        reasons: Vec<String>,
    },
    /// The session has ended, and all its outstanding operations have failed.
    #[error("session with {address} ended: {reason}")]
    SessionEnded {
        /// The address of the server of the session.
        address: String,
        /// The reason why the session ended.
        reason: String,
    },
    /// The connection was lost before the reply arrived, and the server no longer has the result of
    /// the request. The client does not send the request again, because it must not be executed
    /// twice. Either the server kept results in memory and restarted, or the client was
    /// disconnected for longer than the server keeps results. Check whether the request was
    /// executed before you repeat it.
    #[error(
        "{what}: the connection broke and the server no longer knows whether this was done; check \
         before repeating it"
    )]
    OutcomeUnknown {
        /// The request whose outcome is unknown.
        what: String,
    },
    /// The server sent an invalid or unexpected message.
    #[error("server {address} broke the protocol: {what}")]
    Protocol {
        /// The address of the server that sent the message.
        address: String,
        /// A description of the protocol rule that the message breaks.
        what: String,
    },
    /// The operation was cancelled before it ended.
    #[error("cancelled")]
    Cancelled,
    /// The timeout expired before the operation ended; the operation continues.
    #[error("timed out")]
    TimedOut,
    /// A slice does not lie inside its buffer.
    #[error("buffer range of {length} bytes at {offset} lies outside the buffer")]
    Range {
        /// The slice's offset in bytes from the start of the buffer.
        offset: usize,
        /// The slice's length in bytes.
        length: usize,
    },
    /// The call names a file of another session or a buffer of another client. A handle belongs to
    /// one session, and a registration to one client.
    #[error("{what}: the file belongs to another session, or the buffer to another client")]
    Foreign {
        /// The path of the file.
        what: String,
    },
    /// Unstable data was lost because the server restarted or could not write the data. The client
    /// does not keep a copy: write the data again.
    #[error("{what}: the server lost data that was not committed; write it again")]
    DataLost {
        /// The path of the file.
        what: String,
    },
    /// This connection cannot move data to or from the memory of a device: it uses no RDMA device,
    /// or one that does not accept the memory.
    #[error("device memory cannot be reached over {address}: {reason}")]
    OutOfReach {
        /// The address of the server on this connection.
        address: String,
        /// The reason, and what to do about it.
        reason: String,
    },
    /// Resolving a path met more than 40 symbolic links.
    #[error("{0}: more than 40 symbolic links")]
    TooManyLinks(String),
    /// A directory cannot be removed with its content, because its name cannot be removed. No part
    /// of the content was removed.
    #[error(
        "{path} is the root of a server, of an export or of a mounted file system, which cannot \
         be removed; name its entries instead"
    )]
    CannotRemove {
        /// The path of the directory.
        path: String,
    },
    /// The local system refused an operation.
    #[error("{what}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The error that the system reported.
        source: SystemCause,
    },
}

impl ClientError {
    /// Returns the protocol's status if the error reports a reply of the server; otherwise `None`.
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
            | Self::CannotRemove { .. }
            | Self::System { .. } => None,
        }
    }

    /// Returns the local system's error, or `None` if the error came from elsewhere. The cause has
    /// the system's own error number; [`ClientError::errno`] may return a different number that
    /// fits the call better.
    #[must_use]
    pub fn system_cause(&self) -> Option<&SystemCause> {
        match self {
            Self::System { source, .. } => Some(source),
            Self::Connect { system, .. } => system.as_ref(),
            _ => None,
        }
    }

    /// Returns the full text of the error, including its causes.
    #[must_use]
    pub fn in_full(&self) -> String {
        match self {
            Self::System { source, .. } => format!("{self}: {source}"),
            other => other.to_string(),
        }
    }

    /// Returns the POSIX error number closest to this error; for an error of the local system, the
    /// system's own number. If there is no such number for a failed connect, or the number is about
    /// the name of the server's socket, returns ECONNREFUSED.
    #[must_use]
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        match self {
            Self::Status { status, .. } | Self::Login { status, .. } => status.errno(),
            Self::Kerberos { .. } | Self::NoLogin { .. } => Errno::ACCESS.raw_os_error(),
            Self::Connect { system, .. } => match system.as_ref().and_then(SystemCause::number) {
                // No server listens at this path. ENOENT would say that a file is missing.
                None | Some(Errno::NOENT | Errno::NOTDIR | Errno::NOTSOCK) => {
                    Errno::CONNREFUSED.raw_os_error()
                }
                Some(number) => number.raw_os_error(),
            },
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
            Self::CannotRemove { .. } => Errno::BUSY.raw_os_error(),
        }
    }
}

/// The cause of a local failure: an error number and a text.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
pub struct SystemCause {
    errno: i32,
    error: Arc<std::io::Error>,
}

impl SystemCause {
    /// Creates a cause from an error number and a text.
    #[must_use]
    pub fn new(errno: i32, reason: impl Into<String>) -> Self {
        let kind = std::io::Error::from_raw_os_error(errno).kind();
        Self { errno, error: Arc::new(std::io::Error::new(kind, reason.into())) }
    }

    /// Creates a cause with the given text and the number of the system error that led to it.
    pub(crate) fn after(error: &(dyn std::error::Error + 'static), reason: String) -> Self {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        let said = causes.find_map(|cause| cause.downcast_ref::<std::io::Error>()?.raw_os_error());
        Self::new(said.unwrap_or(rustix::io::Errno::IO.raw_os_error()), reason)
    }

    /// Creates a cause for a full table in this library (ENOBUFS).
    pub(crate) fn no_room(reason: &str) -> Self {
        Self::new(rustix::io::Errno::NOBUFS.raw_os_error(), reason)
    }

    /// Returns the error number; if the system reported the error, this is the system's number.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// Returns the number that the system reported, if it reported one.
    fn number(&self) -> Option<rustix::io::Errno> {
        let number = self.error.raw_os_error()?;
        Some(rustix::io::Errno::from_raw_os_error(number))
    }

    /// Returns the cause as an I/O error.
    #[must_use]
    pub fn io_error(&self) -> &std::io::Error {
        &self.error
    }

    /// Returns true if this machine has run out of a resource such as descriptors, memory or
    /// buffers.
    #[must_use]
    pub fn is_exhaustion(&self) -> bool {
        use rustix::io::Errno;
        let all = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
        all.iter().any(|errno| errno.raw_os_error() == self.errno)
    }
}

impl From<std::io::Error> for SystemCause {
    fn from(error: std::io::Error) -> Self {
        Arc::new(error).into()
    }
}

impl From<Arc<std::io::Error>> for SystemCause {
    fn from(error: Arc<std::io::Error>) -> Self {
        let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
        Self { errno, error }
    }
}

impl PartialEq for SystemCause {
    /// Compares the error numbers and the texts of two causes.
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

/// Returns advice for a login that was refused because of the identity.
fn login_advice(user: &Option<String>, status: Status) -> &'static str {
    let is_refusal = matches!(status, Status::Access | Status::Perm | Status::NotAuthorized);
    match user {
        _ if status == Status::Delay => {
            "; too many logins from this host are waiting: try again in a moment"
        }
        Some(_) if is_refusal => {
            "; check the name and the password; if they are right, a rule of the server excludes \
             you (see its log)"
        }
        Some(_) if status == Status::NotSupp => "; this server has no passwords",
        None if is_refusal => {
            "; a rule of the server excludes clients without a login (see its log): name a user, \
             as in dafs://USER@host/, or get a ticket with kinit"
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
    fn an_error_keeps_what_the_system_said() {
        let of = |number| std::io::Error::from_raw_os_error(number);
        let (emfile, enoent) = (24, 2);
        let error = system("opening a connection", of(emfile));
        assert_eq!(error.errno(), emfile);
        let cause = std::error::Error::source(&error).unwrap().downcast_ref::<SystemCause>();
        assert!(cause.is_some_and(SystemCause::is_exhaustion));
        // The number of a nested error is kept although the library uses its own text.
        let address = dafs_dat::Address::Shm("/x".into());
        let nested = dafs_dat::AddressError::System { address, source: of(emfile) };
        assert_eq!(SystemCause::after(&nested, "no more descriptors".into()).errno(), emfile);
        // A missing server is not reported as a missing file, but the system's error is kept.
        let (address, reason) = ("shm:/x".to_owned(), of(enoent).to_string());
        let error = ClientError::Connect { address, reason, system: Some(of(enoent).into()) };
        assert_eq!(error.errno(), rustix::io::Errno::CONNREFUSED.raw_os_error());
        let cause = error.system_cause().unwrap();
        assert_eq!(cause.io_error().raw_os_error(), Some(enoent));
        // Other numbers are about the network or this user.
        let connect = |system| {
            let (address, reason) = ("tcp:x:1".to_owned(), "why".to_owned());
            ClientError::Connect { address, reason, system }.errno()
        };
        let (eacces, etimedout, ehostunreach) = (13, 110, 113);
        for number in [eacces, etimedout, ehostunreach] {
            assert_eq!(connect(Some(of(number).into())), number);
        }
        // The resolver has error numbers of its own.
        let unresolved = std::io::Error::other("no such host");
        assert_eq!(connect(Some(unresolved.into())), connect(None));
    }

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
