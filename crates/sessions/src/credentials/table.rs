//! The table of registered credentials.
//!
//! Invariants:
//! - A slot that is in use counts against the limit of the client to which it belongs. When the
//!   client ends, the slot no longer counts against any limit, and is freed when the last request
//!   or lookup that uses it ends.
//! - A handle contains the index of its slot and is never zero.

use std::collections::{BTreeMap, VecDeque};

use dafs_types::{ClientId, CredHandle, Credentials, Status};
use dafs_wire::messages::CredentialData;

use super::{CredentialLookup, CredentialName, CredentialPolicy, Registration};

/// The number of low bits of a handle that contain the index of the slot; the high bits contain the
/// slot's generation. A generation is never zero, and free slots are used in turn, so a handle
/// repeats only after its slot was used 65,535 times.
const INDEX_BITS: u32 = 16;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const _: () = assert!(super::CREDENTIALS_LIMIT <= INDEX_MASK + 1);

/// The registered credentials of all clients.
#[derive(Debug)]
pub struct CredentialTable {
    policy: CredentialPolicy,
    slots: Vec<Slot>,
    /// The free slots. The slot that has been free longest is reused first.
    free: VecDeque<u16>,
    clients: BTreeMap<ClientId, ClientCredentials>,
    first_generation: u16,
    counters: CredentialCounters,
}

/// The counters of credentials, for the operator. [`CredentialTable::counters`] sets the gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CredentialCounters {
    /// Gauge: the number of slots in use, including the slots of clients that have ended.
    pub taken: u32,
    /// Gauge: the number of clients that may register credentials.
    pub clients: u32,
    /// The number of registrations that succeeded.
    pub registered: u64,
    /// The number of registrations that were refused.
    pub refused: u64,
    /// The number of releases that were refused because requests used the credentials.
    pub conflicts: u64,
    /// The number of requests whose credential handle is not registered.
    pub unknown: u64,
}

/// A description of one registration for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredCredential<'a> {
    /// The client that has registered the credentials. `None` if the client has ended but requests
    /// still use them.
    pub client: Option<ClientId>,
    /// The handle by which requests refer to the credentials.
    pub handle: CredHandle,
    /// The registered identity. `None` while its name is being looked up.
    pub credentials: Option<&'a Credentials>,
    /// The number of requests in progress that use the credentials.
    pub uses: u32,
}

/// Credentials that are reserved for one request. They must be returned with
/// [`CredentialTable::finish`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct CredentialUse(u16);

#[derive(Debug)]
struct ClientCredentials {
    agreed: u32,
    /// The slots that belong to this client, in no particular order.
    slots: Vec<u16>,
}

#[derive(Debug)]
struct Slot {
    client: Option<ClientId>,
    generation: u16,
    phase: Phase,
    uses: u32,
    credentials: Credentials,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    LookingUp,
    Registered,
    /// The client has ended, but a request or a lookup still uses the slot.
    Orphaned,
}

impl CredentialTable {
    /// Creates an empty table. Generations start at a number derived from `boot_seed`, so that a
    /// handle from before a restart is most likely invalid.
    #[must_use]
    pub fn new(boot_seed: u64, policy: CredentialPolicy) -> Self {
        let folded = boot_seed ^ (boot_seed >> 32);
        Self {
            policy,
            slots: Vec::new(),
            free: VecDeque::new(),
            clients: BTreeMap::new(),
            first_generation: ((folded ^ (folded >> 16)) as u16).max(1),
            counters: CredentialCounters::default(),
        }
    }

    /// Adds a session of an authenticated client. `agreed` is the number that the session's connect
    /// request has negotiated ([`CredentialPolicy::agree`]). Returns the number that is valid for
    /// the client, which is that of its first session (draft 6.2.1).
    pub fn join(&mut self, client: ClientId, agreed: u32) -> u32 {
        let agreed = agreed.min(self.policy.per_client_max);
        let first = ClientCredentials { agreed, slots: Vec::new() };
        self.clients.entry(client).or_insert(first).agreed
    }

    /// Returns the number of credentials that a client's first session has negotiated, for the
    /// reply to a connect request, which is sent before authentication. `None` if the client is not
    /// known.
    #[must_use]
    pub fn agreed(&self, client: ClientId) -> Option<u32> {
        self.clients.get(&client).map(|client| client.agreed)
    }

