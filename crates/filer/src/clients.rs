//! The table of clients: which principal owns a client id string, and which state the client has
//! (draft 3.1.1.3).
//!
//! Invariants:
//! - A record exists only for a client that has authenticated and still has a session or state.
//! - A name belongs to one principal as long as it exists.
//! - A client id is never used for two records, so a client learns from a new id that its state was
//!   lost.
//!
//! An incarnation of a client begins with its first request, not when it authenticates. Until then
//! the incarnation is pending: it exists in addition to the incarnation that has the name. The
//! reason is that a connect request of a dead incarnation may arrive late and must not end the
//! living incarnation. After its connect request, a dead incarnation sends nothing more, with one
//! exception: if it had authenticated before it died, one of its requests may also arrive late. So
//! when a pending incarnation begins, all incarnations that authenticated before it have ended.
//! State belongs only to incarnations that have begun.

use std::collections::BTreeMap;

use dafs_base::{Key, Slab};
use dafs_types::{ClientId, Moment, Verifier};

use crate::Holder;
use crate::opens::ClientOpens;

/// The key of a client's record. Every request that concerns the client's state carries the key.
/// After the client's incarnation has ended, the key refers to no record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(Key<Client>);

impl ClientKey {
    /// The key of a caller that is not a client, and so has no state.
    pub const NONE: Self = Self(Key::NULL);
    /// The owner of a free slot in the table of opens. It differs from [`Self::NONE`], so that a
    /// caller that is not a client does not own the free slots.
    pub(crate) const FREE_OPEN: Self = Self(Key::MAX);

    /// Returns the key as an integer, for hashing.
    pub(crate) const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// Creates an arbitrary key, for tests of tables that only compare keys.
    #[cfg(test)]
    pub(crate) const fn of_test(number: u64) -> Self {
        Self(Key::from_bits(number))
    }
}

/// The identity that a client has proved. Two principals are equal if both their types and their
/// names are equal (draft 3.1.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A user of this host, identified by user id, who authenticated with AUTH_NONE.
    LocalUser(u32),
    /// A remote client that authenticated with AUTH_NONE. All such clients are one principal, so
    /// each of them can end the incarnation of any other. An administrator can prevent this by
    /// allowing only other types of authentication.
    Anonymous,
    /// A user, identified by name, who authenticated with AUTH_TEXT.
    User(Box<str>),
    /// A user who authenticated with AUTH_GSS, identified by the name that the GSS mechanism uses,
    /// such as `ada@REALM`.
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

/// One incarnation of a client.
#[derive(Debug)]
pub(crate) struct Client {
    pub id: ClientId,
    pub name: Box<[u8]>,
    pub verifier: Verifier,
    pub principal: Principal,
    /// The principal, encoded so that the lock table can compare principals by their bytes.
    pub principal_bytes: Box<[u8]>,
    /// The holder (a local user or an address) of the client's first session.
    pub holder: Holder,
    pub sessions: u32,
    pub opens: ClientOpens,
    /// True if stable storage contains a record that this client has state.
    pub is_recorded: bool,
    /// True if stable storage contains a record that the client holds, or has held, plain locks.
    pub has_locks: bool,
    /// True if the client's protocol has a request that ends reclaiming.
    pub ends_reclaims_itself: bool,
    /// True if this incarnation can no longer begin, because a later incarnation of the same name
    /// has begun.
    pub is_over: bool,
    /// The time at which the state of a client without sessions is released. `None` while the
    /// client has a session.
    pub expires: Option<Moment>,
}

/// All clients, indexed by key and by name.
#[derive(Debug, Default)]
pub(crate) struct ClientTable {
    records: Slab<Client>,
    /// The incarnations that have begun, each under its client name.
    by_name: BTreeMap<Box<[u8]>, ClientKey>,
    /// The incarnations that have not begun, in the order in which they authenticated.
    pending: Vec<ClientKey>,
    /// The number of clients that have no session but keep their state.
    kept: u32,
}

impl ClientTable {
    /// Returns the number of clients.
    pub(crate) fn count(&self) -> usize {
        self.records.len()
    }

    /// Returns the number of clients without sessions.
    pub(crate) fn kept_count(&self) -> u32 {
        self.kept
    }

