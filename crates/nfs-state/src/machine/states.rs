//! The state ids of opens, locks, delegations, layouts and copies. Other code decides whether to
//! grant and release them, and reports its decisions to this code.

use super::NfsState;
use crate::Nfs4Error;
use crate::keys::{ClientKey, StateKey};
use crate::limits::{OWNERS_MAX, SHARE_TIMES, STATES_MAX};
use crate::state_ids::{
    Checked, FileNumber, KindSet, NewState, Revocation, StateKind, StateView, Stateid4,
};

impl NfsState {
    /// Checks that a client may have one more state of a new owner. For a lock state, `open` is the
    /// open to which it will belong.
    ///
    /// # Errors
    /// NOSPC if there are too many states, owners, or lock states of the open.
    pub fn check_room(&self, client: ClientKey, open: Option<StateKey>) -> Result<(), Nfs4Error> {
        let has_room = self.states.has_room(client, open) && self.has_share(client);
        if has_room { Ok(()) } else { Err(Nfs4Error::NoSpc) }
    }

    /// Returns true if the host of a client may have one more state of a new owner. A host may have
    /// at most [`SHARE_TIMES`] times as many states and owners as are still free, so that one host
    /// cannot take what all others need.
    fn has_share(&self, client: ClientKey) -> bool {
        let (states, owners) = (self.states.count(), self.states.owner_count());
        let (states_max, owners_max) = (STATES_MAX as usize, OWNERS_MAX as usize);
        if states < states_max / 2 && owners < owners_max / 2 {
            return true;
        }
        let Some(peer) = self.clients.view(client).map(|client| client.peer) else { return false };
        let clients = self.clients.iter().filter(|(_, other)| other.peer == peer);
        let own = clients.fold((0, 0), |(states, owners), (key, _)| {
            (states + self.states.count_of(key), owners + self.states.owner_count_of(key))
        });
        own.0 < (states_max - states) * SHARE_TIMES && own.1 < (owners_max - owners) * SHARE_TIMES
    }

    /// Returns the open of a file by an open owner.
    #[must_use]
    pub fn find_open(&self, client: ClientKey, owner: &[u8], file: FileNumber) -> Option<StateKey> {
        let kind = StateKind::Open;
        self.states.find(&NewState { client, kind, file, owner, inner: 0, open: None })
    }

    /// Records that an open owner has opened a file, for the first time or again. `inner` is the
    /// caller's number for the open.
    ///
    /// # Errors
    /// STALE_CLIENTID if the client's record was removed; NOSPC if there are too many states or
    /// owners; INVAL if the owner's name is too long.
    pub fn opened(
        &mut self,
        client: ClientKey,
        owner: &[u8],
        file: FileNumber,
        inner: u64,
    ) -> Result<(StateKey, Stateid4), Nfs4Error> {
        let kind = StateKind::Open;
        self.granted(&NewState { client, kind, file, owner, inner, open: None })
    }

    /// Returns the lock state of a lock owner under an open.
    #[must_use]
    pub fn find_lock(&self, open: StateKey, owner: &[u8]) -> Option<StateKey> {
        self.states.find(&self.new_lock(open, owner, 0).ok()?)
    }

    /// Records that a lock owner has locked a range under an open, for the first time or again.
    ///
    /// # Errors
    /// BAD_STATEID if the open has ended; otherwise as [`NfsState::opened`].
    pub fn locked(
        &mut self,
        open: StateKey,
        owner: &[u8],
        inner: u64,
    ) -> Result<(StateKey, Stateid4), Nfs4Error> {
        let (key, id) = self.granted(&self.new_lock(open, owner, inner)?)?;
        self.states.set_locks(key, true);
        Ok((key, id))
    }

