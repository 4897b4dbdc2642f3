//! Reads: hits, and the fills that misses need.
//!
//! Invariant: a piece consists of valid blocks, and is pinned before the call returns. A hit makes
//! no allocation, takes no lock and makes no system call.

use dafs_types::{CacheHint, CachePattern, FileHandle};

use super::jobs::{BlockList, Blocks, FillDone, FillJob, JOB_RANGE_COUNT_MAX};
use super::segment::{NONE, SEGMENT_BLOCKS, SEGMENT_BYTES, block_bits, for_runs};
use super::space::{REFERENCE_MAX, for_contiguous};
use super::{BLOCK_BYTES, Cache, CachedFile, Piece, Pieces, Pin, Planned, Progress, Read};

impl Cache {
    /// Prefetches into the processor's cache the memory that a read at `offset` accesses first.
    #[inline]
    pub fn prefetch(&self, file: CachedFile, offset: u64) {
        self.segments.prefetch(file.index, offset / SEGMENT_BYTES);
    }

    /// Reads up to `length` bytes from `offset`: pins the cached pieces and adds them to `out`.
    #[inline]
    pub fn read(&mut self, file: CachedFile, offset: u64, length: u32, out: &mut Pieces) -> Read {
        let entry = self.files.get_mut(file);
        let end = offset.saturating_add(u64::from(length)).min(entry.size);
        let is_sequential = offset == entry.expected_offset;
        let mut at = offset;
        while at < end && !out.is_full() {
            let (before, number) = (at, at / SEGMENT_BYTES);
            let Some(slot) = self.segments.find(file.index, number) else { break };
            let segment = self.segments.get_mut(slot);
            let base = number * SEGMENT_BYTES;
            let mut block = ((at - base) / BLOCK as u64) as u32;
            let last = ((end - 1).min(base + SEGMENT_BYTES - 1) - base) / BLOCK as u64;
            let stop = (block + (segment.valid >> block).trailing_ones()).min(last as u32 + 1);
            while block < stop && !out.is_full() {
                let (place, run) = segment.run_from(block, stop);
                block = run;
                let piece_end = (base + u64::from(block) * BLOCK as u64).min(end);
                segment.pins += 1;
                // The loop's condition guarantees that `out` has room.
                out.push(Piece {
                    offset: u64::from(place - 1) * BLOCK as u64 + at % BLOCK as u64,
                    length: (piece_end - at) as u32,
                    pin: Pin(slot),
                });
                at = piece_end;
            }
            // A sequential reader reads data once; only other reads keep a segment longer.
            if !is_sequential {
                segment.reference = REFERENCE_MAX;
            }
            if at == before || !at.is_multiple_of(SEGMENT_BYTES) {
                break;
            }
        }
        if at == offset && at < end && !out.is_full() {
            self.stats.miss_count += 1;
            return Read::Miss;
        }
        let got = at - offset;
        entry.expected_offset = at;
        self.stats.hit_count += 1;
        self.stats.hit_bytes += got;
        Read::Hit {
            length: got as u32,
            is_end: at >= entry.size,
            wants_more: at >= entry.ahead_mark,
        }
    }

    /// Releases the pin of a piece. Afterwards, requests that got `Pressure` can be tried again.
    #[inline]
    pub fn unpin(&mut self, pin: Pin) {
        let segment = self.segments.get_mut(pin.0);
        debug_assert!(segment.pins > 0);
        segment.pins -= 1;
    }

    /// Returns the handle of the file whose content a piece contains. Returns `None` if the file no
    /// longer uses the piece's segment; in that case nothing writes to the segment any more.
    #[must_use]
    pub fn pinned_file(&self, pin: &Pin) -> Option<FileHandle> {
        let index = self.segments.get(pin.0).file;
        (index != NONE).then(|| self.files.at(index).handle)
    }

