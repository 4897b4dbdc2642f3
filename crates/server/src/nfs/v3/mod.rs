//! NFS version 3 (RFC 1813): 22 procedures without state.
//!
//! Invariant: a call names its file by a handle, and is executed with the permissions of its user.
//! The server checks each call against the opens, locks, delegations and fences of all other
//! clients.

mod acl;
mod attributes;
mod convert;
mod data;
mod listing;
mod names;
mod repeats;
pub(super) mod suspended;

use dafs_files::caller::Caller;
use dafs_files::left::RemainingWork;
use dafs_files::outcome::NotDone;
use dafs_nfs_wire::nfs3::{Arguments, Handle, Procedure, Status};
use dafs_nfs_wire::rpc::Outcome;
use dafs_nfs_wire::xdr::{Reader, Xdr};
use dafs_ops::Fault;
use dafs_types::FileHandle;

use super::calls::{self, CallId, Desk, Progress};
use crate::guests::{GuestRead, GuestResult};
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::requests::handles;
use crate::task::{Task, Work};

use convert::status_of;
use suspended::{Before, Suspended};

pub(super) use acl::serve as serve_acl;
pub(super) use repeats::{answer_again, origin_of};

/// A call of one procedure, and everything that is needed to execute it.
struct Service<'s, 'f, 'r> {
    desk: &'s mut Desk<'f>,
    reactor: &'s mut Reactor<'r>,
    id: CallId,
    by: Caller,
}

/// The result of a procedure, or the status with which it fails.
type Result<T> = std::result::Result<T, Status>;

/// Executes a call of NFS version 3.
pub(super) fn serve(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    id: CallId,
    procedure: u32,
    reader: &mut Reader<'_>,
) -> Progress {
    let Some(by) = reactor.shared.channels.guests().get(id.user).map(|guest| guest.caller()) else {
        calls::fail(desk.writer, id.xid, Outcome::SystemErr);
        return Progress::Done;
    };
    execute(desk, reactor, (id, by), procedure, reader)
}

fn execute(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    (id, by): (CallId, Caller),
    procedure: u32,
    reader: &mut Reader<'_>,
) -> Progress {
    let Some(procedure) = Procedure::from_number(procedure) else {
        calls::fail(desk.writer, id.xid, Outcome::ProcUnavail);
        return Progress::Done;
    };
    let bytes = reader.rest();
    let Ok(arguments) = Arguments::decode(procedure, reader) else {
        calls::fail(desk.writer, id.xid, Outcome::GarbageArgs);
        return Progress::Done;
    };
    calls::begin(desk.writer, id.xid);
    let mut service = Service { desk, reactor, id, by };
    if service.must_wait(procedure, &arguments, bytes) {
        return Progress::Later;
    }
    match arguments {
        Arguments::Null(()) => {}
        Arguments::GetAttr(asked) => return service.get_attributes(&asked),
        Arguments::SetAttr(asked) => return service.set_attributes(&asked),
        Arguments::Lookup(asked) => service.look_up(&asked),
        Arguments::Access(asked) => service.access(&asked),
        Arguments::ReadLink(asked) => service.read_link(&asked),
        Arguments::Read(asked) => return service.read(&asked),
        Arguments::Write(asked) => return service.write(&asked),
        Arguments::Create(asked) => return service.create(&asked),
        Arguments::MkDir(asked) => service.make_directory(&asked),
        Arguments::SymLink(asked) => service.make_link(&asked),
        Arguments::MkNod(asked) => service.make_node(&asked),
        Arguments::Remove(asked) => service.remove(&asked, false),
        Arguments::RmDir(asked) => service.remove(&asked, true),
        Arguments::Rename(asked) => service.rename(&asked),
        Arguments::Link(asked) => service.link(&asked),
        Arguments::ReadDir(asked) => service.list(&asked),
        Arguments::ReadDirPlus(asked) => service.list_plus(&asked),
        Arguments::FsStat(asked) => service.file_system_state(&asked),
        Arguments::FsInfo(asked) => service.file_system_limits(&asked),
        Arguments::PathConf(asked) => service.path_limits(&asked),
        Arguments::Commit(asked) => return service.commit(&asked),
    }
    Progress::Done
}

