//! Memory of the arena: mapping blocks, evicting segments, releasing pages.
//!
//! Invariant: only idle segments lose their memory (`Segment::is_idle`).

use dafs_types::CachePattern;

use super::buddy::CHUNK_BLOCKS;
use super::files::Files;
use super::jobs::{BlockList, ClearDone, ClearJob};
use super::segment::{NONE, SEGMENT_BLOCKS, Segments, block_bits, for_runs};
use super::{BLOCK_BYTES, Cache, CachedFile};

impl Cache {
    /// Finds or creates the segment of a file that has this number. Returns `None` if there is no
    /// free slot for it.
    pub(super) fn segment_for(&mut self, file: u32, number: u64) -> Option<u32> {
        if let Some(slot) = self.segments.find(file, number) {
            return Some(slot);
        }
        while self.segments.is_full() {
            self.evict_one()?;
        }
        let slot = self.segments.insert(file, number);
        let entry = self.files.at_mut(file);
        let head = std::mem::replace(&mut entry.first_segment, slot);
        self.segments.get_mut(slot).next = head;
        if head != NONE {
            self.segments.get_mut(head).previous = slot;
        }
        Some(slot)
    }

    /// Maps all blocks `first..end` of a segment to memory. Returns false if there is not enough
    /// memory. With `reserve`, a run that directly follows a mapped block may extend beyond `end`,
    /// to the end of its aligned window, so that a file that grows block by block gets a few long
    /// runs.
    pub(super) fn map_blocks(&mut self, slot: u32, first: u32, end: u32, reserve: bool) -> bool {
        self.segments.get_mut(slot).writers += 1; // Not idle, so eviction ignores it.
        let mut at = first;
        while at < end {
            let table = &self.segments.get(slot).table;
            if table[at as usize] != 0 {
                at += 1;
                continue;
            }
            let limit = if reserve && at > 0 && table[at as usize - 1] != 0 {
                end.max(at + (1 << at.trailing_zeros()))
            } else {
                end
            };
            let run = (at..limit).take_while(|b| table[*b as usize] == 0).count() as u32;
            let Some((block, order)) = self.allocate(run.ilog2() as usize) else {
                break;
            };
            let table = &mut self.segments.get_mut(slot).table;
            for i in 0..1 << order {
                table[(at + i) as usize] = block + i + 1;
            }
            at += 1 << order;
        }
        let segment = self.segments.get_mut(slot);
        segment.writers -= 1;
        segment.find_origin();
        at >= end
    }

    /// Allocates a run of `1 << order` blocks. If no run of this length is free after a few
    /// evictions, allocates a shorter run, as long as possible. Returns the first block and the
    /// number of blocks.
    fn allocate(&mut self, order: usize) -> Option<(u32, u32)> {
        let found = self.allocate_or_evict(order);
        self.wants_clear |= self.buddy.wants_warm();
        found
    }

    fn allocate_or_evict(&mut self, order: usize) -> Option<(u32, u32)> {
        for smaller in (0..=order).rev() {
            for _ in 0..EVICTIONS_PER_ORDER_MAX {
                if let Some(block) = self.buddy.allocate(smaller) {
                    return Some((block, smaller as u32));
                }
                if self.evict_one().is_none() {
                    break;
                }
            }
            if let Some(block) = self.buddy.allocate(smaller) {
                return Some((block, smaller as u32));
            }
        }
        None
    }

    /// Frees the next segment that is idle and was not used recently.
    pub(super) fn evict_one(&mut self) -> Option<()> {
        let count = self.segments.slot_count();
        for _ in 0..count * CLOCK_ROUNDS_MAX {
            self.hand = if self.hand + 1 >= count { 0 } else { self.hand + 1 };
            let segment = self.segments.get_mut(self.hand as u32);
            if !segment.is_live || !segment.is_idle() {
                continue;
            }
            if segment.reference > 0 {
                segment.reference -= 1;
                continue;
            }
            self.stats.evicted_block_count += u64::from(segment.valid.count_ones());
            self.free_segment(self.hand as u32);
            return Some(());
        }
        None
    }

    /// Frees an idle segment, and also the file's entry if nothing else needs the entry.
    pub(super) fn free_segment(&mut self, slot: u32) {
        debug_assert!(self.segments.get(slot).is_idle());
        let file = self.segments.get(slot).file;
        if file != NONE {
            unlink(&mut self.segments, &mut self.files, slot);
        }
        let segment = self.segments.get_mut(slot);
        let mut mapped = 0u64;
        for (block, place) in segment.table.iter().enumerate() {
            mapped |= u64::from(*place != 0) << block;
        }
        let table = std::mem::replace(&mut segment.table, [0; SEGMENT_BLOCKS]);
        segment.origin = 0;
        for_runs(mapped, |first, end| {
            for_contiguous(&table, first, end, |from, to| {
                self.buddy.free_run(table[from as usize] - 1, to - from);
            });
        });
        self.segments.release(slot);
        if file != NONE {
            self.drop_entry_if_unused(file);
        }
    }

    /// Detaches a segment from its file. Frees the segment immediately if it is idle, otherwise
    /// later, when the clock algorithm finds it idle. The caller must have cleared the segment's
    /// dirty bits.
    pub(super) fn release_segment(&mut self, slot: u32) {
        if self.segments.get(slot).is_idle() {
            self.free_segment(slot);
        } else {
            let segment = self.segments.get_mut(slot);
            segment.reference = 0;
            segment.epoch = segment.epoch.wrapping_add(1);
            let all = block_bits(0, SEGMENT_BLOCKS as u32);
            segment.invalidate(all & !segment.unflushed());
        }
    }

