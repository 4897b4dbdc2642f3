//! Jobs: work that takes time, as values that run on any thread and return results.
//!
//! Invariant: a job owns everything it touches (the file, a reference to the arena, its ranges),
//! and the cache keeps those ranges in place until the result is back. A job that is dropped
//! without being run leaves its blocks busy for ever: run every job, or report its failure.

use std::sync::Arc;

use arrayvec::ArrayVec;
use dafs_memory::{HUGE_PAGE_BYTES, Memory};

use super::{BLOCK_BYTES, CachedFile};
use crate::error::{Result, StoreError};
use crate::file::{File, FileVersion};

/// Contiguous blocks of one segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// The slot of the segment.
    pub slot: u32,
    /// The segment's epoch at the start.
    pub epoch: u32,
    /// The number of the first block.
    pub first: u32,
    /// The block after the last one.
    pub end: u32,
    /// The position of the first block in the arena, in bytes.
    pub memory_offset: usize,
    /// The position of the first block in the file, in bytes.
    pub file_offset: u64,
    /// The number of bytes to move.
    pub length: usize,
}

/// The ranges of one job.
pub(super) type BlockList = ArrayVec<Blocks, JOB_RANGE_COUNT_MAX>;

/// Makes the kernel allocate and clear a huge page of the arena.
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
    /// Runs the job. This blocks; any thread may call it.
    #[must_use]
    pub fn run(self) -> ClearDone {
        self.arena.populate(self.block as usize * BLOCK_BYTES, HUGE_PAGE_BYTES);
        self.skipped()
    }

    /// The result if the job is not run. The memory is then cleared when it is used.
    #[must_use]
    pub fn skipped(&self) -> ClearDone {
        ClearDone { block: self.block }
    }
}

/// Reads blocks from a file into the arena.
pub struct FillJob {
    pub(super) owner: CachedFile,
    pub(super) file: Arc<dyn File>,
    pub(super) arena: Memory,
    pub(super) ranges: BlockList,
    /// The size of the file as the cache knows it. Bytes after it are not read, unless the read is
    /// for a write.
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
    /// Runs the job. This blocks; any thread may call it.
    #[must_use]
    pub fn run(self) -> FillDone {
        self.run_in_parts(|| ())
    }

    /// Like [`FillJob::run`]. `pause` is called before each part of at most 256 KiB.
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
                // Bytes after the end read as zeros, now and after an extension.
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

    /// The result if the job cannot be finished.
    #[must_use]
    pub fn failed(&self, error: StoreError) -> FillDone {
        FillDone { owner: self.owner, ranges: self.ranges.clone(), result: Err(error) }
    }
}

/// Writes dirty blocks to a file.
pub struct FlushJob {
    pub(super) owner: CachedFile,
    pub(super) file: Arc<dyn File>,
    pub(super) arena: Memory,
    pub(super) ranges: BlockList,
    /// True if the version before the write is needed, to detect changes by other processes.
    pub(super) asks_before: bool,
}

/// The result of a [`FlushJob`].
#[derive(Debug)]
pub struct FlushDone {
    pub(super) owner: CachedFile,
    pub(super) ranges: BlockList,
    pub(super) result: Result<()>,
    /// The file's version before the first write, if it was needed, and after the last one. They
    /// distinguish our own change from one by another process.
    pub(super) before: Option<FileVersion>,
    pub(super) after: Option<FileVersion>,
}

impl FlushJob {
    /// Runs the job. This blocks; any thread may call it.
    #[must_use]
    pub fn run(self) -> FlushDone {
        self.run_in_parts(|| ())
    }

    /// Like [`FlushJob::run`]. `pause` is called before each part of at most 256 KiB.
    #[must_use]
    pub fn run_in_parts(self, pause: impl Fn()) -> FlushDone {
        let before = if self.asks_before { self.file.version().ok() } else { None };
        let result = self.ranges.iter().try_for_each(|range| {
            pause();
            self.file.write_at(&self.arena, range.memory_offset, range.length, range.file_offset)
        });
        if result.is_err() {
            // Any part of the data may have reached the file, so its content is a new one.
            self.file.mark_changed();
        }
        let after = self.file.version().ok();
        FlushDone { owner: self.owner, ranges: self.ranges, result, before, after }
    }

    /// The result if the job cannot be finished.
    #[must_use]
    pub fn failed(&self, error: StoreError) -> FlushDone {
        let (owner, ranges) = (self.owner, self.ranges.clone());
        FlushDone { owner, ranges, result: Err(error), before: None, after: None }
    }
}

/// Makes a file's written data stable.
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
    /// Runs the job. This blocks; any thread may call it.
    #[must_use]
    pub fn run(self) -> SyncDone {
        let result = self.file.sync(self.data_only);
        if result.is_err() {
            // The kernel may have dropped written data without a new stamp.
            self.file.mark_changed();
        }
        SyncDone { owner: self.owner, result }
    }

    /// The result if the job cannot be finished.
    #[must_use]
    pub fn failed(&self, error: StoreError) -> SyncDone {
        SyncDone { owner: self.owner, result: Err(error) }
    }
}

/// Changes a file's size.
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
    /// Runs the job. This blocks; any thread may call it.
    #[must_use]
    pub fn run(self) -> SizeDone {
        let before = self.file.version().ok();
        let result = self.file.set_size(self.size);
        let after = self.file.version().ok();
        SizeDone { owner: self.owner, size: self.size, result, before, after }
    }

    /// The result if the job cannot be finished.
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

/// The most ranges in one job. With contiguous memory they cover 4 MiB.
pub(super) const JOB_RANGE_COUNT_MAX: usize = 16;
