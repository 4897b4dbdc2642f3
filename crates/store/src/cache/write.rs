//! Writes: provides memory of the arena for the bytes that arrive.
//!
//! Invariant: before a write gets its memory, the parts of its blocks that the write does not cover
//! contain the file's bytes (or zeros after the end of the file).

use dafs_types::limits::FILE_OFFSET_MAX;
use dafs_types::{Moment, Timestamp};
use rustix::time::ClockId;

use super::jobs::FillJob;
use super::segment::{SEGMENT_BYTES, block_bits};
use super::space::REFERENCE_WRITTEN;
use super::{BLOCK_BYTES, Cache, CachedFile, Prepared, Progress, Span, Spans, WriteToken};
use crate::change::time_of;
use crate::error::StoreError;

impl Cache {
    /// Finds or allocates memory for up to `length` bytes at `offset`. The spans stay in place
    /// until the token is passed to [`Cache::write_done`] or [`Cache::write_abort`].
    pub fn prepare_write(
        &mut self,
        file: CachedFile,
        offset: u64,
        length: u32,
        out: &mut Spans,
        jobs: &mut Vec<FillJob>,
    ) -> Prepared {
        match self.files.get(file).error {
            Some(error) => Prepared::Lost(error),
            None => self.prepare_write_anyhow(file, offset, length, out, jobs),
        }
    }

    /// Prepares a write like [`Cache::prepare_write`], but does not refuse it because of earlier
    /// losses of data.
    pub fn prepare_write_anyhow(
        &mut self,
        file: CachedFile,
        offset: u64,
        length: u32,
        out: &mut Spans,
        jobs: &mut Vec<FillJob>,
    ) -> Prepared {
        if self.files.get(file).is_sizing {
            return Prepared::Wait;
        }
        if offset > FILE_OFFSET_MAX || u64::from(length) > FILE_OFFSET_MAX - offset {
            return Prepared::Failed(StoreError::TooBig);
        }
        if self.dirty_blocks >= self.dirty_blocks_max {
            self.has_pressure = true;
            return Prepared::Pressure;
        }
        let mut end = offset + u64::from(length);
        if u64::from(length) > self.plan_bytes_max {
            end = (offset + self.plan_bytes_max) / BLOCK * BLOCK;
        }
        if !out.is_full()
            && let Some(span) = self.room_at_once(file, offset, end)
        {
            out.push(span);
            self.files.get_mut(file).writer_count += 1;
            return Prepared::Ready(WriteToken { file, offset, length: span.length });
        }
        match self.fill_edges(file, offset, end, jobs) {
            Edges::Ready => {}
            Edges::Fill => return Prepared::Fill,
            Edges::Wait => return Prepared::Wait,
            Edges::Pressure => return self.press(),
        }
        let reserve = offset == self.files.get(file).size;
        let mut at = offset;
        let mut blocked = None;
        while at < end && !out.is_full() {
            match self.prepare_segment(file, at, end, reserve, out) {
                Ok(reached) => at = reached,
                Err(reason) => {
                    blocked = Some(reason);
                    break;
                }
            }
        }
        match blocked {
            Some(Edges::Wait) if at == offset => Prepared::Wait,
            Some(_) if at == offset => self.press(),
            _ => {
                self.files.get_mut(file).writer_count += 1;
                Prepared::Ready(WriteToken { file, offset, length: (at - offset) as u32 })
            }
        }
    }

    /// Ends a write whose bytes have arrived. The bytes are now part of the file's content.
    #[inline]
    pub fn write_done(&mut self, token: WriteToken, now: Moment) -> Progress {
        self.take_in(&token, now);
        Progress { file: token.file, error: None }
    }

    fn take_in(&mut self, token: &WriteToken, now: Moment) {
        self.now = self.now.max(now);
        let end = token.offset + u64::from(token.length);
        self.settle(token, |_, written| written);
        let entry = self.files.get_mut(token.file);
        entry.size = entry.size.max(end);
        self.stats.write_bytes += u64::from(token.length);
    }

