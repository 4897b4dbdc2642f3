//! What can go wrong, said so that the reader knows what to do.

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
    /// The session has ended; everything outstanding has failed with it.
    #[error("session with {address} ended: {reason}")]
    SessionEnded {
        /// With whom.
        address: String,
        /// Why.
        reason: String,
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
    #[error("buffer range of {length} octets at {offset} lies outside the buffer")]
    Range {
        /// Octets from the buffer's start.
        offset: usize,
        /// Octets.
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
    /// A path climbs too many symbolic links.
    #[error("{0}: more than 40 symbolic links")]
    TooManyLinks(String),
    /// This machine refused something.
    #[error("{what}: {reason}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        reason: String,
    },
}

impl ClientError {
    /// The protocol's status, where the server gave one.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Connect { .. }
            | Self::SessionEnded { .. }
            | Self::Protocol { .. }
            | Self::Cancelled
            | Self::TimedOut
            | Self::Range { .. }
            | Self::Foreign { .. }
            | Self::DataLost { .. }
            | Self::TooManyLinks(_)
            | Self::System { .. } => None,
        }
    }

    /// The nearest POSIX error number.
    #[must_use]
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        match self {
            Self::Status { status, .. } => status.errno(),
            Self::Connect { .. } => Errno::CONNREFUSED.raw_os_error(),
            Self::SessionEnded { .. } => Errno::CONNRESET.raw_os_error(),
            Self::Protocol { .. } => Errno::PROTO.raw_os_error(),
            Self::Cancelled => Errno::CANCELED.raw_os_error(),
            Self::TimedOut => Errno::TIMEDOUT.raw_os_error(),
            Self::Range { .. } | Self::Foreign { .. } => Errno::INVAL.raw_os_error(),
            Self::DataLost { .. } | Self::System { .. } => Errno::IO.raw_os_error(),
            Self::TooManyLinks(_) => Errno::LOOP.raw_os_error(),
        }
    }
}

impl From<ClientError> for std::io::Error {
    fn from(error: ClientError) -> Self {
        let kind = std::io::Error::from_raw_os_error(error.errno()).kind();
        std::io::Error::new(kind, error)
    }
}
