//! The operations on opens and locks: OPEN, OPEN_DOWNGRADE, CLOSE, LOCK, LOCKT, LOCKU,
//! TEST_STATEID, FREE_STATEID and DELEGRETURN.
//!
//! A state id of version 4 consists of a sequence number and twelve bytes. The bytes contain a kind
//! (open or lock) and the number of the open or of the lock state. The sequence number counts the
//! changes of the state.
//!
//! Invariant: each open of the filer that belongs to a client of version 4 has one entry in
//! [`super::states::States`].

use std::borrow::Cow;

use dafs_filer::ClientKey;
use dafs_files::outcome::{Ended, NotDone, Now, Outcome};
use dafs_journal::RecordNumber;
use dafs_nfs_wire::nfs4::lock::{
    LockArgs, LockDenied, LockResult, LockTArgs, LockTResult, LockUArgs, Locker, TestStateIdArgs,
    TestStateIdDone,
};
use dafs_nfs_wire::nfs4::open::{
    CloseArgs, CreateHow, Delegation, NoDelegation, OpenArgs, OpenClaim, OpenDone,
    OpenDowngradeArgs, OpenFlags, OpenHow, ShareAccess as AskedAccess, ShareDeny as AskedDeny,
};
use dafs_nfs_wire::nfs4::types::{ClientId, LockType, StateOwner, check_name};
use dafs_nfs_wire::nfs4::{Answer, Bitmap, Reply, StateId as Wire, Status};
use dafs_nfs_wire::xdr::{List, Opaque};
use dafs_ops::{
    Claim, Close, Conflict, Creation, Downgrade, Fault, Lock, LockClaim, LockMode, LockSpan, Names,
    Open, Opened, Partial, TestLock,
};
use dafs_types::{
    DeleteDisposition, FileHandle, ObjectType, SetAttributes, ShareAccess, ShareDeny, StateId,
    Verifier,
};

use super::compound::Service;
use super::convert;
use super::convert::{change, status_of, status_of_machine};
use super::fault::{Result, failed, not_done};
use super::handles::NAME_BYTES_MAX;
use super::settings::settings_of;
use super::states::{
    LOCK, LockState, Named, OPEN, States, join_access, join_deny, next, parts_of, wire_of,
};
use super::waiting::{Asked, Opening};
use super::waiting::{Awaits, Did};
use crate::task::{Task, Work};

