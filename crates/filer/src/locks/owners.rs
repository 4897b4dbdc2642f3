//! The registry of lock owners and their clients.
//!
//! Invariants:
//! - An owner is registered while it has a lock, waits for a lock, or had a lock that is now broken
//!   or being rolled back. A client is registered while one of its owners is.
//! - The counts are the sums over the locks and waiters that refer to the owner.

use std::collections::{BTreeMap, BTreeSet};

use dafs_base::{Key, Slab};
use dafs_types::{ClientId, Verifier};

use super::action::LockRecord;
use super::request::{LockClient, LockOwner, OwnerName};
use super::waiters::WaiterKey;
use crate::FileKey;

/// The key of a registered owner.
pub(super) type OwnerKey = Key<Owner>;

/// A lock owner.
#[derive(Debug)]
pub(super) struct Owner {
    pub client: ClientId,
    pub name: Box<[u8]>,
    /// The files on which the owner has locks that still belong to it.
    pub files: BTreeSet<FileKey>,
    pub waiters: Vec<WaiterKey>,
    /// The number of locks that count for the owner's limit, including locks that no longer belong
    /// to it.
    pub holds: u32,
}

/// A client that has lock owners.
#[derive(Debug)]
pub(super) struct Client {
    pub name: Box<[u8]>,
    pub principal: Box<[u8]>,
    pub verifier: Verifier,
    /// The number of locks that count for the client's limit, over all its owners.
    pub holds: u32,
    owners: BTreeSet<OwnerKey>,
}

/// The owners by key and by name, and the clients by id.
#[derive(Debug, Default)]
pub(super) struct Registry {
    owners: Slab<Owner>,
    by_name: BTreeMap<(ClientId, Box<[u8]>), OwnerKey>,
    clients: BTreeMap<ClientId, Client>,
}

impl Registry {
    /// Returns the key of the owner with this name. `None` if the owner is not registered.
    pub(super) fn find(&self, name: OwnerName<'_>) -> Option<OwnerKey> {
        self.by_name.get(&(name.client, Box::from(name.owner))).copied()
    }

    /// Registers an owner if it is new, and returns its key.
    pub(super) fn enter(&mut self, owner: &LockOwner<'_>) -> OwnerKey {
        if let Some(number) = self.find(owner.name()) {
            return number;
        }
        let LockClient { id, name, principal, verifier } = owner.client;
        let number = self.owners.insert(Owner {
            client: id,
            name: Box::from(owner.owner),
            files: BTreeSet::new(),
            waiters: Vec::new(),
            holds: 0,
        });
        self.by_name.insert((id, Box::from(owner.owner)), number);
        let client = self.clients.entry(id).or_insert_with(|| Client {
            name: Box::from(name),
            principal: Box::from(principal),
            verifier,
            holds: 0,
            owners: BTreeSet::new(),
        });
        client.owners.insert(number);
        number
    }

    /// Removes an owner that has no locks and no waiters, and a client that has no owners.
    pub(super) fn forget_if_idle(&mut self, number: OwnerKey) {
        let owner = &self.owners[number];
        if owner.holds != 0 || !owner.waiters.is_empty() {
            return;
        }
        debug_assert!(owner.files.is_empty());
        let owner = self.owners.remove(number).expect("an owner is forgotten once");
        self.by_name.remove(&(owner.client, owner.name));
        let client = self.clients.get_mut(&owner.client).expect("an owner has a client");
        client.owners.remove(&number);
        if client.owners.is_empty() {
            self.clients.remove(&owner.client);
        }
    }

    /// Returns true if the key refers to a registered owner.
    pub(super) fn is_known(&self, number: OwnerKey) -> bool {
        self.owners.contains(number)
    }

    /// Returns an owner by its key.
    pub(super) fn owner(&self, number: OwnerKey) -> &Owner {
        &self.owners[number]
    }

    pub(super) fn owner_mut(&mut self, number: OwnerKey) -> &mut Owner {
        &mut self.owners[number]
    }

    pub(super) fn client(&self, id: ClientId) -> Option<&Client> {
        self.clients.get(&id)
    }

    /// Returns the client of an owner.
    pub(super) fn client_of(&self, owner: OwnerKey) -> &Client {
        &self.clients[&self.owners[owner].client]
    }

    /// Adds `locks`, which may be negative, to the counts of an owner and its client.
    pub(super) fn charge(&mut self, owner: OwnerKey, locks: i32) {
        let owner = &mut self.owners[owner];
        owner.holds = owner.holds.wrapping_add_signed(locks);
        let client = self.clients.get_mut(&owner.client).expect("an owner has a client");
        client.holds = client.holds.wrapping_add_signed(locks);
    }

    pub(super) fn owners_of(&self, client: ClientId) -> Vec<OwnerKey> {
        self.clients.get(&client).map_or_else(Vec::new, |c| c.owners.iter().copied().collect())
    }

    /// Returns the ids of other registered clients with this name. They are earlier incarnations of
    /// a client that has reconnected.
    pub(super) fn former(&self, client: &LockClient<'_>) -> Vec<ClientId> {
        let has_own = |c: &Client| c.owners.iter().any(|&o| !self.owners[o].files.is_empty());
        let is_former = |(id, c): (&ClientId, &Client)| {
            *id != client.id && *c.name == *client.name && has_own(c)
        };
        self.clients.iter().filter(|&(id, c)| is_former((id, c))).map(|(id, _)| *id).collect()
    }

    /// Returns the id of the client that has the name and verifier of a lock's record. `None` if
    /// there is no such client.
    pub(super) fn life_of(&self, record: &LockRecord) -> Option<ClientId> {
        let same = |client: &Client| {
            client.name == record.client_name
                && client.principal == record.principal
                && client.verifier == record.verifier
        };
        self.clients.iter().find(|(_, client)| same(client)).map(|(id, _)| *id)
    }

    /// Gives a client another id. The new id must not be in use.
    pub(super) fn rename(&mut self, old: ClientId, new: ClientId) {
        debug_assert!(!self.clients.contains_key(&new));
        let Some(client) = self.clients.remove(&old) else { return };
        for &number in &client.owners {
            let owner = &mut self.owners[number];
            owner.client = new;
            self.by_name.remove(&(old, owner.name.clone()));
            self.by_name.insert((new, owner.name.clone()), number);
        }
        self.clients.insert(new, client);
    }

    /// Returns the number of registered clients.
    pub(super) fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// Returns the number of registered owners.
    pub(super) fn owner_count(&self) -> usize {
        self.owners.len()
    }
}
