//! The addresses of a session's server.
//!
//! Invariant: host names are resolved once, when the session is created: resolving them again could
//! block the client's only thread for a long time.

use std::path::PathBuf;

use dafs_dat::Address;
use dafs_dat::shm::{FoundSocket, SocketTrust};

use crate::url::user_of_socket;

/// An address of a server, and the users that may own its Unix socket.
#[derive(Clone, Debug)]
pub(crate) struct ServerAddress {
    pub address: Address,
    /// The users that may own a Unix socket. Fewer users are trusted if the client found the socket
    /// in a place where other users could create one.
    pub trust: SocketTrust,
}

impl ServerAddress {
    /// Creates an address that the caller has named. A directory in /tmp that is named after a user
    /// must belong to that user, because any user can create it while it does not exist.
    pub(crate) fn named(address: Address) -> Self {
        let user = match &address {
            Address::Shm(socket) => user_of_socket(socket),
            Address::Tcp(_) | Address::Verbs(_) | Address::Sim { .. } => None,
        };
        Self { address, trust: user.map_or(SocketTrust::Named, SocketTrust::OfUser) }
    }

    fn found(socket: PathBuf) -> Self {
        Self { address: Address::Shm(socket), trust: SocketTrust::Found }
    }
}

/// The addresses of one server, best first.
#[derive(Clone, Debug)]
pub(crate) struct ServerAddresses {
    /// The paths of Unix sockets of a server on this host, tried if they exist and can be trusted.
    local: Vec<PathBuf>,
    /// Addresses that are always tried.
    fixed: Vec<Address>,
    /// The addresses that are tried in addition after the connection was lost.
    spare: Vec<Address>,
}

impl ServerAddresses {
    /// Creates a list with a single address.
    pub(crate) fn one(address: Address) -> Self {
        Self { local: Vec::new(), fixed: vec![address], spare: Vec::new() }
    }

    pub(crate) fn new(local: Vec<PathBuf>, fixed: Vec<Address>) -> Self {
        Self { local, fixed, spare: Vec::new() }
    }

    /// Adds addresses for use after the connection was lost.
    pub(crate) fn with_spare(self, spare: Vec<Address>) -> Self {
        Self { spare, ..self }
    }

    /// Returns a copy for an additional channel, in which this address is tried first.
    pub(crate) fn from(&self, address: &Address) -> Self {
        let mut places = self.clone();
        if let Some(at) = places.fixed.iter().position(|fixed| fixed == address) {
            places.fixed.rotate_left(at);
            places.local.clear();
        }
        places
    }

    /// Returns the addresses for channel `number` of a session that was established at `address`:
    /// the server's addresses of the same kind, starting with a different one for each channel.
    pub(crate) fn for_channel(&self, address: &Address, number: usize) -> Vec<ServerAddress> {
        let is_like = |other: &&Address| match (address, other) {
            (Address::Tcp(one), Address::Tcp(other)) => one.is_ipv4() == other.is_ipv4(),
            _ => false,
        };
        let like: Vec<&Address> = self.fixed.iter().filter(is_like).collect();
        let Some(at) = like.iter().position(|other| *other == address) else { return Vec::new() };
        vec![ServerAddress::named(like[(at + number) % like.len()].clone())]
    }

    /// Returns the addresses to try after the connection was lost.
    pub(crate) fn again(&self) -> Vec<ServerAddress> {
        let mut places = self.now();
        places.extend(self.spare.iter().cloned().map(ServerAddress::named));
        places
    }

    /// Returns the addresses to try for the first connection.
    pub(crate) fn now(&self) -> Vec<ServerAddress> {
        let is_believed = |path: &&PathBuf| matches!(FoundSocket::look(path), Ok(Some(_)));
        let there = self.local.iter().filter(is_believed).cloned().map(ServerAddress::found);
        there.chain(self.fixed.iter().cloned().map(ServerAddress::named)).collect()
    }

    /// Returns the reasons why existing sockets are not used.
    pub(crate) fn passed_over(&self) -> Vec<String> {
        let look = |path: &PathBuf| FoundSocket::look(path).err();
        self.local.iter().filter_map(look).map(|distrust| distrust.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(text: &str) -> Address {
        Address::Tcp(text.parse().unwrap())
    }

    #[test]
    fn channels_take_the_servers_addresses_in_turn() {
        let all = ["10.0.0.1:1", "10.0.0.2:1", "[fd00::1]:1", "10.0.0.3:1"].map(tcp);
        let places = ServerAddresses::new(vec!["/run/dafs/1.sock".into()], all.to_vec());
        let additional = |at: &Address, number| {
            let found = places.for_channel(at, number);
            found.into_iter().map(|place| place.address).collect::<Vec<_>>()
        };
        // Only addresses of the same kind as the first are used.
        assert_eq!(additional(&all[0], 1), [all[1].clone()]);
        assert_eq!(additional(&all[0], 2), [all[3].clone()]);
        assert_eq!(additional(&all[3], 1), [all[0].clone()]);
        assert_eq!(additional(&all[2], 3), [all[2].clone()]);
        assert_eq!(additional(&Address::Shm("/run/dafs/1.sock".into()), 1), []);
        // After a loss the channel's own address is tried first, then the others.
        let again = places.from(&all[1]).again();
        let again: Vec<_> = again.into_iter().map(|place| place.address).collect();
        assert_eq!(again, [1, 2, 3, 0].map(|at: usize| all[at].clone()));
    }
}
