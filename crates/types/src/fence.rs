//! Types for fencing, and the space limit of a delegation.

use crate::file::wire_enum;

wire_enum! {
    /// The object that a fence protects.
    FenceObject {
        /// The fence protects one file only.
        File = 1,
        /// The fence protects the whole file system that contains the file.
        FileSystem = 2,
    }
}

wire_enum! {
    /// The meaning of the fence identities in a request.
    FenceAccess {
        /// The listed identities have access.
        Allow = 1,
        /// The listed identities lose access.
        Deny = 2,
    }
}

wire_enum! {
    /// The way in which the fence identities in a request change the existing list.
    FenceUpdate {
        /// The listed identities replace the existing list.
        Overwrite = 1,
        /// The listed identities are added to the existing list.
        Append = 2,
        /// The listed identities are removed from the existing list.
        Remove = 3,
    }
}

/// The limit up to which the file may grow under a write delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceLimit {
    /// The file may grow up to this size in bytes.
    Size(u64),
    /// The file may grow by this many blocks.
    Blocks {
        /// The number of blocks.
        count: u32,
        /// The size of a block in bytes.
        block_bytes: u32,
    },
}
