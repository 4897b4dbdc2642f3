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
//! than that. But a request may be on its way as well, of a life that entered and died: once a
//! later heir has begun, those who entered before it are over. State hangs on lives that have
//! begun.

use std::collections::BTreeMap;

use dafs_base::{Key, Slab};
use dafs_types::{ClientId, Moment, Verifier};

use crate::Holder;
use crate::opens::ClientOpens;

/// Names a client's record: whoever asks for something that is about state asks with it. It names
/// nobody once the client's life is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(Key<Client>);

impl ClientKey {
    /// Whoever is no client. Nobody has state.
    pub const NOBODY: Self = Self(Key::NULL);
    /// Owner of a free slot in the table of opens. It differs from [`Self::NOBODY`], so that
    /// whoever is no client owns nothing.
    pub(crate) const FREE_OPEN: Self = Self(Key::MAX);

    /// The key as a word, for a hash.
    pub(crate) const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// Some client's, as far as tables are concerned that only compare them.
    #[cfg(test)]
    pub(crate) const fn of_test(number: u64) -> Self {
        Self(Key::from_bits(number))
    }
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
    /// The same as bytes.
    pub principal_bytes: Box<[u8]>,
    /// Where its first session came from.
    pub holder: Holder,
    pub sessions: u32,
    pub opens: ClientOpens,
    /// It is written down as one that has state.
    pub is_recorded: bool,
    /// And as one that holds plain locks, or has.
    pub has_locks: bool,
    /// It has not begun, and a later life of its name has.
    pub is_over: bool,
    /// When the state of a client without sessions is released.
    pub expires: Option<Moment>,
}

/// All clients, by key and by name.
#[derive(Debug, Default)]
pub(crate) struct ClientTable {
    records: Slab<Client>,
    /// Lives that have begun.
    by_name: BTreeMap<Box<[u8]>, ClientKey>,
    /// Those that have not, in the order in which they entered.
    heirs: Vec<ClientKey>,
    /// Clients without sessions whose state is kept.
    kept: u32,
}

impl ClientTable {
    /// Clients.
    pub fn count(&self) -> usize {
        self.records.len()
    }

    /// Clients without sessions.
    pub fn kept_count(&self) -> u32 {
        self.kept
    }

    /// The lives of this name; the one that has begun comes first.
    pub fn lives(&self, name: &[u8]) -> impl Iterator<Item = (ClientKey, &Client)> {
        let begun = self.by_name.get(name).copied();
        let heirs = self.heirs.iter().copied();
        let lives = begun.into_iter().chain(heirs).filter_map(|key| Some((key, self.get(key)?)));
        lives.filter(move |(_, client)| &*client.name == name)
    }

    /// The one of them with this verifier.
    pub fn life(&self, name: &[u8], verifier: Verifier) -> Option<(ClientKey, &Client)> {
        self.lives(name).find(|(_, client)| client.verifier == verifier)
    }

    /// A client's record; `None` for [`ClientKey::NOBODY`] and for who is gone.
    #[inline]
    pub fn get(&self, key: ClientKey) -> Option<&Client> {
        self.records.get(key.0)
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, key: ClientKey) -> Option<&mut Client> {
        self.records.get_mut(key.0)
    }

    /// Every record.
    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.records.values()
    }

    /// Whether a record has this id.
    pub fn has_id(&self, id: ClientId) -> bool {
        self.iter().any(|client| client.id == id)
    }

    /// Adds a record, of a life that has not begun.
    pub fn insert(&mut self, client: Client) -> ClientKey {
        let key = ClientKey(self.records.insert(client));
        self.heirs.push(key);
        key
    }

    /// A life begins. Returns the key of the one that had the name. Heirs of it that entered
    /// before are over.
    pub fn begin(&mut self, key: ClientKey) -> Option<ClientKey> {
        let name = self.get(key)?.name.clone();
        for heir in self.heirs.iter().take_while(|heir| **heir != key) {
            if let Some(client) = self.records.get_mut(heir.0) {
                client.is_over |= client.name == name;
            }
        }
        self.heirs.retain(|heir| *heir != key);
        self.by_name.insert(name, key).filter(|before| *before != key)
    }

    /// Whether it is of a life that has begun.
    pub fn has_begun(&self, key: ClientKey) -> bool {
        !self.heirs.contains(&key)
    }

    /// Removes a record; its opens must have been released.
    pub fn remove(&mut self, key: ClientKey) {
        if let Some(client) = self.records.remove(key.0) {
            debug_assert_eq!(client.opens.count, 0);
            self.kept -= u32::from(client.expires.is_some());
            if self.by_name.get(&client.name) == Some(&key) {
                self.by_name.remove(&client.name);
            }
            self.heirs.retain(|heir| *heir != key);
        }
    }

    /// Whoever has this name is not written down any more.
    pub fn set_unrecorded(&mut self, name: &[u8]) {
        let client = self.by_name.get(name).copied().and_then(|key| self.get_mut(key));
        if let Some(client) = client {
            client.is_recorded = false;
        }
    }

    /// Keeps a client without sessions until `expires`.
    pub fn keep(&mut self, key: ClientKey, expires: Moment) {
        if let Some(client) = self.get_mut(key) {
            debug_assert!(client.sessions == 0 && client.expires.is_none());
            client.expires = Some(expires);
            self.kept += 1;
        }
    }

    /// A session joins a client.
    pub fn join(&mut self, key: ClientKey) {
        if let Some(client) = self.get_mut(key) {
            client.sessions += 1;
            let was_kept = client.expires.take().is_some();
            self.kept -= u32::from(was_kept);
        }
    }

    /// The clients whose time has come.
    pub fn expired(&self, now: Moment) -> Vec<ClientKey> {
        if self.kept == 0 {
            return Vec::new();
        }
        let due = |client: &Client| client.expires.is_some_and(|expires| expires <= now);
        let expired = self.records.iter().filter(|(_, client)| due(client));
        expired.map(|(key, _)| ClientKey(key)).collect()
    }
}
