//! Byte-range locks, from a channel's point of view (draft 4.4.1, 6.5.18 to 6.5.20).
//!
//! Invariant: a lock is taken under an open of the asker's own, which allows what the lock
//! is for; it ends with that open, with its client, or as its options say.

use dafs_types::{ClientId, Moment, StateId, Status};

use super::Filer;
use crate::clients::{Client, ClientSlot, Principal};
use crate::locks::{
    Claim, LockAction, LockAnswer, LockClient, LockCounters, LockEntry, LockMode, LockOwner,
    LockRecord, LockRequest, LockTestAnswer, OwnerName, RollbackId, WaiterEntry,
};
use crate::{ChannelId, FileKey, IoKind};

impl Filer {
    /// LOCK of any kind but ABORT. Act on [`Filer::take_lock_action`] before the answer.
    ///
    /// # Errors
    /// Those of state ids; ACCES if the open does not allow what the lock is for; GRACE;
    /// EXPIRED for taking back what is lost; those of [`crate::locks::LockError`].
    pub fn lock(
        &mut self,
        channel: ChannelId,
        state: StateId,
        request: &LockRequest,
        now: Moment,
    ) -> Result<LockAnswer, Status> {
        let slot = self.client_of(channel)?;
        // Who repairs gets something new, too, around what others have yet to take back.
        if request.claim != Claim::Reclaim {
            self.may_take(channel)?;
        }
        let (owner, access) = self.opens.owner(slot, state, request.file)?;
        let allows = match request.mode {
            LockMode::Read => access.reads(),
            LockMode::Write => access.writes(),
        };
        if !allows {
            return Err(Status::Access);
        }
        let client = self.clients.get(slot).ok_or(Status::NotAuthenticated)?;
        let owner = LockOwner { client: client.for_locks(), owner, state };
        self.locks.lock(&owner, request, now).map_err(|error| error.status())
    }

    /// LOCKT: `owner` is the asker's name for itself.
    ///
    /// # Errors
    /// INVAL for an impossible range; GRACE, since nobody knows yet; NOT_AUTHENTICATED.
    pub fn lock_test(
        &mut self,
        channel: ChannelId,
        owner: &[u8],
        request: &LockRequest,
    ) -> Result<LockTestAnswer, Status> {
        self.may_take(channel)?;
        let client = self.client_id_of(channel)?;
        let LockRequest { file, offset, length, mode, .. } = *request;
        let tested = self.locks.test(OwnerName { client, owner }, file, offset, length, mode);
        tested.map_err(|error| error.status())
    }

    /// LOCKU.
    ///
    /// # Errors
    /// Those of state ids and of [`crate::locks::LockError`].
    pub fn unlock(
        &mut self,
        channel: ChannelId,
        state: StateId,
        request: &LockRequest,
        now: Moment,
    ) -> Result<(), Status> {
        let client = self.client_id_of(channel)?;
        let slot = self.client_of(channel)?;
        let LockRequest { file, offset, length, .. } = *request;
        let (owner, _) = self.opens.owner(slot, state, file)?;
        let unlocked = self.locks.unlock(OwnerName { client, owner }, file, offset, length, now);
        unlocked.map_err(|error| error.status())
    }

    /// LOCK of kind ABORT: the rollbacks to wait for before the answer.
    ///
    /// # Errors
    /// As [`Filer::unlock`].
    pub fn abort_lock(
        &mut self,
        channel: ChannelId,
        state: StateId,
        request: &LockRequest,
    ) -> Result<Vec<RollbackId>, Status> {
        let client = self.client_id_of(channel)?;
        let slot = self.client_of(channel)?;
        let LockRequest { file, offset, length, .. } = *request;
        let (owner, _) = self.opens.owner(slot, state, file)?;
        let aborted = self.locks.abort(OwnerName { client, owner }, file, offset, length);
        aborted.map_err(|error| error.status())
    }

