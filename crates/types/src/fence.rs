//! Types for fencing lists, and the space limit of a write delegation.

use crate::file::wire_enum;

wire_enum! {
    /// Says whether a fencing list protects a file or a file system.
    FenceObject {
        /// The list protects one file only.
        File = 1,
        /// The list protects the whole file system that contains the file.
        FileSystem = 2,
    }
}

wire_enum! {
    /// Says whether the fence identities in a request gain or lose access.
    FenceAccess {
        /// The listed identities have access.
        Allow = 1,
        /// The listed identities lose access.
        Deny = 2,
    }
}

wire_enum! {
    /// Says how the fence identities in a request change the existing list.
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
    /// The file may grow up to this total size in bytes.
    Size(u64),
    /// The file may grow by this many blocks.
    Blocks {
        /// The number of blocks.
        count: u32,
        /// The size of a block in bytes.
        block_bytes: u32,
    },
}
