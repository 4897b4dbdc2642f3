//! Where a session's server may be found again.
//!
//! Invariant: names are resolved once, when the session is made: asking for them again
//! could stop the only thread for long.

use std::path::PathBuf;

use dafs_dat::Address;

/// The addresses of one server, best first.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Sockets of a server on this host, tried when they are there.
    local: Vec<PathBuf>,
    /// Always tried.
    fixed: Vec<Address>,
    /// Tried besides by a session that has lost its connection.
    spare: Vec<Address>,
}

impl Places {
    /// One address and no other.
    pub fn one(address: Address) -> Self {
        Self { local: Vec::new(), fixed: vec![address], spare: Vec::new() }
    }

    pub fn new(local: Vec<PathBuf>, fixed: Vec<Address>) -> Self {
        Self { local, fixed, spare: Vec::new() }
    }

    /// With places besides, for a session that has lost its connection.
    pub fn with_spare(self, spare: Vec<Address>) -> Self {
        Self { spare, ..self }
    }

    /// What can be tried now by a session that has lost its connection.
    pub fn again(&self) -> Vec<Address> {
        let mut places = self.now();
        places.extend(self.spare.iter().cloned());
        places
    }

    /// What can be tried now.
    pub fn now(&self) -> Vec<Address> {
        let there = self.local.iter().filter(|path| path.exists());
        there.cloned().map(Address::Shm).chain(self.fixed.iter().cloned()).collect()
    }
}