    /// Whether locks of others let a read or write through, under a state id that
    /// [`Filer::check_io`] has found good.
    ///
    /// # Errors
    /// LOCKED; STALE_STATEID in a broken range.
    #[inline]
    pub fn check_locks(
        &self,
        file: FileKey,
        state: StateId,
        offset: u64,
        count: u64,
        kind: IoKind,
    ) -> Result<(), Status> {
        self.locks.check_io(file, state, offset, count, kind)
    }

    /// Nobody has a lock.
    #[must_use]
    #[inline]
    pub fn has_no_locks(&self) -> bool {
        self.locks.is_empty()
    }

    /// What is to be done on behalf of locks.
    pub fn take_lock_action(&mut self) -> Option<LockAction> {
        self.locks.poll_action()
    }

    /// Takes over the locks that stable storage has, before anybody is let in.
    pub fn restore_locks(&mut self, records: Vec<LockRecord>, now: Moment) {
        self.locks.restore(records);
        if self.grace.is_some() {
            self.locks.begin_grace();
        } else {
            self.locks.grace_over(now);
        }
    }

    /// The locks that stable storage must have.
    #[must_use]
    pub fn lock_records(&self) -> Vec<LockRecord> {
        self.locks.records()
    }

    /// What was to be rolled back is.
    pub fn rollback_done(&mut self, rollback: RollbackId, now: Moment) -> bool {
        self.locks.rollback_done(rollback, now)
    }

    /// Every lock, for people.
    pub fn locks(&self) -> impl Iterator<Item = LockEntry<'_>> {
        self.locks.locks()
    }

    /// Every request that waits for one.
    pub fn lock_waiters(&self) -> impl Iterator<Item = WaiterEntry<'_>> {
        self.locks.waiting_requests()
    }

    /// Numbers about locks.
    #[must_use]
    pub fn lock_counters(&self) -> LockCounters {
        self.locks.counters()
    }

    fn client_id_of(&mut self, channel: ChannelId) -> Result<ClientId, Status> {
        let slot = self.client_of(channel)?;
        Ok(self.clients.get(slot).ok_or(Status::NotAuthenticated)?.id)
    }

    /// An open ends by its owner's will.
    pub(super) fn end_locks_of_open(
        &mut self,
        slot: ClientSlot,
        state: StateId,
        file: FileKey,
        now: Moment,
    ) {
        if self.locks.is_empty() {
            return;
        }
        let Ok((owner, _)) = self.opens.owner(slot, state, file) else { return };
        let Some(client) = self.clients.get(slot) else { return };
        self.locks.release_open(OwnerName { client: client.id, owner }, file, now);
    }

    /// CLID_INUSE if locks are kept for somebody else of a client's name.
    pub(super) fn may_lock(&self, slot: ClientSlot) -> Result<(), Status> {
        let Some(client) = self.clients.get(slot) else { return Ok(()) };
        self.locks.may_connect(&client.for_locks()).map_err(|_| Status::ClidInUse)
    }

    /// A client's life begins. CLID_INUSE as above.
    pub(super) fn connect_locks(&mut self, slot: ClientSlot, now: Moment) -> Result<(), Status> {
        let Some(client) = self.clients.get(slot) else { return Ok(()) };
        let connected = self.locks.client_connected(&client.for_locks(), now);
        connected.map_err(|_| Status::ClidInUse)
    }
}

impl Client {
    fn for_locks(&self) -> LockClient<'_> {
        LockClient {
            id: self.id,
            name: &self.name,
            principal: &self.principal_octets,
            verifier: self.verifier,
        }
    }
}

impl Principal {
    /// As octets, for comparing: equal octets mean equal principals.
    #[must_use]
    pub fn octets(&self) -> Box<[u8]> {
        match self {
            Self::Anonymous => b"anonymous".as_slice().into(),
            Self::LocalUser(uid) => format!("uid:{uid}").into_bytes().into(),
            Self::User(name) => format!("user:{name}").into_bytes().into(),
            Self::Gss(name) => format!("gss:{name}").into_bytes().into(),
        }
    }
}
