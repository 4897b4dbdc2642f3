//! The owners of opens and locks. An owner is a name by which a client identifies one of its
//! processes.
//!
//! Invariant: an owner exists as long as a state refers to it.

use std::collections::BTreeMap;

use dafs_base::{Key, Slab};
use dafs_types::QuickMap;

use super::view::StateKind;
use crate::Nfs4Error;
use crate::keys::ClientKey;
use crate::limits::{OWNERS_MAX, OWNERS_PER_CLIENT_MAX, STATE_OWNER_BYTES_MAX};

/// The owners of all clients.
#[derive(Debug)]
pub(super) struct Owners {
    table: Slab<Owner>,
    by_client: QuickMap<ClientKey, ClientOwners>,
}

pub(super) type OwnerKey = Key<Owner>;

#[derive(Debug)]
pub(super) struct Owner {
    client: ClientKey,
    kind: StateKind,
    name: Box<[u8]>,
    states: u32,
}

/// The owners of one client. An open owner and a lock owner with the same name are two owners.
#[derive(Debug, Default)]
struct ClientOwners {
    of_opens: BTreeMap<Box<[u8]>, OwnerKey>,
    of_locks: BTreeMap<Box<[u8]>, OwnerKey>,
}

impl ClientOwners {
    fn names(&mut self, kind: StateKind) -> &mut BTreeMap<Box<[u8]>, OwnerKey> {
        match kind {
            StateKind::Lock => &mut self.of_locks,
            StateKind::Open | StateKind::Delegation | StateKind::Layout | StateKind::Copy => {
                &mut self.of_opens
            }
        }
    }

    fn count(&self) -> usize {
        self.of_opens.len() + self.of_locks.len()
    }
}

impl Owners {
    pub(super) fn new() -> Self {
        Self { table: Slab::bounded(OWNERS_MAX), by_client: QuickMap::default() }
    }

    /// Returns the number of owners.
    pub(super) fn count(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of owners of a client.
    pub(super) fn count_of(&self, client: ClientKey) -> usize {
        self.by_client.get(&client).map_or(0, ClientOwners::count)
    }

    /// Returns the owner with this name.
    pub(super) fn find(&self, client: ClientKey, kind: StateKind, name: &[u8]) -> Option<OwnerKey> {
        let own = self.by_client.get(&client)?;
        match kind {
            StateKind::Lock => own.of_locks.get(name).copied(),
            StateKind::Open | StateKind::Delegation | StateKind::Layout | StateKind::Copy => {
                own.of_opens.get(name).copied()
            }
        }
    }

    /// Adds a reference from a new state to the owner with this name. Creates the owner if it does
    /// not exist.
    ///
    /// # Errors
    /// INVAL if the name is too long; NOSPC if there are too many owners.
    pub(super) fn take(
        &mut self,
        client: ClientKey,
        kind: StateKind,
        name: &[u8],
    ) -> Result<OwnerKey, Nfs4Error> {
        if let Some(key) = self.find(client, kind, name) {
            self.table[key].states += 1;
            return Ok(key);
        }
        if name.len() > STATE_OWNER_BYTES_MAX {
            return Err(Nfs4Error::Inval);
        }
        if !self.has_room(client) {
            return Err(Nfs4Error::NoSpc);
        }
        let owner = Owner { client, kind, name: name.into(), states: 1 };
        let key = self.table.try_insert(owner).map_err(|_| Nfs4Error::NoSpc)?;
        self.by_client.entry(client).or_default().names(kind).insert(name.into(), key);
        Ok(key)
    }

    /// Returns true if a client may have one more owner.
    pub(super) fn has_room(&self, client: ClientKey) -> bool {
        self.count_of(client) < OWNERS_PER_CLIENT_MAX as usize
            && self.table.len() < OWNERS_MAX as usize
    }

    /// Removes a reference from a state that has ended. Removes the owner with its last reference.
    pub(super) fn release(&mut self, key: OwnerKey) {
        let Some(owner) = self.table.get_mut(key) else { return };
        owner.states -= 1;
        if owner.states > 0 {
            return;
        }
        let Some(owner) = self.table.remove(key) else { return };
        if let Some(own) = self.by_client.get_mut(&owner.client) {
            own.names(owner.kind).remove(&owner.name);
            if own.count() == 0 {
                self.by_client.remove(&owner.client);
            }
        }
    }

    /// Returns the name of an owner.
    pub(super) fn name(&self, key: OwnerKey) -> &[u8] {
        self.table.get(key).map_or(&[], |owner| &owner.name)
    }
}
