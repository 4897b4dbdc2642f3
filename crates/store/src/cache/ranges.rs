//! Changes of a range of a file other than writes, and searches for holes.
//!
//! Invariants:
//! - While such a change is in progress, nothing else changes the file or the cached content, as
//!   with a change of size. Dirty data of the range is in the file before the change, so that a
//!   later flush cannot undo the change.
//! - No block that the cache has and the file does not have yet is reported as a hole.

use std::ops::Range;
use std::sync::Arc;

use dafs_memory::{Memory, Pages};
use dafs_ops::SeekFor;

use super::segment::{SEGMENT_BLOCKS, SEGMENT_BYTES, block_bits, for_runs};
use super::{BLOCK_BYTES, Cache, CachedFile, Progress};
use crate::error::{Result, StoreError};
use crate::file::{CopySpan, File, FileVersion};

/// What is done to a range of a file.
#[derive(Clone)]
pub enum RangeWork {
    /// Reserves storage for the range.
    Allocate,
    /// Frees the storage of the range.
    Deallocate,
    /// Makes the range share the storage of a range of another file.
    Clone {
        /// The other file. Its data must have been written to it.
        source: Arc<dyn File>,
        /// The offset in the other file of the first byte.
        offset: u64,
    },
    /// Copies a range of another file.
    Copy {
        /// The other file. Its data must have been written to it.
        source: Arc<dyn File>,
        /// The offset in the other file of the first byte.
        offset: u64,
    },
    /// Searches for data or for a hole, from the offset of the range.
    Seek(SeekFor),
    /// Lists the holes of the range.
    ListHoles,
}

impl RangeWork {
    /// Returns true if the work may change the content of the range.
    #[must_use]
    pub fn replaces_content(&self) -> bool {
        match self {
            Self::Deallocate | Self::Clone { .. } | Self::Copy { .. } => true,
            Self::Allocate | Self::Seek(_) | Self::ListHoles => false,
        }
    }

    fn changes_file(&self) -> bool {
        !matches!(self, Self::Seek(_) | Self::ListHoles)
    }
}

impl std::fmt::Debug for RangeWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Allocate => "Allocate",
            Self::Deallocate => "Deallocate",
            Self::Clone { .. } => "Clone",
            Self::Copy { .. } => "Copy",
            Self::Seek(_) => "Seek",
            Self::ListHoles => "ListHoles",
        })
    }
}

/// The next step of [`Cache::work_on_range`].
#[derive(Debug)]
pub enum RangeStep {
    /// Run the job and pass its result to [`Cache::on_ranged`].
    Job(RangeJob),
    /// Dirty data of the range must be written to the file first. Commit the range without a sync,
    /// and call [`Cache::work_on_range`] again.
    Dirty,
    /// Call [`Cache::work_on_range`] again on progress of this file.
    Wait,
}

/// A job that does work on a range of a file.
pub struct RangeJob {
    owner: CachedFile,
    file: Arc<dyn File>,
    work: RangeWork,
    offset: u64,
    length: u64,
    /// The parts of the range that the cache has and the file does not have yet, in ascending order
    /// (for [`RangeWork::ListHoles`]).
    unwritten: Vec<Range<u64>>,
}

/// The result of a [`RangeJob`].
#[derive(Debug)]
pub struct RangeDone {
    owner: CachedFile,
    offset: u64,
    length: u64,
    replaces_content: bool,
    changes_file: bool,
    /// The number of bytes copied, the offset that a search has found, or 0 for other work.
    pub result: Result<u64>,
    /// The holes that [`RangeWork::ListHoles`] has found, in ascending order: at most
    /// [`HOLES_MAX`]. The parts of the range between them, and after the last one, may contain
    /// smaller or more holes.
    pub holes: Vec<Range<u64>>,
    before: Option<FileVersion>,
    after: Option<FileVersion>,
}

impl RangeJob {
    /// Runs the job. This call blocks; any thread may make it. Calls `pause` before each step.
    #[must_use]
    pub fn run_in_parts(self, pause: impl Fn()) -> RangeDone {
        if let RangeWork::ListHoles = self.work {
            pause();
            return match self.holes() {
                Ok(holes) => RangeDone { result: Ok(0), holes, ..self.failed(StoreError::Fault) },
                Err(error) => self.failed(error),
            };
        }
        let before = self.file.version().ok();
        let result = self.work_now(&pause);
        if result.is_err() && self.work.replaces_content() {
            // Part of the range may have been changed, so mark the content as changed.
            self.file.mark_changed();
        }
        let after = self.file.version().ok();
        RangeDone { result, before, after, ..self.failed(StoreError::Fault) }
    }

