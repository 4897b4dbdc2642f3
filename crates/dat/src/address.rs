//! The addresses of listeners and clients, and the identity of peers.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use crate::verbs::VerbsUnavailable;
use crate::{CertificateIdentity, TlsFailure};

/// The address of a listener, with its transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Software iWARP over TCP at this IP address and port.
    Tcp(SocketAddr),
    /// Shared memory, set up over a Unix socket at this path.
    Shm(PathBuf),
    /// An RDMA device that has this IP address, or that routes to it.
    Verbs(SocketAddr),
    /// A node of the simulated network that the interface belongs to.
    Sim {
        /// The number of the node.
        node: u32,
        /// The port of one of the node's listeners. If a node has several interfaces, either each
        /// has its own listener, or they share the connections that arrive at one listener.
        port: u16,
    },
}

impl Address {
    /// Returns the address of a simulated node that has a single listener.
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

/// The reason why listening or connecting could not start.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The operating system refused the operation.
    #[error("cannot open {address}")]
    System {
        /// The requested address.
        address: Address,
        /// The error that the system reported.
        source: std::io::Error,
    },
    /// This interface has no provider for this kind of address.
    #[error("{0}: no provider is available for this address")]
    NoProvider(Address),
    /// The interface has reached its limit of endpoints.
    #[error("the interface's limit of {0} endpoints is reached")]
    TooMany(usize),
    /// RDMA verbs are not available on this host.
    #[error(transparent)]
    Verbs(#[from] VerbsUnavailable),
    /// TLS cannot be used, for the reason given.
    #[error("cannot begin TLS")]
    Tls(#[from] TlsFailure),
    /// The private data exceeds the limit of the transport.
    #[error("private data of {length} bytes exceeds the transport's {limit}")]
    PrivateData {
        /// The number of bytes that the caller passed.
        length: usize,
        /// The number of bytes that the transport can carry.
        limit: usize,
    },
}

/// The identity of a peer, as far as the transport knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The peer's address; over shared memory the listener's path.
    pub address: Address,
    /// The identity of the peer's process, if the kernel reports it.
    pub process: Option<PeerProcess>,
    /// True if the peer connects over TLS.
    pub tls: bool,
    /// The identity in the peer's certificate; `None` unless the peer connects over TLS and has
    /// presented a certificate signed by an authority of [`crate::ClientCertificates`].
    pub certificate: Option<Arc<CertificateIdentity>>,
}

/// The user or host to which a connection is attributed when connections share a limit. When the
/// limit is reached, the interface first closes connections of the user or host that uses most of
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Holder {
    /// A user of this host, by user id.
    User(u32),
    /// A host. For IPv6, its 64-bit network, because a single host may own a whole network.
    Host(IpAddr),
    /// The transport does not know the user or host.
    Unknown,
}

impl Holder {
    /// Returns the host to which connections from this address are attributed.
    pub(crate) fn of_address(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => Self::Host(Ipv6Addr::from(u128::from(v6) >> 64 << 64).into()),
            v4 @ IpAddr::V4(_) => Self::Host(v4),
        }
    }
}

/// The identity of a process on this host, as verified by the kernel (SO_PEERCRED, SO_PEERGROUPS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerProcess {
    /// The process id, or 0 if the process is outside this PID namespace.
    pub pid: i32,
    /// The process's effective user id when it connected.
    pub uid: u32,
    /// The process's effective group id when it connected.
    pub gid: u32,
    /// The process's supplementary group ids when it connected; empty if the kernel does not report
    /// them.
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
