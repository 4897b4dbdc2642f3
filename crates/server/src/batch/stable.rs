//! Makes the bytes that batches have written stable before their requests are reported as complete
//! (`docs/spec/gaps.md`, Batches). This is needed because a completion carries no write verifier,
//! from which a client could detect the loss of unstable bytes.
//!
//! Invariant: each file has at most one commit for batches in progress. The bytes of strands that
//! end during a commit are covered by the next commit.

use std::collections::HashMap;
use std::ops::Range;

use dafs_store::cache::{Cache, CachedFile, Listener};
use dafs_types::Stability;

use super::Batches;
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::{FlushOf, FlushTask, Tasks};

/// The files in which batches have written bytes that are not on stable storage yet.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    files: HashMap<CachedFile, Sync>,
    /// Files for which a commit can start: transfers wait for it, and no commit is in progress.
    ready: Vec<CachedFile>,
}

#[derive(Debug)]
struct Sync {
    /// The strands (transfers of batches) whose bytes the current commit covers.
    running: Vec<TaskId>,
    /// The strands (transfers of batches) that wait for the next commit.
    waiting: Vec<TaskId>,
    /// The range that covers the bytes of the transfers in `waiting`.
    range: Range<u64>,
}

impl Batches {
    /// Adds the bytes that a transfer of a batch has written to those that the next commit of the
    /// file covers.
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

    /// Starts the next commit of a file, if transfers of batches wait for it.
    pub(super) fn begin_sync(
        &mut self,
        tasks: &Tasks,
        cache: &mut Cache,
    ) -> Option<(ReplyTo, FlushTask)> {
        while let Some(file) = self.syncs.ready.pop() {
            let Some(sync) = self.syncs.files.get_mut(&file) else { continue };
            sync.running = std::mem::take(&mut sync.waiting);
            let range = std::mem::replace(&mut sync.range, NOWHERE);
            // All strands of the commit stay parked until it ends.
            let first = sync.running.first().and_then(|id| tasks.get(*id));
            let Some(to) = first.map(|task| task.reply_to) else { continue };
            let length = range.end - range.start;
            // When the commit is done, earlier losses are reported separately to each strand's
            // session.
            let (stability, listener) = (Stability::DataSync, Listener::Nobody);
            let ticket = cache.commit_begin(file, range.start, length, stability, listener);
            self.in_flight += 1;
            return Some((to, FlushTask { ticket, file, whose: FlushOf::Batches }));
        }
        None
    }

    /// Ends a commit. Returns the ids of the transfers whose bytes it covered.
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

/// The empty range, as the start value when ranges are merged by minimum and maximum.
const NOWHERE: Range<u64> = Range { start: u64::MAX, end: 0 };
