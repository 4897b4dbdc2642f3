//! Byte-range locks, from a client's point of view (draft 4.4.1, 6.5.18 to 6.5.20).
//!
//! Invariant: a lock is taken under an open of the asker's own, which allows what the lock
//! is for; it ends with that open, with its client, or as its options say.

use dafs_ops::Fault;
use dafs_types::{Moment, StateId};

use super::Filer;
use crate::clients::{Client, Principal};
use crate::locks::{
    Claim, LockAction, LockAnswer, LockClient, LockCounters, LockEntry, LockMode, LockOwner,
    LockRecord, LockRequest, LockTestAnswer, OwnerName, RollbackId, WaiterEntry,
};
use crate::{ClientKey, FileKey, IoKind};

impl Filer {
    /// LOCK of any kind but ABORT. Act on [`Filer::take_lock_action`] before the answer.
    ///
    /// # Errors
    /// Those of state ids; ACCES if the open does not allow what the lock is for; GRACE;
    /// EXPIRED for taking back what is lost; those of [`crate::locks::LockError`].
    pub fn lock(
        &mut self,
        client: ClientKey,
        state: StateId,
        request: &LockRequest,
        now: Moment,
    ) -> Result<LockAnswer, Fault> {
        self.client(client)?;
        // Who repairs gets something new, too, around what others have yet to take back.
        if request.claim != Claim::Reclaim {
            self.may_take(client, now)?;
        }
        let (owner, access) = self.opens.owner(client, state, request.file)?;
        let allows = match request.mode {
            LockMode::Read => access.reads(),
            LockMode::Write => access.writes(),
        };
        if !allows {
            return Err(Fault::OpenLacksAccess);
        }
        let client = self.clients.get(client).ok_or(Fault::NoClient)?.for_locks();
        let owner = LockOwner { client, owner, state };
        self.locks.lock(&owner, request, now).map_err(Fault::from)
    }

    /// LOCKT: `owner` is the asker's name for itself.
    ///
    /// # Errors
    /// INVAL for an impossible range; GRACE, since nobody knows yet; NOT_AUTHENTICATED.
    pub fn lock_test(
        &mut self,
        client: ClientKey,
        owner: &[u8],
        request: &LockRequest,
        now: Moment,
    ) -> Result<LockTestAnswer, Fault> {
        self.may_take(client, now)?;
        let client = self.client(client)?.id;
        let LockRequest { file, offset, length, mode, .. } = *request;
        let tested = self.locks.test(OwnerName { client, owner }, file, offset, length, mode);
        tested.map_err(Fault::from)
    }

    /// LOCKU.
    ///
    /// # Errors
    /// Those of state ids and of [`crate::locks::LockError`].
    pub fn unlock(
        &mut self,
        client: ClientKey,
        state: StateId,
        request: &LockRequest,
        now: Moment,
    ) -> Result<(), Fault> {
        let id = self.client(client)?.id;
        let LockRequest { file, offset, length, .. } = *request;
        let (owner, _) = self.opens.owner(client, state, file)?;
        let unlocked =
            self.locks.unlock(OwnerName { client: id, owner }, file, offset, length, now);
        unlocked.map_err(Fault::from)
    }

    /// LOCK of kind ABORT: the rollbacks to wait for before the answer.
    ///
    /// # Errors
    /// As [`Filer::unlock`].
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
    ) -> Result<(), Fault> {
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

    /// An open ends by its owner's will.
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

    /// Whether no locks are kept for somebody else of a client's name.
    pub(super) fn may_lock(&self, client: ClientKey) -> bool {
        let record = self.clients.get(client);
        record.is_none_or(|record| self.locks.may_connect(&record.for_locks()).is_ok())
    }

    /// A client's life begins. False as above.
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
    /// Whether those who have proved to be this are one and the same, and have bounds.
    #[must_use]
    pub fn is_one(&self) -> bool {
        match self {
            Self::LocalUser(uid) => *uid != 0,
            Self::User(_) | Self::Gss(_) => true,
            Self::Anonymous => false,
        }
    }

    /// As bytes, for comparing: equal bytes mean equal principals.
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
