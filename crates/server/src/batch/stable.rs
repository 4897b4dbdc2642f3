//! What batches have written is made stable before it is reported (`docs/spec/gaps.md`, Batches):
//! a completion has no verifier by which a client could tell that it was lost.
//!
//! Invariant: of one file at most one commit of batches is under way; strands that end meanwhile
//! share the next one.

use std::collections::HashMap;
use std::ops::Range;

use dafs_store::cache::{Cache, CachedFile, Listener};
use dafs_types::Stability;

use super::Batches;
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::{FlushOf, FlushTask, Tasks};

/// Files that batches have written to.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    files: HashMap<CachedFile, Sync>,
    /// Files with strands whose commit has not begun, and none that has.
    ready: Vec<CachedFile>,
}

#[derive(Debug)]
struct Sync {
    /// Strands whose bytes are being made stable.
    running: Vec<TaskId>,
    /// Strands that came later, and what they have written.
    waiting: Vec<TaskId>,
    range: Range<u64>,
}

impl Batches {
    /// Has the bytes of a strand made stable, with those of others.
    pub(super) fn make_stable(&mut self, id: TaskId, file: CachedFile, offset: u64, length: u32) {
        let syncs = &mut self.syncs;
        let sync = syncs.files.entry(file).or_insert_with(|| Sync {
            running: Vec::new(),
            waiting: Vec::new(),
            range: NOWHERE,
        });
        if sync.waiting.is_empty() && sync.running.is_empty() {
            syncs.ready.push(file);
        }
        sync.waiting.push(id);
        sync.range.start = sync.range.start.min(offset);
        sync.range.end = sync.range.end.max(offset + u64::from(length));
        self.wake();
    }

    /// Begins the commit of what has gathered of a file, if there is one.
    pub(super) fn begin_sync(
        &mut self,
        tasks: &Tasks,
        cache: &mut Cache,
    ) -> Option<(ReplyTo, FlushTask)> {
        while let Some(file) = self.syncs.ready.pop() {
            let Some(sync) = self.syncs.files.get_mut(&file) else { continue };
            sync.running = std::mem::take(&mut sync.waiting);
            let range = std::mem::replace(&mut sync.range, NOWHERE);
            // All of them are there until their file is stable.
            let first = sync.running.first().and_then(|id| tasks.get(*id));
            let Some(to) = first.map(|task| task.reply_to) else { continue };
            let length = range.end - range.start;
            // Each strand's session hears of what was lost before, when the commit is over.
            let (stability, listener) = (Stability::DataSync, Listener::Nobody);
            let ticket = cache.commit_begin(file, range.start, length, stability, listener);
            self.in_flight += 1;
            return Some((to, FlushTask { ticket, file, whose: FlushOf::Batches }));
        }
        None
    }

    /// A commit of what batches have written is over: for these strands.
    pub(super) fn end_sync(&mut self, file: CachedFile) -> Vec<TaskId> {
        self.in_flight -= 1;
        let syncs = &mut self.syncs;
        let Some(sync) = syncs.files.get_mut(&file) else { return Vec::new() };
        let ended = std::mem::take(&mut sync.running);
        if sync.waiting.is_empty() {
            syncs.files.remove(&file);
        } else {
            syncs.ready.push(file);
            self.wake();
        }
        ended
    }
}

/// No bytes yet: the least and the greatest are still to come.
const NOWHERE: Range<u64> = Range { start: u64::MAX, end: 0 };
