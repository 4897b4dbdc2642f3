//! Clients: who a client id string belongs to, and what state hangs on it
//! (draft 3.1.1.3).
//!
//! Invariant: a record exists only for a client that has authenticated and still has a
//! session or state; its name belongs to one principal as long as it exists. A client
//! id is never used for two records, so that a client whose state was lost sees a
//! changed id.
//!
//! A life of a client begins with its first request, not when it authenticates: until then
//! it is an heir, beside the life that has the name. For a life that is over may have a
//! connect on its way, which must not end the one that lives. Whoever is dead says no more
//! than that. State hangs on lives that have begun.

use std::collections::BTreeMap;

use dafs_types::{ClientId, Moment, Verifier};

use crate::Holder;
use crate::opens::ClientOpens;

/// Place of a client's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientSlot(pub u32);

impl ClientSlot {
    /// Owner of a free slot in the table of opens. It differs from [`Self::NOBODY`], so
    /// that a channel without a client owns nothing.
    pub const FREE_OPEN: Self = Self(u32::MAX);
    /// Client of a channel that has not authenticated.
    pub const NOBODY: Self = Self(u32::MAX - 1);
}

/// As whom a client authenticated: type and name both count (draft 3.1.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// AUTH_NONE from this machine.
    LocalUser(u32),
    /// AUTH_NONE from elsewhere. All anonymous clients are one principal: any of them
    /// may restart another. Who minds configures TEXT only.
    Anonymous,
    /// AUTH_TEXT.
    User(Box<str>),
    /// AUTH_GSS: a name in the writing of its mechanism, such as `ada@REALM`.
    Gss(Box<str>),
}

impl std::fmt::Display for Principal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LocalUser(uid) => write!(out, "uid:{uid}"),
            Self::Anonymous => out.write_str("anonymous"),
            Self::User(name) => write!(out, "user:{name}"),
            Self::Gss(name) => write!(out, "kerberos:{name}"),
        }
    }
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    pub id: ClientId,
    pub name: Box<[u8]>,
    pub verifier: Verifier,
    pub principal: Principal,
    /// The same as octets.
    pub principal_octets: Box<[u8]>,
    /// Where its first session came from.
    pub holder: Holder,
    pub sessions: u32,
    pub opens: ClientOpens,
    /// It is written down as one that has state.
    pub is_recorded: bool,
    /// And as one that holds plain locks, or has.
    pub has_locks: bool,
    /// When the state of a client without sessions is released.
    pub expires: Option<Moment>,
}

/// All clients, by slot and by name.
#[derive(Debug, Default)]
pub(crate) struct ClientTable {
    slots: Vec<Option<Client>>,
    free: Vec<u32>,
    /// Lives that have begun.
    by_name: BTreeMap<Box<[u8]>, ClientSlot>,
    /// Those that have not.
    heirs: Vec<ClientSlot>,
    /// Clients without sessions whose state is kept.
    kept: u32,
}

impl ClientTable {
    /// Clients.
    pub fn count(&self) -> usize {
        self.by_name.len() + self.heirs.len()
    }

    /// Clients without sessions.
    pub fn kept_count(&self) -> u32 {
        self.kept
    }

    /// The lives of this name; the one that has begun comes first.
    pub fn lives(&self, name: &[u8]) -> impl Iterator<Item = (ClientSlot, &Client)> {
        let begun = self.by_name.get(name).copied();
        let heirs = self.heirs.iter().copied();
        let lives = begun.into_iter().chain(heirs).filter_map(|slot| Some((slot, self.get(slot)?)));
        lives.filter(move |(_, client)| &*client.name == name)
    }

    /// The one of them with this verifier.
    pub fn life(&self, name: &[u8], verifier: Verifier) -> Option<(ClientSlot, &Client)> {
        self.lives(name).find(|(_, client)| client.verifier == verifier)
    }

    /// A client's record; `None` for [`ClientSlot::NOBODY`].
    pub fn get(&self, slot: ClientSlot) -> Option<&Client> {
        self.slots.get(slot.0 as usize)?.as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, slot: ClientSlot) -> Option<&mut Client> {
        self.slots.get_mut(slot.0 as usize)?.as_mut()
    }

    /// Every record.
    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.slots.iter().flatten()
    }

    /// Whether a record has this id.
    pub fn has_id(&self, id: ClientId) -> bool {
        self.slots.iter().flatten().any(|client| client.id == id)
    }

    /// Adds a record, of a life that has not begun.
    pub fn insert(&mut self, client: Client) -> ClientSlot {
        let slot = ClientSlot(match self.free.pop() {
            Some(index) => index,
            None => {
                self.slots.push(None);
                (self.slots.len() - 1) as u32
            }
        });
        self.slots[slot.0 as usize] = Some(client);
        self.heirs.push(slot);
        slot
    }

    /// A life begins. Returns the slot of the one that had the name.
    pub fn begin(&mut self, slot: ClientSlot) -> Option<ClientSlot> {
        let name = self.get(slot)?.name.clone();
        self.heirs.retain(|heir| *heir != slot);
        self.by_name.insert(name, slot).filter(|before| *before != slot)
    }

    /// Whether it is of a life that has begun.
    pub fn has_begun(&self, slot: ClientSlot) -> bool {
        !self.heirs.contains(&slot)
    }

    /// Removes a record; its opens must have been released.
    pub fn remove(&mut self, slot: ClientSlot) {
        if let Some(client) = self.slots[slot.0 as usize].take() {
            debug_assert_eq!(client.opens.count, 0);
            self.kept -= u32::from(client.expires.is_some());
            if self.by_name.get(&client.name) == Some(&slot) {
                self.by_name.remove(&client.name);
            }
            self.heirs.retain(|heir| *heir != slot);
            self.free.push(slot.0);
        }
    }

    /// Keeps a client without sessions until `expires`.
    pub fn keep(&mut self, slot: ClientSlot, expires: Moment) {
        if let Some(client) = self.get_mut(slot) {
            debug_assert!(client.sessions == 0 && client.expires.is_none());
            client.expires = Some(expires);
            self.kept += 1;
        }
    }

    /// A session joins a client.
    pub fn join(&mut self, slot: ClientSlot) {
        if let Some(client) = self.get_mut(slot) {
            client.sessions += 1;
            let was_kept = client.expires.take().is_some();
            self.kept -= u32::from(was_kept);
        }
    }

    /// The clients whose time has come.
    pub fn expired(&self, now: Moment) -> Vec<ClientSlot> {
        if self.kept == 0 {
            return Vec::new();
        }
        let due = |client: &Client| client.expires.is_some_and(|expires| expires <= now);
        (0..self.slots.len() as u32)
            .filter(|&index| self.slots[index as usize].as_ref().is_some_and(due))
            .map(ClientSlot)
            .collect()
    }
}
