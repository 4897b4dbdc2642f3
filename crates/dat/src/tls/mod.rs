//! TLS 1.3 for connections over TCP: what both sides are told by whoever configures them.
//!
//! `files` reads certificates and keys; `identity` is who a certificate says its owner is.
//! The records themselves are the tcp provider's.
//!
//! Invariant: no version but 1.3 is ever spoken, no session is resumed and no data is early:
//! each connection proves anew who its two ends are, before a byte of it is believed.

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

/// Files of the side that listens, all PEM.
#[derive(Clone, Debug)]
pub struct TlsServerFiles {
    /// Its certificate, and behind it those that lead to an authority.
    pub certificate: PathBuf,
    /// The certificate's key: readable by its owner alone, or owned by root and readable by
    /// a group.
    pub key: PathBuf,
    /// Which certificates clients show.
    pub clients: ClientCertificates,
    /// Whether clients without TLS are turned away.
    pub required: bool,
}

/// Which certificates clients show to the side that listens.
#[derive(Clone, Debug)]
pub enum ClientCertificates {
    /// None: who a client is, it says otherwise.
    Unasked,
    /// One that an authority of this file vouches for, or none.
    Optional(PathBuf),
    /// One that an authority of this file vouches for.
    Required(PathBuf),
}

/// Files of the side that connects, all PEM.
#[derive(Clone, Debug)]
pub struct TlsClientFiles {
    /// The authorities that vouch for servers.
    pub authorities: PathBuf,
    /// This side's own certificate with those behind it, and its key, for servers that ask.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Why a side cannot speak TLS as it was told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Others can read a private key.
    #[error(
        "{}: mode {mode:03o} lets others at the private key; chmod 600 it (640 if root owns it)",
        path.display()
    )]
    KeyMode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A private key is somebody else's.
    #[error("{}: the private key belongs to user {uid}, neither root nor this one", path.display())]
    KeyOwner {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// A certificate and a key do not go together.
    #[error("{} and the key {} cannot be used together", certificate.display(), key.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No certificate can be for such a name.
    #[error("{0:?} is neither a host name nor an address")]
    Name(String),
    /// This build of the library has no TLS.
    #[error(
        "this program was built without TLS: build it with the feature `tls` of dafs-client \
         (or of dafs-dat)"
    )]
    NotBuilt,
}

/// Why a connection by TLS did not come about, or ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFailure {
    /// A connection without TLS was turned away.
    #[error("the server takes TLS connections only")]
    Required,
    /// What listens there answers otherwise than by TLS.
    #[error("the server does not speak TLS")]
    NotSpoken,
    /// The peer's certificate proves nothing, and why.
    #[error("the peer's certificate is refused: {0}")]
    Certificate(String),
    /// The peer ended the connection with this alert.
    #[error("the peer refused the TLS connection: {0}")]
    Refused(String),
    /// The end was not the peer's: somebody may have cut the stream.
    #[error("the TLS connection was cut off without the peer's word")]
    Truncated,
    /// The peer broke TLS's rules, or this side could not keep them.
    #[error("TLS failed: {0}")]
    Protocol(String),
}