    /// Ends a write whose transfer failed. Some of the bytes may have arrived, so blocks that were
    /// valid before the write become dirty. Other blocks are treated as missing.
    pub fn write_abort(&mut self, token: WriteToken, now: Moment) -> Progress {
        self.now = self.now.max(now);
        let file = token.file;
        self.settle(&token, |valid, written| valid & written);
        self.zero_behind_end(file, token.offset, token.offset + u64::from(token.length));
        self.drop_entry_if_unused(file.index);
        Progress { file, error: None }
    }

    fn press(&mut self) -> Prepared {
        self.has_pressure = true;
        Prepared::Pressure
    }

    /// Prepares a write to a single contiguous run of valid blocks, the usual case when a file is
    /// overwritten. No fill is needed for valid blocks. Returns `None` if the write needs more than
    /// one run.
    fn room_at_once(&mut self, file: CachedFile, offset: u64, end: u64) -> Option<Span> {
        let number = offset / SEGMENT_BYTES;
        let base = number * SEGMENT_BYTES;
        if end <= offset || end > base + SEGMENT_BYTES {
            return None;
        }
        let slot = self.segments.find(file.index, number)?;
        let segment = self.segments.get_mut(slot);
        let first = ((offset - base) / BLOCK) as u32;
        let behind = (end - base).div_ceil(BLOCK) as u32;
        let bits = block_bits(first, behind);
        if segment.valid & bits != bits {
            return None;
        }
        let (place, stop) = segment.run_from(first, behind);
        if stop < behind {
            return None;
        }
        segment.writers += 1;
        segment.reference = segment.reference.max(REFERENCE_WRITTEN);
        let offset_there = u64::from(place - 1) * BLOCK + offset % BLOCK;
        Some(Span { offset: offset_there, length: (end - offset) as u32 })
    }

    /// Makes sure that the blocks at both ends of a write, which the write covers only in part,
    /// have the file's content.
    fn fill_edges(
        &mut self,
        file: CachedFile,
        offset: u64,
        end: u64,
        jobs: &mut Vec<FillJob>,
    ) -> Edges {
        let size = self.files.get(file).size;
        let mut answer = Edges::Ready;
        let first = offset - offset % BLOCK;
        let last = end - end % BLOCK;
        let needs_first = first < offset && first < size;
        let needs_last = last < end && end < size && !(last == first && needs_first);
        for (block, is_needed) in [(first, needs_first), (last, needs_last)] {
            if !is_needed || self.has_block(file, block) {
                continue;
            }
            let known = jobs.len();
            let planned = self.plan_range(file, block, block + BLOCK, jobs);
            // A block is written as a whole, so bytes that a local process has added after the
            // known end must be read too.
            jobs[known..].iter_mut().for_each(|job| job.size = u64::MAX);
            match planned {
                super::Planned::Jobs => answer = Edges::Fill,
                super::Planned::Wait if answer == Edges::Ready => answer = Edges::Wait,
                super::Planned::Pressure if answer == Edges::Ready => answer = Edges::Pressure,
                super::Planned::Wait | super::Planned::Pressure | super::Planned::Ready => {}
            }
        }
        answer
    }

    fn has_block(&self, file: CachedFile, offset: u64) -> bool {
        self.segments.find(file.index, offset / SEGMENT_BYTES).is_some_and(|slot| {
            let block = (offset % SEGMENT_BYTES) / BLOCK;
            self.segments.get(slot).valid >> block & 1 == 1
        })
    }

