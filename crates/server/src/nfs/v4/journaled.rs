//! What a compound of a persistent session knows about its records in the journal.
//!
//! Invariant: only `persistent.rs` beside this file reads and changes the fields.

use dafs_journal::RecordNumber;
use dafs_ops::OwnedDone;

use crate::persistent::PartDone;

/// The journal's part in a request of a persistent session.
#[derive(Debug)]
pub(in crate::nfs) struct Journaled {
    /// The checksum of the request.
    pub(super) checksum: u64,
    /// The record number of the intent that has no outcome yet; 0 if there is none.
    pub(super) intent: RecordNumber,
    /// The index of the last operation with an intent.
    pub(super) index: u32,
    /// True while the operation with the intent has not ended.
    pub(super) is_pending: bool,
    /// True if the operation with the intent has succeeded.
    pub(super) has_changed: bool,
    /// True if the journal has the state of the request, but not its reply.
    pub(super) is_open: bool,
    /// True if the journal has, or will have, the state or the reply of the request.
    pub(super) is_noted: bool,
    /// The part of the request that was executed before a restart, and the result of the next
    /// operation if it was executed, too.
    pub(super) before: Option<Box<(PartDone, Option<OwnedDone>)>>,
}

impl Journaled {
    pub(super) fn new(checksum: u64) -> Self {
        Self {
            checksum,
            intent: RecordNumber(0),
            index: 0,
            is_pending: false,
            has_changed: false,
            is_open: false,
            is_noted: false,
            before: None,
        }
    }

    /// Returns true if the journal has the state or the reply of the request.
    pub(super) fn is_noted(&self) -> bool {
        self.is_noted
    }
}
