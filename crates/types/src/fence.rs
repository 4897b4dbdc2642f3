//! Words of fencing, and of what a delegation allows.

use crate::file::wire_enum;

wire_enum! {
    /// What a fence surrounds.
    FenceObject {
        /// One file.
        File = 1,
        /// Its whole file system.
        FileSystem = 2,
    }
}

wire_enum! {
    /// What a list of fence identities says.
    FenceAccess {
        /// These may enter.
        Allow = 1,
        /// These may not, from now on.
        Deny = 2,
    }
}

wire_enum! {
    /// How a list of fence identities is applied.
    FenceUpdate {
        /// In place of the present one.
        Overwrite = 1,
        /// Added to it.
        Append = 2,
        /// Taken out of it.
        Remove = 3,
    }
}

/// How far a write delegation lets the file grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceLimit {
    /// To this many bytes.
    Size(u64),
    /// By so many blocks.
    Blocks {
        /// How many blocks.
        count: u32,
        /// Bytes of each.
        block_bytes: u32,
    },
}
