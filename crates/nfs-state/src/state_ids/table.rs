//! The table of all states that state ids name.

use std::collections::BTreeSet;

use dafs_base::Slab;
use dafs_types::QuickMap;

use super::id::{Named, SpecialId, Stateid4};
use super::owners::{OwnerKey, Owners};
use super::view::{Checked, FileNumber, KindSet, Revocation, StateKind, StateView};
use crate::Nfs4Error;
use crate::keys::{ClientKey, StateKey, StateTag};
use crate::limits::{LOCKS_PER_OPEN_MAX, STATES_MAX, STATES_PER_CLIENT_MAX};

/// The states of all clients.
#[derive(Debug)]
pub(crate) struct States {
    epoch: u32,
    table: Slab<State, StateTag>,
    owners: Owners,
    by_client: QuickMap<ClientKey, BTreeSet<StateKey>>,
    places: QuickMap<Place, StateKey>,
}

#[derive(Debug)]
struct State {
    client: ClientKey,
    kind: StateKind,
    file: FileNumber,
    owner: Option<OwnerKey>,
    inner: u64,
    sequence: u32,
    /// For a lock state: the open to which it belongs.
    open: Option<StateKey>,
    /// For an open: the lock states that belong to it.
    locks: Vec<StateKey>,
    /// For a lock state: true if its owner holds locked ranges.
    has_locks: bool,
    revoked: Option<Revocation>,
}

/// A key that at most one valid state has: there is one open for each owner and file, one lock
/// state for each owner and open, and one delegation and one layout for each client and file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Open(OwnerKey, FileNumber),
    Lock(OwnerKey, StateKey),
    Delegation(ClientKey, FileNumber),
    Layout(ClientKey, FileNumber),
}

/// The arguments for a new state or for a change of a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewState<'a> {
    pub client: ClientKey,
    pub kind: StateKind,
    pub file: FileNumber,
    pub owner: &'a [u8],
    pub inner: u64,
    pub open: Option<StateKey>,
}

impl States {
    pub(crate) fn new(epoch: u32) -> Self {
        Self {
            epoch,
            table: Slab::tagged(STATES_MAX),
            owners: Owners::new(),
            by_client: QuickMap::default(),
            places: QuickMap::default(),
        }
    }