    /// Returns the slots of all segments of a file.
    pub(super) fn slots_of(&self, file: u32) -> Vec<u32> {
        let mut slots = Vec::new();
        let mut slot = self.files.at(file).first_segment;
        while slot != NONE {
            slots.push(slot);
            slot = self.segments.get(slot).next;
        }
        slots
    }

    /// Returns true if a file has no cached blocks except the single run that is being flushed. A
    /// change by another process during the flush then cannot make other cached blocks stale.
    pub(super) fn holds_only(&self, owner: CachedFile, ranges: &BlockList) -> bool {
        let [range] = ranges.as_slice() else { return false };
        let segment = self.segments.get(range.slot);
        let is_only = self.files.get(owner).first_segment == range.slot && segment.next == NONE;
        let others = !block_bits(range.first, range.end);
        is_only && (segment.valid | segment.filling | segment.writing) & others == 0
    }

    /// Frees the blocks of a steadily growing file that were just flushed. The file's next blocks
    /// then reuse the memory while it is in the processor's cache, and the blocks of other files
    /// are not evicted. Blocks at the beginning of the file, and blocks that clients read, are not
    /// freed.
    pub(super) fn free_flushed(&mut self, file: CachedFile, flushed: &BlockList) {
        let entry = self.files.get(file);
        if !entry.is_ripe || entry.pattern == CachePattern::WillNeed {
            return;
        }
        let kept_bytes = (self.block_count * BLOCK_BYTES) as u64 / GROWN_SHARE;
        for range in flushed.iter().filter(|range| range.file_offset >= kept_bytes) {
            let segment = self.segments.get(range.slot);
            if segment.is_live && segment.is_idle() && segment.reference <= REFERENCE_WRITTEN {
                self.free_segment(range.slot);
            }
        }
    }

    /// Drops all clean blocks of a file, because another process has changed it.
    pub(super) fn drop_clean(&mut self, file: u32) {
        for slot in self.slots_of(file) {
            self.release_segment(slot);
        }
    }

    pub(super) fn drop_entry_if_unused(&mut self, file: u32) {
        let entry = self.files.at_mut(file);
        if !entry.is_live || entry.open_count > 0 || entry.is_busy() {
            return;
        }
        // Close the file: blocks that may never be requested again must not keep a descriptor open.
        entry.file = None;
        if entry.first_segment == NONE && entry.error.is_none() {
            if entry.is_queued {
                // The file's dirty data was cut off by a change of size.
                let name = self.files.name(file);
                self.dirty_files.retain(|queued| *queued != name);
            }
            self.files.remove(file);
        }
    }

    /// Returns a job that clears memory before it is needed. The caller passes the job's result to
    /// [`Cache::on_cleared`].
    pub fn poll_clear(&mut self) -> Option<ClearJob> {
        self.wants_clear = false;
        let block = self.buddy.take_to_warm()?;
        Some(ClearJob { arena: self.arena.clone(), block })
    }

    /// Takes the result of a [`ClearJob`]. [`Cache::poll_clear`] may then return another job.
    pub fn on_cleared(&mut self, done: ClearDone) {
        self.buddy.add_warm(done.block);
    }

    /// Releases free huge pages to the kernel: all of them if `is_idle`, otherwise all but a
    /// reserve.
    pub(super) fn trim(&mut self, is_idle: bool) {
        let reserve = if is_idle { 0 } else { WARM_CHUNK_COUNT_MAX };
        for _ in 0..TRIM_CHUNKS_PER_TICK {
            if self.buddy.warm_chunks() <= reserve {
                return;
            }
            if let Some(block) = self.buddy.cool_chunk() {
                let offset = block as usize * BLOCK_BYTES;
                self.arena.discard(offset, CHUNK_BLOCKS * BLOCK_BYTES);
            }
        }
    }
}

/// Removes a segment from its file's list and from the index.
fn unlink(segments: &mut Segments, files: &mut Files, slot: u32) {
    let (file, next, previous) = {
        let segment = segments.get(slot);
        (segment.file, segment.next, segment.previous)
    };
    if previous == NONE {
        files.at_mut(file).first_segment = next;
    } else {
        segments.get_mut(previous).next = next;
    }
    if next != NONE {
        segments.get_mut(next).previous = previous;
    }
    segments.detach(slot);
}

/// Calls `each(first, end)` for every run of a segment's mapped blocks that is contiguous in the
/// arena.
pub(super) fn for_contiguous(
    table: &[u32; SEGMENT_BLOCKS],
    first: u32,
    end: u32,
    mut each: impl FnMut(u32, u32),
) {
    let mut from = first;
    while from < end {
        let mut to = from + 1;
        while to < end && table[to as usize] == table[from as usize] + (to - from) {
            to += 1;
        }
        each(from, to);
        from = to;
    }
}

/// The maximum number of evictions in search of a long run, before a shorter run is accepted.
const EVICTIONS_PER_ORDER_MAX: usize = 4;
/// The number of rounds of the clock algorithm after which it gives up, because all segments are in
/// use. It is one more than the largest value of `Segment::reference`.
const CLOCK_ROUNDS_MAX: usize = REFERENCE_MAX as usize + 1;
/// The value of `Segment::reference` after a hit: the number of times that the clock algorithm
/// spares the segment.
pub(super) const REFERENCE_MAX: u8 = 2;
/// The value of `Segment::reference` for a segment that was written but not read.
pub(super) const REFERENCE_WRITTEN: u8 = 1;
/// The divisor for the part of a growing file that stays cached: the file's beginning, up to the
/// size of the cache divided by this number.
const GROWN_SHARE: u64 = 16;
/// The number of free huge pages kept while the cache is in use.
const WARM_CHUNK_COUNT_MAX: usize = 16;
/// The maximum number of huge pages released in one tick, because each costs a system call.
const TRIM_CHUNKS_PER_TICK: usize = 8;