    /// Handles REGISTER_CRED.
    ///
    /// # Errors
    /// NOT_AUTHORIZED if the client is not trusted; RESOURCE if a limit is reached; INVAL for too
    /// many groups, and for -1 as a user or group id; NOTSUPP for a type of name that this server
    /// does not support.
    pub fn register(
        &mut self,
        client: ClientId,
        is_trusted: bool,
        data: &CredentialData<'_>,
    ) -> Result<Registration, Status> {
        let outcome = self.try_register(client, is_trusted, data);
        match &outcome {
            Ok(Registration::Done(_)) => self.counters.registered += 1,
            Ok(Registration::LookUp(..)) => {}
            Err(_) => self.counters.refused += 1,
        }
        outcome
    }

    fn try_register(
        &mut self,
        client: ClientId,
        is_trusted: bool,
        data: &CredentialData<'_>,
    ) -> Result<Registration, Status> {
        if !is_trusted {
            return Err(Status::NotAuthorized);
        }
        let wanted = self.wanted(data)?;
        let index = self.occupy(client)?;
        let slot = &mut self.slots[usize::from(index)];
        match wanted {
            Wanted::Known(credentials) => {
                slot.phase = Phase::Registered;
                slot.credentials = credentials;
                Ok(Registration::Done(handle_of(slot.generation, index)))
            }
            Wanted::Named(name) => {
                slot.phase = Phase::LookingUp;
                let lookup = CredentialLookup(handle_of(slot.generation, index).0);
                Ok(Registration::LookUp(lookup, name))
            }
        }
    }

    fn wanted(&self, data: &CredentialData<'_>) -> Result<Wanted, Status> {
        match *data {
            CredentialData::Name(name) => Ok(Wanted::Named(CredentialName::User(name.into()))),
            CredentialData::Gss(name) if self.policy.gss_names => {
                Ok(Wanted::Named(CredentialName::Gss(name.into())))
            }
            CredentialData::Gss(_) => Err(Status::NotSupp),
            CredentialData::Default => match &self.policy.default {
                Some(credentials) => Ok(Wanted::Known(credentials.clone())),
                None => Err(Status::NotSupp),
            },
            CredentialData::Id { uid, gid, groups } => {
                if groups.len() > self.policy.groups_max as usize {
                    return Err(Status::Inval);
                }
                let groups: Vec<u32> = groups.iter().collect();
                let known = Credentials::new(uid, gid, groups).map_err(|_| Status::Inval)?;
                Ok(Wanted::Known(known))
            }
        }
    }

    /// Takes a free slot for a client that has not reached its limit.
    fn occupy(&mut self, client: ClientId) -> Result<u16, Status> {
        // A trusted client without a session cannot send requests, so this is not expected.
        let Some(owner) = self.clients.get_mut(&client) else { return Err(Status::BadSession) };
        if owner.slots.len() >= owner.agreed as usize {
            return Err(Status::Resource);
        }
        let index = match self.free.pop_front() {
            Some(index) => index,
            None if self.slots.len() < self.policy.total_max as usize => {
                self.slots.push(Slot::free(self.first_generation));
                (self.slots.len() - 1) as u16
            }
            None => return Err(Status::Resource),
        };
        owner.slots.push(index);
        self.slots[usize::from(index)].client = Some(client);
        Ok(index)
    }

    /// Reports the result of a lookup.
    ///
    /// # Errors
    /// INVAL if the name was not found; STALE_CLIENTID if the client has ended during the lookup,
    /// so that no reply can reach the client; BAD_SESSION for an unknown lookup.
    pub fn looked_up(
        &mut self,
        lookup: CredentialLookup,
        found: Option<Credentials>,
    ) -> Result<CredHandle, Status> {
        let handle = CredHandle(lookup.0);
        let Some(index) = self.index_of(handle) else { return Err(Status::BadSession) };
        let slot = &mut self.slots[usize::from(index)];
        match (slot.phase, found) {
            (Phase::LookingUp, Some(credentials)) => {
                slot.phase = Phase::Registered;
                slot.credentials = credentials;
                self.counters.registered += 1;
                Ok(handle)
            }
            (Phase::LookingUp, None) => {
                self.vacate(index);
                self.counters.refused += 1;
                Err(Status::Inval)
            }
            (Phase::Orphaned, _) => {
                self.vacate(index);
                Err(Status::StaleClientId)
            }
            (Phase::Free | Phase::Registered, _) => Err(Status::BadSession),
        }
    }

    /// Handles RELEASE_CRED.
    ///
    /// # Errors
    /// NOT_AUTHORIZED if the client is not trusted; NO_CREDS for a handle that the client has not
    /// registered; CRHAND_CONFLICT while requests use the credentials.
    pub fn release(
        &mut self,
        client: ClientId,
        is_trusted: bool,
        handle: CredHandle,
    ) -> Result<(), Status> {
        if !is_trusted {
            return Err(Status::NotAuthorized);
        }
        let index = self.find(client, handle).ok_or(Status::NoCreds)?;
        if self.slots[usize::from(index)].uses != 0 {
            self.counters.conflicts += 1;
            return Err(Status::CrHandConflict);
        }
        self.vacate(index);
        Ok(())
    }

