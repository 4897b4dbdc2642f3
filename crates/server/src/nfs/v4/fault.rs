//! Statuses of operations that fail.

use dafs_files::outcome::NotDone;
use dafs_nfs_wire::nfs4::Status;
use dafs_ops::Fault;
use dafs_types::FileHandle;

use super::convert::status_of;
use crate::reactor::Reactor;

/// The result of an operation, or the status with which it fails.
pub(super) type Result<T> = std::result::Result<T, Status>;

/// Returns the status for an operation that was not executed. An operation that would have to wait
/// for the recall of a delegation is refused, so that the client sends it again; meanwhile the
/// recall continues.
pub(super) fn not_done(reactor: &mut Reactor<'_>, why: NotDone) -> Status {
    match why {
        // The status of DAFS for a fault may say less than that of NFS.
        NotDone::Failed(fault) => status_of(fault),
        NotDone::Partly(refusal) => status_of(refusal.fault),
        why => status_of(Fault::from(reactor.without_waiting(why))),
    }
}

/// Returns the status for a failed operation. If the operation failed because the server must first
/// search for the object of the handle, this starts the search, so that the object is known when
/// the client sends the operation again.
pub(super) fn failed(
    reactor: &mut Reactor<'_>,
    handle: &FileHandle,
    fault: impl Into<Fault>,
) -> Status {
    let fault = fault.into();
    if fault == Fault::Busy && reactor.shared.whole_store.must_search(handle) {
        reactor.search_later(handle);
    }
    status_of(fault)
}