/// Finishes a call whose operation has ended. For a READ, `read` is set to the bytes that were
/// read. The call is finished even if its user was removed meanwhile: the operation has ended, and
/// the user was admitted when the call arrived.
pub(super) fn resume(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    (id, by): (CallId, Caller),
    (suspended, result): (Suspended, GuestResult),
    read: &mut Option<GuestRead>,
) -> Progress {
    if let (Suspended::Call(procedure, bytes), GuestResult::Free | GuestResult::Intended(_)) =
        (&suspended, &result)
    {
        return execute(desk, reactor, (id, by), *procedure, &mut Reader::new(bytes));
    }
    calls::begin(desk.writer, id.xid);
    let mut service = Service { desk, reactor, id, by };
    match (suspended, result) {
        (Suspended::GetAttributes(file), GuestResult::Told(told)) => {
            service.finish_get_attributes(&file, told);
        }
        (Suspended::Read(file), GuestResult::Read(found)) => {
            service.finish_read(&file, &found);
            *read = Some(found);
        }
        (Suspended::Read(file), GuestResult::Outcome(outcome)) => {
            service.fail_read(&file, convert::failure_of(&outcome));
        }
        (Suspended::Write(file, before), GuestResult::Outcome(outcome)) => {
            service.finish_write(&file, before, &outcome);
        }
        (Suspended::Commit(file, before), GuestResult::Outcome(outcome)) => {
            service.finish_commit(&file, before, &outcome);
        }
        (Suspended::SetAttributes(file, before), GuestResult::Outcome(outcome)) => {
            service.finish_set_attributes(&file, before, &outcome);
        }
        (Suspended::SetAcl(file), GuestResult::Outcome(outcome)) => {
            service.finish_set_acl(&file, &outcome);
        }
        (Suspended::Create(file, directory, before), GuestResult::Outcome(outcome)) => {
            let created = match outcome.result {
                Ok(_) => Ok(file),
                Err(_) => Err(convert::failure_of(&outcome)),
            };
            service.finish_create(&directory, before, created);
        }
        (Suspended::Call(..) | Suspended::GetAttributes(_), GuestResult::Outcome(_))
        | (
            _,
            GuestResult::Durable
            | GuestResult::Free
            | GuestResult::Intended(_)
            | GuestResult::Told(_),
        ) => {
            calls::fail(service.desk.writer, id.xid, Outcome::SystemErr);
        }
        // Only a READ can have bytes as its result.
        (_, GuestResult::Read(found)) => {
            service.reactor.on_loan_done(found.cookie);
            calls::fail(service.desk.writer, id.xid, Outcome::SystemErr);
        }
    }
    Progress::Done
}

impl Service<'_, '_, '_> {
    /// Converts the handle in a call to the form that the store uses now.
    fn handle(&self, given: Handle<'_>) -> Result<FileHandle> {
        let mut handle = FileHandle(given.0.try_into().map_err(|_| Status::BadHandle)?);
        handles::renew(&*self.reactor.shared.whole_store, &mut handle);
        Ok(handle)
    }

    /// Returns the handle of an object. Fails if a fence blocks the caller's access to the object.
    fn object(&mut self, given: Handle<'_>) -> Result<FileHandle> {
        let handle = self.handle(given)?;
        let by = self.by.clone();
        self.reactor.files().check_fence(&by, &handle).map_err(status_of)?;
        Ok(handle)
    }

    /// Returns the status for an operation that was not executed. An operation that would have to
    /// wait for the recall of a delegation is refused, so that the client sends it again; meanwhile
    /// the recall continues.
    fn not_done(&mut self, why: NotDone) -> Status {
        convert::status_of_protocol(self.reactor.without_waiting(why))
    }

    /// Returns the status for a failed operation. If the operation failed because the server must
    /// first search for the object of the handle, this starts the search, so that the object is
    /// known when the client sends the call again.
    fn failed(&mut self, handle: &FileHandle, fault: impl Into<Fault>) -> Status {
        let fault = fault.into();
        if fault == Fault::Busy && self.reactor.shared.whole_store.must_search(handle) {
            self.reactor.search_later(handle);
        }
        status_of(fault)
    }

    /// Makes the call wait for an operation. Returns the destination for the operation's result.
    fn wait_for(&mut self, what: Suspended) -> ReplyTo {
        let what = calls::Suspended::V3(self.by.clone(), what);
        self.desk.calls.start(self.id, what)
    }

    /// Makes the call wait for the rest of an operation.
    fn follow(&mut self, left: RemainingWork, what: Suspended) -> Progress {
        let to = self.wait_for(what);
        self.reactor.start(Task::new(to, Work::from(left)));
        Progress::Later
    }

    /// Appends the results of the procedure to the reply.
    fn answer<'b>(&mut self, results: &impl Xdr<'b>) {
        results.encode(self.desk.writer);
    }
}
