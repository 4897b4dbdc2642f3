//! Where a listener listens and a client connects, and who the other side is.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::verbs::VerbsUnavailable;
use crate::{CertificateIdentity, TlsFailure};

/// A transport address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Software iWARP over TCP.
    Tcp(SocketAddr),
    /// Shared memory, set up over a Unix socket at this path.
    Shm(PathBuf),
    /// An RDMA device that has this IP address, or leads to it.
    Verbs(SocketAddr),
    /// A node of the interface's simulated network.
    Sim(u32),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "tcp:{address}"),
            Address::Shm(path) => write!(f, "shm:{}", path.display()),
            Address::Verbs(address) => write!(f, "verbs:{address}"),
            Address::Sim(node) => write!(f, "sim:{node}"),
        }
    }
}

/// Why listening or connecting could not even begin.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The operating system said no.
    #[error("cannot open {address}")]
    System {
        /// The address asked for.
        address: Address,
        /// What the system said.
        source: std::io::Error,
    },
    /// This interface has no such provider.
    #[error("{0}: this interface has no provider for it")]
    NoProvider(Address),
    /// Too many endpoints.
    #[error("the interface's limit of {0} endpoints is reached")]
    TooMany(usize),
    /// There is no RDMA by verbs on this host.
    #[error(transparent)]
    Verbs(#[from] VerbsUnavailable),
    /// TLS cannot begin.
    #[error("cannot begin TLS")]
    Tls(#[from] TlsFailure),
    /// The private data is too long.
    #[error("private data of {length} octets exceeds the transport's {limit}")]
    PrivateData {
        /// Octets given.
        length: usize,
        /// Octets possible.
        limit: usize,
    },
}

/// What the transport itself knows of the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address; for shared memory the listener's path.
    pub address: Address,
    /// Its process, where the kernel vouches for it.
    pub process: Option<PeerProcess>,
    /// Whether it connects by TLS.
    pub tls: bool,
    /// Who it is by its certificate, where it connects by TLS and has shown one that an
    /// authority of [`crate::ClientCertificates`] vouches for.
    pub certificate: Option<Arc<CertificateIdentity>>,
}

/// Kernel-verified identity of a process on the same host (SO_PEERCRED, SO_PEERGROUPS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerProcess {
    /// Process id, 0 if it lies outside our pid namespace.
    pub pid: i32,
    /// Effective user at connect.
    pub uid: u32,
    /// Effective group at connect.
    pub gid: u32,
    /// Supplementary groups at connect; none where the kernel does not tell.
    pub groups: Box<[u32]>,
}
