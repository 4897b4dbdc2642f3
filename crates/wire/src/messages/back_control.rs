//! Requests from a server to a client (draft 6.6).
//!
//! Invariant: these requests are sent only on the back-control channel, from server to client, as
//! the procedure table requires.

use dafs_types::{FileHandle, StateId};

use crate::field::{Flag32, Handle, Long, Opaque64};
use crate::section::section;

section! {
    /// The arguments of BC_RECALL (draft 6.6.4).
    Recall: 80 {
        /// The handle of the delegated file.
        file: FileHandle => Handle,
        /// The state id of the delegation.
        state: StateId => Opaque64,
        /// True if the file is about to be truncated to zero bytes, so that the client need not
        /// write back dirty data.
        truncate: bool => Flag32,
    }
}

section! {
    /// The arguments of BC_LOCK_READY, an extension (`docs/spec/gaps.md`).
    LockReady: 88 {
        /// The handle of the file to be locked.
        file: FileHandle => Handle,
        /// The open under which the lock was requested.
        state: StateId => Opaque64,
        /// The offset of the lock's first byte.
        offset: u64 => Long,
        /// The lock's length in bytes; `u64::MAX` means up to the end of the file.
        length: u64 => Long,
    }
}
