//! Jobs: values that stand for work that blocks. A job can run on any thread, and returns a result.
//!
//! Invariant: a job owns everything it touches (the file, a reference to the arena, its ranges),
//! and the cache keeps these ranges in place until the job's result is returned. The blocks of a
//! job that is dropped without being run stay busy for ever. Therefore run every job, or report its
//! failure.

use std::sync::Arc;

use arrayvec::ArrayVec;
use dafs_memory::{HUGE_PAGE_BYTES, Memory};

use super::{BLOCK_BYTES, CachedFile};
use crate::error::{Result, StoreError};
use crate::file::{File, FileVersion};

/// A range of contiguous blocks of one segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// The slot of the segment.
    pub slot: u32,
    /// The segment's epoch at the time when the job was created.
    pub epoch: u32,
    /// The number of the first block.
    pub first: u32,
    /// The number of the block after the range.
    pub end: u32,
    /// The offset of the first block in the arena, in bytes.
    pub memory_offset: usize,
    /// The offset of the first block in the file, in bytes.
    pub file_offset: u64,
    /// The number of bytes to move.
    pub length: usize,
}

/// The ranges of one job.
pub(super) type BlockList = ArrayVec<Blocks, JOB_RANGE_COUNT_MAX>;

/// A job that makes the kernel allocate and clear a huge page of the arena.
pub struct ClearJob {
    pub(super) arena: Memory,
    /// The first block of the huge page.
    pub(super) block: u32,
}

/// The result of a [`ClearJob`].
#[derive(Debug)]
pub struct ClearDone {
    pub(super) block: u32,
}

impl ClearJob {
    /// Runs the job. This call blocks; any thread may make it.
    #[must_use]
    pub fn run(self) -> ClearDone {
        self.arena.populate(self.block as usize * BLOCK_BYTES, HUGE_PAGE_BYTES);
        self.skipped()
    }

    /// Returns the result for a job that is not run. The kernel then clears the memory when it is
    /// first used.
    #[must_use]
    pub fn skipped(&self) -> ClearDone {
        ClearDone { block: self.block }
    }
}

/// A job that reads blocks from a file into the arena.
pub struct FillJob {
    pub(super) owner: CachedFile,
    pub(super) file: Arc<dyn File>,
    pub(super) arena: Memory,
    pub(super) ranges: BlockList,
    /// The size of the file, as the cache knows it. The job does not read bytes after this size,
    /// unless it reads blocks to complete a partial write.
    pub(super) size: u64,
}

/// The result of a [`FillJob`].
#[derive(Debug)]
pub struct FillDone {
    pub(super) owner: CachedFile,
    pub(super) ranges: BlockList,
    pub(super) result: Result<()>,
}

impl FillDone {
    /// Returns true if the file could not be read.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.result.is_err()
    }
}

impl FillJob {
    /// Runs the job. This call blocks; any thread may make it.
    #[must_use]
    pub fn run(self) -> FillDone {
        self.run_in_parts(|| ())
    }

