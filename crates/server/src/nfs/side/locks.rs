//! NLM: executes the calls of clients of NFS version 3, and takes and releases their locks.

use std::borrow::Cow;

use dafs_dat::EndpointId;
use dafs_files::caller::Caller;
use dafs_files::left::RemainingWork;
use dafs_files::outcome::{NotDone, Now, Outcome};
use dafs_journal::RecordNumber;
use dafs_nfs_wire::nlm::LockStatus;
use dafs_nfs_wire::nlm::v4::NLM4;
use dafs_nfs_wire::rpc::{self, Call};
use dafs_nfs_wire::xdr::{Reader, Writer};
use dafs_ops::{Conflict, Fault, Lock, LockClaim, LockMode, LockSpan, Partial, TestLock};
use dafs_types::{FileHandle, StateId, limits};

use super::blocked::{Phase, Waiting};
use super::callbacks::Callback;
use super::granting;
use super::hosts::{Host, owner_of, process_of};
use super::messages::{self, Holder, Locking, Range, Request, Results};
use super::opens::{close_if_unused, end_host};
use super::pending::{Pending, Reply};
use super::state::Side;
use crate::guests::GuestResult;
use crate::nfs::calls::{self, CallId, Desk, Progress, Suspended};
use crate::nfs::v4::Sender;
use crate::reactor::Reactor;
use crate::task::{Task, Work};

/// A call in progress.
pub(super) struct Service<'s, 'f, 'r> {
    pub desk: &'s mut Desk<'f>,
    pub reactor: &'s mut Reactor<'r>,
    pub sender: &'s Sender,
    version: u32,
    /// The endpoint id that stands for the user, once it is known.
    pub user: Option<EndpointId>,
    /// The number of the record that must be durable before the reply is sent.
    pub after: RecordNumber,
}

/// The progress of a request.
enum Step {
    Done(Results),
    /// The lock is held. The reply must wait until earlier transfers in its range have ended.
    Granting(Box<RemainingWork>),
}

pub(super) type Result<T> = std::result::Result<T, LockStatus>;

/// Executes a call of NLM.
pub(super) fn serve(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    sender: &Sender,
    call: &Call<'_>,
    reader: &mut Reader<'_>,
) -> Progress {
    let xid = call.xid;
    if call.version == 2 {
        calls::fail(desk.writer, xid, calls::mismatch(1, NLM4.version));
        return Progress::Done;
    }
    let decoded = match messages::decode(call.version, call.procedure, reader) {
        None => Err(rpc::Outcome::ProcUnavail),
        Some(decoded) => decoded.map_err(|_| rpc::Outcome::GarbageArgs),
    };
    let decoded = match decoded {
        Ok(decoded) => decoded,
        Err(outcome) => {
            calls::fail(desk.writer, xid, outcome);
            return Progress::Done;
        }
    };
    let (user, after, version) = (None, RecordNumber(0), call.version);
    let mut service = Service { desk, reactor, sender, version, user, after };
    let step = service.execute(&decoded.request);
    let (user, after) = (service.user, service.after);
    let reply = Reply {
        address: sender.peer.address,
        version: call.version,
        cookie: decoded.cookie.into(),
        returns_by: decoded.returns_by,
    };
    let id = |user| CallId::new(sender.route(), xid, user);
    match (step, user) {
        (Step::Done(results), None) => {
            conclude(desk, xid, &reply, &results);
            Progress::Done
        }
        (Step::Done(results), Some(user)) => {
            finish(desk, reactor, id(user), Pending { reply, results: Some(results), after })
        }
        (Step::Granting(left), Some(user)) => {
            let id = id(user);
            let pending = Pending { reply, results: None, after };
            let to = desk.calls.start(id, Suspended::Side(Box::new(pending)));
            reactor.start(Task::new(to, Work::from(*left)));
            Progress::Later
        }
        // A lock is only taken for a user.
        (Step::Granting(_), None) => {
            calls::fail(desk.writer, xid, rpc::Outcome::SystemErr);
            Progress::Done
        }
    }
}

/// Continues a call whose operation has ended, or whose record is durable.
pub(in crate::nfs) fn resume(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    id: CallId,
    mut pending: Pending,
    result: GuestResult,
) -> Progress {
    if let GuestResult::Outcome(outcome) = result {
        pending.after = pending.after.max(outcome.after);
        let status = match outcome.result {
            Ok(_) => LockStatus::Granted,
            Err(refusal) => status_of(refusal.fault),
        };
        pending.results = Some(Results::Lock(status));
    }
    finish(desk, reactor, id, pending)
}

/// Sends the results, or waits until their record is durable.
fn finish(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    id: CallId,
    mut pending: Pending,
) -> Progress {
    let results = pending.results.get_or_insert(Results::Lock(LockStatus::Failed));
    let durable = reactor.shared.ledger.as_ref().map(|ledger| ledger.durable());
    if durable.is_none_or(|durable| pending.after <= durable) {
        conclude(desk, id.xid, &pending.reply, results);
        return Progress::Done;
    }
    let to = desk.calls.reserve(id);
    reactor.delay_answer(to, pending.after, &[]);
    desk.calls.hold(Suspended::Side(Box::new(pending)));
    Progress::Later
}