    fn work_now(&self, pause: &impl Fn()) -> Result<u64> {
        let Self { file, offset, length, .. } = self;
        pause();
        let span = |from: u64| CopySpan { source_offset: from, offset: *offset, length: *length };
        match &self.work {
            RangeWork::Allocate => file.allocate(*offset, *length).map(|()| 0),
            RangeWork::Deallocate => file.deallocate(*offset, *length).map(|()| 0),
            RangeWork::Clone { source, offset: from } => {
                file.clone_range(&**source, span(*from)).map(|()| *length)
            }
            RangeWork::Copy { source, offset: from } => {
                match file.copy_range(&**source, span(*from)) {
                    Err(StoreError::NotSupported) => {
                        copy_through_memory(&**file, &**source, span(*from), pause)
                    }
                    copied => copied,
                }
            }
            RangeWork::Seek(what) => file.seek(*offset, *what),
            RangeWork::ListHoles => Ok(0),
        }
    }

    /// Returns the holes of the range.
    fn holes(&self) -> Result<Vec<Range<u64>>> {
        let end = self.offset.saturating_add(self.length);
        let (mut at, mut found) = (self.offset, Vec::new());
        while at < end && found.len() < HOLES_MAX {
            // The file may end before the range does, because the cache knows a larger size.
            let hole = match self.file.seek(at, SeekFor::Hole) {
                Err(StoreError::NoDevice) => at,
                hole => hole?,
            };
            if hole >= end {
                break;
            }
            let data = match self.file.seek(hole, SeekFor::Data) {
                Err(StoreError::NoDevice) => end,
                data => data?.min(end),
            };
            if data <= at {
                // A local process is changing the file.
                break;
            }
            without(hole..data, &self.unwritten, &mut found);
            at = data;
        }
        found.truncate(HOLES_MAX);
        Ok(found)
    }

    /// Returns the result for a job that cannot be run to its end.
    #[must_use]
    pub fn failed(&self, error: StoreError) -> RangeDone {
        RangeDone {
            owner: self.owner,
            offset: self.offset,
            length: self.length,
            replaces_content: self.work.replaces_content(),
            changes_file: self.work.changes_file(),
            result: Err(error),
            holes: Vec::new(),
            before: None,
            after: None,
        }
    }
}

impl std::fmt::Debug for RangeJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RangeJob").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// Adds to `out` the parts of a hole that are in none of these ranges, which are in ascending
/// order. Leaves out parts that are smaller than a block.
fn without(hole: Range<u64>, ranges: &[Range<u64>], out: &mut Vec<Range<u64>>) {
    let mut at = hole.start;
    let mut add = |part: Range<u64>| {
        if part.end.saturating_sub(part.start) >= BLOCK_BYTES as u64 {
            out.push(part);
        }
    };
    for range in ranges.iter().filter(|range| range.start < hole.end && range.end > hole.start) {
        add(at..range.start);
        at = at.max(range.end);
    }
    add(at..hole.end);
}

/// Copies a range by reads and writes, for stores that cannot copy within themselves.
fn copy_through_memory(
    file: &dyn File,
    source: &dyn File,
    span: CopySpan,
    pause: &impl Fn(),
) -> Result<u64> {
    let part = span.length.min(MEMORY_BYTES) as usize;
    let memory = Memory::anonymous(part, Pages::Small).map_err(|_| StoreError::Resource)?;
    let mut done = 0;
    while done < span.length {
        pause();
        let length = (span.length - done).min(part as u64) as usize;
        let count = source.read_at(&memory, 0, length, span.source_offset + done)?;
        if count == 0 {
            break;
        }
        file.write_at(&memory, 0, count, span.offset + done)?;
        done += count as u64;
    }
    Ok(done)
}