    /// Prepares the part of a write that lies in one segment. Returns the offset up to which memory
    /// is ready, or the reason why there is none.
    fn prepare_segment(
        &mut self,
        file: CachedFile,
        at: u64,
        end: u64,
        reserve: bool,
        out: &mut Spans,
    ) -> Result<u64, Edges> {
        let number = at / SEGMENT_BYTES;
        let base = number * SEGMENT_BYTES;
        let end = end.min(base + SEGMENT_BYTES);
        let slot = self.segment_for(file.index, number).ok_or(Edges::Pressure)?;
        let first = ((at - base) / BLOCK) as u32;
        let behind = (end - base).div_ceil(BLOCK) as u32;
        let bits = block_bits(first, behind);
        let segment = self.segments.get(slot);
        if bits & (segment.filling | segment.writing) != 0 {
            return Err(Edges::Wait);
        }
        // Allocating the segments between the ends may have evicted a complete block at one of the
        // ends.
        let size = self.files.get(file).size;
        let is_gone = |offset: u64, is_needed: bool| {
            !offset.is_multiple_of(BLOCK) && is_needed && !self.has_block(file, offset)
        };
        if is_gone(at, at / BLOCK * BLOCK < size) || is_gone(end, end < size) {
            return Err(Edges::Fill);
        }
        let is_mapped = segment.valid & bits == bits;
        if !is_mapped && !self.map_blocks(slot, first, behind, reserve) {
            return Err(Edges::Pressure);
        }
        let segment = self.segments.get(slot);
        let (mut reached, mut block) = (at, first);
        while block < behind && !out.is_full() {
            let (place, stop) = segment.run_from(block, behind);
            let until = (base + u64::from(stop) * BLOCK).min(end);
            let offset = u64::from(place - 1) * BLOCK + reached % BLOCK;
            // The loop's condition guarantees that `out` has room.
            out.push(Span { offset, length: (until - reached) as u32 });
            (reached, block) = (until, stop);
        }
        let covered = block_bits(first, (reached - base).div_ceil(BLOCK) as u32);
        let fresh = covered & !self.segments.get(slot).valid;
        self.zero_around(slot, fresh, at - base, reached - base);
        let segment = self.segments.get_mut(slot);
        segment.writers += 1;
        segment.writing |= fresh;
        segment.reference = segment.reference.max(REFERENCE_WRITTEN);
        Ok(reached)
    }

    /// Zeros the uncovered parts of new blocks, which are after the end of the file.
    fn zero_around(&self, slot: u32, fresh: u64, from: u64, to: u64) {
        let table = &self.segments.get(slot).table;
        let place = |offset: u64| (table[(offset / BLOCK) as usize] - 1) as usize * BLOCK_BYTES;
        let is_fresh = |offset: u64| fresh >> (offset / BLOCK) & 1 == 1;
        if !from.is_multiple_of(BLOCK) && is_fresh(from) {
            self.arena.zero(place(from), (from % BLOCK) as usize);
        }
        if !to.is_multiple_of(BLOCK) && is_fresh(to) {
            let inside = (to % BLOCK) as usize;
            self.arena.zero(place(to) + inside, BLOCK_BYTES - inside);
        }
    }

