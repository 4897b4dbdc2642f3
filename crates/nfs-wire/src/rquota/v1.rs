//! Version 1, which has quotas of users.

use super::{Path, QuotaResult, Usage};
use crate::table::program;
use crate::xdr::xdr;

xdr! {
    /// The arguments of GETQUOTA and GETACTIVEQUOTA.
    #[derive(Copy)]
    struct GetQuotaArgs<'b> {
        /// The path of a file or directory in the file system.
        path: Path<'b>,
        /// The user id whose quota is wanted.
        uid: u32,
    }

    /// The arguments of SETQUOTA and SETACTIVEQUOTA.
    #[derive(Copy)]
    struct SetQuotaArgs<'b> {
        /// The command, with the number that quotactl(2) uses.
        command: u32,
        /// The path of a file or directory in the file system.
        path: Path<'b>,
        /// The user id whose limits are set.
        uid: u32,
        /// The limits to set.
        limits: Usage,
    }
}

program! {
    /// The table of RQUOTA version 1.
    RQUOTA1 = "RQUOTA version 1", 100011 version 1;
    Procedure, Arguments<'b>, Results;
    Null = 0 "NULL" (()) -> (()) Reads;
    GetQuota = 1 "GETQUOTA" (GetQuotaArgs<'b>) -> (QuotaResult) Reads;
    GetActiveQuota = 2 "GETACTIVEQUOTA" (GetQuotaArgs<'b>) -> (QuotaResult) Reads;
    SetQuota = 3 "SETQUOTA" (SetQuotaArgs<'b>) -> (QuotaResult) Repeats;
    SetActiveQuota = 4 "SETACTIVEQUOTA" (SetQuotaArgs<'b>) -> (QuotaResult) Repeats;
}
