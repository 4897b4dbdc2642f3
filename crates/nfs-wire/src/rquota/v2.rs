//! Version 2, which has quotas of users and of groups.

use super::{Path, QuotaResult, Usage};
use crate::table::program;
use crate::xdr::xdr;

/// The kind of quota of a user.
pub const USER_QUOTA: u32 = 0;
/// The kind of quota of a group.
pub const GROUP_QUOTA: u32 = 1;

xdr! {
    /// The arguments of GETQUOTA and GETACTIVEQUOTA.
    #[derive(Copy)]
    struct GetQuotaArgs<'b> {
        /// The path of a file or directory in the file system.
        path: Path<'b>,
        /// The kind: [`USER_QUOTA`] or [`GROUP_QUOTA`].
        kind: u32,
        /// The user id or group id whose quota is wanted.
        id: u32,
    }

    /// The arguments of SETQUOTA and SETACTIVEQUOTA.
    #[derive(Copy)]
    struct SetQuotaArgs<'b> {
        /// The command, with the number that quotactl(2) uses.
        command: u32,
        /// The path of a file or directory in the file system.
        path: Path<'b>,
        /// The user id or group id whose limits are set.
        id: u32,
        /// The kind: [`USER_QUOTA`] or [`GROUP_QUOTA`].
        kind: u32,
        /// The limits to set.
        limits: Usage,
    }
}

program! {
    /// The table of RQUOTA version 2.
    RQUOTA2 = "RQUOTA version 2", 100011 version 2;
    Procedure, Arguments<'b>, Results;
    Null = 0 "NULL" (()) -> (()) Reads;
    GetQuota = 1 "GETQUOTA" (GetQuotaArgs<'b>) -> (QuotaResult) Reads;
    GetActiveQuota = 2 "GETACTIVEQUOTA" (GetQuotaArgs<'b>) -> (QuotaResult) Reads;
    SetQuota = 3 "SETQUOTA" (SetQuotaArgs<'b>) -> (QuotaResult) Repeats;
    SetActiveQuota = 4 "SETACTIVEQUOTA" (SetQuotaArgs<'b>) -> (QuotaResult) Repeats;
}
