//! Where a listener listens and a client connects, and who the other side is.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
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
    Sim {
        /// Which.
        node: u32,
        /// Which of its listeners: the interfaces that are one node listen each on its own, or
        /// share what comes to one of them.
        port: u16,
    },
}

impl Address {
    /// The port of a simulated node that has only one.
    #[must_use]
    pub const fn sim(node: u32) -> Self {
        Self::Sim { node, port: 0 }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "tcp:{address}"),
            Address::Shm(path) => write!(f, "shm:{}", path.display()),
            Address::Verbs(address) => write!(f, "verbs:{address}"),
            Address::Sim { node, port: 0 } => write!(f, "sim:{node}"),
            Address::Sim { node, port } => write!(f, "sim:{node}:{port}"),
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
    #[error("private data of {length} bytes exceeds the transport's {limit}")]
    PrivateData {
        /// Bytes given.
        length: usize,
        /// Bytes possible.
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

/// Whom a connection counts for where many share a limit: whoever has most gives way first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Holder {
    /// A user of this host.
    User(u32),
    /// A host, or of IPv6 the network of 64 bits that one host has to itself.
    Host(IpAddr),
    /// Nobody knows.
    Unknown,
}

impl Holder {
    /// Whoever is at this address.
    pub(crate) fn of_address(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => Self::Host(Ipv6Addr::from(u128::from(v6) >> 64 << 64).into()),
            v4 @ IpAddr::V4(_) => Self::Host(v4),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_host_count_as_one() {
        let of = |text: &str| Holder::of_address(text.parse().unwrap());
        assert_eq!(of("192.0.2.7"), of("::ffff:192.0.2.7"));
        assert_ne!(of("192.0.2.7"), of("192.0.2.8"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    }
}