/// Writes the reply. If the client asks for its results by a call, sends that call too.
fn conclude(desk: &mut Desk<'_>, xid: u32, reply: &Reply, results: &Results) {
    calls::begin(desk.writer, xid);
    let Some(procedure) = reply.returns_by else {
        return messages::encode(reply.version, &reply.cookie, results, desk.writer);
    };
    let mut writer = Writer::new();
    messages::encode(reply.version, &reply.cookie, results, &mut writer);
    desk.side.callbacks.send(Callback {
        number: 0,
        address: reply.address,
        program: NLM4.number,
        version: reply.version,
        procedure,
        arguments: writer.bytes().to_vec(),
    });
}

impl Service<'_, '_, '_> {
    fn execute(&mut self, request: &Request<'_>) -> Step {
        let lock = |status: Result<()>| Results::Lock(status.err().unwrap_or(LockStatus::Granted));
        let share =
            |status: Result<()>| Results::Share(status.err().unwrap_or(LockStatus::Granted));
        Step::Done(match request {
            Request::Nothing => Results::Nothing,
            Request::Test(range) => match self.test(range) {
                Ok(Some(holder)) => Results::Conflict(holder),
                Ok(None) => Results::Test(LockStatus::Granted),
                Err(status) => Results::Test(status),
            },
            Request::Lock(asked) => match self.lock(asked) {
                Ok(None) => Results::Lock(LockStatus::Granted),
                Ok(Some(left)) => return Step::Granting(left),
                Err(status) => Results::Lock(status),
            },
            Request::Cancel(range) => lock(self.cancel(range)),
            Request::Unlock(range) => lock(self.unlock(range)),
            Request::Granted => Results::Lock(LockStatus::Denied),
            Request::Share(asked) => share(self.share(asked)),
            Request::Unshare(asked) => share(self.unshare(asked)),
            Request::FreeAll(name) => {
                if let Some(client) = self.desk.side.hosts.find(self.sender.peer.address, name) {
                    end_host(self.desk, self.reactor, client);
                }
                Results::Nothing
            }
        })
    }

    fn test(&mut self, range: &Range<'_>) -> Result<Option<Holder>> {
        self.check_grace(false)?;
        check_range(range)?;
        let file = self.handle(range.file)?;
        let client = self.enter(range.caller)?;
        let by = self.caller(client)?;
        let owner = owner_of(range.process);
        let Range { offset, length, .. } = *range;
        let ask = TestLock { file, owner: &owner, mode: mode_of(range), offset, length };
        match self.reactor.files().lock_test(&by, &ask) {
            Ok(()) => Ok(None),
            Err(NotDone::Partly(refusal)) => match &refusal.partial {
                Partial::Conflict { conflict } => Ok(Some(self.shown(&file, conflict))),
                _ => Err(status_of(refusal.fault)),
            },
            Err(why) => Err(self.not_done(why)),
        }
    }

    /// Describes a conflicting lock. If its owner is not a process of a host that uses NLM, the
    /// number of the process is 0.
    fn shown(&self, file: &FileHandle, conflict: &Conflict<'_>) -> Holder {
        let name = match &conflict.owner {
            Cow::Borrowed(owner) => owner,
            Cow::Owned(owner) => &owner[..],
        };
        let host = self.desk.side.hosts.with_id(conflict.client);
        let process = host.and_then(|_| process_of(name)).unwrap_or(0);
        let locked = host.and_then(|host| host.files.get(file));
        let owner = match locked.and_then(|locked| locked.owners.get(&process)) {
            Some(owner) => owner.clone(),
            None => name[..name.len().min(limits::OWNER_BYTES_MAX)].into(),
        };
        Holder {
            is_exclusive: conflict.mode == LockMode::Write,
            process,
            owner,
            offset: conflict.offset,
            length: conflict.length,
        }
    }

    /// Takes a lock. Returns the rest of the work if the reply must wait for it.
    fn lock(&mut self, asked: &Locking<'_>) -> Result<Option<Box<RemainingWork>>> {
        self.check_grace(asked.reclaims)?;
        let range = &asked.range;
        check_range(range)?;
        let file = self.handle(range.file)?;
        let client = self.enter(range.caller)?;
        let by = self.caller(client)?;
        let taken = self.take(asked, &by, file);
        if taken.is_err() {
            close_if_unused(self.desk.side, self.reactor, client, &file);
        }
        taken
    }

    fn take(
        &mut self,
        asked: &Locking<'_>,
        by: &Caller,
        file: FileHandle,
    ) -> Result<Option<Box<RemainingWork>>> {
        let (range, client) = (&asked.range, by.party.client);
        let mode = mode_of(range);
        let state = self.open_for(by, &file, mode, asked.reclaims)?;
        let lock = Lock {
            file,
            state,
            mode,
            offset: range.offset,
            length: range.length,
            claim: if asked.reclaims { LockClaim::Reclaim } else { LockClaim::New },
            persist: false,
            auto_recovery: false,
            waits: asked.waits,
        };
        let owner = owner_of(range.process);
        let left = match self.reactor.files().lock_for(by, &lock, Some(&owner)) {
            Ok(Now::Done(Outcome { result: Ok(_), after })) => {
                self.after = self.after.max(after);
                None
            }
            Ok(Now::Done(Outcome { result: Err(refusal), after })) => {
                self.after = self.after.max(after);
                return Err(match refusal.fault {
                    Fault::Denied if asked.waits => self.wait(range, by, lock),
                    fault => status_of(fault),
                });
            }
            Ok(Now::Later(left)) => Some(left),
            Err(why) => return Err(self.not_done(why)),
        };
        // The client has repeated a request that was granted meanwhile.
        self.desk.side.blocked.remove(client, &lock, range.process);
        if let Some(host) = self.desk.side.hosts.get_mut(client) {
            host.monitor = asked.monitor;
            if let Some(locked) = host.files.get_mut(&file) {
                locked.owners.insert(range.process, range.owner.into());
            }
        }
        Ok(left)
    }

    /// Keeps a request that waits for its lock. Returns the status for the reply.
    fn wait(&mut self, range: &Range<'_>, by: &Caller, lock: Lock) -> LockStatus {
        let waiting = Waiting {
            by: by.clone(),
            lock,
            process: range.process,
            version: self.version,
            caller: range.caller.into(),
            file: range.file.into(),
            owner: range.owner.into(),
            after: RecordNumber(0),
            phase: Phase::Waits,
        };
        let Side { blocked, hosts, .. } = &mut *self.desk.side;
        let holder = |client| hosts.get(client).map(Host::holder);
        let own = holder(by.party.client);
        if blocked.add(waiting, |other| holder(other) == own) {
            return LockStatus::Blocked;
        }
        self.reactor.files().cancel_lock(by, &lock, &owner_of(range.process));
        LockStatus::DeniedNoLocks
    }

    fn cancel(&mut self, range: &Range<'_>) -> Result<()> {
        self.check_grace(false)?;
        let file = self.handle(range.file)?;
        let address = self.sender.peer.address;
        let client = self.desk.side.hosts.find(address, range.caller).ok_or(LockStatus::Denied)?;
        let lock = Lock {
            file,
            state: StateId::ANONYMOUS,
            mode: mode_of(range),
            offset: range.offset,
            length: range.length,
            claim: LockClaim::New,
            persist: false,
            auto_recovery: false,
            waits: true,
        };
        let waiting = self.desk.side.blocked.remove(client, &lock, range.process);
        let waiting = waiting.ok_or(LockStatus::Denied)?;
        granting::give_up(self.desk.side, self.reactor, &waiting);
        Ok(())
    }

    fn unlock(&mut self, range: &Range<'_>) -> Result<()> {
        check_range(range)?;
        let file = self.handle(range.file)?;
        let client = self.desk.side.hosts.find(self.sender.peer.address, range.caller);
        let Some(client) = client else { return self.check_grace(false) };
        let host = self.desk.side.hosts.get(client).ok_or(LockStatus::Failed)?;
        let Some(locked) = host.files.get(&file) else { return self.check_grace(false) };
        let Range { offset, length, .. } = *range;
        let span = LockSpan { file, state: locked.state, offset, length };
        let by = self.caller(client)?;
        let owner = owner_of(range.process);
        let released = self.reactor.files().unlock_for(by.party, &span, &owner);
        self.after = self.after.max(released.map_err(status_of)?);
        if (offset, length) == (0, u64::MAX)
            && let Some(host) = self.desk.side.hosts.get_mut(client)
            && let Some(locked) = host.files.get_mut(&file)
        {
            locked.owners.remove(&range.process);
            close_if_unused(self.desk.side, self.reactor, client, &file);
        }
        Ok(())
    }
}

