//! The operations on byte-range locks for the protocol layer (draft 4.4.1, 6.5.18 to 6.5.20).
//!
//! Invariant: a lock is taken under an open of the same owner that allows the lock's mode. The lock
//! ends with that open or with its client, unless its options keep it longer.

use dafs_ops::Fault;
use dafs_types::{Moment, StateId};

use super::Filer;
use crate::clients::{Client, Principal};
use crate::locks::{
    Claim, LockAction, LockClient, LockCounters, LockEntry, LockMode, LockOwner, LockRecord,
    LockReply, LockRequest, LockTestReply, LockWatch, OwnerName, RollbackId, WaiterEntry,
};
use crate::{ClientKey, FileKey, IoKind};

impl Filer {
    /// Handles LOCK of any kind except ABORT. The lock belongs to `locker`, or to the owner of the
    /// open if `locker` is `None`. The caller must execute the actions of
    /// [`Filer::take_lock_action`] before it replies.
    ///
    /// # Errors
    /// The errors of state ids; ACCES if the open does not allow the lock's mode; GRACE during the
    /// grace period, unless the request is a reclaim; EXPIRED for a reclaim of a lock that was not
    /// kept; RESOURCE if a limit is reached; the errors of [`crate::locks::LockError`].
    pub fn lock(
        &mut self,
        client: ClientKey,
        (state, locker): (StateId, Option<&[u8]>),
        request: &LockRequest,
        now: Moment,
    ) -> Result<LockReply, Fault> {
        self.client(client)?;
        // A REPAIR gets new state too, which must not conflict with later reclaims of other
        // clients.
        if request.claim != Claim::Reclaim {
            self.check_grace(client, now)?;
        } else {
            // The table of locks knows which locks can be reclaimed. This only gives time for more.
            let _ = self.may_reclaim(client, now);
        }
        let (owner, access) = self.opens.owner(client, state, request.file)?;
        let allows = match request.mode {
            LockMode::Read => access.reads(),
            LockMode::Write => access.writes(),
        };
        if !allows {
            return Err(Fault::OpenLacksAccess);
        }
        if request.claim == Claim::New && !self.may_have_lock(client) {
            return Err(Fault::Limit);
        }
        let client = self.clients.get(client).ok_or(Fault::NoClient)?.for_locks();
        let owner = LockOwner { client, owner: locker.unwrap_or(owner), state };
        self.locks.lock(&owner, request, now).map_err(Fault::from)
    }

    /// Handles LOCKT, which tests for a conflicting lock. `owner` is the name that the caller uses
    /// for its lock owner.
    ///
    /// # Errors
    /// INVAL for an invalid range; GRACE during the grace period, when the server does not know all
    /// locks yet; NOT_AUTHENTICATED if the caller is not a client.
    pub fn lock_test(
        &mut self,
        client: ClientKey,
        owner: &[u8],
        request: &LockRequest,
        now: Moment,
    ) -> Result<LockTestReply, Fault> {
        self.check_grace(client, now)?;
        let client = self.client(client)?.id;
        let LockRequest { file, offset, length, mode, .. } = *request;
        let tested = self.locks.test(OwnerName { client, owner }, file, offset, length, mode);
        tested.map_err(Fault::from)
    }

    /// Handles LOCKU, which unlocks a range of a file. The locks belong to `locker`, or to the
    /// owner of the open if `locker` is `None`.
    ///
    /// # Errors
    /// The errors of state ids and of [`crate::locks::LockError`].
    pub fn unlock(
        &mut self,
        client: ClientKey,
        (state, locker): (StateId, Option<&[u8]>),
        request: &LockRequest,
        now: Moment,
    ) -> Result<(), Fault> {
        let id = self.client(client)?.id;
        let LockRequest { file, offset, length, .. } = *request;
        let (owner, _) = self.opens.owner(client, state, file)?;
        let owner = OwnerName { client: id, owner: locker.unwrap_or(owner) };
        let unlocked = self.locks.unlock(owner, file, offset, length, now);
        unlocked.map_err(Fault::from)
    }

    /// Returns true if an owner that uses the opens of other owners holds a lock in a file.
    #[must_use]
    pub fn holds_locks(&self, client: ClientKey, owner: &[u8], file: FileKey) -> bool {
        let Ok(record) = self.client(client) else { return false };
        self.locks.holds_any(OwnerName { client: record.id, owner }, file)
    }

    /// Handles LOCK of kind ABORT, which undoes changes. Returns the rollbacks that must be done
    /// before the reply is sent.
    ///
    /// # Errors
    /// The errors of [`Filer::unlock`].
    pub fn abort_lock(
        &mut self,
        client: ClientKey,
        state: StateId,
        request: &LockRequest,
    ) -> Result<Vec<RollbackId>, Fault> {
        let id = self.client(client)?.id;
        let LockRequest { file, offset, length, .. } = *request;
        let (owner, _) = self.opens.owner(client, state, file)?;
        let aborted = self.locks.abort(OwnerName { client: id, owner }, file, offset, length);
        aborted.map_err(Fault::from)
    }

