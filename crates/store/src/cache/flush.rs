//! Write-back, commits and changes of size, and their failures.
//!
//! Invariants:
//! - At most one flush or change of size of a file is in progress. Therefore, by comparing the
//!   file's versions before and after it, the cache can tell its own change from a change by
//!   another process.
//! - A block that is written again while it is being flushed stays dirty.

use dafs_types::{Moment, Stability};

use super::jobs::{
    BlockList, FlushDone, FlushJob, JOB_RANGE_COUNT_MAX, SizeDone, SizeJob, SyncDone, SyncJob,
};
use super::read::blocks;
use super::segment::{SEGMENT_BLOCKS, SEGMENT_BYTES, block_bits, for_runs};
use super::space::for_contiguous;
use super::{
    BLOCK_BYTES, Cache, CachedFile, CommitStep, CommitTicket, Listener, Progress, SizeStep,
};
use crate::error::StoreError;
use crate::file::FileVersion;

impl Cache {
    /// Starts a commit, which writes a range to stable storage. With `Unstable`, the commit only
    /// writes the range to the file system, as CLOSE needs. A `length` of 0 means up to the end of
    /// the file.
    #[must_use]
    pub fn commit_begin(
        &mut self,
        file: CachedFile,
        offset: u64,
        length: u64,
        stability: Stability,
        listener: Listener,
    ) -> CommitTicket {
        let end = if length == 0 { u64::MAX } else { offset.saturating_add(length) };
        let loss_count = match listener {
            Listener::Who(heard) => heard,
            Listener::Anybody | Listener::Nobody => self.files.get(file).loss_count,
        };
        CommitTicket {
            file,
            next: offset / SEGMENT_BYTES,
            end: end.div_ceil(SEGMENT_BYTES),
            stability,
            listener,
            loss_count,
            synced_after: None,
        }
    }

    /// Returns true if all data of the file is in the file system, so that a commit without a sync
    /// would have nothing to do. Earlier losses of data do not affect the result (see
    /// [`Cache::losses`]).
    pub fn is_written(&self, file: CachedFile) -> bool {
        let entry = self.files.get(file);
        !entry.is_flushing && !entry.is_sizing && entry.dirty.is_empty()
    }

    /// Returns the number of times that written data of a file was lost since the file got its
    /// entry in the cache. The caller records, for each client, the last number that it has
    /// reported to the client. If this number is greater, a loss must be reported.
    #[must_use]
    pub fn losses(&self, file: CachedFile) -> u32 {
        self.files.get(file).loss_count
    }

    /// Returns the number of losses that a client that has just opened the file need not be told
    /// about. These are all losses, except the most recent loss if it was not reported to any
    /// client.
    #[must_use]
    pub fn losses_before_open(&self, file: CachedFile) -> u32 {
        let entry = self.files.get(file);
        let is_alone_with_it = entry.open_count == 1 && entry.error.is_some();
        entry.loss_count.wrapping_sub(u32::from(is_alone_with_it))
    }

    /// Returns the error of a loss that must be reported to this listener now, and counts the loss
    /// as reported. Returns `None` if there is no such loss.
    pub fn take_loss(&mut self, file: CachedFile, listener: Listener) -> Option<StoreError> {
        let entry = self.files.get_mut(file);
        let is_new = match listener {
            Listener::Who(heard) => heard != entry.loss_count,
            Listener::Anybody => entry.error.is_some(),
            Listener::Nobody => false,
        };
        if !is_new {
            return None;
        }
        entry.error = None;
        Some(entry.last_error)
    }

