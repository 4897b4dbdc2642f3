//! The programs beside NFS version 3: NLM (locks), NSM (notices of restarts) and RQUOTA.
//!
//! Each program is optional: NFS works without it. The locks are in the filer's table, so they
//! exclude those of DAFS clients and of clients of version 4.

mod blocked;
mod callbacks;
mod granting;
mod hosts;
mod locks;
mod messages;
mod monitor;
mod opens;
pub(super) mod pending;
mod quota;
mod shares;
pub(super) mod state;

use dafs_nfs_wire::nlm::v3::NLM3;
use dafs_nfs_wire::nlm::v4::NLM4;
use dafs_nfs_wire::nsm::NSM1;
use dafs_nfs_wire::rpc::Call;
use dafs_nfs_wire::rquota::v1::RQUOTA1;
use dafs_nfs_wire::rquota::v2::RQUOTA2;
use dafs_nfs_wire::xdr::Reader;

use super::calls::{Desk, Progress};
use super::v4::Sender;
use crate::reactor::Reactor;

pub(super) use self::granting::poll;
pub(super) use self::locks::resume;
pub(super) use self::state::Side;

/// Returns the lowest and the highest version of a program that this module serves.
pub(super) fn versions(program: u32) -> Option<(u32, u32)> {
    let of = |program: &&(u32, u32, u32)| program.0;
    let found = PROGRAMS.iter().find(|known| of(known) == program)?;
    Some((found.1, found.2))
}

/// Executes a call of one of the programs.
pub(super) fn serve(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    sender: &Sender,
    call: &Call<'_>,
    reader: &mut Reader<'_>,
) -> Progress {
    match call.program {
        program if program == NSM1.number => monitor::serve(desk, reactor, sender, call, reader),
        program if program == RQUOTA1.number => quota::serve(desk, call, reader),
        _ => locks::serve(desk, reactor, sender, call, reader),
    }
}

/// The programs, each with its lowest and its highest version.
pub(super) const PROGRAMS: [(u32, u32, u32); 3] = [
    // Version 1 has the same messages as version 3.
    (NLM4.number, 1, NLM4.version),
    (NSM1.number, NSM1.version, NSM1.version),
    (RQUOTA1.number, RQUOTA1.version, RQUOTA2.version),
];
const _: () = assert!(NLM3.number == NLM4.number && RQUOTA1.number == RQUOTA2.number);