    /// Returns all incarnations of the client with this name. The incarnation that has begun comes
    /// first.
    pub(crate) fn incarnations(&self, name: &[u8]) -> impl Iterator<Item = (ClientKey, &Client)> {
        let begun = self.by_name.get(name).copied();
        let pending = self.pending.iter().copied();
        let incarnations =
            begun.into_iter().chain(pending).filter_map(|key| Some((key, self.get(key)?)));
        incarnations.filter(move |(_, client)| &*client.name == name)
    }

    /// Returns the incarnation of the client with this name that has this verifier. `None` if there
    /// is none.
    pub(crate) fn incarnation(
        &self,
        name: &[u8],
        verifier: Verifier,
    ) -> Option<(ClientKey, &Client)> {
        self.incarnations(name).find(|(_, client)| client.verifier == verifier)
    }

    /// Returns the record of a client. `None` for [`ClientKey::NONE`] and for a client whose
    /// incarnation has ended.
    #[inline]
    pub(crate) fn get(&self, key: ClientKey) -> Option<&Client> {
        self.records.get(key.0)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: ClientKey) -> Option<&mut Client> {
        self.records.get_mut(key.0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.records.values()
    }

    /// Returns true if a record has this client id.
    pub(crate) fn has_id(&self, id: ClientId) -> bool {
        self.iter().any(|client| client.id == id)
    }

    /// Adds the record of an incarnation that has not begun yet.
    pub(crate) fn insert(&mut self, client: Client) -> ClientKey {
        let key = ClientKey(self.records.insert(client));
        self.pending.push(key);
        key
    }

    /// Begins an incarnation. All incarnations of the same name that authenticated earlier and have
    /// not begun can no longer begin. Returns the key of the incarnation of the name that had begun
    /// before, if any.
    pub(crate) fn begin(&mut self, key: ClientKey) -> Option<ClientKey> {
        let name = self.get(key)?.name.clone();
        for heir in self.pending.iter().take_while(|heir| **heir != key) {
            if let Some(client) = self.records.get_mut(heir.0) {
                client.is_over |= client.name == name;
            }
        }
        self.pending.retain(|heir| *heir != key);
        self.by_name.insert(name, key).filter(|before| *before != key)
    }

    /// Returns true if this incarnation has begun.
    pub(crate) fn has_begun(&self, key: ClientKey) -> bool {
        !self.pending.contains(&key)
    }

    /// Removes a record. The client's opens must already be released.
    pub(crate) fn remove(&mut self, key: ClientKey) {
        if let Some(client) = self.records.remove(key.0) {
            debug_assert_eq!(client.opens.count, 0);
            self.kept -= u32::from(client.expires.is_some());
            if self.by_name.get(&client.name) == Some(&key) {
                self.by_name.remove(&client.name);
            }
            self.pending.retain(|heir| *heir != key);
        }
    }

    /// Records that stable storage no longer has a record of the client with this name.
    pub(crate) fn set_unrecorded(&mut self, name: &[u8]) {
        let client = self.by_name.get(name).copied().and_then(|key| self.get_mut(key));
        if let Some(client) = client {
            client.is_recorded = false;
        }
    }

    /// Keeps the state of a client without sessions until the time `expires`.
    pub(crate) fn keep(&mut self, key: ClientKey, expires: Moment) {
        if let Some(client) = self.get_mut(key) {
            debug_assert!(client.sessions == 0 && client.expires.is_none());
            client.expires = Some(expires);
            self.kept += 1;
        }
    }

    /// Counts one more session of a client.
    pub(crate) fn join(&mut self, key: ClientKey) {
        if let Some(client) = self.get_mut(key) {
            client.sessions += 1;
            let was_kept = client.expires.take().is_some();
            self.kept -= u32::from(was_kept);
        }
    }

    /// Returns the clients whose lease has expired.
    pub(crate) fn expired(&self, now: Moment) -> Vec<ClientKey> {
        if self.kept == 0 {
            return Vec::new();
        }
        let due = |client: &Client| client.expires.is_some_and(|expires| expires <= now);
        let expired = self.records.iter().filter(|(_, client)| due(client));
        expired.map(|(key, _)| ClientKey(key)).collect()
    }
}