    /// Returns the next step of a commit.
    pub fn commit_step(&mut self, ticket: &mut CommitTicket) -> CommitStep {
        let file = ticket.file;
        let entry = self.files.get(file);
        if entry.is_flushing || entry.is_sizing {
            return CommitStep::Wait;
        }
        // The commit passes over the range once. Data that is written meanwhile, at an offset
        // before the cursor, had no reply yet when the commit arrived, so the commit need not
        // include it.
        if let Some((job, next)) = self.flush_job(file, ticket.next, ticket.end) {
            ticket.next = next;
            return CommitStep::Flush(job);
        }
        ticket.next = ticket.end;
        if let Some(error) = self.take_loss(file, ticket.listener) {
            return CommitStep::Done(Err(error));
        }
        let entry = self.files.get_mut(file);
        if entry.loss_count != ticket.loss_count {
            return CommitStep::Done(Err(entry.last_error));
        }
        // Something else may have woken the commit while its own sync is still in progress.
        if ticket.synced_after == Some(entry.sync_count) {
            return CommitStep::Wait;
        }
        let wants_sync = ticket.stability != Stability::Unstable && ticket.synced_after.is_none();
        if !wants_sync || !entry.is_unsynced && !entry.is_syncing {
            return CommitStep::Done(Ok(()));
        }
        if entry.is_syncing {
            // The running sync may have started before the data of this commit was written.
            return CommitStep::Wait;
        }
        let Some(handle) = entry.file.clone() else { return CommitStep::Done(Ok(())) };
        entry.is_syncing = true;
        entry.is_unsynced = false;
        ticket.synced_after = Some(entry.sync_count);
        let data_only = ticket.stability == Stability::DataSync;
        CommitStep::Sync(SyncJob { owner: file, file: handle, data_only })
    }

    /// Returns true if a flush has become due since [`Cache::poll_flush`] last returned `None`. A
    /// flush that is due only because the data is old does not count.
    #[inline]
    #[must_use]
    pub fn wants_flush(&self) -> bool {
        self.wants_flush
    }

    /// Returns true if [`Cache::wants_flush`] returns true or [`Cache::poll_clear`] has a job.
    #[inline]
    #[must_use]
    pub fn wants_jobs(&self) -> bool {
        self.wants_flush | self.wants_clear
    }

    /// Returns the next flush that is due. A flush is due if the data is old, if too much data is
    /// dirty, or if a file has grown so much that a flush should run while more data arrives. Call
    /// this until it returns `None`.
    pub fn poll_flush(&mut self) -> Option<FlushJob> {
        if self.dirty_blocks <= self.dirty_blocks_max / 2 && !self.is_stopping {
            self.has_pressure = self.has_pressure && self.buddy_is_tight();
        }
        let job = self.poll_old().or_else(|| self.poll_ripe());
        self.wants_flush = job.is_some();
        job
    }

    fn poll_old(&mut self) -> Option<FlushJob> {
        let mut at = 0;
        while let Some(file) = self.dirty_files.get(at).copied() {
            let entry = self.files.get(file);
            let is_old = self.now.since(entry.dirty_since) >= self.config.write_back_age;
            if !is_old && !self.has_pressure && !self.is_stopping {
                break; // The queue is in order of age.
            }
            if entry.dirty.is_empty() {
                self.files.get_mut(file).is_queued = false;
                self.dirty_files.remove(at);
                self.drop_entry_if_unused(file.index);
                continue;
            }
            if let Some(job) = self.whole_flush_job(file) {
                return Some(job);
            }
            // A file that has nothing left to flush was moved to the end of the queue.
            if !self.files.get(file).dirty.is_empty() {
                at += 1;
            }
        }
        None
    }

    /// Adds `count` to the number of a file's segments that are entirely dirty and lie after the
    /// file's end on disk.
    pub(super) fn note_grown(&mut self, file: CachedFile, count: usize) {
        let entry = self.files.get_mut(file);
        entry.ripe_count += count;
        if entry.ripe_count < RIPE_COUNT {
            return;
        }
        // If a flush is in progress, the check is repeated at its end.
        self.wants_flush |= !entry.is_flushing;
        if !entry.is_ripe {
            entry.is_ripe = true;
            self.ripe_files.push_back(file);
        }
    }

    fn poll_ripe(&mut self) -> Option<FlushJob> {
        for _ in 0..self.ripe_files.len() {
            let file = self.ripe_files.pop_front()?;
            if !self.files.is_current(file) {
                continue;
            }
            if self.files.get(file).ripe_count < RIPE_COUNT {
                self.files.get_mut(file).is_ripe = false;
                continue;
            }
            self.ripe_files.push_back(file);
            if let Some(job) = self.whole_flush_job(file) {
                return Some(job);
            }
        }
        None
    }

    /// Returns the first of the jobs that flush all dirty data of a file. Returns `None` if a flush
    /// is in progress.
    fn whole_flush_job(&mut self, file: CachedFile) -> Option<FlushJob> {
        let entry = self.files.get(file);
        if entry.is_flushing || entry.is_sizing {
            return None;
        }
        self.flush_job(file, 0, u64::MAX).map(|(job, _)| job)
    }

