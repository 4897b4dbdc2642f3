//! Commits of what batches have written: gathered, begun, ended.

use dafs_store::StoreError;
use dafs_store::cache::{CachedFile, Listener};
use dafs_types::Stability;

use super::{NOWHERE, Sync};
use crate::reactor::Reactor;
use crate::reply_to::TaskId;
use crate::task::{FlushOf, FlushTask, Task, Work};

impl Reactor {
    /// Has the octets of a strand made stable, with those of others.
    pub(in crate::batch) fn make_stable(
        &mut self,
        id: TaskId,
        file: CachedFile,
        offset: u64,
        length: u32,
    ) {
        let syncs = &mut self.batches.syncs;
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
        self.batches.wake();
    }

    /// Begins the commits of what has gathered.
    pub(in crate::batch) fn begin_syncs(&mut self) {
        while let Some(file) = self.batches.syncs.ready.pop() {
            let Some(sync) = self.batches.syncs.files.get_mut(&file) else { continue };
            sync.running = std::mem::take(&mut sync.waiting);
            let range = std::mem::replace(&mut sync.range, NOWHERE);
            // All of them are there until their file is stable.
            let first = sync.running.first().and_then(|id| self.tasks.get(*id));
            let Some(answer) = first.map(|task| task.reply_to) else { continue };
            let length = range.end - range.start;
            // Each strand's session hears of what was lost before ([`Reactor::end_sync`]).
            let (stability, listener) = (Stability::DataSync, Listener::Nobody);
            let ticket = self.cache.commit_begin(file, range.start, length, stability, listener);
            self.batches.in_flight += 1;
            let flush = FlushTask { ticket, file, whose: FlushOf::Batches };
            self.start(Task::new(answer, Work::Flush(flush)));
        }
    }

    /// A commit of what batches have written is over.
    pub(crate) fn end_sync(&mut self, file: CachedFile, result: Result<(), StoreError>) {
        self.batches.in_flight -= 1;
        let syncs = &mut self.batches.syncs;
        let Some(sync) = syncs.files.get_mut(&file) else { return };
        let ended = std::mem::take(&mut sync.running);
        if sync.waiting.is_empty() {
            syncs.files.remove(&file);
        } else {
            syncs.ready.push(file);
            self.batches.wake();
        }
        for id in ended {
            let Some(answer) = self.tasks.get(id).map(|task| task.reply_to) else { continue };
            let by = self.party_of(answer).ok();
            let lost = self.files().take_loss(by, file);
            let result = result.and(lost.map_or(Ok(()), Err));
            let task = self.tasks.get_mut(id);
            if let Some(Work::Strand(strand)) = task.map(|task| &mut task.work) {
                strand.note_stable(result);
                self.resume(id, None);
            }
        }
    }
}
