//! The users of NFS clients: finds the caller of an operation from the credentials in a call.
//!
//! Invariant: a user is admitted according to the current access rules. When the rules change,
//! every user is checked again at the user's next call.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dafs_dat::{EndpointId, Waker};
use dafs_filer::{ClientKey, FenceId, FenceKey, Holder, Party};
use dafs_files::caller::Identity;
use dafs_store::ExportTerms;
use dafs_types::{Credentials, QuickMap};

use super::names::Names;
use crate::access::authorize::AccessRules;
use crate::access::exports::rules::{NfsPeer, TransportSecurity};
use crate::reactor::Shared;

/// The admitted users of NFS clients.
#[derive(Debug)]
pub(super) struct Users {
    /// The access rules according to which the users were admitted.
    rules: Option<Arc<AccessRules>>,
    /// The users by client. [`ClientKey::NONE`] stands for the clients of NFSv3.
    admitted: QuickMap<ClientKey, HashMap<User, EndpointId>>,
    /// The fence identity of each address.
    fences: HashMap<IpAddr, FenceKey>,
    names: Names,
    /// The number of changes of the rules and of clients' names. Decisions that were made before
    /// the last change do not hold.
    changes: u64,
}

/// A user of an NFS client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct User {
    /// The client's machine and the kind of its port.
    pub peer: NfsPeer,
    /// The credentials that the client states or proves. If the client states none, the credentials
    /// of an unauthenticated user.
    pub credentials: Credentials,
}

impl Users {
    /// Creates the table. `waker` wakes the reactor when the name of a client was found.
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            rules: None,
            admitted: QuickMap::default(),
            fences: HashMap::new(),
            names: Names::new(waker),
            changes: 0,
        }
    }

    /// Removes all users if the rules have changed. Takes the names of clients that were found.
    /// `now` is the time of the clock of connections.
    pub(super) fn renew(&mut self, shared: &mut Shared, now: Duration) {
        let rules = shared.entrance.rules();
        let has_rules = self.rules.as_ref().is_some_and(|own| Arc::ptr_eq(own, &rules));
        let has_new_names = self.names.take_answers(now);
        if !has_rules {
            self.forget_all(shared);
            self.rules = Some(rules);
        }
        if !has_rules || has_new_names {
            self.changes += 1;
        }
    }

    /// Returns the number of changes of the rules and of clients' names.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the facts about the client of a connection. `None` while its name is looked up.
    pub(super) fn peer_at(
        &mut self,
        address: SocketAddr,
        security: TransportSecurity,
        now: Duration,
    ) -> Option<NfsPeer> {
        let needs_name = self.rules.as_ref().is_some_and(|rules| rules.nfs.needs_names());
        let peer = NfsPeer { security, ..NfsPeer::of(address, None) };
        if !needs_name {
            return Some(peer);
        }
        let host = self.names.find(peer.address, now)?;
        Some(NfsPeer { host, ..peer })
    }

    /// Returns true if the rules let a client see an export. Logs a refusal.
    pub(super) fn lets_in(shared: &mut Shared, peer: &NfsPeer) -> bool {
        let Err(refusal) = shared.entrance.judge_nfs(peer) else { return true };
        if shared.entrance.may_log(Holder::at(peer.address), shared.life.now()) {
            tracing::warn!(from = %peer.address, %refusal, "an NFS client is refused");
        }
        false
    }

    /// Returns the endpoint id that stands for a user of a client. The client owns the user's
    /// state; it is [`ClientKey::NONE`] for NFSv3. `None` if the access rules refuse the user or
    /// there are too many users.
    pub(super) fn admit(
        &mut self,
        shared: &mut Shared,
        client: ClientKey,
        user: &User,
    ) -> Option<EndpointId> {
        if let Some(endpoint) = self.admitted.get(&client).and_then(|users| users.get(user)) {
            return Some(*endpoint);
        }
        if shared.channels.guests().count() >= USERS_MAX {
            self.forget_all(shared);
        }
        let terms = match shared.entrance.judge_nfs(&user.peer) {
            Ok(terms) => terms,
            // The user may learn which flavors are accepted.
            Err(_) => {
                // A store without terms of access would show everything.
                shared.whole_store.on_terms(&[])?;
                let any = NfsPeer { flavor: None, ..user.peer.clone() };
                let terms = shared.entrance.judge_nfs(&any).ok()?;
                terms.into_iter().map(|own| ExportTerms { is_visible: false, ..own }).collect()
            }
        };
        let view = shared.entrance.view(terms);
        let who = Arc::new(Identity::new(user.credentials.clone(), &view));
        let fence = self.fence_of(shared, user.peer.address);
        let endpoint = shared.channels.guests_mut().insert(who, Party { client, fence })?;
        self.admitted.entry(client).or_default().insert(user.clone(), endpoint);
        Some(endpoint)
    }

    /// Removes the users of a client whose state has ended.
    pub(super) fn forget_client(&mut self, shared: &mut Shared, client: ClientKey) {
        for endpoint in self.admitted.remove(&client).into_iter().flat_map(HashMap::into_values) {
            shared.channels.guests_mut().remove(endpoint);
        }
    }

    /// Removes all users. A user is admitted again at the user's next call. A request in progress
    /// either ends like that of a disconnected client, or continues because its task still refers
    /// to the user.
    fn forget_all(&mut self, shared: &mut Shared) {
        for client in self.admitted.keys().copied().collect::<Vec<_>>() {
            self.forget_client(shared, client);
        }
    }

    /// Returns the key of a client machine's fence identity, which is `nfs:` followed by the
    /// address.
    fn fence_of(&mut self, shared: &mut Shared, address: IpAddr) -> Option<FenceKey> {
        if let Some(key) = self.fences.get(&address) {
            return Some(*key);
        }
        if self.fences.len() >= ADDRESSES_MAX {
            for (_, key) in self.fences.drain() {
                shared.filer.remove_identity(key);
            }
            self.forget_all(shared);
        }
        let fence_id = FenceId::new(&format!("nfs:{address}")).ok()?;
        let key = shared.filer.add_identity(fence_id);
        self.fences.insert(address, key);
        Some(key)
    }
}

/// The maximum number of admitted users. At this number all users are removed, and each is admitted
/// again at the user's next call.
const USERS_MAX: usize = 1 << 15;
/// The maximum number of client machines whose fence identities are kept.
const ADDRESSES_MAX: usize = 1 << 14;
