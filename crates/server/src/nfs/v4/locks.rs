//! The operations on byte-range locks: LOCK, LOCKT and LOCKU.

use std::borrow::Cow;

use dafs_files::caller::Caller;
use dafs_files::outcome::{NotDone, Now, Outcome};
use dafs_nfs_state::{KindSet, StateKey};
use dafs_nfs_wire::nfs4::lock::{
    LockArgs, LockDenied, LockResult, LockTArgs, LockTResult, LockUArgs, Locker,
};
use dafs_nfs_wire::nfs4::types::{ClientId, LockType, StateOwner};
use dafs_nfs_wire::nfs4::{Answer, Reply, Status};
use dafs_nfs_wire::xdr::Opaque;
use dafs_ops::{Conflict, Fault, Lock, LockClaim, LockMode, LockSpan, Partial, TestLock};
use dafs_types::{FileHandle, StateId};

use super::compound::Service;
use super::convert;
use super::convert::{status_of, status_of_machine};
use super::fault::{Result, not_done};
use super::waiting::{Awaits, Did};

/// The open and the owner of a LOCK.
struct Locking {
    open: StateKey,
    /// The filer's state id of the open.
    state: StateId,
    /// The name of the lock owner.
    owner: Box<[u8]>,
}

impl Service<'_, '_, '_> {
    pub(super) fn lock(&mut self, asked: &LockArgs<'_>) -> Result<Did> {
        let file = self.regular_file()?;
        check_lock_range(asked.offset, asked.length)?;
        let client = self.nfs_client()?;
        let machine = &self.desk.v4.machine;
        machine.check_reclaim(client, asked.reclaim).map_err(status_of_machine)?;
        let Locking { open, state, owner } = self.locking(&asked.locker, &file)?;
        let ask = Lock {
            file,
            state,
            mode: mode_of(asked.kind),
            offset: asked.offset,
            length: asked.length,
            claim: if asked.reclaim { LockClaim::Reclaim } else { LockClaim::New },
            persist: false,
            auto_recovery: false,
            waits: false,
        };
        let by = self.by()?;
        let name = name_of(&owner);
        let mut locked = self.reactor.files().lock_for(&by, &ask, Some(&name));
        if let Ok(Now::Done(outcome)) = &locked
            && outcome.result.as_ref().is_err_and(|refusal| refusal.fault == Fault::Denied)
            && self.end_courtesy_of(&file)
        {
            locked = self.reactor.files().lock_for(&by, &ask, Some(&name));
        }
        match locked {
            Ok(Now::Done(outcome)) if outcome.result.is_err() => {
                if matches!(asked.kind, LockType::ReadWait | LockType::WriteWait) {
                    self.watch(&by, &ask, &name, &outcome);
                }
                self.deny(&outcome)
            }
            Ok(started) => {
                let key = self.note_lock(open, &owner, state)?;
                self.follow(Awaits::Lock(key), started)
            }
            Err(why) => Err(not_done(self.reactor, why)),
        }
    }

    /// Makes sure that a client that waits for a denied lock is told when the lock can be taken, if
    /// the server can call the client.
    fn watch(&mut self, by: &Caller, ask: &Lock, name: &[u8], outcome: &Outcome) {
        let is_denied = outcome.result.as_ref().is_err_and(|why| why.fault == Fault::Denied);
        let Ok(client) = self.nfs_client() else { return };
        if !is_denied || !self.desk.v4.machine.has_back_channel(client) {
            return;
        }
        let shared = &mut *self.reactor.shared;
        let Some(id) = shared.filer.client_id(by.party.client) else { return };
        shared.channels.guests_mut().expect_notices(id);
        // A client asks again within a lease anyway.
        let until = shared.life.now().after(shared.filer.config().lease);
        self.reactor.files().watch_lock(by, ask, name, (client.to_bits(), until));
    }

    /// Finds the open and the owner of a LOCK. Fails if a new lock state would exceed a limit.
    fn locking(&self, locker: &Locker<'_>, file: &FileHandle) -> Result<Locking> {
        let machine = &self.desk.v4.machine;
        match locker {
            Locker::Known(known) => {
                let view = self.state(&known.state, KindSet::LOCK)?;
                let (open, state) = (view.open.ok_or(Status::BadStateId)?, StateId(view.inner));
                self.desk.v4.states.open_for(state, file)?;
                Ok(Locking { open, state, owner: view.owner.into() })
            }
            Locker::New(new) => {
                let (open, state) = self.open_of(&new.open, file)?;
                let owner = new.owner.owner.0;
                if machine.find_lock(open, owner).is_none()
                    && machine.check_room(self.nfs_client()?, Some(open)).is_err()
                {
                    return Err(Status::Delay);
                }
                Ok(Locking { open, state, owner: owner.into() })
            }
        }
    }

    /// Records that a lock owner has locked a range. Returns its lock state.
    fn note_lock(&mut self, open: StateKey, owner: &[u8], state: StateId) -> Result<StateKey> {
        let locked = self.desk.v4.machine.locked(open, owner, state.0);
        Ok(locked.map_err(status_of_machine)?.0)
    }

    /// Writes the result of a LOCK that conflicts with another lock.
    fn deny(&mut self, outcome: &Outcome) -> Result<Did> {
        self.c.after = self.c.after.max(outcome.after);
        let Err(refusal) = &outcome.result else { return Err(Status::ServerFault) };
        let Partial::Conflict { conflict } = &refusal.partial else {
            return Err(status_of(refusal.fault));
        };
        // If the conflicting lock is broken, a DAFS client must first repair the data.
        if refusal.fault != Fault::Denied {
            return Err(status_of(refusal.fault));
        }
        let denied = denied_of(conflict);
        self.push(&Answer::Lock(LockResult::Denied(denied)))?;
        Err(Status::Denied).inspect_err(|_| self.c.is_answered = true)
    }

    /// Writes the result of a LOCK that was granted. Returns its status.
    pub(super) fn end_lock(&mut self, key: StateKey, outcome: &Outcome) -> Status {
        if outcome.result.is_err() {
            return convert::failure_of(outcome);
        }
        let Some(id) = self.desk.v4.machine.state_id(key) else { return Status::BadStateId };
        let shown = self.set_state(id);
        let _ = self.push(&Answer::Lock(LockResult::Locked(shown)));
        Status::Ok
    }

    pub(super) fn lock_test(&mut self, asked: &LockTArgs<'_>) -> Result<Did> {
        let file = self.regular_file()?;
        check_lock_range(asked.offset, asked.length)?;
        let owner = name_of(asked.owner.owner.0);
        let ask = TestLock {
            file,
            owner: &owner,
            mode: mode_of(asked.kind),
            offset: asked.offset,
            length: asked.length,
        };
        let by = self.by()?;
        let mut tested = self.reactor.files().lock_test(&by, &ask);
        if matches!(&tested, Err(NotDone::Partly(refusal)) if refusal.fault == Fault::Denied)
            && self.end_courtesy_of(&file)
        {
            tested = self.reactor.files().lock_test(&by, &ask);
        }
        match tested {
            Ok(()) => self.push(&Answer::LockT(LockTResult::Free)),
            Err(NotDone::Partly(refusal)) => match &refusal.partial {
                Partial::Conflict { conflict } => {
                    let denied = denied_of(conflict);
                    self.push(&Answer::LockT(LockTResult::Denied(denied)))?;
                    Err(Status::Denied).inspect_err(|_| self.c.is_answered = true)
                }
                _ => Err(status_of(refusal.fault)),
            },
            Err(why) => Err(not_done(self.reactor, why)),
        }
    }

    pub(super) fn unlock(&mut self, asked: &LockUArgs) -> Result<Did> {
        let file = self.current()?;
        check_lock_range(asked.offset, asked.length)?;
        let view = self.state(&asked.state, KindSet::LOCK)?;
        let (key, state, owner) = (view.key, StateId(view.inner), name_of(view.owner));
        self.desk.v4.states.open_for(state, &file)?;
        let by = self.by()?;
        let span = LockSpan { file, state, offset: asked.offset, length: asked.length };
        let mut files = self.reactor.files();
        let released = files.unlock_for(by.party, &span, &owner);
        let has_locks = files.holds_locks(by.party, state, &file, &owner);
        self.c.after = self.c.after.max(released.map_err(status_of)?);
        let unlocked = self.desk.v4.machine.unlocked(key, has_locks);
        let shown = self.set_state(unlocked.ok_or(Status::BadStateId)?);
        self.push(&Answer::LockU(Reply::Ok(shown)))
    }
}

