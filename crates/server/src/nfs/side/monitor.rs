//! NSM: the notices of restarts.
//!
//! The status monitor of a client tells the server that the client has restarted, so that the
//! server releases the client's locks. After its own restart, the server tells the clients that had
//! locks.

use dafs_nfs_wire::nsm::{Arguments, MonitorResult, Procedure, Success};
use dafs_nfs_wire::rpc::{Call, Outcome};
use dafs_nfs_wire::xdr::{Reader, Xdr};

use super::opens::end_host;
use crate::nfs::calls::{self, Desk, Progress};
use crate::nfs::v4::Sender;
use crate::reactor::Reactor;

/// Executes a call of NSM.
pub(super) fn serve(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    sender: &Sender,
    call: &Call<'_>,
    reader: &mut Reader<'_>,
) -> Progress {
    let Some(procedure) = Procedure::from_number(call.procedure) else {
        calls::fail(desk.writer, call.xid, Outcome::ProcUnavail);
        return Progress::Done;
    };
    let Ok(arguments) = Arguments::decode(procedure, reader) else {
        calls::fail(desk.writer, call.xid, Outcome::GarbageArgs);
        return Progress::Done;
    };
    calls::begin(desk.writer, call.xid);
    let state = desk.side.monitor;
    match arguments {
        Arguments::Null(()) | Arguments::SimulateCrash(()) => {}
        // This server monitors the clients that lock files, and no other hosts.
        Arguments::Stat(_) | Arguments::Monitor(_) => {
            MonitorResult { success: Success::No, state }.encode(desk.writer);
        }
        Arguments::Unmonitor(_) | Arguments::UnmonitorAll(_) => state.encode(desk.writer),
        Arguments::Notify(notice) => {
            for client in desk.side.hosts.meant_by(sender.peer.address, notice.host.0) {
                // A late notice is about the restart after which the host has taken its locks.
                let host = desk.side.hosts.get(client);
                if host.is_some_and(|host| host.monitor != notice.state || notice.state == 0) {
                    end_host(desk, reactor, client);
                }
            }
        }
    }
    Progress::Done
}