fn mode_of(range: &Range<'_>) -> LockMode {
    if range.is_exclusive { LockMode::Write } else { LockMode::Read }
}

/// Checks that the end of a range does not exceed 64 bits.
fn check_range(range: &Range<'_>) -> Result<()> {
    let fits = range.length == u64::MAX || range.offset.checked_add(range.length).is_some();
    if fits { Ok(()) } else { Err(LockStatus::FBig) }
}

/// Returns the status for a fault.
pub(super) fn status_of(fault: Fault) -> LockStatus {
    match fault {
        Fault::Denied | Fault::LockBroken | Fault::ShareDenied | Fault::RangeLocked => {
            LockStatus::Denied
        }
        Fault::Deadlock => LockStatus::Deadlock,
        // NLM has no status for "try later", but clients ask again after this one.
        Fault::Grace | Fault::Busy | Fault::WouldWait | Fault::NoGrace | Fault::Expired => {
            LockStatus::DeniedGracePeriod
        }
        Fault::Stale | Fault::BadHandle | Fault::NotFound => LockStatus::StaleFh,
        Fault::ReadOnly => LockStatus::RoFs,
        Fault::Invalid | Fault::TooBig => LockStatus::FBig,
        Fault::Limit | Fault::Resource => LockStatus::DeniedNoLocks,
        _ => LockStatus::Failed,
    }
}