    /// Checks whether the locks of other owners allow a read or write under this state id, which
    /// [`Filer::check_io`] has already accepted.
    ///
    /// # Errors
    /// LOCKED if a lock conflicts; STALE_STATEID in a range with a broken lock.
    #[inline]
    pub fn check_locks(
        &self,
        file: FileKey,
        state: StateId,
        offset: u64,
        count: u64,
        kind: IoKind,
    ) -> Result<(), Fault> {
        self.locks.check_io(file, state, offset, count, kind)
    }

    /// Returns true if there are no locks.
    #[must_use]
    #[inline]
    pub fn has_no_locks(&self) -> bool {
        self.locks.is_empty()
    }

    /// Asks for [`LockAction::Free`] when a lock that was just denied to `owner` can be taken.
    /// Returns false if there are too many watches, or the caller is not a client.
    pub fn watch_lock(
        &mut self,
        client: ClientKey,
        owner: &[u8],
        request: &LockRequest,
        watch: LockWatch,
    ) -> bool {
        let Ok(client) = self.client(client).map(|record| record.id) else { return false };
        self.locks.watch(OwnerName { client, owner }, request, watch)
    }

    /// Takes a request out of the queue for its lock. Returns false if it does not wait.
    pub fn cancel_lock(&mut self, waiter: crate::locks::WaiterId, now: Moment) -> bool {
        self.locks.cancel(waiter, now)
    }

    /// Removes and returns the next action that locks require of the server.
    pub fn take_lock_action(&mut self) -> Option<LockAction> {
        self.locks.poll_action()
    }

    /// Restores the locks from stable storage. It must be called before the first client enters.
    pub fn restore_locks(&mut self, records: Vec<LockRecord>, now: Moment) {
        self.locks.restore(records);
        if self.grace.is_some() {
            self.locks.begin_grace();
        } else {
            self.locks.grace_over(now);
        }
    }

    /// Returns the records of all locks that stable storage must contain.
    #[must_use]
    pub fn lock_records(&self) -> Vec<LockRecord> {
        self.locks.records()
    }

    /// Reports that a rollback is done. Returns false if there is no such rollback.
    pub fn rollback_done(&mut self, rollback: RollbackId, now: Moment) -> bool {
        self.locks.rollback_done(rollback, now)
    }

    /// Iterates over all locks, for the operator.
    pub fn locks(&self) -> impl Iterator<Item = LockEntry<'_>> {
        self.locks.locks()
    }

    /// Iterates over all requests that wait for a lock.
    pub fn lock_waiters(&self) -> impl Iterator<Item = WaiterEntry<'_>> {
        self.locks.waiting_requests()
    }

    /// Returns the present values of the counters of locks.
    #[must_use]
    pub fn lock_counters(&self) -> LockCounters {
        self.locks.counters()
    }

    /// Releases the locks of an open that its owner closes.
    pub(super) fn end_locks_of_open(
        &mut self,
        client: ClientKey,
        state: StateId,
        file: FileKey,
        now: Moment,
    ) {
        if self.locks.is_empty() {
            return;
        }
        let Ok((owner, _)) = self.opens.owner(client, state, file) else { return };
        let Some(record) = self.clients.get(client) else { return };
        self.locks.release_open(OwnerName { client: record.id, owner }, file, now);
    }

    /// Returns false if locks are kept for another principal of the client's name.
    pub(super) fn may_lock(&self, client: ClientKey) -> bool {
        let record = self.clients.get(client);
        record.is_none_or(|record| self.locks.may_connect(&record.for_locks()).is_ok())
    }

    /// Registers a client with the lock table when the client's incarnation begins. Returns false
    /// if locks are kept for another principal of the client's name.
    pub(super) fn connect_locks(&mut self, client: ClientKey, now: Moment) -> bool {
        let Some(record) = self.clients.get(client) else { return true };
        self.locks.client_connected(&record.for_locks(), now).is_ok()
    }
}

impl Client {
    fn for_locks(&self) -> LockClient<'_> {
        LockClient {
            id: self.id,
            name: &self.name,
            principal: &self.principal_bytes,
            verifier: self.verifier,
        }
    }
}

impl Principal {
    /// Returns true if this principal is a single user without superuser rights, so that shared
    /// limits can count all clients of the principal together.
    #[must_use]
    pub fn is_one(&self) -> bool {
        match self {
            Self::LocalUser(uid) => *uid != 0,
            Self::User(_) | Self::Gss(_) => true,
            Self::Anonymous => false,
        }
    }

    /// Encodes the principal for comparison: equal bytes mean equal principals.
    #[must_use]
    pub fn bytes(&self) -> Box<[u8]> {
        match self {
            Self::Anonymous => b"anonymous".as_slice().into(),
            Self::LocalUser(uid) => format!("uid:{uid}").into_bytes().into(),
            Self::User(name) => format!("user:{name}").into_bytes().into(),
            Self::Gss(name) => format!("gss:{name}").into_bytes().into(),
        }
    }
}
