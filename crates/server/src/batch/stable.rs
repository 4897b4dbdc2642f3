//! What batches have written is made stable before it is reported (`docs/spec/gaps.md`, Batches):
//! a completion has no verifier by which a client could tell that it was lost.
//!
//! Invariant: of one file at most one commit of batches is under way; strands that end meanwhile
//! share the next one.

mod syncing;

use std::collections::HashMap;
use std::ops::Range;

use dafs_store::cache::CachedFile;

use crate::reply_to::TaskId;

/// Files that batches have written to.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    files: HashMap<CachedFile, Sync>,
    /// Files with strands whose commit has not begun, and none that has.
    ready: Vec<CachedFile>,
}

#[derive(Debug)]
struct Sync {
    /// Strands whose octets are being made stable.
    running: Vec<TaskId>,
    /// Strands that came later, and what they have written.
    waiting: Vec<TaskId>,
    range: Range<u64>,
}

/// No octets yet: the least and the greatest are still to come.
const NOWHERE: Range<u64> = Range { start: u64::MAX, end: 0 };
