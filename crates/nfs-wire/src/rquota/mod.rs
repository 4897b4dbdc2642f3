//! RQUOTA versions 1 and 2: disk quotas beside NFS, as Linux and the BSDs use them.
//!
//! Version 2 can ask for quotas of groups; version 1 has only those of users.

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
        /// The quota of the user or group follows.
        Ok = 1,
        /// There is no quota.
        NoQuota = 2,
        /// The caller may not ask for this.
        Perm = 3,
    }

    /// The limits and the usage of a user or group.
    #[derive(Copy)]
    struct Quota {
        /// The size of a block in bytes.
        block_bytes: u32,
        /// Whether the quotas of the file system are enforced.
        is_active: bool,
        /// The limits and the usage.
        usage: Usage,
    }

    /// The limits and the usage in blocks and files.
    #[derive(Copy)]
    struct Usage {
        /// The number of blocks that cannot be exceeded.
        block_hard_limit: u32,
        /// The number of blocks that can be exceeded for some time.
        block_soft_limit: u32,
        /// The number of blocks in use.
        block_count: u32,
        /// The number of files that cannot be exceeded.
        file_hard_limit: u32,
        /// The number of files that can be exceeded for some time.
        file_soft_limit: u32,
        /// The number of files in use.
        file_count: u32,
        /// The seconds until the soft limit of blocks is enforced.
        block_seconds_left: u32,
        /// The seconds until the soft limit of files is enforced.
        file_seconds_left: u32,
    }

    /// The results of all procedures but NULL.
    #[derive(Copy)]
    union QuotaResult on QuotaStatus {
        /// The quota of the user or group.
        Ok => Ok(Quota),
        /// There is no quota, or the caller may not ask.
        _ => Fail,
    }
}