    fn buddy_is_tight(&self) -> bool {
        self.buddy.used_blocks() * 16 >= self.block_count * 15 && self.dirty_blocks > 0
    }

    /// Collects dirty blocks of the segments `from..to` in a job. Returns the job, and the number
    /// of the segment at which the next job continues.
    fn flush_job(&mut self, owner: CachedFile, from: u64, to: u64) -> Option<(FlushJob, u64)> {
        if from >= to {
            return None;
        }
        let size = self.files.get(owner).size;
        let handle = self.files.get(owner).file.clone()?;
        let mut ranges = BlockList::new();
        let mut next = from;
        while !ranges.is_full() {
            let Some(number) = self.files.get(owner).dirty.first_in(next..to) else {
                next = to;
                break;
            };
            next = number;
            if !self.take_dirty(owner, number, size, &mut ranges) {
                break;
            }
            next = number + 1;
        }
        if self.files.get(owner).dirty.is_empty() {
            self.restart_age(owner);
        }
        if ranges.is_empty() {
            return None;
        }
        self.files.get_mut(owner).is_flushing = true;
        let arena = self.arena.clone();
        let asks_before = !self.holds_only(owner, &ranges);
        Some((FlushJob { owner, file: handle, arena, ranges, asks_before }, next))
    }

    /// Adds a segment's dirty blocks to the job's list of ranges. Returns false if the list is
    /// full.
    fn take_dirty(
        &mut self,
        owner: CachedFile,
        number: u64,
        size: u64,
        ranges: &mut BlockList,
    ) -> bool {
        let Some(slot) = self.segments.find(owner.index, number) else {
            self.files.get_mut(owner).dirty.remove(number);
            return true;
        };
        let segment = self.segments.get_mut(slot);
        let was_whole = segment.dirty == u64::MAX;
        let (mut taken, mut dropped) = (0, 0);
        for_runs(segment.dirty, |first, end| {
            for_contiguous(&segment.table, first, end, |from, to| {
                let mut range = blocks(slot, segment.epoch, number, from, to, &segment.table);
                let room = size.saturating_sub(range.file_offset);
                range.length = range.length.min(usize::try_from(room).unwrap_or(usize::MAX));
                if range.length == 0 {
                    dropped |= block_bits(from, to);
                } else if ranges.try_push(range).is_ok() {
                    taken |= block_bits(from, to);
                }
            });
        });
        segment.dirty &= !(taken | dropped);
        let gone = dropped & !segment.flushing;
        segment.flushing |= taken;
        self.dirty_blocks -= gone.count_ones() as usize;
        let is_done = segment.dirty == 0;
        if is_done {
            let entry = self.files.get_mut(owner);
            entry.dirty.remove(number);
            entry.ripe_count = entry.ripe_count.saturating_sub(usize::from(was_whole));
        }
        is_done
    }

    /// Resets the age of a file's dirty data if all of the data is being written.
    fn restart_age(&mut self, file: CachedFile) {
        let now = self.now;
        let entry = self.files.get_mut(file);
        (entry.dirty_since, entry.ripe_count) = (now, 0);
        if !entry.is_queued {
            return;
        }
        // The search starts at the front, because the file is usually one of the oldest.
        if let Some(at) = self.dirty_files.iter().position(|queued| *queued == file) {
            self.dirty_files.remove(at);
        }
        self.dirty_files.push_back(file);
    }

    /// Takes the result of a flush job.
    pub fn on_flushed(&mut self, done: FlushDone) -> Progress {
        let file = done.owner;
        let mut lost = 0;
        for range in &done.ranges {
            let segment = self.segments.get_mut(range.slot);
            let bits = block_bits(range.first, range.end);
            segment.flushing &= !bits;
            let clean = bits & !segment.dirty;
            self.dirty_blocks -= clean.count_ones() as usize;
            if done.result.is_err() {
                lost += u64::from(clean.count_ones()) * BLOCK_BYTES as u64;
                segment.invalidate(clean);
            } else {
                self.stats.flush_bytes += range.length as u64;
            }
        }
        self.files.get_mut(file).is_unsynced = true;
        if let Err(error) = done.result {
            self.note_loss(file, error, lost, done.after);
        }
        let entry = self.files.get(file);
        let has_known_size = done.after.is_some_and(|after| after.size == entry.size);
        let is_all = has_known_size && self.holds_only(file, &done.ranges);
        let before = if is_all { Some(entry.version) } else { done.before };
        self.note_version(file, before, done.after, done.result.is_ok());
        self.files.get_mut(file).is_flushing = false;
        self.free_flushed(file, &done.ranges);
        self.finish_flush(file);
        self.wants_flush = true;
        // A write error is reported by the next commit, close or write. Requests that wait for
        // this file continue.
        Progress { file, error: None }
    }