    /// Plans the fill jobs that a missed read needs, and prefetches for a sequential reader.
    pub fn plan_fill(
        &mut self,
        file: CachedFile,
        offset: u64,
        length: u32,
        hint: CacheHint,
        jobs: &mut Vec<FillJob>,
    ) -> Planned {
        let ahead_max = u64::from(self.config.read_ahead_bytes_max);
        let entry = self.files.get_mut(file);
        let mut end = offset.saturating_add(u64::from(length)).min(entry.size);
        let follows = offset == entry.expected_offset || offset == 0;
        let is_stream = match entry.pattern {
            CachePattern::Sequential => true,
            CachePattern::Random => false,
            CachePattern::Normal | CachePattern::WillNeed | CachePattern::DontNeed => follows,
        };
        if is_stream && hint.read_likelihood() >= LIKELIHOOD_MIDDLE && ahead_max > 0 {
            entry.window = (entry.window * 2).clamp(WINDOW_BYTES_MIN, ahead_max);
            end = end.max(offset.saturating_add(entry.window)).min(entry.size);
            entry.ahead_end = end;
            entry.ahead_mark = if end < entry.size { end - entry.window / 2 } else { u64::MAX };
        } else {
            entry.window = 0;
            entry.ahead_mark = u64::MAX;
        }
        self.plan_range(file, offset, end, jobs)
    }

    /// Plans the next prefetch for a sequential reader (see `wants_more` in [`Read::Hit`]).
    pub fn plan_ahead(&mut self, file: CachedFile, jobs: &mut Vec<FillJob>) {
        let ahead_max = u64::from(self.config.read_ahead_bytes_max);
        let entry = self.files.get_mut(file);
        if entry.ahead_mark == u64::MAX {
            return;
        }
        entry.window = (entry.window * 2).clamp(WINDOW_BYTES_MIN, ahead_max.max(1));
        let start = entry.ahead_end.max(entry.expected_offset);
        let end = start.saturating_add(entry.window).min(entry.size);
        entry.ahead_end = end;
        entry.ahead_mark = if end < entry.size { end - entry.window / 2 } else { u64::MAX };
        self.plan_range(file, start, end, jobs);
    }

    /// Plans fills for the missing parts of `offset..end`.
    pub(super) fn plan_range(
        &mut self,
        file: CachedFile,
        offset: u64,
        end: u64,
        jobs: &mut Vec<FillJob>,
    ) -> Planned {
        if offset >= end {
            return Planned::Ready;
        }
        let entry = self.files.get(file);
        assert!(entry.file.is_some(), "a fill for a file that is not open");
        if entry.is_sizing {
            return Planned::Wait;
        }
        // A plan must not evict blocks that it has planned itself.
        let end = end.min(offset.saturating_add(self.plan_bytes_max));
        let mut found = Found::default();
        for number in offset / SEGMENT_BYTES..=(end - 1) / SEGMENT_BYTES {
            let base = number * SEGMENT_BYTES;
            let first = (offset.max(base) - base) / BLOCK as u64;
            let behind = (end - base).min(SEGMENT_BYTES).div_ceil(BLOCK as u64);
            let wanted = block_bits(first as u32, behind as u32);
            if !self.plan_segment(file, number, wanted, &mut found, jobs) {
                found.is_short = true;
                break;
            }
        }
        self.close_job(file, &mut found.ranges, jobs);
        match (found.has_jobs, found.must_wait, found.is_short) {
            (true, _, _) => Planned::Jobs,
            (false, true, _) => Planned::Wait,
            (false, false, true) => Planned::Pressure,
            (false, false, false) => Planned::Ready,
        }
    }

    fn plan_segment(
        &mut self,
        file: CachedFile,
        number: u64,
        wanted: u64,
        found: &mut Found,
        jobs: &mut Vec<FillJob>,
    ) -> bool {
        let Some(slot) = self.segment_for(file.index, number) else { return false };
        let segment = self.segments.get(slot);
        let missing = wanted & !segment.valid;
        let busy = missing & (segment.filling | segment.writing);
        found.must_wait |= busy != 0;
        let mut is_complete = true;
        for_runs(missing & !busy, |first, end| {
            if !is_complete || !self.map_blocks(slot, first, end, false) {
                is_complete = false;
                return;
            }
            let segment = self.segments.get_mut(slot);
            segment.filling |= block_bits(first, end);
            let (table, epoch) = (segment.table, segment.epoch);
            for_contiguous(&table, first, end, |from, to| {
                if found.ranges.len() == FILL_RANGE_COUNT_MAX {
                    self.close_job(file, &mut found.ranges, jobs);
                }
                found.has_jobs = true;
                found.ranges.push(blocks(slot, epoch, number, from, to, &table));
            });
        });
        is_complete
    }

