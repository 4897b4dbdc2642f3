//! RQUOTA: the quotas of users and groups.
//!
//! The file systems below the store enforce their quotas. The store shows a user only the bytes of
//! the user's own quota, but a reply contains the limits of files and the grace times, too. So the
//! answer is always that there is no quota.

use dafs_nfs_wire::rpc::{Call, Outcome};
use dafs_nfs_wire::rquota::{QuotaResult, QuotaStatus, v1, v2};
use dafs_nfs_wire::xdr::{Reader, Xdr};

use crate::nfs::calls::{self, Desk, Progress};

/// Executes a call of RQUOTA.
pub(super) fn serve(desk: &mut Desk<'_>, call: &Call<'_>, reader: &mut Reader<'_>) -> Progress {
    let status = match call.version {
        v if v == v1::RQUOTA1.version => v1::Procedure::from_number(call.procedure).map(|it| {
            use v1::Arguments;
            Arguments::decode(it, reader).map(|asked| match asked {
                Arguments::SetQuota(_) | Arguments::SetActiveQuota(_) => QuotaStatus::Perm,
                _ => QuotaStatus::NoQuota,
            })
        }),
        _ => v2::Procedure::from_number(call.procedure).map(|it| {
            use v2::Arguments;
            Arguments::decode(it, reader).map(|asked| match asked {
                Arguments::SetQuota(_) | Arguments::SetActiveQuota(_) => QuotaStatus::Perm,
                _ => QuotaStatus::NoQuota,
            })
        }),
    };
    match status {
        None => calls::fail(desk.writer, call.xid, Outcome::ProcUnavail),
        Some(Err(_)) => calls::fail(desk.writer, call.xid, Outcome::GarbageArgs),
        Some(Ok(status)) => {
            calls::begin(desk.writer, call.xid);
            QuotaResult::Fail(status).encode(desk.writer);
        }
    }
    Progress::Done
}
