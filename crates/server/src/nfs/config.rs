//! The configuration of the service for NFS clients.

use std::net::SocketAddr;

use dafs_dat::Address;

/// Settings for NFS clients. An NFS client states the ids of its users itself, without proof
/// (AUTH_SYS), so [`NfsRules`](crate::NfsRules) say which machines are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsConfig {
    /// The addresses to listen on. The usual port is 2049.
    pub listen: Vec<SocketAddr>,
    /// The addresses at which clients are served over RDMA: of iWARP over TCP
    /// ([`Address::Tcp`]), or of RDMA devices ([`Address::Verbs`]). The usual port is 20049.
    pub rdma: Vec<Address>,
    /// The port of rpcbind, by which the server finds the lock managers of its clients.
    pub rpcbind_port: u16,
}

impl NfsConfig {
    /// Returns settings that listen on these addresses.
    #[must_use]
    pub fn at(listen: Vec<SocketAddr>) -> Self {
        Self { listen, rdma: Vec::new(), rpcbind_port: dafs_nfs_wire::rpcbind::PORT }
    }
}

impl Default for NfsConfig {
    fn default() -> Self {
        Self::at(Vec::new())
    }
}