    /// Drops the reference to the file after a flush if no dirty data is left.
    fn finish_flush(&mut self, file: CachedFile) {
        let entry = self.files.get_mut(file);
        if entry.dirty.is_empty() && entry.is_queued {
            entry.is_queued = false;
            // The search starts at the back, because the start of the flush made the file one of
            // the youngest.
            if let Some(at) = self.dirty_files.iter().rposition(|queued| *queued == file) {
                self.dirty_files.remove(at);
            }
        }
        if self.files.get(file).is_unlinked && self.files.get(file).open_count == 0 {
            self.drop_all(file);
        }
        self.drop_entry_if_unused(file.index);
    }

    fn note_loss(
        &mut self,
        file: CachedFile,
        error: StoreError,
        bytes: u64,
        after: Option<FileVersion>,
    ) {
        self.stats.lost_bytes += bytes;
        self.loss_count += 1;
        // Reads now return the content from before the lost write. This is a change of content. The
        // failed flush has usually updated the file's time stamp for it already.
        let stamp = self.files.get(file).stamp;
        if after.is_none_or(|after| after.time_metadata < stamp) {
            self.note_change(file);
        }
        let entry = self.files.get_mut(file);
        entry.loss_count = entry.loss_count.wrapping_add(1);
        entry.last_error = error;
        entry.error = Some(error);
    }

    /// Compares the version just before the cache's own change with the version that the cache
    /// remembers. If they differ, a local process has changed the file.
    pub(super) fn note_version(
        &mut self,
        file: CachedFile,
        before: Option<FileVersion>,
        after: Option<FileVersion>,
        is_ok: bool,
    ) {
        let is_own = before == Some(self.files.get(file).version);
        let entry = self.files.get_mut(file);
        if let Some(after) = after {
            entry.version = after;
        }
        if !is_own {
            self.drop_clean(file.index);
        }
        if !is_own || !is_ok {
            self.recompute_size(file);
        }
    }

    /// Sets the cached size of a file to the file system's size, or to the end of the dirty data if
    /// that is greater.
    pub(super) fn recompute_size(&mut self, file: CachedFile) {
        let entry = self.files.get(file);
        let (old, disk) = (entry.size, entry.version.size);
        let mut end = disk;
        for slot in self.slots_of(file.index) {
            let segment = self.segments.get(slot);
            if segment.unflushed() != 0 {
                let blocks = u64::from(64 - segment.unflushed().leading_zeros());
                let reach = segment.number * SEGMENT_BYTES + blocks * BLOCK_BYTES as u64;
                end = end.max(reach.min(old));
            }
        }
        self.files.get_mut(file).size = end;
        if end < old {
            self.cut(file, end);
        }
    }

    /// Takes the result of a sync job.
    pub fn on_synced(&mut self, done: SyncDone) -> Progress {
        let file = done.owner;
        let entry = self.files.get_mut(file);
        entry.is_syncing = false;
        entry.sync_count = entry.sync_count.wrapping_add(1);
        if let Err(error) = done.result {
            // The kernel's own cache has also dropped the data that it could not write, so all data
            // that was not committed may be lost.
            self.files.get_mut(file).is_unsynced = true;
            self.note_loss(file, error, 0, None);
            self.drop_clean(file.index);
        }
        self.drop_entry_if_unused(file.index);
        Progress { file, error: None }
    }

    /// Starts a change of a file's size (SETATTR), which must not overlap a flush of the file.
    pub fn set_size(&mut self, file: CachedFile, size: u64) -> SizeStep {
        let entry = self.files.get_mut(file);
        let is_busy = entry.is_flushing || entry.is_sizing || entry.is_syncing;
        if is_busy || entry.fill_count > 0 || entry.writer_count > 0 {
            return SizeStep::Wait;
        }
        let Some(handle) = entry.file.clone() else { return SizeStep::Wait };
        (entry.is_sizing, entry.is_shown_ahead) = (true, false);
        SizeStep::Job(SizeJob { owner: file, file: handle, size })
    }