impl Cache {
    /// Starts work on a range of a file. A change must not overlap any other job of the file.
    pub fn work_on_range(
        &mut self,
        file: CachedFile,
        work: RangeWork,
        (offset, length): (u64, u64),
    ) -> RangeStep {
        let end = offset.saturating_add(length);
        let entry = self.files.get_mut(file);
        let is_busy = entry.is_flushing || entry.is_sizing || entry.is_syncing;
        let Some(handle) = entry.file.clone() else { return RangeStep::Wait };
        if work.changes_file() {
            if is_busy || entry.fill_count > 0 || entry.writer_count > 0 {
                return RangeStep::Wait;
            }
            let segments = offset / SEGMENT_BYTES..end.div_ceil(SEGMENT_BYTES);
            if work.replaces_content() && entry.dirty.first_in(segments).is_some() {
                return RangeStep::Dirty;
            }
            (entry.is_sizing, entry.is_shown_ahead) = (true, false);
        }
        let unwritten = match work {
            RangeWork::ListHoles => self.unwritten(file, (offset, length)),
            _ => Vec::new(),
        };
        RangeStep::Job(RangeJob { owner: file, file: handle, work, offset, length, unwritten })
    }

    /// Returns the parts of a range that the cache has and the file does not have yet, in ascending
    /// order. They consist of whole blocks.
    #[must_use]
    pub fn unwritten(&self, file: CachedFile, (offset, length): (u64, u64)) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        let end = offset.saturating_add(length);
        for number in offset / SEGMENT_BYTES..end.div_ceil(SEGMENT_BYTES) {
            let Some(slot) = self.segments.find(file.index, number) else { continue };
            let base = number * SEGMENT_BYTES;
            for_runs(self.segments.get(slot).unflushed(), |first, last| {
                let place = |block: u32| base + u64::from(block) * BLOCK_BYTES as u64;
                let (from, to) = (place(first), place(last));
                match found.last_mut() {
                    Some(before) if before.end == from => before.end = to,
                    _ => found.push(from..to),
                }
            });
        }
        found.retain(|part| part.start < end && part.end > offset);
        found
    }

    /// Returns the open file of a token. `None` if the file is closed.
    #[must_use]
    pub fn open_file(&self, file: CachedFile) -> Option<Arc<dyn File>> {
        self.files.get(file).file.clone()
    }

    /// Takes the result of a [`RangeJob`]. The error of a failed job is only in the result.
    pub fn on_ranged(&mut self, done: &RangeDone) -> Progress {
        let file = done.owner;
        if done.changes_file {
            if done.result.is_ok() || done.replaces_content {
                self.note_ranged(file, done);
            }
            self.files.get_mut(file).is_sizing = false;
            self.drop_entry_if_unused(file.index);
        }
        Progress { file, error: None }
    }

    fn note_ranged(&mut self, file: CachedFile, done: &RangeDone) {
        // As with a change of size, the file has changed before the cached content did.
        let is_stamped = done.before.zip(done.after).is_some_and(|(before, after)| {
            before.time_metadata < after.time_metadata || before.size != after.size
        });
        if self.files.get(file).is_shown_ahead || !is_stamped {
            self.note_change(file);
        }
        if done.replaces_content {
            self.drop_blocks(file, done.offset, done.offset.saturating_add(done.length));
        }
        let entry = self.files.get_mut(file);
        entry.is_unsynced = true;
        entry.size = entry.size.max(done.after.map_or(0, |after| after.size));
        self.note_version(file, done.before, done.after, done.result.is_ok());
    }

    /// Drops the blocks that a range touches. None of them is dirty.
    fn drop_blocks(&mut self, file: CachedFile, offset: u64, end: u64) {
        for slot in self.slots_of(file.index) {
            let segment = self.segments.get_mut(slot);
            let base = segment.number * SEGMENT_BYTES;
            if base >= end || base + SEGMENT_BYTES <= offset {
                continue;
            }
            let block = |offset: u64| (offset.saturating_sub(base) / BLOCK_BYTES as u64) as u32;
            let last = (end - base).div_ceil(BLOCK_BYTES as u64).min(SEGMENT_BLOCKS as u64) as u32;
            let touched = block_bits(block(offset), last);
            segment.invalidate(touched & !segment.unflushed());
            // A fill that is in progress may have read the old content.
            segment.epoch = segment.epoch.wrapping_add(1);
            if segment.valid == 0 && segment.is_idle() {
                self.free_segment(slot);
            }
        }
    }
}

/// The maximum number of bytes that one job copies, so that it does not keep other requests for the
/// file waiting for long.
pub const COPY_BYTES_MAX: u64 = 4 << 20;
/// The maximum number of holes that one job lists.
pub const HOLES_MAX: usize = 8;
/// The number of bytes of the memory through which bytes are copied.
const MEMORY_BYTES: u64 = 256 << 10;
