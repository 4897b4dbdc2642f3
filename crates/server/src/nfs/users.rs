//! The users of NFS clients: finds the caller of an operation from the credentials in a call.
//!
//! Invariant: a user is admitted according to the current access rules. When the rules change,
//! every user is checked again at the user's next call.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::{ClientKey, FenceId, FenceKey, Party, Principal};
use dafs_files::caller::Identity;
use dafs_types::{AuthType, Credentials};

use crate::access::authorize::{AccessRules, PeerFacts, TransportKind};
use crate::reactor::Shared;

/// The admitted users of NFS clients.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// The access rules according to which the users were admitted.
    rules: Option<Arc<AccessRules>>,
    admitted: HashMap<User, EndpointId>,
    /// The fence identity of each address.
    fences: HashMap<IpAddr, FenceKey>,
}

/// A user of an NFS client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct User {
    /// The address of the client's machine.
    pub address: IpAddr,
    /// The credentials that the client states. If the client states none, the credentials of an
    /// unauthenticated user.
    pub credentials: Credentials,
    /// The client that owns the user's state. [`ClientKey::NONE`] for clients of NFSv3.
    pub client: ClientKey,
}

impl Users {
    /// Returns the endpoint id that stands for a user. `None` if the access rules refuse the user
    /// or there are too many users.
    pub(super) fn admit(&mut self, shared: &mut Shared, user: &User) -> Option<EndpointId> {
        let rules = shared.entrance.rules();
        if !self.rules.as_ref().is_some_and(|own| Arc::ptr_eq(own, &rules)) {
            self.forget_all(shared);
            self.rules = Some(rules);
        }
        if let Some(endpoint) = self.admitted.get(user) {
            return Some(*endpoint);
        }
        if self.admitted.len() >= USERS_MAX {
            self.forget_all(shared);
        }
        let facts = PeerFacts {
            address: Some(user.address),
            is_local: false,
            uid: None,
            transport: TransportKind::Nfs,
            certificate: None,
        };
        let verdict = match shared.entrance.judge(&facts, &Principal::Anonymous, AuthType::None) {
            Ok(verdict) => verdict,
            Err(refusal) => {
                if shared.entrance.may_log(facts.holder(), shared.life.now()) {
                    tracing::warn!(from = %facts, %refusal, "an NFS client is refused");
                }
                return None;
            }
        };
        let view = shared.entrance.view(verdict.terms);
        let who = Arc::new(Identity::new(user.credentials.clone(), &view));
        let fence = self.fence_of(shared, user.address);
        let party = Party { client: user.client, fence };
        let endpoint = shared.channels.guests_mut().insert(who, party)?;
        self.admitted.insert(user.clone(), endpoint);
        Some(endpoint)
    }

    /// Removes the users of a client whose state has ended.
    pub(super) fn forget_client(&mut self, shared: &mut Shared, client: ClientKey) {
        let guests = shared.channels.guests_mut();
        self.admitted.retain(|user, endpoint| {
            let stays = user.client != client;
            if !stays {
                guests.remove(*endpoint);
            }
            stays
        });
    }

    /// Removes all users. A user is admitted again at the user's next call. A request in progress
    /// either ends like that of a disconnected client, or continues because its task still refers
    /// to the user.
    fn forget_all(&mut self, shared: &mut Shared) {
        for (_, endpoint) in self.admitted.drain() {
            shared.channels.guests_mut().remove(endpoint);
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
