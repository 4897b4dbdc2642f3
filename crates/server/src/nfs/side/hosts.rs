//! The hosts that lock files by NLM, with their opens.
//!
//! NFS version 3 has no opens, but every lock of the filer needs one. So each host is a client of
//! the filer, and has one open for each file that it has locked.
//!
//! Invariants:
//! - A host is named by its address and by the name that it gives itself. So a message from one
//!   address never releases the locks of another.
//! - A host's open of a file ends with the last lock on the file.
//! - The hosts at one address cannot use up the table.

use std::collections::HashMap;
use std::net::IpAddr;

use dafs_filer::{ClientKey, Holder, NLM_NAME_PREFIX, fair_share};
use dafs_types::{ClientId, FileHandle, ShareAccess, StateId};

/// The hosts that have locks or share reservations.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    hosts: HashMap<ClientKey, Host>,
    names: HashMap<(IpAddr, Box<[u8]>), ClientKey>,
}

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    pub id: ClientId,
    pub address: IpAddr,
    /// The name that the host gives itself.
    pub name: Box<[u8]>,
    /// The state number that the host has given with its last lock.
    pub monitor: u32,
    /// The opens for locks.
    pub files: HashMap<FileHandle, Locked>,
    /// The opens for share reservations, by file and owner.
    pub shares: HashMap<(FileHandle, Box<[u8]>), StateId>,
}

/// The open of a file that a host has locked.
#[derive(Debug)]
pub(super) struct Locked {
    pub state: StateId,
    pub access: ShareAccess,
    /// The numbers of the processes that may hold locks, and the names of these owners.
    pub owners: HashMap<u32, Box<[u8]>>,
}

impl Hosts {
    /// Returns the filer's client for a host. `None` if the host has no state.
    pub(super) fn find(&self, address: IpAddr, name: &[u8]) -> Option<ClientKey> {
        self.names.get(&(address, name.into())).copied()
    }

    pub(super) fn get(&self, client: ClientKey) -> Option<&Host> {
        self.hosts.get(&client)
    }

    pub(super) fn get_mut(&mut self, client: ClientKey) -> Option<&mut Host> {
        self.hosts.get_mut(&client)
    }

    /// Returns the host that is this client of the filer.
    pub(super) fn with_id(&self, id: ClientId) -> Option<&Host> {
        self.hosts.values().find(|host| host.id == id)
    }

    /// Adds a host.
    pub(super) fn insert(&mut self, client: ClientKey, host: Host) {
        self.names.insert((host.address, host.name.clone()), client);
        self.hosts.insert(client, host);
    }

    /// Removes and returns a host.
    pub(super) fn remove(&mut self, client: ClientKey) -> Option<Host> {
        let host = self.hosts.remove(&client)?;
        self.names.remove(&(host.address, host.name.clone()));
        Some(host)
    }

    /// Returns true if there is room for another host at an address.
    pub(super) fn has_room(&self, address: IpAddr) -> bool {
        let holder = Holder::at(address);
        let own = self.hosts.values().filter(|host| host.holder() == holder).count();
        fair_share(own as u32, self.hosts.len() as u32, HOSTS_MAX)
    }

    /// Returns the hosts that have no state.
    pub(super) fn idle(&self) -> Vec<ClientKey> {
        let is_idle = |host: &Host| host.files.is_empty() && host.shares.is_empty();
        self.hosts.iter().filter(|(_, host)| is_idle(host)).map(|(client, _)| *client).collect()
    }

    /// Returns the hosts at an address that a status monitor can mean by this name. A monitor may
    /// add the domain to the name, or leave it out.
    pub(super) fn meant_by(&self, address: IpAddr, name: &[u8]) -> Vec<ClientKey> {
        let at: Vec<_> = self.hosts.iter().filter(|(_, host)| host.address == address).collect();
        let is_only = at.len() == 1;
        let is_meant =
            |host: &Host| first_label(&host.name).eq_ignore_ascii_case(first_label(name));
        at.into_iter().filter(|(_, host)| is_only || is_meant(host)).map(|(key, _)| *key).collect()
    }
}

fn first_label(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == b'.').next().unwrap_or_default()
}

impl Host {
    /// Returns the holder in whose name the host counts.
    pub(super) fn holder(&self) -> Holder {
        Holder::at(self.address)
    }

    /// Returns true if the host may have another open.
    pub(super) fn has_room(&self) -> bool {
        self.files.len() + self.shares.len() < OPENS_MAX
    }
}

/// Returns the name of a lock owner in the filer. Clients repeat the number of the process in each
/// request of an owner, but some clients change the rest of the owner's name.
pub(super) fn owner_of(process: u32) -> [u8; 5] {
    let [a, b, c, d] = process.to_be_bytes();
    [b'n', a, b, c, d]
}

/// Returns the number of the process in the name of a lock owner.
pub(super) fn process_of(owner: &[u8]) -> Option<u32> {
    let number = owner.strip_prefix(b"n")?;
    Some(u32::from_be_bytes(number.try_into().ok()?))
}

/// Returns the name of a host as a client of the filer.
pub(super) fn client_name(address: IpAddr, name: &[u8]) -> Vec<u8> {
    [NLM_NAME_PREFIX, address.to_string().as_bytes(), b"/", name].concat()
}

/// Returns the address in the name of a client of the filer. `None` if it is not such a host.
pub(super) fn address_in(name: &[u8]) -> Option<IpAddr> {
    let rest = name.strip_prefix(NLM_NAME_PREFIX)?;
    let end = rest.iter().position(|byte| *byte == b'/')?;
    std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

/// The maximum number of hosts.
const HOSTS_MAX: u32 = 4096;
/// The maximum number of opens of a host.
const OPENS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use dafs_filer::{EnteringClient, Filer, FilerConfig, Principal};
    use dafs_types::Verifier;

    use super::*;

    #[test]
    fn the_address_of_a_host_is_in_its_name() {
        for text in ["10.0.0.1", "fe80::1"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(address_in(&client_name(address, b"host/1")), Some(address));
        }
        assert_eq!(address_in(b"nfs4:10.0.0.1/host"), None);
    }

    #[test]
    fn an_address_that_names_itself_again_and_again_leaves_room_for_others() {
        let mut hosts = Hosts::default();
        let [own, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let mut filer = Filer::new(FilerConfig::default(), 1).unwrap();
        while hosts.has_room(own) {
            let (id, number) = (ClientId(hosts.hosts.len() as u64), hosts.hosts.len() as u32);
            let entering = EnteringClient {
                id,
                name: &client_name(own, &number.to_be_bytes()),
                verifier: Verifier([0; 8]),
                principal: &Principal::Anonymous,
                holder: Holder::at(own),
                expects_record: false,
                ends_reclaims_itself: false,
            };
            let host = Host {
                id,
                address: own,
                name: number.to_be_bytes().into(),
                monitor: 0,
                files: HashMap::new(),
                shares: HashMap::new(),
            };
            hosts.insert(filer.client_enter(&entering).unwrap(), host);
        }
        assert!(hosts.hosts.len() < HOSTS_MAX as usize, "{}", hosts.hosts.len());
        assert!(hosts.has_room(other));
    }

    #[test]
    fn an_owner_is_known_by_its_process() {
        assert_eq!(process_of(&owner_of(0x1234_5678)), Some(0x1234_5678));
        assert_eq!(process_of(b"l1234"), None);
    }
}
