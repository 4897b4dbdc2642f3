//! The table of all clients, indexed by key, client id and owner.

use std::collections::{BTreeMap, VecDeque};

use dafs_base::Slab;
use dafs_types::{ClientId, Moment, QuickMap, Verifier};

use super::record::{Client, ClientView, EndReason, EndedClient};
use crate::Nfs4Error;
use crate::keys::{ClientKey, ClientTag};
use crate::limits::{CLIENTS_PER_PEER_MAX, StateConfig, UNCONFIRMED_MAX, UNCONFIRMED_PER_PEER_MAX};
use crate::peer::PeerId;

/// All clients of a server, confirmed or not.
#[derive(Debug)]
pub struct Clients {
    pub(super) config: StateConfig,
    next_index: u32,
    pub(super) records: Slab<Client, ClientTag>,
    by_id: QuickMap<ClientId, ClientKey>,
    by_owner: BTreeMap<Box<[u8]>, Incarnations>,
    /// The unconfirmed records, by client id. The oldest record has the smallest id.
    unconfirmed: BTreeMap<ClientId, ClientKey>,
    peers: BTreeMap<PeerId, PeerClients>,
    ended: VecDeque<EndedClient>,
}

/// The records of one client owner.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Incarnations {
    pub confirmed: Option<ClientKey>,
    pub unconfirmed: Option<ClientKey>,
}

/// The records of one host.
#[derive(Debug, Default)]
struct PeerClients {
    count: u32,
    /// The unconfirmed records of the host, the oldest first.
    unconfirmed: VecDeque<ClientKey>,
}

impl Clients {
    /// Creates an empty table.
    #[must_use]
    pub fn new(config: StateConfig) -> Self {
        debug_assert!(config.epoch != 0);
        Self {
            config,
            next_index: 1,
            records: Slab::default(),
            by_id: QuickMap::default(),
            by_owner: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            peers: BTreeMap::new(),
            ended: VecDeque::new(),
        }
    }

    /// Returns the number of records, confirmed or not.
    #[must_use]
    pub fn count(&self) -> usize {
        self.records.len()
    }

    /// Returns the number of unconfirmed records.
    #[must_use]
    pub fn unconfirmed_count(&self) -> usize {
        self.unconfirmed.len()
    }

    /// Returns the key of the client with this id.
    ///
    /// # Errors
    /// STALE_CLIENTID if the id is from an earlier run of the server, or if its record was removed.
    pub fn find(&self, id: ClientId) -> Result<ClientKey, Nfs4Error> {
        self.by_id.get(&id).copied().ok_or(Nfs4Error::StaleClientId)
    }

