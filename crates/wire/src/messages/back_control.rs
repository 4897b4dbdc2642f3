//! What a server asks of a client (draft 6.6). Invariant: these travel on the
//! back-control channel only, server to client; the procedure table says so.

use dafs_types::{FileHandle, StateId};

use crate::field::{Flag32, Handle, Long, Opaque64};
use crate::section::section;

section! {
    /// Arguments of BC_RECALL (draft 6.6.4).
    Recall: 80 {
        /// The delegated file.
        file: FileHandle => Handle,
        /// The delegation.
        state: StateId => Opaque64,
        /// Whether the file is about to be cut to nothing, so that changed data need
        /// not be written back.
        truncate: bool => Flag32,
    }
}

section! {
    /// Arguments of BC_LOCK_READY, which the draft does not have (`docs/spec/gaps.md`).
    LockReady: 88 {
        /// The file.
        file: FileHandle => Handle,
        /// The open that a lock was asked for under.
        state: StateId => Opaque64,
        /// First byte of the lock.
        offset: u64 => Long,
        /// Its bytes; all ones to the end of the file.
        length: u64 => Long,
    }
}