    fn new_lock<'a>(
        &self,
        open: StateKey,
        owner: &'a [u8],
        inner: u64,
    ) -> Result<NewState<'a>, Nfs4Error> {
        let view = self.states.view(open).ok_or(Nfs4Error::BadStateId)?;
        let is_open = view.kind == StateKind::Open && view.revoked.is_none();
        if !is_open {
            return Err(Nfs4Error::BadStateId);
        }
        let (client, kind, file) = (view.client, StateKind::Lock, view.file);
        Ok(NewState { client, kind, file, owner, inner, open: Some(open) })
    }

    /// Records that a lock owner has unlocked a range. `has_locks` is true if the owner still holds
    /// other ranges of this file. Returns the new id of the lock state.
    pub fn unlocked(&mut self, key: StateKey, has_locks: bool) -> Option<Stateid4> {
        self.states.set_locks(key, has_locks);
        self.changed(key)
    }

    /// Records that a client has received a delegation of a file, or that the kind of its
    /// delegation has changed.
    ///
    /// # Errors
    /// As [`NfsState::opened`].
    pub fn delegated(
        &mut self,
        client: ClientKey,
        file: FileNumber,
        inner: u64,
    ) -> Result<(StateKey, Stateid4), Nfs4Error> {
        let kind = StateKind::Delegation;
        self.granted(&NewState { client, kind, file, owner: &[], inner, open: None })
    }

    /// Records that a client has received a layout of a file, or a further part of the layout.
    ///
    /// # Errors
    /// As [`NfsState::opened`].
    pub fn laid_out(
        &mut self,
        client: ClientKey,
        file: FileNumber,
        inner: u64,
    ) -> Result<(StateKey, Stateid4), Nfs4Error> {
        let kind = StateKind::Layout;
        self.granted(&NewState { client, kind, file, owner: &[], inner, open: None })
    }

    /// Records that a copy of a client continues after the reply to its COPY. `inner` is the
    /// caller's number for the copy.
    ///
    /// # Errors
    /// As [`NfsState::opened`].
    pub fn copying(
        &mut self,
        client: ClientKey,
        inner: u64,
    ) -> Result<(StateKey, Stateid4), Nfs4Error> {
        let (kind, file) = (StateKind::Copy, FileNumber(0));
        self.granted(&NewState { client, kind, file, owner: &[], inner, open: None })
    }

    fn granted(&mut self, new: &NewState<'_>) -> Result<(StateKey, Stateid4), Nfs4Error> {
        let client = self.clients.get_mut(new.client).ok_or(Nfs4Error::StaleClientId)?;
        let key = match self.states.find(new) {
            Some(key) => {
                self.states.change(key, Some(new.inner));
                key
            }
            None => {
                let key = self.states.add(new)?;
                client.states += 1;
                key
            }
        };
        let id = self.states.id(key).ok_or(Nfs4Error::BadStateId)?;
        Ok((key, id))
    }

    /// Counts a change of a state, for example by OPEN_DOWNGRADE. Returns the state's new id.
    pub fn changed(&mut self, key: StateKey) -> Option<Stateid4> {
        self.states.change(key, None);
        self.states.id(key)
    }

    /// Returns the visible part of a state; `None` if it has ended.
    #[must_use]
    pub fn state(&self, key: StateKey) -> Option<StateView<'_>> {
        self.states.view(key)
    }

    /// Returns the current id of a state.
    #[must_use]
    pub fn state_id(&self, key: StateKey) -> Option<Stateid4> {
        self.states.id(key)
    }

    /// Returns the number of states of all clients.
    #[must_use]
    pub fn state_count(&self) -> usize {
        self.states.count()
    }

    /// Returns the number of open owners and lock owners of all clients.
    #[must_use]
    pub fn owner_count(&self) -> usize {
        self.states.owner_count()
    }

    /// Iterates over the states of a client.
    pub fn states_of(&self, client: ClientKey) -> impl Iterator<Item = StateView<'_>> {
        self.states.of_client(client).filter_map(|key| self.states.view(key))
    }

    /// Decides whether a client may use a state id for an operation that accepts these kinds. If
    /// `file` is given, the state must belong to this file. The caller must already have replaced
    /// [`Stateid4::CURRENT`].
    ///
    /// # Errors
    /// BAD_STATEID for an id that names no such state of this client; STALE_STATEID for an id from
    /// before a restart of the server, until the client has completed its reclaims; OLD_STATEID if
    /// the state has changed since; EXPIRED, ADMIN_REVOKED or DELEG_REVOKED for a revoked state.
    pub fn check_state(
        &self,
        client: ClientKey,
        id: &Stateid4,
        accepted: KindSet,
        file: Option<FileNumber>,
    ) -> Result<Checked, Nfs4Error> {
        let checked = self.states.check(client, id, accepted, file);
        checked.map_err(|error| self.error_for_stale(client, error))
    }

    /// Returns the error for a state id from before a restart, instead of STALE_STATEID. Other
    /// errors are returned as they are.
    ///
    /// A client reclaims all its state when it gets STALE_STATEID. It has nothing to reclaim after
    /// RECLAIM_COMPLETE. But it may still have such an id, from the reply to a request that it has
    /// repeated, and would use the id again and again. With BAD_STATEID it opens the file again.
    fn error_for_stale(&self, client: ClientKey, error: Nfs4Error) -> Nfs4Error {
        let client = self.clients.get(client);
        let is_reclaiming = client.is_none_or(|client| client.is_reclaiming);
        match error {
            Nfs4Error::StaleStateId if !is_reclaiming => Nfs4Error::BadStateId,
            error => error,
        }
    }

    /// Checks one state id of a TEST_STATEID.
    ///
    /// # Errors
    /// The status that TEST_STATEID returns for the id, if the id is not valid.
    pub fn test_state(&self, client: ClientKey, id: &Stateid4) -> Result<(), Nfs4Error> {
        self.check_state(client, id, KindSet::ALL, None).map(|_| ())
    }

    /// Handles FREE_STATEID. Returns the caller's number for the state.
    ///
    /// # Errors
    /// LOCKS_HELD if the state is valid and holds something; BAD_STATEID, STALE_STATEID and
    /// OLD_STATEID as for [`NfsState::check_state`].
    pub fn free_state(&mut self, client: ClientKey, id: &Stateid4) -> Result<u64, Nfs4Error> {
        let key = self.states.check_free(client, id);
        let key = key.map_err(|error| self.error_for_stale(client, error))?;
        let inner = self.states.view(key).map_or(0, |view| view.inner);
        self.ended(key);
        Ok(inner)
    }

    /// Checks whether an open may be closed.
    ///
    /// # Errors
    /// LOCKS_HELD if a lock owner holds locked ranges under the open.
    pub fn check_close(&self, open: StateKey) -> Result<(), Nfs4Error> {
        let is_held = self.states.locks_of(open).iter().any(|lock| self.states.has_locks(*lock));
        if is_held { Err(Nfs4Error::LocksHeld) } else { Ok(()) }
    }

    /// Records the end of a state by CLOSE, DELEGRETURN or LAYOUTRETURN, or of a copy. The lock
    /// states of an open end with the open.
    pub fn ended(&mut self, key: StateKey) {
        for lock in self.states.locks_of(key).to_vec() {
            self.ended(lock);
        }
        let Some((client, revoked)) = self.states.remove(key) else { return };
        let Some(client) = self.clients.get_mut(client) else { return };
        match revoked {
            None => client.states -= 1,
            Some(Revocation::Expired) => client.revoked.expired -= 1,
            Some(Revocation::ByAdministrator) => client.revoked.by_administrator -= 1,
            Some(Revocation::NotReturned) => client.revoked.recallable -= 1,
        }
    }

    /// Revokes a state. If it is an open, its lock states are revoked, too. The flags in the
    /// replies to SEQUENCE inform the client, until the client has freed the ids.
    pub fn revoke_state(&mut self, key: StateKey, reason: Revocation) {
        for lock in self.states.locks_of(key).to_vec() {
            self.revoke_state(lock, reason);
        }
        let Some(client) = self.states.revoke(key, reason) else { return };
        let Some(client) = self.clients.get_mut(client) else { return };
        client.states -= 1;
        match reason {
            Revocation::Expired => client.revoked.expired += 1,
            Revocation::ByAdministrator => client.revoked.by_administrator += 1,
            Revocation::NotReturned => client.revoked.recallable += 1,
        }
    }

    /// Removes the states of a client that has ended.
    pub(super) fn remove_states(&mut self, client: ClientKey) {
        for key in self.states.of_client(client).collect::<Vec<_>>() {
            self.ended(key);
        }
    }
}