    /// Runs the job like [`FillJob::run`], in steps of at most 256 KiB. Calls `pause` before each
    /// step.
    #[must_use]
    pub fn run_in_parts(self, pause: impl Fn()) -> FillDone {
        let mut result = Ok(());
        for range in &self.ranges {
            pause();
            let there = self.size.saturating_sub(range.file_offset);
            let length = range.length.min(usize::try_from(there).unwrap_or(usize::MAX));
            let (memory, offset) = (range.memory_offset, range.file_offset);
            let read = self.file.read_at(&self.arena, memory, length, offset);
            match read {
                // Bytes after the end of the file read as zeros, now and after an extension.
                Ok(count) if count < range.length => {
                    self.arena.zero(range.memory_offset + count, range.length - count);
                }
                Ok(_) => {}
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        FillDone { owner: self.owner, ranges: self.ranges, result }
    }

    /// Returns the result for a job that cannot be run to its end.
    #[must_use]
    pub fn failed(&self, error: StoreError) -> FillDone {
        FillDone { owner: self.owner, ranges: self.ranges.clone(), result: Err(error) }
    }
}

/// A job that writes dirty blocks to a file.
pub struct FlushJob {
    pub(super) owner: CachedFile,
    pub(super) file: Arc<dyn File>,
    pub(super) arena: Memory,
    pub(super) ranges: BlockList,
    /// True if the job must read the file's version before the write, so that the cache detects
    /// changes by other processes.
    pub(super) asks_before: bool,
}

/// The result of a [`FlushJob`].
#[derive(Debug)]
pub struct FlushDone {
    pub(super) owner: CachedFile,
    pub(super) ranges: BlockList,
    pub(super) result: Result<()>,
    /// The file's version before the first write, if the job had to read it. With this version and
    /// the version after the last write, the cache can tell its own change from a change by another
    /// process.
    pub(super) before: Option<FileVersion>,
    pub(super) after: Option<FileVersion>,
}

impl FlushJob {
    /// Runs the job. This call blocks; any thread may make it.
    #[must_use]
    pub fn run(self) -> FlushDone {
        self.run_in_parts(|| ())
    }

    /// Runs the job like [`FlushJob::run`], in steps of at most 256 KiB. Calls `pause` before each
    /// step.
    #[must_use]
    pub fn run_in_parts(self, pause: impl Fn()) -> FlushDone {
        let before = if self.asks_before { self.file.version().ok() } else { None };
        let result = self.ranges.iter().try_for_each(|range| {
            pause();
            self.file.write_at(&self.arena, range.memory_offset, range.length, range.file_offset)
        });
        if result.is_err() {
            // Part of the data may have reached the file, so mark its content as changed.
            self.file.mark_changed();
        }
        let after = self.file.version().ok();
        FlushDone { owner: self.owner, ranges: self.ranges, result, before, after }
    }

    /// Returns the result for a job that cannot be run to its end.
    #[must_use]
    pub fn failed(&self, error: StoreError) -> FlushDone {
        let (owner, ranges) = (self.owner, self.ranges.clone());
        FlushDone { owner, ranges, result: Err(error), before: None, after: None }
    }
}

/// A job that makes the written data of a file stable.
pub struct SyncJob {
    pub(super) owner: CachedFile,
    pub(super) file: Arc<dyn File>,
    pub(super) data_only: bool,
}

/// The result of a [`SyncJob`].
#[derive(Debug)]
pub struct SyncDone {
    pub(super) owner: CachedFile,
    pub(super) result: Result<()>,
}

impl SyncJob {
    /// Runs the job. This call blocks; any thread may make it.
    #[must_use]
    pub fn run(self) -> SyncDone {
        let result = self.file.sync(self.data_only);
        if result.is_err() {
            // The kernel may have dropped written data without a new time stamp.
            self.file.mark_changed();
        }
        SyncDone { owner: self.owner, result }
    }

    /// Returns the result for a job that cannot be run to its end.
    #[must_use]
    pub fn failed(&self, error: StoreError) -> SyncDone {
        SyncDone { owner: self.owner, result: Err(error) }
    }
}

/// A job that changes the size of a file.
pub struct SizeJob {
    pub(super) owner: CachedFile,
    pub(super) file: Arc<dyn File>,
    pub(super) size: u64,
}

/// The result of a [`SizeJob`].
#[derive(Debug)]
pub struct SizeDone {
    pub(super) owner: CachedFile,
    pub(super) size: u64,
    pub(super) result: Result<()>,
    pub(super) before: Option<FileVersion>,
    pub(super) after: Option<FileVersion>,
}

impl SizeJob {
    /// Runs the job. This call blocks; any thread may make it.
    #[must_use]
    pub fn run(self) -> SizeDone {
        let before = self.file.version().ok();
        let result = self.file.set_size(self.size);
        let after = self.file.version().ok();
        SizeDone { owner: self.owner, size: self.size, result, before, after }
    }

    /// Returns the result for a job that cannot be run to its end.
    #[must_use]
    pub fn failed(&self, error: StoreError) -> SizeDone {
        let (owner, size) = (self.owner, self.size);
        SizeDone { owner, size, result: Err(error), before: None, after: None }
    }
}

macro_rules! debug_by_owner {
    ($($job:ident),*) => {
        $(impl std::fmt::Debug for $job {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut text = f.debug_struct(stringify!($job));
                text.field("owner", &self.owner).finish_non_exhaustive()
            }
        })*
    };
}
debug_by_owner!(FillJob, FlushJob, SyncJob, SizeJob);

/// The maximum number of ranges in one job. If the blocks of each segment are contiguous in memory,
/// the ranges cover 4 MiB.
pub(super) const JOB_RANGE_COUNT_MAX: usize = 16;