    /// Takes the result of a change of size. If the change failed, `error` is set in the returned
    /// [`Progress`].
    pub fn on_sized(&mut self, done: SizeDone) -> Progress {
        let file = done.owner;
        if done.result.is_ok() {
            // Until now the cache has shown the old size, although the file has changed already. If
            // no client has read the attributes meanwhile, the file's own stamp is the right one.
            let is_stamped = done.before.zip(done.after).is_some_and(|(before, after)| {
                before.time_metadata < after.time_metadata || before.size != after.size
            });
            if self.files.get(file).is_shown_ahead || !is_stamped {
                self.note_change(file);
            }
            let entry = self.files.get_mut(file);
            entry.is_unsynced = true;
            let old = std::mem::replace(&mut entry.size, done.size);
            if done.size < old {
                self.cut(file, done.size);
            }
            self.note_version(file, done.before, done.after, true);
        }
        self.files.get_mut(file).is_sizing = false;
        self.drop_entry_if_unused(file.index);
        Progress { file, error: done.result.err() }
    }

    /// Drops the blocks after `size`, and zeros the part after `size` of the block that contains
    /// this offset.
    fn cut(&mut self, file: CachedFile, size: u64) {
        for slot in self.slots_of(file.index) {
            let segment = self.segments.get_mut(slot);
            let base = segment.number * SEGMENT_BYTES;
            if base + SEGMENT_BYTES <= size {
                continue;
            }
            let kept = size.saturating_sub(base).div_ceil(BLOCK_BYTES as u64) as u32;
            if kept < SEGMENT_BLOCKS as u32 {
                let gone = block_bits(kept, SEGMENT_BLOCKS as u32);
                let undone = segment.dirty & gone & !segment.flushing;
                self.dirty_blocks -= undone.count_ones() as usize;
                segment.dirty &= !gone;
                segment.invalidate(gone);
                segment.epoch = segment.epoch.wrapping_add(1);
                if segment.dirty == 0 {
                    let number = segment.number;
                    self.files.get_mut(file).dirty.remove(number);
                }
            }
            if kept == 0 && self.segments.get(slot).is_idle() {
                self.free_segment(slot);
            }
        }
        let block_end = size.next_multiple_of(BLOCK_BYTES as u64);
        self.zero_behind_end(file, size, block_end);
    }

    /// Drops all data of a file, including dirty data, because no client can reach the file any
    /// more.
    pub(super) fn drop_all(&mut self, file: CachedFile) {
        for slot in self.slots_of(file.index) {
            let segment = self.segments.get_mut(slot);
            let undone = segment.dirty & !segment.flushing;
            self.dirty_blocks -= undone.count_ones() as usize;
            segment.dirty = 0;
            self.release_segment(slot);
        }
        let entry = self.files.get_mut(file);
        entry.dirty.clear();
        entry.ripe_count = 0;
        entry.error = None;
        if std::mem::take(&mut entry.is_queued) {
            self.dirty_files.retain(|queued| *queued != file);
        }
    }

    /// Makes all dirty data due immediately, for a clean stop. Afterwards call
    /// [`Cache::poll_flush`] until it returns `None` and the results of all jobs were returned to
    /// the cache.
    pub fn flush_all(&mut self) {
        self.is_stopping = true;
    }

    /// Advances the time of the cache, which makes dirty data older, and releases free memory when
    /// the cache is idle. Call this about every 100 ms while the cache is not empty.
    pub fn on_tick(&mut self, now: Moment) {
        self.now = self.now.max(now);
        let activity = self.stats.hit_count + self.stats.miss_count + self.stats.write_bytes;
        if activity != self.activity_seen {
            self.activity_seen = activity;
            self.active_at = self.now;
        }
        self.trim(self.now.since(self.active_at) >= IDLE_AGE);
    }
}

/// A file that grew by this many segments is flushed immediately. One job covers that many segments
/// (4 MiB).
const RIPE_COUNT: usize = JOB_RANGE_COUNT_MAX;
/// The time without reads and writes after which free memory is released to the kernel.
const IDLE_AGE: std::time::Duration = std::time::Duration::from_secs(5);