impl Service<'_, '_, '_> {
    /// Returns the filer's client that has sent the compound.
    fn client(&self) -> Result<ClientKey> {
        Ok(self.by()?.party.client)
    }

    /// Replaces the special state id that stands for the compound's current state id.
    fn given(&self, given: &Wire) -> Result<Wire> {
        match (given.sequence, given.other) {
            (1, NONE) => self.c.current_state.ok_or(Status::BadStateId),
            (u32::MAX, NONE) => Err(Status::BadStateId),
            _ => Ok(*given),
        }
    }

    /// Finds the open or lock state that a client names.
    fn state(&self, given: &Wire) -> Result<Named> {
        let given = self.given(given)?;
        self.desk.v4.states.find(self.client()?, &given)
    }

    /// Returns the filer's state id of the open that a client names. Fails if the open is not for
    /// this file.
    fn open_of(&self, given: &Wire, file: &FileHandle) -> Result<StateId> {
        let Named::Open(state) = self.state(given)? else { return Err(Status::BadStateId) };
        let is_it = self.desk.v4.states.opens.get(&state).is_some_and(|open| open.file == *file);
        if is_it { Ok(state) } else { Err(Status::BadStateId) }
    }

    /// Returns the filer's state id for reading, writing or truncating a file.
    pub(super) fn io_state(&self, given: &Wire, file: &FileHandle) -> Result<StateId> {
        let given = self.given(given)?;
        if (given.sequence, given.other) == (0, NONE)
            || (given.sequence, given.other) == (u32::MAX, ALL)
        {
            return Ok(StateId::ANONYMOUS);
        }
        let state = match self.desk.v4.states.find(self.client()?, &given)? {
            Named::Open(state) => state,
            Named::Lock(number) => {
                self.desk.v4.states.locks.get(&number).ok_or(Status::BadStateId)?.open
            }
        };
        let is_it = self.desk.v4.states.opens.get(&state).is_some_and(|open| open.file == *file);
        if is_it { Ok(state) } else { Err(Status::BadStateId) }
    }

    // ---- OPEN -------------------------------------------------------------------------

    pub(super) fn open(&mut self, asked: &OpenArgs<'_>) -> Result<Did> {
        let current = self.current()?;
        let wanted = asked_of(asked)?;
        let is_reclaim = matches!(asked.claim, OpenClaim::Previous(_));
        let admitted = self.c.request.as_ref().ok_or(Status::OpNotInSession)?;
        let machine = &self.desk.v4.machine;
        machine.check_reclaim(admitted.client, is_reclaim).map_err(status_of_machine)?;
        let (creation, mask) = creation_of(&asked.how)?;
        let name;
        let names: &[&[u8]] = match &asked.claim {
            OpenClaim::Name(given) => {
                self.check_open_directory(&current)?;
                name = [check_name(given, NAME_BYTES_MAX)?];
                &name
            }
            OpenClaim::Handle if creation.is_any() => return Err(Status::Inval),
            OpenClaim::Handle => {
                self.check_openable(&current)?;
                &[b"."]
            }
            OpenClaim::Previous(_) if creation.is_any() => return Err(Status::Inval),
            OpenClaim::Previous(_) => &[],
            // The server grants no delegations, so no client has one.
            OpenClaim::DelegateCurrent(_) | OpenClaim::DelegateCurrentHandle(_) => {
                return Err(Status::BadStateId);
            }
            OpenClaim::DelegatePrevious(_) | OpenClaim::DelegatePreviousHandle => {
                return Err(Status::ReclaimBad);
            }
        };
        let path = Names::new(names);
        let owner = [b"o", asked.owner.owner.0].concat();
        let ask = Open {
            from: current,
            claim: if is_reclaim { Claim::Previous } else { Claim::Null { path } },
            creation,
            disposition: DeleteDisposition::DontCare,
            owner: &owner,
            access: wanted.access,
            deny: wanted.deny,
            key: None,
        };
        let by = self.by()?;
        match self.reactor.files().open(&by, false, &ask) {
            Ok(Now::Done((opened, after))) => {
                self.push_opened(&opened, wanted, mask, after);
                Ok(Did::Written)
            }
            Ok(Now::Later(left)) => {
                let opening = Box::new(Opening { asked: wanted, mask });
                let to = self.wait_for(Awaits::Open(opening));
                self.reactor.start(Task::new(to, Work::from(*left)));
                Ok(Did::Later)
            }
            Err(why) => Err(self.open_failed(&current, why)),
        }
    }

    /// Returns the status of an OPEN that has failed.
    fn open_failed(&mut self, directory: &FileHandle, why: NotDone) -> Status {
        match why {
            NotDone::Partly(refusal) => failed(self.reactor, directory, refusal.fault),
            why => not_done(self.reactor, why),
        }
    }

    fn check_open_directory(&mut self, handle: &FileHandle) -> Result<()> {
        match self.kind_of(handle)? {
            ObjectType::Directory | ObjectType::AttributeDirectory => Ok(()),
            ObjectType::SymbolicLink => Err(Status::Symlink),
            _ => Err(Status::NotDir),
        }
    }

    fn check_openable(&mut self, handle: &FileHandle) -> Result<()> {
        match self.kind_of(handle)? {
            ObjectType::Regular | ObjectType::NamedAttribute => Ok(()),
            ObjectType::Directory | ObjectType::AttributeDirectory => Err(Status::IsDir),
            ObjectType::SymbolicLink => Err(Status::Symlink),
            _ => Err(Status::WrongType),
        }
    }

    /// Ends an OPEN whose file was truncated. Returns its status.
    pub(super) fn end_open(&mut self, opening: &Opening, outcome: Outcome) -> Status {
        let status = convert::failure_of(&outcome);
        match outcome.result {
            Ok(Ended::Opened(opened)) => {
                self.push_opened(&opened, opening.asked, opening.mask, outcome.after);
                Status::Ok
            }
            _ => status,
        }
    }

    fn push_opened(&mut self, opened: &Opened, asked: Asked, mask: Bitmap, after: RecordNumber) {
        self.c.after = self.c.after.max(after);
        let Ok(client) = self.client() else { return };
        let state = self.desk.v4.states.note_open(client, opened, asked);
        self.set_current(opened.file);
        self.c.current_state = Some(state);
        let delegation = match asked.wants_no_delegation {
            true => Delegation::Refused(NoDelegation::NotWanted),
            false => Delegation::None,
        };
        let done = OpenDone {
            state,
            change: change(opened.directory),
            flags: OpenFlags::LOCKTYPE_POSIX,
            attributes: mask,
            delegation,
        };
        let _ = self.push(&Answer::Open(Reply::Ok(done)));
    }

    pub(super) fn downgrade(&mut self, asked: &OpenDowngradeArgs) -> Result<Did> {
        let file = self.current()?;
        let state = self.open_of(&asked.state, &file)?;
        let access = access_of(asked.access)?;
        let deny = deny_of(asked.deny)?;
        let open = self.desk.v4.states.opens.get(&state).ok_or(Status::BadStateId)?;
        // A downgrade may only reduce the access and the reservation of the open.
        if join_access(open.access, access) != open.access
            || join_deny(open.deny, deny) != open.deny
        {
            return Err(Status::Inval);
        }
        let by = self.by()?;
        let ask = Downgrade { file, state, access, deny, key: None };
        self.reactor.files().open_downgrade(by.party, &ask).map_err(status_of)?;
        let open = self.desk.v4.states.opens.get_mut(&state).ok_or(Status::BadStateId)?;
        (open.access, open.deny) = (access, deny);
        open.sequence = next(open.sequence);
        let shown = wire_of(OPEN, state.0, open.sequence);
        self.c.current_state = Some(shown);
        self.push(&Answer::OpenDowngrade(Reply::Ok(shown)))
    }

    pub(super) fn close(&mut self, asked: &CloseArgs) -> Result<Did> {
        let file = self.current()?;
        let state = self.open_of(&asked.state, &file)?;
        let by = self.by()?;
        self.release_locks(state, &file)?;
        let closed = self.reactor.files().close(by.party, &Close { file, state });
        match closed.map_err(status_of)? {
            Now::Done(outcome) => match self.end_close(wire_of(OPEN, state.0, 0), &outcome) {
                Status::Ok => Ok(Did::Written),
                status => Err(status),
            },
            Now::Later(left) => {
                let to = self.wait_for(Awaits::Close(wire_of(OPEN, state.0, 0)));
                self.reactor.start(Task::new(to, Work::from(*left)));
                Ok(Did::Later)
            }
        }
    }

    /// Releases the locks of all lock states that belong to an open, because the open ends.
    fn release_locks(&mut self, state: StateId, file: &FileHandle) -> Result<()> {
        let by = self.by()?;
        let open = self.desk.v4.states.opens.get_mut(&state).ok_or(Status::BadStateId)?;
        for number in std::mem::take(&mut open.locks) {
            let Some(lock) = self.desk.v4.states.locks.remove(&number) else { continue };
            let span = LockSpan { file: *file, state, offset: 0, length: u64::MAX };
            let released = self.reactor.files().unlock_for(by.party, &span, &lock.owner);
            self.c.after = self.c.after.max(released.map_err(status_of)?);
        }
        Ok(())
    }

    /// Writes the result of a CLOSE. Returns its status. The open has ended even if data was lost.
    pub(super) fn end_close(&mut self, state: Wire, outcome: &Outcome) -> Status {
        self.c.after = self.c.after.max(outcome.after);
        let (_, number) = parts_of(&state);
        self.desk.v4.states.opens.remove(&StateId(number));
        if outcome.result.is_err() {
            return convert::failure_of(outcome);
        }
        self.c.current_state = None;
        // The state id of the open is no longer valid, so the result contains an invalid state id.
        let invalid = Wire { sequence: u32::MAX, other: NONE };
        let _ = self.push(&Answer::Close(Reply::Ok(invalid)));
        Status::Ok
    }

    // ---- locks ------------------------------------------------------------------------

    pub(super) fn lock(&mut self, asked: &LockArgs<'_>) -> Result<Did> {
        let file = self.current()?;
        self.check_lockable(&file)?;
        check_lock_range(asked.offset, asked.length)?;
        let admitted = self.c.request.as_ref().ok_or(Status::OpNotInSession)?;
        let machine = &self.desk.v4.machine;
        machine.check_reclaim(admitted.client, asked.reclaim).map_err(status_of_machine)?;
        let client = self.client()?;
        let (open, owner, number) = match &asked.locker {
            Locker::Known(known) => {
                let Named::Lock(number) = self.state(&known.state)? else {
                    return Err(Status::BadStateId);
                };
                let lock = self.desk.v4.states.locks.get(&number).ok_or(Status::BadStateId)?;
                (lock.open, lock.owner.clone(), Some(number))
            }
            Locker::New(new) => {
                let open = self.open_of(&new.open, &file)?;
                let owner: Box<[u8]> = [b"l", new.owner.owner.0].concat().into();
                let states = &self.desk.v4.states;
                let locks = states.opens.get(&open).map_or(&[][..], |open| &open.locks);
                let is_it = |number: &&u64| {
                    states.locks.get(number).is_some_and(|lock| lock.owner == owner)
                };
                let known = locks.iter().find(is_it).copied();
                let is_full = locks.len() >= LOCKS_PER_OPEN_MAX || states.locks.len() >= LOCKS_MAX;
                if known.is_none() && is_full {
                    return Err(Status::Delay);
                }
                (open, owner, known)
            }
        };
        let is_it = self.desk.v4.states.opens.get(&open).is_some_and(|state| state.file == file);
        if !is_it {
            return Err(Status::BadStateId);
        }
        let ask = Lock {
            file,
            state: open,
            mode: mode_of(asked.kind),
            offset: asked.offset,
            length: asked.length,
            claim: if asked.reclaim { LockClaim::Reclaim } else { LockClaim::New },
            persist: false,
            auto_recovery: false,
            waits: false,
        };
        let by = self.by()?;
        let locked = self.reactor.files().lock_for(&by, &ask, Some(&owner));
        let states = &mut self.desk.v4.states;
        let note = |states: &mut States| {
            let number = number.unwrap_or_else(|| {
                states.last_lock += 1;
                let number = states.last_lock;
                let lock =
                    LockState { client, open, owner: owner.clone(), sequence: 0, holds: false };
                states.locks.insert(number, lock);
                if let Some(open) = states.opens.get_mut(&open) {
                    open.locks.push(number);
                }
                number
            });
            wire_of(LOCK, number, 0)
        };
        match locked {
            Ok(Now::Done(outcome)) if outcome.result.is_ok() => {
                let state = note(states);
                match self.end_lock(state, &outcome) {
                    Status::Ok => Ok(Did::Written),
                    status => Err(status),
                }
            }
            Ok(Now::Done(outcome)) => self.deny(&outcome),
            Ok(Now::Later(left)) => {
                let state = note(states);
                let to = self.wait_for(Awaits::Lock(state));
                self.reactor.start(Task::new(to, Work::from(*left)));
                Ok(Did::Later)
            }
            Err(why) => Err(not_done(self.reactor, why)),
        }
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
    pub(super) fn end_lock(&mut self, state: Wire, outcome: &Outcome) -> Status {
        self.c.after = self.c.after.max(outcome.after);
        if outcome.result.is_err() {
            return convert::failure_of(outcome);
        }
        let (_, number) = parts_of(&state);
        let Some(lock) = self.desk.v4.states.locks.get_mut(&number) else {
            return Status::BadStateId;
        };
        lock.sequence = next(lock.sequence);
        lock.holds = true;
        let shown = wire_of(LOCK, number, lock.sequence);
        self.c.current_state = Some(shown);
        let _ = self.push(&Answer::Lock(LockResult::Locked(shown)));
        Status::Ok
    }

    pub(super) fn lock_test(&mut self, asked: &LockTArgs<'_>) -> Result<Did> {
        let file = self.current()?;
        self.check_lockable(&file)?;
        check_lock_range(asked.offset, asked.length)?;
        let owner = [b"l", asked.owner.owner.0].concat();
        let ask = TestLock {
            file,
            owner: &owner,
            mode: mode_of(asked.kind),
            offset: asked.offset,
            length: asked.length,
        };
        let by = self.by()?;
        match self.reactor.files().lock_test(&by, &ask) {
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
        let Named::Lock(number) = self.state(&asked.state)? else {
            return Err(Status::BadStateId);
        };
        let lock = self.desk.v4.states.locks.get(&number).ok_or(Status::BadStateId)?;
        let (state, owner) = (lock.open, lock.owner.clone());
        let by = self.by()?;
        let span = LockSpan { file, state, offset: asked.offset, length: asked.length };
        let released = self.reactor.files().unlock_for(by.party, &span, &owner);
        let after = released.map_err(status_of)?;
        self.c.after = self.c.after.max(after);
        let is_all = (asked.offset, asked.length) == (0, u64::MAX);
        let lock = self.desk.v4.states.locks.get_mut(&number).ok_or(Status::BadStateId)?;
        lock.sequence = next(lock.sequence);
        lock.holds &= !is_all;
        let shown = wire_of(LOCK, number, lock.sequence);
        self.c.current_state = Some(shown);
        self.push(&Answer::LockU(Reply::Ok(shown)))
    }

    fn check_lockable(&mut self, handle: &FileHandle) -> Result<()> {
        match self.kind_of(handle)? {
            ObjectType::Regular | ObjectType::NamedAttribute => Ok(()),
            ObjectType::Directory | ObjectType::AttributeDirectory => Err(Status::IsDir),
            ObjectType::SymbolicLink => Err(Status::Symlink),
            _ => Err(Status::WrongType),
        }
    }

    // ---- state ids --------------------------------------------------------------------

    pub(super) fn test_states(&mut self, asked: &TestStateIdArgs) -> Result<Did> {
        let client = self.client()?;
        let states = &self.desk.v4.states;
        let statuses = asked.states.iter().map(|given| match states.find(client, given) {
            Ok(_) => Status::Ok,
            Err(status) => status,
        });
        let statuses = List(statuses.collect());
        self.push(&Answer::TestStateId(Reply::Ok(TestStateIdDone { statuses })))
    }

    pub(super) fn free_state(&mut self, given: Wire) -> Result<Did> {
        match self.state(&given)? {
            // FREE_STATEID cannot end an open; CLOSE does that.
            Named::Open(_) => Err(Status::LocksHeld),
            Named::Lock(number) => {
                let states = &mut self.desk.v4.states;
                let lock = states.locks.get(&number).ok_or(Status::BadStateId)?;
                if lock.holds {
                    return Err(Status::LocksHeld);
                }
                if let Some(open) = states.opens.get_mut(&lock.open) {
                    open.locks.retain(|other| *other != number);
                }
                states.locks.remove(&number);
                self.push(&Answer::FreeStateId(Status::Ok))
            }
        }
    }

    pub(super) fn return_delegation(&mut self, given: Wire) -> Result<Did> {
        self.current()?;
        self.state(&given)?;
        // The server grants no delegations, so the state id is not that of a delegation.
        Err(Status::BadStateId)
    }
}

/// Returns the access, reservation and delegation that an OPEN asks for.
fn asked_of(asked: &OpenArgs<'_>) -> Result<Asked> {
    let wants = asked.access.0 & AskedAccess::WANT_DELEG_MASK.0;
    Ok(Asked {
        access: access_of(AskedAccess(asked.access.0 & AskedAccess::BOTH.0))?,
        deny: deny_of(asked.deny)?,
        wants_no_delegation: wants == AskedAccess::WANT_NO_DELEG.0,
    })
}

fn access_of(asked: AskedAccess) -> Result<ShareAccess> {
    match asked {
        AskedAccess::READ => Ok(ShareAccess::Read),
        AskedAccess::WRITE => Ok(ShareAccess::Write),
        AskedAccess::BOTH => Ok(ShareAccess::Both),
        _ => Err(Status::Inval),
    }
}

fn deny_of(asked: AskedDeny) -> Result<ShareDeny> {
    match asked {
        AskedDeny::NONE => Ok(ShareDeny::None),
        AskedDeny::READ => Ok(ShareDeny::Read),
        AskedDeny::WRITE => Ok(ShareDeny::Write),
        AskedDeny::BOTH => Ok(ShareDeny::Both),
        _ => Err(Status::Inval),
    }
}

/// Returns the way in which an OPEN creates its file, and the attributes that it sets.
fn creation_of(how: &OpenHow<'_>) -> Result<(Creation, Bitmap)> {
    Ok(match how {
        OpenHow::NoCreate => (Creation::NoCreate, Bitmap::default()),
        OpenHow::Create(CreateHow::Unchecked(given)) => {
            let settings = settings_of(given, true)?;
            let attributes: SetAttributes = settings.attributes;
            (Creation::Unchecked { attributes: attributes.into() }, settings.mask)
        }
        OpenHow::Create(CreateHow::Guarded(given)) => {
            let settings = settings_of(given, true)?;
            (Creation::Guarded { attributes: settings.attributes.into() }, settings.mask)
        }
        OpenHow::Create(CreateHow::Exclusive(verifier)) => {
            (Creation::Exclusive { verifier: Verifier(verifier.0) }, Bitmap::default())
        }
        // With this kind of creation, the server supports no attributes. The client sets them after
        // the file exists.
        OpenHow::Create(CreateHow::ExclusiveWithAttributes(asked)) => {
            if !asked.attributes.mask.is_empty() {
                return Err(Status::AttrNotSupp);
            }
            (Creation::Exclusive { verifier: Verifier(asked.verifier.0) }, Bitmap::default())
        }
    })
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
    // The first byte of an owner's name in the filer is the kind of owner (of opens or of locks).
    let owner = owner.get(1..).unwrap_or_default();
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

/// The bytes of the special state ids: all zeros, and (in the next constant) all ones.
const NONE: [u8; 12] = [0; 12];
const ALL: [u8; 12] = [0xff; 12];
/// The maximum number of lock states that belong to one open.
const LOCKS_PER_OPEN_MAX: usize = 4096;
/// The maximum number of lock states of all clients.
const LOCKS_MAX: usize = 1 << 18;