    fn close_job(&mut self, owner: CachedFile, ranges: &mut BlockList, jobs: &mut Vec<FillJob>) {
        if ranges.is_empty() {
            return;
        }
        let entry = self.files.get_mut(owner);
        let Some(file) = entry.file.clone() else { return };
        entry.fill_count += 1;
        let (ranges, size) = (std::mem::take(ranges), entry.size);
        jobs.push(FillJob { owner, file, arena: self.arena.clone(), ranges, size });
    }

    /// Takes the result of a fill job.
    pub fn on_filled(&mut self, done: FillDone) -> Progress {
        for range in &done.ranges {
            let segment = self.segments.get_mut(range.slot);
            let bits = block_bits(range.first, range.end);
            segment.filling &= !bits;
            if done.result.is_ok() && segment.epoch == range.epoch {
                segment.valid |= bits;
                self.stats.fill_bytes += range.length as u64;
            }
        }
        self.files.get_mut(done.owner).fill_count -= 1;
        self.drop_entry_if_unused(done.owner.index);
        Progress { file: done.owner, error: done.result.err() }
    }

    /// Applies a CACHE_HINT of a client. May add fill jobs.
    pub fn hint(
        &mut self,
        file: CachedFile,
        offset: u64,
        length: u64,
        pattern: CachePattern,
        hint: CacheHint,
        jobs: &mut Vec<FillJob>,
    ) {
        let end = if length == 0 { u64::MAX } else { offset.saturating_add(length) };
        self.files.get_mut(file).pattern = pattern;
        let is_unlikely = hint.read_likelihood() < LIKELIHOOD_MIDDLE
            && hint.write_likelihood() < LIKELIHOOD_MIDDLE;
        if pattern == CachePattern::DontNeed {
            self.drop_range(file, offset, end);
        } else if (pattern == CachePattern::WillNeed || hint.prefetch())
            && !is_unlikely
            // Do not read for a closed file, which may still have cached blocks.
            && self.files.get(file).file.is_some()
        {
            let end = end.min(self.files.get(file).size);
            self.plan_range(file, offset, end, jobs);
        }
    }

    fn drop_range(&mut self, file: CachedFile, offset: u64, end: u64) {
        for slot in self.slots_of(file.index) {
            let segment = self.segments.get_mut(slot);
            let base = segment.number * SEGMENT_BYTES;
            if base < end && offset < base + SEGMENT_BYTES {
                segment.reference = 0;
                if base >= offset && base + SEGMENT_BYTES <= end && segment.is_idle() {
                    self.free_segment(slot);
                }
            }
        }
    }
}

/// The intermediate state of the planning of fills for a range.
#[derive(Default)]
struct Found {
    ranges: BlockList,
    has_jobs: bool,
    must_wait: bool,
    is_short: bool,
}

/// Returns the blocks `from..to` of a segment in the form that a job uses.
pub(super) fn blocks(
    slot: u32,
    epoch: u32,
    number: u64,
    from: u32,
    to: u32,
    table: &[u32; SEGMENT_BLOCKS],
) -> Blocks {
    Blocks {
        slot,
        epoch,
        first: from,
        end: to,
        memory_offset: (table[from as usize] - 1) as usize * BLOCK,
        file_offset: number * SEGMENT_BYTES + u64::from(from) * BLOCK as u64,
        length: (to - from) as usize * BLOCK,
    }
}

const BLOCK: usize = BLOCK_BYTES;
/// The maximum number of ranges of one fill. It is small, so that the first blocks arrive early and
/// several threads share a long read.
const FILL_RANGE_COUNT_MAX: usize = 4;
/// The size in bytes of the first prefetch for a reader that seems to be sequential.
const WINDOW_BYTES_MIN: u64 = 64 << 10;
/// The likelihood in a CACHE_HINT below which an access counts as unlikely.
const LIKELIHOOD_MIDDLE: u32 = 4;
const _: () = assert!(FILL_RANGE_COUNT_MAX <= JOB_RANGE_COUNT_MAX);