    /// Returns the number of states.
    pub(crate) fn count(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of owners.
    pub(crate) fn owner_count(&self) -> usize {
        self.owners.count()
    }

    /// Returns the number of states of a client.
    pub(crate) fn count_of(&self, client: ClientKey) -> usize {
        self.by_client.get(&client).map_or(0, BTreeSet::len)
    }

    /// Returns the number of owners of a client.
    pub(crate) fn owner_count_of(&self, client: ClientKey) -> usize {
        self.owners.count_of(client)
    }

    /// Returns the existing state that has the same unique key ([`Place`]) as the arguments.
    pub(crate) fn find(&self, new: &NewState<'_>) -> Option<StateKey> {
        let place = self.place(new)?;
        self.places.get(&place).copied()
    }

    fn place(&self, new: &NewState<'_>) -> Option<Place> {
        let owner = || self.owners.find(new.client, new.kind, new.owner);
        Some(match new.kind {
            StateKind::Open => Place::Open(owner()?, new.file),
            StateKind::Lock => Place::Lock(owner()?, new.open?),
            StateKind::Delegation => Place::Delegation(new.client, new.file),
            StateKind::Layout => Place::Layout(new.client, new.file),
            // A client may copy the same file several times at once.
            StateKind::Copy => return None,
        })
    }

    /// Adds a state. No valid state may have the same unique key ([`Place`]).
    ///
    /// # Errors
    /// NOSPC if there are too many states or owners; INVAL if the owner's name is too long;
    /// BAD_STATEID if the open of a lock has ended.
    pub(crate) fn add(&mut self, new: &NewState<'_>) -> Result<StateKey, Nfs4Error> {
        if let Some(open) = new.open {
            self.table.get(open.0).ok_or(Nfs4Error::BadStateId)?;
        }
        if !self.has_room_for_state(new.client, new.open) {
            return Err(Nfs4Error::NoSpc);
        }
        let has_owner = matches!(new.kind, StateKind::Open | StateKind::Lock);
        let owner = match has_owner {
            true => Some(self.owners.take(new.client, new.kind, new.owner)?),
            false => None,
        };
        let key = StateKey(self.table.insert(State {
            client: new.client,
            kind: new.kind,
            file: new.file,
            owner,
            inner: new.inner,
            sequence: 1,
            open: new.open,
            locks: Vec::new(),
            has_locks: false,
            revoked: None,
        }));
        self.by_client.entry(new.client).or_default().insert(key);
        if let Some(place) = self.place(new) {
            self.places.insert(place, key);
        }
        if let Some(open) = new.open.and_then(|open| self.table.get_mut(open.0)) {
            open.locks.push(key);
        }
        Ok(key)
    }

    /// Returns true if a client may have one more state of a new owner. `open` is the open to which
    /// a new lock state will belong.
    pub(crate) fn has_room(&self, client: ClientKey, open: Option<StateKey>) -> bool {
        self.owners.has_room(client) && self.has_room_for_state(client, open)
    }

    fn has_room_for_state(&self, client: ClientKey, open: Option<StateKey>) -> bool {
        let count = self.count_of(client);
        let locks = open.map_or(0, |open| self.locks_of(open).len());
        count < STATES_PER_CLIENT_MAX as usize
            && self.table.len() < STATES_MAX as usize
            && locks < LOCKS_PER_OPEN_MAX
    }

    /// Counts a change of a state. Sets the caller's number for the state, if `inner` is given.
    pub(crate) fn change(&mut self, key: StateKey, inner: Option<u64>) {
        if let Some(state) = self.table.get_mut(key.0) {
            // 0 is left out, because it stands for the newest number.
            state.sequence = state.sequence.checked_add(1).unwrap_or(1);
            state.inner = inner.unwrap_or(state.inner);
        }
    }

    /// Returns the current id of a state.
    pub(crate) fn id(&self, key: StateKey) -> Option<Stateid4> {
        let state = self.table.get(key.0)?;
        Some(Stateid4::new(self.epoch, state.kind, key, state.sequence))
    }

    pub(crate) fn view(&self, key: StateKey) -> Option<StateView<'_>> {
        let state = self.table.get(key.0)?;
        Some(StateView {
            key,
            client: state.client,
            kind: state.kind,
            file: state.file,
            owner: state.owner.map_or(&[], |owner| self.owners.name(owner)),
            inner: state.inner,
            open: state.open,
            sequence: state.sequence,
            revoked: state.revoked,
        })
    }

    /// Decides whether a client may use a state id for an operation that accepts these kinds. If
    /// `file` is given, the state must belong to this file.
    ///
    /// # Errors
    /// BAD_STATEID, STALE_STATEID, OLD_STATEID, and the errors of revoked states.
    pub(crate) fn check(
        &self,
        client: ClientKey,
        id: &Stateid4,
        accepted: KindSet,
        file: Option<FileNumber>,
    ) -> Result<Checked, Nfs4Error> {
        let (epoch, tag, key) = match id.named() {
            Named::Special(SpecialId::Anonymous) if accepted == KindSet::DATA => {
                return Ok(Checked::Anonymous);
            }
            Named::Special(SpecialId::Bypass) if accepted == KindSet::DATA => {
                return Ok(Checked::Bypass);
            }
            Named::Special(_) => return Err(Nfs4Error::BadStateId),
            Named::State { epoch, tag, key } => (epoch, tag, key),
        };
        if epoch != self.epoch {
            return Err(Nfs4Error::StaleStateId);
        }
        let state = self.table.get(key.0).ok_or(Nfs4Error::BadStateId)?;
        if state.client != client || state.kind.tag() != tag {
            return Err(Nfs4Error::BadStateId);
        }
        if let Some(revoked) = state.revoked {
            return Err(revoked.error());
        }
        check_sequence(id.sequence, state.sequence)?;
        let is_other_file = file.is_some_and(|file| file != state.file);
        if is_other_file || !accepted.contains(state.kind) {
            return Err(Nfs4Error::BadStateId);
        }
        Ok(Checked::State(key))
    }

