//! RQUOTA versions 1 and 2: disk quotas, in addition to NFS, as Linux and the BSDs use them.
//!
//! In version 2, a client can also ask for the quotas of groups; version 1 has only those of users.

pub mod v1;
pub mod v2;

use crate::xdr::{Opaque, xdr};

/// The maximum length of the path of a file system, in bytes.
pub const PATH_BYTES_MAX: usize = 1024;

/// The path of a file or directory in the file system.
pub type Path<'b> = Opaque<'b, PATH_BYTES_MAX>;

xdr! {
    /// The status of a procedure.
    enum QuotaStatus {
        /// The results contain the quota of the user or group.
        Ok = 1,
        /// The user or group has no quota.
        NoQuota = 2,
        /// The caller lacks the permission to ask for this quota.
        Perm = 3,
    }

    /// The limits and the usage of a user or group.
    #[derive(Copy)]
    struct Quota {
        /// The size of a block in bytes.
        block_bytes: u32,
        /// True if the file system enforces quotas.
        is_active: bool,
        /// The limits and the usage, in blocks and files.
        usage: Usage,
    }

    /// The limits and the usage in blocks and files.
    #[derive(Copy)]
    struct Usage {
        /// The maximum number of blocks (hard limit).
        block_hard_limit: u32,
        /// The number of blocks that may be exceeded only for a limited time (soft limit).
        block_soft_limit: u32,
        /// The number of blocks in use.
        block_count: u32,
        /// The maximum number of files (hard limit).
        file_hard_limit: u32,
        /// The number of files that may be exceeded only for a limited time (soft limit).
        file_soft_limit: u32,
        /// The number of files in use.
        file_count: u32,
        /// The number of seconds until the soft limit of blocks is enforced.
        block_seconds_left: u32,
        /// The number of seconds until the soft limit of files is enforced.
        file_seconds_left: u32,
    }

    /// The results of all procedures except NULL.
    #[derive(Copy)]
    union QuotaResult on QuotaStatus {
        /// The quota of the user or group.
        Ok => Ok(Quota),
        /// There is no quota, or the caller may not ask.
        _ => Fail,
    }
}