    /// Reserves registered credentials for a request, until [`CredentialTable::finish`]. Handle 0
    /// must not be passed, because it means the session's own identity, which is not in this table.
    ///
    /// # Errors
    /// NO_CREDS for a handle that the client has not registered.
    #[inline]
    pub fn acquire(
        &mut self,
        client: ClientId,
        handle: CredHandle,
    ) -> Result<CredentialUse, Status> {
        match self.find(client, handle) {
            Some(index) => {
                self.slots[usize::from(index)].uses += 1;
                Ok(CredentialUse(index))
            }
            None => {
                self.counters.unknown += 1;
                Err(Status::NoCreds)
            }
        }
    }

    /// Returns the credentials with which the request is executed.
    #[inline]
    #[must_use]
    pub fn credentials(&self, held: &CredentialUse) -> &Credentials {
        &self.slots[usize::from(held.0)].credentials
    }

    /// Ends the use of credentials by a request.
    #[inline]
    pub fn finish(&mut self, held: CredentialUse) {
        let slot = &mut self.slots[usize::from(held.0)];
        slot.uses -= 1;
        if slot.uses == 0 && slot.phase == Phase::Orphaned {
            self.vacate(held.0);
        }
    }

    /// Removes a client whose record was released, or whose next incarnation has begun under
    /// another id. Requests in progress keep their credentials.
    pub fn client_gone(&mut self, client: ClientId) {
        let Some(owner) = self.clients.remove(&client) else { return };
        for index in owner.slots {
            let slot = &mut self.slots[usize::from(index)];
            slot.client = None;
            if slot.uses == 0 && slot.phase == Phase::Registered {
                self.vacate(index);
            } else {
                slot.phase = Phase::Orphaned;
            }
        }
    }

    /// Iterates over all registrations, for the operator.
    pub fn iter(&self) -> impl Iterator<Item = RegisteredCredential<'_>> {
        let taken = |(_, slot): &(usize, &Slot)| slot.phase != Phase::Free;
        self.slots.iter().enumerate().filter(taken).map(|(index, slot)| RegisteredCredential {
            client: slot.client,
            handle: handle_of(slot.generation, index as u16),
            credentials: (slot.phase == Phase::Registered || slot.uses != 0)
                .then_some(&slot.credentials),
            uses: slot.uses,
        })
    }

    /// Returns the present values of the counters and gauges.
    #[must_use]
    pub fn counters(&self) -> CredentialCounters {
        CredentialCounters {
            taken: (self.slots.len() - self.free.len()) as u32,
            clients: self.clients.len() as u32,
            ..self.counters
        }
    }

    /// Returns the slot of a handle. `None` if the handle is not valid for this client.
    #[inline]
    fn find(&self, client: ClientId, handle: CredHandle) -> Option<u16> {
        let slot = self.slots.get((handle.0 & INDEX_MASK) as usize)?;
        let is_it = u32::from(slot.generation) == handle.0 >> INDEX_BITS
            && slot.client == Some(client)
            && slot.phase == Phase::Registered;
        is_it.then_some(handle.0 as u16)
    }

    /// Returns the index of a handle's slot, even if the handle is stale. `None` if there is no
    /// such slot.
    fn index_of(&self, handle: CredHandle) -> Option<u16> {
        let slot = self.slots.get((handle.0 & INDEX_MASK) as usize)?;
        (u32::from(slot.generation) == handle.0 >> INDEX_BITS).then_some(handle.0 as u16)
    }

    /// Frees a slot that no request uses. The handle becomes invalid.
    fn vacate(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        debug_assert!(slot.uses == 0 && slot.phase != Phase::Free);
        let client = slot.client;
        let generation = slot.generation.wrapping_add(1).max(1);
        *slot = Slot::free(generation);
        if let Some(owner) = client.and_then(|client| self.clients.get_mut(&client)) {
            owner.slots.retain(|&other| other != index);
        }
        self.free.push_back(index);
    }
}

enum Wanted {
    Known(Credentials),
    Named(CredentialName),
}

impl Slot {
    fn free(generation: u16) -> Self {
        let credentials = Credentials::nobody();
        Self { client: None, generation, phase: Phase::Free, uses: 0, credentials }
    }
}

fn handle_of(generation: u16, index: u16) -> CredHandle {
    CredHandle(u32::from(generation) << INDEX_BITS | u32::from(index))
}
