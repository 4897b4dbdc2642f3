//! TLS 1.3 for connections over TCP: the configuration of both sides.
//!
//! The module `files` reads certificates and keys; `identity` reads the names in a certificate.
//! The tcp provider handles the records.
//!
//! Invariant: only TLS 1.3 is used, without session resumption and without early data. So both
//! sides of every connection authenticate again, before any data of the connection is used.

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod certificate;
#[cfg(feature = "tls")]
mod files;
mod identity;
#[cfg(feature = "tls")]
mod sides;

use std::path::PathBuf;

#[cfg(not(feature = "tls"))]
pub use self::absent::{TlsClient, TlsServer, TlsTarget};
pub use self::identity::CertificateIdentity;
#[cfg(feature = "tls")]
pub(crate) use self::sides::failure_of;
#[cfg(feature = "tls")]
pub use self::sides::{TlsClient, TlsServer, TlsTarget};

/// The paths of the accepting side's files, all in PEM format.
#[derive(Clone, Debug)]
pub struct TlsServerFiles {
    /// The certificate of this side, followed by the certificates that lead to an authority.
    pub certificate: PathBuf,
    /// The key of the certificate. The file must be readable by its owner only, or owned by root
    /// and readable by a group.
    pub key: PathBuf,
    /// The rule for certificates that clients must present.
    pub clients: ClientCertificates,
    /// True to reject clients that connect without TLS.
    pub required: bool,
}

/// The rule for the certificates that clients must present to the accepting side.
#[derive(Clone, Debug)]
pub enum ClientCertificates {
    /// Clients present no certificate; they are authenticated in another way.
    Unasked,
    /// Clients present either no certificate or one that an authority in this file has signed.
    Optional(PathBuf),
    /// Clients must present a certificate that an authority in this file has signed.
    Required(PathBuf),
}

/// The paths of the connecting side's files, all in PEM format.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct TlsClientFiles {
    /// The file with the authorities that sign server certificates.
    pub authorities: PathBuf,
    /// The certificate chain and the key of this side, for servers that request a certificate.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl TlsClientFiles {
    /// Creates the paths from the file of the authorities, without a certificate of this side.
    #[must_use]
    pub fn new(authorities: impl Into<PathBuf>) -> Self {
        Self { authorities: authorities.into(), identity: None }
    }

    /// Sets the field [`identity`](Self#structfield.identity).
    #[must_use]
    pub fn identity(mut self, identity: Option<(PathBuf, PathBuf)>) -> Self {
        self.identity = identity;
        self
    }
}

/// The reason why a TLS configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    System {
        /// The path of the file.
        path: PathBuf,
        /// The error that the system reported.
        source: std::io::Error,
    },
    /// A file does not have the expected content.
    #[error("{}: {what}", path.display())]
    Content {
        /// The path of the file.
        path: PathBuf,
        /// A description of what is wrong with the content.
        what: String,
    },
    /// The file permissions allow other users to read a private key.
    #[error(
        "{}: mode {mode:03o} lets other users access the private key; chmod 600 it (640 if root \
         owns it)",
        path.display()
    )]
    KeyMode {
        /// The path of the file.
        path: PathBuf,
        /// The permission bits of the key's file.
        mode: u32,
    },
    /// A private key belongs to another user.
    #[error("{}: the private key belongs to user {uid}, not to root or this user", path.display())]
    KeyOwner {
        /// The path of the file.
        path: PathBuf,
        /// The user id of the file's owner.
        uid: u32,
    },
    /// A certificate and a key do not belong together.
    #[error("{} and the key {} cannot be used together", certificate.display(), key.display())]
    Pair {
        /// The path of the certificate.
        certificate: PathBuf,
        /// The path of the key.
        key: PathBuf,
        /// The error of the TLS library.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The name is neither a host name nor an address, so no certificate can match it.
    #[error("{0:?} is neither a host name nor an address")]
    Name(String),
    /// This build of the library has no TLS.
    #[error(
        "this program was built without TLS: build it with the feature `tls` of dafs-client \
         (or of dafs-dat)"
    )]
    NotBuilt,
}

/// The reason why a TLS connection failed or ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFailure {
    /// The server rejected a connection without TLS.
    #[error("the server accepts only TLS connections")]
    Required,
    /// The server does not reply with TLS, so it probably has none.
    #[error("the server does not speak TLS")]
    NotSpoken,
    /// The peer's certificate is not accepted, for the reason given.
    #[error("the peer's certificate is refused: {0}")]
    Certificate(String),
    /// The peer ended the connection with this TLS alert.
    #[error("the peer refused the TLS connection: {0}")]
    Refused(String),
    /// The stream ended without the peer's close_notify, so an attacker may have cut it.
    #[error("the TLS connection ended without a close_notify of the peer")]
    Truncated,
    /// The peer violated the TLS protocol, or this side does not support what the peer sent.
    #[error("TLS failed: {0}")]
    Protocol(String),
}