/// Returns the name of a lock owner that has this name in the filer.
pub(super) fn owner_of(name: &[u8]) -> &[u8] {
    name.get(1..).unwrap_or_default()
}

/// Returns the name by which the filer knows a lock owner. Its first byte tells lock owners from
/// open owners.
fn name_of(owner: &[u8]) -> Vec<u8> {
    [b"l", owner].concat()
}

fn mode_of(kind: LockType) -> LockMode {
    match kind {
        LockType::Read | LockType::ReadWait => LockMode::Read,
        LockType::Write | LockType::WriteWait => LockMode::Write,
    }
}

/// Checks the range of a lock: its length must not be 0, and its end must not exceed 64 bits.
fn check_lock_range(offset: u64, length: u64) -> Result<()> {
    let fits = length == u64::MAX || offset.checked_add(length).is_some();
    if length > 0 && fits { Ok(()) } else { Err(Status::Inval) }
}

/// Describes the lock with which a requested lock conflicts.
fn denied_of<'c>(conflict: &'c Conflict<'_>) -> LockDenied<'c> {
    let owner = match &conflict.owner {
        Cow::Borrowed(owner) => owner,
        Cow::Owned(owner) => &owner[..],
    };
    // The conflicting owner may be one of opens, whose names have such a byte, too.
    let owner = owner_of(owner);
    LockDenied {
        offset: conflict.offset,
        length: conflict.length,
        kind: match conflict.mode {
            LockMode::Read => LockType::Read,
            LockMode::Write => LockType::Write,
        },
        owner: StateOwner { client: ClientId(conflict.client.0), owner: Opaque(owner) },
    }
}