    /// Returns the state that a FREE_STATEID may free. The state may be revoked.
    ///
    /// # Errors
    /// BAD_STATEID, STALE_STATEID, OLD_STATEID; LOCKS_HELD if the state is valid, unless it is a
    /// lock state without locked ranges.
    pub(crate) fn check_free(
        &self,
        client: ClientKey,
        id: &Stateid4,
    ) -> Result<StateKey, Nfs4Error> {
        match self.check(client, id, KindSet::ALL, None) {
            Ok(Checked::State(key)) => match self.table.get(key.0) {
                Some(state) if state.kind == StateKind::Lock && !state.has_locks => Ok(key),
                Some(_) => Err(Nfs4Error::LocksHeld),
                None => Err(Nfs4Error::BadStateId),
            },
            Ok(Checked::Anonymous | Checked::Bypass) => Err(Nfs4Error::BadStateId),
            Err(Nfs4Error::Expired | Nfs4Error::AdminRevoked | Nfs4Error::DelegRevoked) => {
                match id.named() {
                    Named::State { key, .. } => Ok(key),
                    Named::Special(_) => Err(Nfs4Error::BadStateId),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the lock states that belong to an open.
    pub(crate) fn locks_of(&self, open: StateKey) -> &[StateKey] {
        self.table.get(open.0).map_or(&[], |open| &open.locks)
    }

    /// Returns true if the owner of a lock state holds locked ranges.
    pub(crate) fn has_locks(&self, key: StateKey) -> bool {
        self.table.get(key.0).is_some_and(|state| state.has_locks)
    }

    pub(crate) fn set_locks(&mut self, key: StateKey, has_locks: bool) {
        if let Some(state) = self.table.get_mut(key.0) {
            state.has_locks = has_locks;
        }
    }

    /// Revokes a state. Returns its client; `None` if the state was already revoked.
    pub(crate) fn revoke(&mut self, key: StateKey, reason: Revocation) -> Option<ClientKey> {
        let state = self.table.get_mut(key.0)?;
        if state.revoked.is_some() {
            return None;
        }
        state.revoked = Some(reason);
        state.has_locks = false;
        let client = state.client;
        // A new state may now have the unique key of the revoked state.
        self.vacate(key);
        Some(client)
    }

    /// Removes a state. If it is an open, its lock states must already be removed. Returns the
    /// state's client, and the reason if the state was revoked.
    pub(crate) fn remove(&mut self, key: StateKey) -> Option<(ClientKey, Option<Revocation>)> {
        self.vacate(key);
        let state = self.table.remove(key.0)?;
        debug_assert!(state.locks.is_empty());
        if let Some(owner) = state.owner {
            self.owners.release(owner);
        }
        if let Some(open) = state.open.and_then(|open| self.table.get_mut(open.0)) {
            open.locks.retain(|lock| *lock != key);
        }
        if let Some(own) = self.by_client.get_mut(&state.client) {
            own.remove(&key);
            if own.is_empty() {
                self.by_client.remove(&state.client);
            }
        }
        Some((state.client, state.revoked))
    }

    /// Releases the unique key of a state, if the state still has it.
    fn vacate(&mut self, key: StateKey) {
        let Some(state) = self.table.get(key.0) else { return };
        let place = match (state.kind, state.owner, state.open) {
            (StateKind::Open, Some(owner), _) => Place::Open(owner, state.file),
            (StateKind::Lock, Some(owner), Some(open)) => Place::Lock(owner, open),
            (StateKind::Delegation, ..) => Place::Delegation(state.client, state.file),
            (StateKind::Layout, ..) => Place::Layout(state.client, state.file),
            (StateKind::Open | StateKind::Lock | StateKind::Copy, ..) => return,
        };
        if self.places.get(&place) == Some(&key) {
            self.places.remove(&place);
        }
    }

    /// Returns all states of a client.
    pub(crate) fn of_client(&self, client: ClientKey) -> impl Iterator<Item = StateKey> {
        self.by_client.get(&client).into_iter().flatten().copied()
    }
}

/// Compares the sequence number of a state id in a request with the current one of the state.
fn check_sequence(asked: u32, current: u32) -> Result<(), Nfs4Error> {
    match current.wrapping_sub(asked) {
        _ if asked == 0 => Ok(()),
        0 => Ok(()),
        behind if behind < 1 << 31 => Err(Nfs4Error::OldStateId),
        _ => Err(Nfs4Error::BadStateId),
    }
}