    /// Returns the visible part of a client's record; `None` if it was removed.
    #[must_use]
    pub fn view(&self, key: ClientKey) -> Option<ClientView<'_>> {
        self.get(key).map(view_of)
    }

    /// Iterates over all clients.
    pub fn iter(&self) -> impl Iterator<Item = (ClientKey, ClientView<'_>)> {
        self.records.iter().map(|(key, client)| (ClientKey(key), view_of(client)))
    }

    /// Removes and returns the next client whose record has ended. The caller must remove its
    /// sessions and its state.
    pub fn poll_ended(&mut self) -> Option<EndedClient> {
        self.ended.pop_front()
    }

    #[inline]
    pub(crate) fn get(&self, key: ClientKey) -> Option<&Client> {
        self.records.get(key.0)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: ClientKey) -> Option<&mut Client> {
        self.records.get_mut(key.0)
    }

    pub(super) fn incarnations(&self, owner: &[u8]) -> Incarnations {
        self.by_owner.get(owner).copied().unwrap_or_default()
    }

    /// Makes room for one more record of a host. Removes an unconfirmed record, preferably one of
    /// the same host; if there is none, removes a client whose lease has expired.
    ///
    /// # Errors
    /// DELAY if all other records must be kept.
    pub(super) fn make_room(&mut self, peer: PeerId, now: Moment) -> Result<(), Nfs4Error> {
        let own = self.peers.get(&peer);
        let oldest_of_peer = own.and_then(|own| own.unconfirmed.front().copied());
        let is_peer_full = own.is_some_and(|own| {
            own.unconfirmed.len() >= UNCONFIRMED_PER_PEER_MAX || own.count >= CLIENTS_PER_PEER_MAX
        });
        let is_full = self.records.len() >= self.config.clients_max as usize;
        if is_peer_full {
            let victim = oldest_of_peer.or_else(|| self.lapsed(now, Some(peer)));
            self.end(victim.ok_or(Nfs4Error::Delay)?, EndReason::Expired);
        } else if is_full || self.unconfirmed.len() >= UNCONFIRMED_MAX {
            let oldest = self.unconfirmed.values().next().copied();
            let victim = oldest_of_peer.or(oldest).or_else(|| self.lapsed(now, None));
            self.end(victim.ok_or(Nfs4Error::Delay)?, EndReason::Expired);
        }
        Ok(())
    }

    /// Returns the client whose lease expired the longest time ago, among those of `peer` or among
    /// all.
    pub(super) fn lapsed(&self, now: Moment, peer: Option<PeerId>) -> Option<ClientKey> {
        let of_peer = |client: &Client| peer.is_none_or(|peer| client.peer == peer);
        let lapsed = self.records.iter();
        let lapsed = lapsed.filter(|(_, client)| of_peer(client) && self.has_lapsed(client, now));
        lapsed.min_by_key(|(_, client)| client.renewed).map(|(key, _)| ClientKey(key))
    }

    /// Returns a client id that no record has ever had: the number of this run of the server,
    /// followed by a running number. `None` if all numbers of this run are used up.
    pub(super) fn new_id(&mut self) -> Option<ClientId> {
        let index = self.next_index;
        self.next_index = index.checked_add(1)?;
        Some(ClientId(u64::from(self.config.epoch) << 32 | u64::from(index)))
    }

    /// Adds a record. The owner must not yet have a record of the same kind (confirmed or
    /// unconfirmed).
    pub(super) fn insert(&mut self, client: Client) -> ClientKey {
        let (id, peer, is_confirmed) = (client.id, client.peer, client.is_confirmed);
        let incarnations = self.by_owner.entry(client.owner.clone()).or_default();
        let key = ClientKey(self.records.insert(client));
        let place = match is_confirmed {
            true => &mut incarnations.confirmed,
            false => &mut incarnations.unconfirmed,
        };
        debug_assert!(place.is_none());
        *place = Some(key);
        self.by_id.insert(id, key);
        let peer = self.peers.entry(peer).or_default();
        peer.count += 1;
        if !is_confirmed {
            peer.unconfirmed.push_back(key);
            self.unconfirmed.insert(id, key);
        }
        key
    }

    /// Marks a record as confirmed. A previous confirmed record of the owner must already be
    /// removed.
    pub(super) fn set_confirmed(&mut self, key: ClientKey) {
        let Some(client) = self.records.get_mut(key.0) else { return };
        client.is_confirmed = true;
        let (id, peer) = (client.id, client.peer);
        if let Some(incarnations) = self.by_owner.get_mut(&client.owner) {
            debug_assert!(incarnations.confirmed.is_none());
            *incarnations = Incarnations { confirmed: Some(key), unconfirmed: None };
        }
        self.unconfirmed.remove(&id);
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.unconfirmed.retain(|other| *other != key);
        }
    }

    /// Removes a record, and queues a report for [`Clients::poll_ended`].
    pub(super) fn end(&mut self, key: ClientKey, reason: EndReason) {
        let Some(client) = self.records.remove(key.0) else { return };
        self.by_id.remove(&client.id);
        if let Some(incarnations) = self.by_owner.get_mut(&client.owner) {
            for place in [&mut incarnations.confirmed, &mut incarnations.unconfirmed] {
                if *place == Some(key) {
                    *place = None;
                }
            }
            if incarnations.confirmed.is_none() && incarnations.unconfirmed.is_none() {
                self.by_owner.remove(&client.owner);
            }
        }
        self.unconfirmed.remove(&client.id);
        if let Some(peer) = self.peers.get_mut(&client.peer) {
            peer.count -= 1;
            peer.unconfirmed.retain(|other| *other != key);
            if peer.count == 0 {
                self.peers.remove(&client.peer);
            }
        }
        self.ended.push_back(EndedClient {
            key,
            id: client.id,
            was_confirmed: client.is_confirmed,
            reason,
            sessions: client.sessions,
        });
    }

    /// Returns the confirmed record of the owner with this verifier; `None` if there is no such
    /// record.
    #[must_use]
    pub fn confirmed(&self, owner: &[u8], verifier: Verifier) -> Option<ClientKey> {
        let key = self.incarnations(owner).confirmed?;
        self.get(key).filter(|client| client.verifier == verifier).map(|_| key)
    }
}

fn view_of(client: &Client) -> ClientView<'_> {
    ClientView {
        id: client.id,
        owner: &client.owner,
        verifier: client.verifier,
        principal: &client.principal,
        peer: client.peer,
        protection: client.protection,
        is_confirmed: client.is_confirmed,
        is_courtesy: client.is_courtesy,
        is_reclaiming: client.is_reclaiming,
        session_count: client.sessions.len() as u32,
        state_count: client.states,
        renewed: client.renewed,
    }
}
