//! The configuration of the service for NFS clients.

use std::net::SocketAddr;

use crate::access::authorize::Origin;

/// Settings for NFS clients. An NFS client states the ids of its users without proof (AUTH_SYS), so
/// the server must know which machines it can trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsConfig {
    /// The addresses to listen on. The usual port is 2049.
    pub listen: Vec<SocketAddr>,
    /// The machines that are trusted to state user ids. If the list is empty, only this machine is
    /// trusted.
    pub clients: Vec<Origin>,
    /// True if clients are trusted whatever their port is. False if only clients with a port below
    /// 1024 are trusted, because any user of a machine can open the other ports.
    pub any_port: bool,
}

impl NfsConfig {
    /// Returns settings that listen on these addresses and trust only this machine.
    #[must_use]
    pub fn at(listen: Vec<SocketAddr>) -> Self {
        Self { listen, clients: Vec::new(), any_port: false }
    }

    /// Returns true if this client is trusted to state user ids.
    pub(crate) fn believes(&self, peer: SocketAddr) -> bool {
        let address = peer.ip().to_canonical();
        let is_listed = match self.clients.is_empty() {
            true => address.is_loopback(),
            false => self.clients.iter().any(|origin| origin.has_address(address)),
        };
        is_listed && (self.any_port || peer.port() < PRIVILEGED_PORTS)
    }
}

/// The lowest port that a user without privileges can open. Only the superuser can open lower
/// ports.
const PRIVILEGED_PORTS: u16 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_this_machine_and_its_superuser_are_believed_by_default() {
        let config = NfsConfig::at(Vec::new());
        assert!(config.believes(peer("127.0.0.1:1023")));
        assert!(config.believes(peer("[::1]:700")));
        assert!(config.believes(peer("[::ffff:127.0.0.1]:700")));
        assert!(!config.believes(peer("127.0.0.1:1024")));
        assert!(!config.believes(peer("10.0.0.1:1023")));
    }

    #[test]
    fn listed_networks_replace_the_default() {
        let network = Origin::Network { address: "10.1.0.0".parse().unwrap(), bits: 16 };
        let config = NfsConfig { listen: Vec::new(), clients: vec![network], any_port: true };
        assert!(config.believes(peer("10.1.2.3:40000")));
        assert!(!config.believes(peer("10.2.2.3:40000")));
        assert!(!config.believes(peer("127.0.0.1:1")));
    }
}