    /// Ends a write in every segment that it touched. `takes(valid, written)` returns which of the
    /// written blocks become dirty.
    fn settle(&mut self, token: &WriteToken, takes: impl Fn(u64, u64) -> u64) {
        let (file, now) = (token.file, self.now);
        let disk_size = self.files.get(file).version.size;
        let end = token.offset + u64::from(token.length);
        let mut at = token.offset;
        let mut ripened = 0;
        while at < end {
            let number = at / SEGMENT_BYTES;
            let base = number * SEGMENT_BYTES;
            let until = end.min(base + SEGMENT_BYTES);
            // A segment with writers is neither evicted nor released.
            let Some(slot) = self.segments.find(file.index, number) else { break };
            let segment = self.segments.get_mut(slot);
            let bits =
                block_bits(((at - base) / BLOCK) as u32, (until - base).div_ceil(BLOCK) as u32);
            let taken = takes(segment.valid, bits);
            let before = segment.dirty;
            self.dirty_blocks += (taken & !segment.unflushed()).count_ones() as usize;
            segment.valid |= taken;
            segment.dirty |= taken;
            if segment.dirty == u64::MAX && before != u64::MAX && base >= disk_size {
                ripened += 1;
            }
            // A block that does not become dirty may also be the target of another writer, if the
            // block was valid when that writer came. Until all writers are done, no fill reads the
            // file into it.
            segment.writing &= !taken;
            segment.writers -= 1;
            if segment.writers == 0 {
                segment.writing = 0;
            }
            if taken != 0 && before == 0 {
                self.files.get_mut(file).dirty.insert(number);
            }
            at = until;
        }
        self.note_change(file);
        let entry = self.files.get_mut(file);
        entry.writer_count -= 1;
        if !entry.dirty.is_empty() && !entry.is_queued {
            entry.is_queued = true;
            entry.dirty_since = now;
            self.dirty_files.push_back(file);
        }
        if ripened > 0 {
            self.note_grown(file, ripened);
        }
        if !self.has_pressure && self.dirty_blocks > self.dirty_blocks_max / 4 * 3 {
            (self.has_pressure, self.wants_flush) = (true, true);
        }
    }

    /// Records that the file's content, as the cache shows it to clients, has changed.
    pub(super) fn note_change(&mut self, file: CachedFile) {
        let mut stamp = self.calendar();
        let entry = self.files.get_mut(file);
        if std::mem::take(&mut entry.is_shown) || stamp <= entry.version.time_metadata {
            // The cached calendar time may be from before the change attribute was reported, or
            // from before the file was opened.
            stamp = time_of(ClockId::RealtimeCoarse);
        }
        entry.stamp = stamp.max(entry.stamp);
        let mut changed_at = stamp;
        if changed_at <= entry.version.time_metadata {
            // The kernel has reported a more exact time for the file (since Linux 6.13), so a later
            // time must be read from the exact clock.
            changed_at = time_of(ClockId::Realtime);
        }
        if changed_at < entry.changed_at {
            // The clock was set back, but change attributes must keep rising.
            changed_at = just_after(entry.changed_at);
        }
        entry.changed_at = changed_at;
    }

    /// Returns the calendar time. The calendar clock is read at most once for each time value that
    /// is passed to the cache.
    fn calendar(&mut self) -> Timestamp {
        if self.calendar.0 != self.now {
            // The coarse clock is a few milliseconds late, but costs a tenth as much as the exact
            // clock.
            self.calendar = (self.now, time_of(ClockId::RealtimeCoarse));
        }
        self.calendar.1
    }

    /// Zeros the bytes that a failed transfer has left after the end of the file, so that they do
    /// not appear when the file grows.
    pub(super) fn zero_behind_end(&mut self, file: CachedFile, from: u64, to: u64) {
        let mut at = from.max(self.files.get(file).size);
        while at < to {
            let until = to.min(at - at % BLOCK + BLOCK);
            if let Some(slot) = self.segments.find(file.index, at / SEGMENT_BYTES) {
                let segment = self.segments.get(slot);
                let block = (at % SEGMENT_BYTES) / BLOCK;
                if segment.valid >> block & 1 == 1 {
                    let place = (segment.table[block as usize] - 1) as usize * BLOCK_BYTES;
                    self.arena.zero(place + (at % BLOCK) as usize, (until - at) as usize);
                }
            }
            at = until;
        }
    }
}

/// Returns the next later time that a file system's time stamp can express.
fn just_after(time: Timestamp) -> Timestamp {
    if time.nanoseconds < NANOSECONDS_MAX {
        Timestamp { nanoseconds: time.nanoseconds + 1, ..time }
    } else {
        Timestamp { seconds: time.seconds.saturating_add(1), nanoseconds: 0 }
    }
}

/// The state of the blocks at both ends of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edges {
    Ready,
    Fill,
    Wait,
    Pressure,
}

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The largest nanosecond part of a time.
const NANOSECONDS_MAX: u32 = 999_999_999;
