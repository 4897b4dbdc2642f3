//! The server's data cache: blocks of files, 4 KiB each, in one arena.
//!
//! Invariant: the calls of the cache's owner never block, never do I/O, and never free or reuse
//! arena memory that a transfer or a job still uses. Work that blocks is returned as a job: the
//! caller runs the job on another thread and passes its result back to the cache.
//!
//! How a server uses it:
//! - OPEN: [`Cache::open`] with the version just read. CLOSE: [`Cache::commit_begin`] without a
//!   sync
//! - READ: [`Cache::read`]. On `Hit` the pieces are pinned: send them, and release each [`Pin`]
//!   with [`Cache::unpin`] when the transport has completed the send. A hit may be short: call
//!   [`Cache::read`] again for the remaining bytes. On `Miss`, call [`Cache::plan_fill`], run its
//!   jobs, pass each result to [`Cache::on_filled`], and retry the requests that wait for that
//!   file.
//! - WRITE: [`Cache::prepare_write`]; move the bytes into the spans; then [`Cache::write_done`] (or
//!   [`Cache::write_abort`]). For DATA_SYNC and FILE_SYNC, commit the range after that.
//! - COMMIT: [`Cache::commit_begin`], then [`Cache::commit_step`] until `Done`.
//! - Regularly, after a result of `Pressure`, after each flush, and when [`Cache::wants_jobs`]
//!   returns true: [`Cache::on_tick`], [`Cache::poll_flush`], [`Cache::poll_clear`].
//!
//! "Progress on a file" means that the result of one of its jobs was passed to the cache, or that
//! one of its writes or pins ended. Requests that were told to wait must then be tried again.

mod buddy;
mod files;
mod flush;
mod jobs;
mod numbers;
mod ranges;
mod read;
mod segment;
mod space;
mod write;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dafs_memory::{HUGE_PAGE_BYTES, Memory, Pages};
use dafs_types::{FileHandle, Moment, SetTime, Stability, Timestamp};

use buddy::Buddy;
use files::Files;
use segment::Segments;

pub use jobs::{
    ClearDone, ClearJob, FillDone, FillJob, FlushDone, FlushJob, SizeDone, SizeJob, SyncDone,
    SyncJob,
};

pub use ranges::{COPY_BYTES_MAX, HOLES_MAX, RangeDone, RangeJob, RangeStep, RangeWork};

use crate::attributes::Attributes;
use crate::change::{self, Clocks};
use crate::error::{Result, StoreError};
use crate::file::{File, FileVersion};

/// The configuration of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// The size of the arena in bytes, rounded up to a multiple of 2 MiB.
    pub arena_bytes: usize,
    /// The maximum number of dirty bytes, which clients have written and the cache has not written
    /// to the file system yet.
    pub dirty_bytes_max: usize,
    /// The age at which dirty data is written to the file system.
    pub write_back_age: Duration,
    /// The maximum number of bytes prefetched for a sequential reader.
    pub read_ahead_bytes_max: u32,
    /// The maximum number of known files: files that are open or have cached blocks.
    pub file_count_max: usize,
}

/// A token for a file of the cache. Valid from [`Cache::open`] to the matching [`Cache::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CachedFile {
    index: u32,
    generation: u32,
}

/// A reference that keeps the memory of one piece in place. Each pin must be released with
/// [`Cache::unpin`] exactly once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "memory stays pinned until the pin is given back"]
pub struct Pin(u32);

/// A contiguous part of the arena to read from.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// The offset in the arena, in bytes.
    pub offset: u64,
    /// The number of bytes.
    pub length: u32,
    /// The pin that keeps the piece in place.
    pub pin: Pin,
}

/// A contiguous part of the arena to write to. The write's [`WriteToken`] keeps the memory in
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The offset in the arena, in bytes.
    pub offset: u64,
    /// The number of bytes.
    pub length: u32,
}

/// The spans that [`Cache::prepare_write`] returns, in file order.
pub type Spans = arrayvec::ArrayVec<Span, PIECE_COUNT_MAX>;

/// The pieces that [`Cache::read`] returns, in file order.
pub type Pieces = arrayvec::ArrayVec<Piece, PIECE_COUNT_MAX>;

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The first block is cached, so pieces were added.
    Hit {
        /// The number of bytes in the pieces that were added. It is 0 only at or after the end of
        /// the file, or if the list of pieces was full.
        length: u32,
        /// True if the file ends after these bytes.
        is_end: bool,
        /// True if a sequential reader is near the end of the cached data. The caller should then
        /// call [`Cache::plan_ahead`].
        wants_more: bool,
    },
    /// The first block is not cached.
    Miss,
}

/// The result of [`Cache::plan_fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    /// Jobs were added. Run them, and try again when the result of one of them was passed to the
    /// cache.
    Jobs,
    /// A job or write of another request will provide the data. Try again on progress of the file.
    Wait,
    /// No memory can be freed now. Call [`Cache::poll_flush`], and try again on progress of any
    /// file.
    Pressure,
    /// All requested data is cached already.
    Ready,
}

/// The result of [`Cache::prepare_write`].
#[derive(Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Move the bytes into the added spans, then call [`Cache::write_done`].
    Ready(WriteToken),
    /// Blocks that the write covers only in part must be read first, for which jobs were added. Try
    /// again when the jobs' results were passed to the cache.
    Fill,
    /// A job or another write uses the blocks. Try again on progress of this file.
    Wait,
    /// Too many blocks are dirty, or no memory can be freed. Call [`Cache::poll_flush`], and try
    /// again on progress of any file.
    Pressure,
    /// An earlier write of this file was lost, and the loss was not reported to any client. If
    /// [`Cache::take_loss`] returns an error for the writer, report that error to the writer;
    /// otherwise continue with [`Cache::prepare_write_anyhow`].
    Lost(StoreError),
    /// The bytes cannot be written because of this error.
    Failed(StoreError),
}

/// A token for a write whose bytes are being moved into the arena.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "must end in write_done or write_abort"]
pub struct WriteToken {
    file: CachedFile,
    offset: u64,
    length: u32,
}

impl WriteToken {
    /// Returns the number of bytes in the spans, which may be fewer than requested.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }
}

/// The client to which a commit reports losses of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// A client that was told about this number of the file's losses ([`Cache::losses`]). The
    /// commit reports all later losses.
    Who(u32),
    /// An unknown client. The commit reports losses that were not reported to any client.
    Anybody,
    /// No client. The commit reports to its caller the losses that happen while it runs. These
    /// losses are also reported to clients later.
    Nobody,
}

/// A commit in progress. See [`Cache::commit_begin`].
#[derive(Debug)]
pub struct CommitTicket {
    file: CachedFile,
    /// The next segment to check for dirty blocks.
    next: u64,
    end: u64,
    stability: Stability,
    listener: Listener,
    /// A count of the file's losses. The commit reports only losses after this count.
    loss_count: u32,
    /// The number of finished syncs of the file at the time when the commit's own sync was started.
    /// `None` if it was not started yet.
    synced_after: Option<u32>,
}

/// The next step of a commit. The large variants are not boxed, because a job is moved only once.
#[derive(Debug)]
#[expect(clippy::large_enum_variant)]
pub enum CommitStep {
    /// Run the job, call [`Cache::on_flushed`], and call [`Cache::commit_step`] again.
    Flush(FlushJob),
    /// Run the job, call [`Cache::on_synced`], and call [`Cache::commit_step`] again.
    Sync(SyncJob),
    /// Call [`Cache::commit_step`] again on progress of this file.
    Wait,
    /// The commit has ended: the range is as stable as requested, or some data was lost.
    Done(Result<()>),
}

/// The next step of [`Cache::set_size`].
#[derive(Debug)]
pub enum SizeStep {
    /// Run the job and call [`Cache::on_sized`], which returns the result.
    Job(SizeJob),
    /// Call [`Cache::set_size`] again on progress of this file.
    Wait,
}

/// Reports progress on a file: requests that wait for this file must be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "requests that wait for this file must be tried again"]
pub struct Progress {
    /// The file that made progress.
    pub file: CachedFile,
    /// The error if a job failed. Requests that wait for the job's range fail with this error.
    pub error: Option<StoreError>,
}

/// Statistics of the cache: counters since the start, and current amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// The number of reads served from the arena.
    pub hit_count: u64,
    /// The number of reads whose first block was missing.
    pub miss_count: u64,
    /// The number of bytes that hits returned.
    pub hit_bytes: u64,
    /// The number of bytes read from files.
    pub fill_bytes: u64,
    /// The number of bytes that clients wrote to the cache.
    pub write_bytes: u64,
    /// The number of bytes written to files.
    pub flush_bytes: u64,
    /// The number of blocks evicted to make room.
    pub evicted_block_count: u64,
    /// The number of unstable bytes dropped after a write error.
    pub lost_bytes: u64,
    /// The number of bytes that are dirty or being flushed.
    pub dirty_bytes: u64,
    /// The number of bytes of the arena in use.
    pub used_bytes: u64,
    /// The number of known files.
    pub file_count: u64,
}

/// The data cache of a server. The [module](self) explains how to use it.
pub struct Cache {
    config: CacheConfig,
    arena: Memory,
    buddy: Buddy,
    block_count: usize,
    segments: Segments,
    files: Files,
    /// The files with dirty data, oldest first.
    dirty_files: VecDeque<CachedFile>,
    /// The files that have grown so much that they should be flushed now.
    ripe_files: VecDeque<CachedFile>,
    /// The closed files in the order in which they were closed, each with the number of its close.
    /// If there are too many closed files, those that were closed first are dropped.
    closed: VecDeque<(CachedFile, u64)>,
    close_count: u64,
    dirty_blocks: usize,
    dirty_blocks_max: usize,
    /// The maximum number of bytes that one plan or one write covers. Without this limit, a plan or
    /// write could evict its own blocks.
    plan_bytes_max: u64,
    has_pressure: bool,
    wants_flush: bool,
    wants_clear: bool,
    is_stopping: bool,
    hand: usize,
    now: Moment,
    /// The cache's own time when it last read the calendar clock, and the calendar time that it
    /// read.
    calendar: (Moment, Timestamp),
    active_at: Moment,
    activity_seen: u64,
    loss_count: u64,
    stats: CacheStats,
}

impl Cache {
    /// Creates an empty cache. The arena only reserves address space; its pages are allocated on
    /// first use.
    ///
    /// # Errors
    /// The error of `mmap`.
    pub fn new(config: CacheConfig) -> std::io::Result<Self> {
        let arena_bytes = config.arena_bytes.max(1).next_multiple_of(HUGE_PAGE_BYTES);
        let chunk_count = u32::try_from(arena_bytes / HUGE_PAGE_BYTES)
            .ok()
            .filter(|count| *count <= CHUNK_COUNT_MAX)
            .ok_or(std::io::ErrorKind::InvalidInput)?;
        let block_count = arena_bytes / BLOCK_BYTES;
        Ok(Self {
            arena: Memory::anonymous(arena_bytes, Pages::Huge)?,
            buddy: Buddy::new(chunk_count),
            block_count,
            segments: Segments::new((block_count / BLOCKS_PER_SEGMENT_MIN).max(64)),
            files: Files::new(config.file_count_max.max(1)),
            dirty_files: VecDeque::new(),
            ripe_files: VecDeque::new(),
            closed: VecDeque::new(),
            close_count: 0,
            dirty_blocks: 0,
            dirty_blocks_max: (config.dirty_bytes_max / BLOCK_BYTES).clamp(1, block_count),
            plan_bytes_max: (arena_bytes as u64 / 8).min(PLAN_BYTES_MAX),
            has_pressure: false,
            wants_flush: false,
            wants_clear: false,
            is_stopping: false,
            hand: 0,
            now: Moment(0),
            calendar: (Moment(u64::MAX), Timestamp::default()),
            active_at: Moment(0),
            activity_seen: 0,
            loss_count: 0,
            stats: CacheStats::default(),
            config,
        })
    }

    /// Returns the arena, for registration with a transport.
    #[must_use]
    pub fn arena(&self) -> &Memory {
        &self.arena
    }

    /// Adds a file, or counts one more open of it. `version` must be the result of
    /// [`File::version`] just after the open. If `version` differs from the version that the cache
    /// remembers, a local process has changed the file, and all its clean blocks are dropped.
    ///
    /// # Errors
    /// `Resource` if too many files are open.
    pub fn open(&mut self, file: Arc<dyn File>, version: FileVersion) -> Result<CachedFile> {
        if let Some(index) = self.files.index_of(&file.handle()) {
            let name = self.files.name(index);
            let entry = self.files.at_mut(index);
            entry.open_count += 1;
            entry.file.get_or_insert(file);
            self.revalidate(name, version);
            return Ok(name);
        }
        if self.files.is_full() {
            self.drop_a_closed_file();
        }
        if self.files.is_full() {
            return Err(StoreError::Resource);
        }
        let index = self.files.insert(file, version);
        self.files.at_mut(index).open_count = 1;
        Ok(self.files.name(index))
    }

    /// Compares a version that was just read with the version that the cache remembers, like
    /// [`Cache::open`]. This detects changes of files that stay open for a long time. Call it with
    /// the version that a GETATTR has read anyway.
    pub fn revalidate(&mut self, file: CachedFile, version: FileVersion) {
        let entry = self.files.get_mut(file);
        if entry.version == version || entry.is_sizing {
            return;
        }
        entry.version = version;
        self.drop_clean(file.index);
        self.recompute_size(file);
    }

    /// Records that attributes other than the size were set. `before` and `after` are the versions
    /// before and after the change; `set` is the modification time that was set, if any. The cached
    /// data is kept, unless these times show that another process has changed the file.
    pub fn note_altered(
        &mut self,
        file: CachedFile,
        (before, after): (FileVersion, FileVersion),
        set: Option<SetTime>,
    ) {
        let is_ours = match set {
            None => after.time_modify == before.time_modify,
            Some(SetTime::Client(time)) => after.time_modify == time,
            // A write at the same time would have the same effect on the times.
            Some(SetTime::Server) => false,
        };
        let entry = self.files.get_mut(file);
        let is_idle = !entry.is_flushing && !entry.is_sizing;
        if is_idle && is_ours && entry.version == before && before.size == after.size {
            entry.version = after;
        } else {
            self.revalidate(file, after);
        }
    }

    /// Counts one more open of a file that is already open or in use.
    pub fn hold(&mut self, file: CachedFile) {
        self.files.get_mut(file).open_count += 1;
    }

    /// Ends one open. Remaining dirty data is written back when it is old enough. To make the data
    /// visible to local processes and to report write errors, run a commit without a sync before
    /// this call.
    pub fn close(&mut self, file: CachedFile) {
        let entry = self.files.get_mut(file);
        entry.open_count -= 1;
        if entry.open_count > 0 {
            return;
        }
        entry.error = None;
        if entry.is_unlinked {
            self.drop_all(file);
        }
        self.drop_entry_if_unused(file.index);
        if self.files.is_current(file) {
            self.close_count += 1;
            self.files.get_mut(file).closed_at = self.close_count;
            self.closed.push_back((file, self.close_count));
            // Only the most recent close of a file counts, so earlier entries are outdated.
            // Scanning all entries is only worthwhile when most of them are outdated.
            if self.closed.len() > 2 * self.files.count() + CLOSED_COUNT_MIN {
                let files = &self.files;
                self.closed.retain(|(file, number)| files.was_closed_last(*file, *number));
            }
        }
    }

    /// Drops the entry of the file that was closed longest ago, if it has no dirty data.
    fn drop_a_closed_file(&mut self) {
        for _ in 0..self.closed.len() {
            let Some((file, number)) = self.closed.pop_front() else { return };
            if !self.files.was_closed_last(file, number) || self.files.get(file).open_count > 0 {
                continue;
            }
            if self.files.get(file).is_busy() {
                self.closed.push_back((file, number));
                continue;
            }
            self.files.get_mut(file).error = None;
            self.drop_clean(file.index);
            self.drop_entry_if_unused(file.index);
            if !self.files.is_current(file) {
                return;
            }
            self.closed.push_back((file, number));
        }
    }

    /// Returns the token of the file with this handle, if the cache knows the file. GETATTR uses
    /// this for files that may have dirty data. Unless the caller has opened the file, the token is
    /// valid only for [`Cache::overlay`], [`Cache::size`] and commits, and only until the next call
    /// that changes the cache.
    #[must_use]
    pub fn find(&self, handle: &FileHandle) -> Option<CachedFile> {
        self.files.index_of(handle).map(|index| self.files.name(index))
    }

    /// Drops the cached data of an object whose last name was removed: immediately if the object is
    /// not open, otherwise when its last open is closed.
    pub fn forget(&mut self, handle: &FileHandle) {
        let Some(file) = self.find(handle) else { return };
        self.files.get_mut(file).is_unlinked = true;
        if self.files.get(file).open_count == 0 {
            self.drop_all(file);
            self.drop_entry_if_unused(file.index);
        }
    }

    /// Records that an object has been given a name. If the object had no name before, its cached
    /// data is now kept when its last open is closed.
    pub fn remember(&mut self, handle: &FileHandle) {
        if let Some(file) = self.find(handle) {
            self.files.get_mut(file).is_unlinked = false;
        }
    }

    /// Overwrites attributes read from the store with those that only the cache knows: size, space,
    /// change attribute, modification time, and the mode after pending writes.
    pub fn overlay(&mut self, file: CachedFile, attributes: &mut Attributes) {
        let entry = self.files.get_mut(file);
        entry.is_shown = true;
        let clocks = Clocks::read();
        let is_unwritten = !entry.dirty.is_empty() || entry.is_flushing;
        let is_known = FileVersion::from(&*attributes) == entry.version || entry.is_flushing;
        if entry.is_sizing || !is_known {
            // The file already has a new size that the cached content does not show yet, so the
            // file's own change attribute does not fit the data that a READ would return.
            attributes.change = clocks.exact;
            entry.is_shown_ahead |= entry.is_sizing;
        } else if is_unwritten {
            let on_disk = attributes.time_metadata;
            attributes.change = change::shown_unwritten(entry.stamp, on_disk, clocks);
        } else if attributes.time_metadata < entry.stamp {
            let shown = change::shown(entry.stamp, clocks);
            attributes.change = attributes.change.max(shown);
        }
        if is_unwritten {
            attributes.size = attributes.size.max(entry.size);
            attributes.space_used = attributes.space_used.max(entry.size);
            attributes.time_modify = attributes.time_modify.max(entry.changed_at);
            attributes.time_metadata = attributes.time_metadata.max(entry.changed_at);
            if let Some(file) = &entry.file {
                attributes.mode = file.mode_behind_writes(attributes.mode);
            }
        }
    }

    /// Returns true if these attributes are still those of the file: it has the same version, and
    /// no written data that the attributes do not show.
    #[must_use]
    pub fn is_as_shown(&self, file: CachedFile, attributes: &Attributes) -> bool {
        let entry = self.files.get(file);
        let is_written = entry.dirty.is_empty() && !entry.is_flushing && !entry.is_sizing;
        is_written && FileVersion::from(attributes) == entry.version
    }

    /// Returns the file's size as clients see it, including dirty data.
    #[must_use]
    pub fn size(&self, file: CachedFile) -> u64 {
        self.files.get(file).size
    }

    /// Returns the handle of an open file, or a handle of zeros if the file is closed.
    #[must_use]
    pub fn handle(&self, file: CachedFile) -> FileHandle {
        self.files.get(file).file.as_ref().map_or(FileHandle::NULL, |file| file.handle())
    }

    /// Returns the number of times that unstable data of any file was lost. The number is part of
    /// the write verifier, so that clients send uncommitted data again after a loss.
    #[must_use]
    pub fn loss_count(&self) -> u64 {
        self.loss_count
    }

    /// Returns the counters and current amounts of the cache.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            dirty_bytes: (self.dirty_blocks * BLOCK_BYTES) as u64,
            used_bytes: (self.buddy.used_blocks() * BLOCK_BYTES) as u64,
            file_count: self.files.count() as u64,
            ..self.stats
        }
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            arena_bytes: 256 << 20,
            dirty_bytes_max: 64 << 20,
            write_back_age: Duration::from_secs(1),
            read_ahead_bytes_max: 1 << 20,
            file_count_max: 65_536,
        }
    }
}

/// The size of a block in bytes.
pub const BLOCK_BYTES: usize = 4096;
/// The maximum number of pieces in one result. A read or write that needs more pieces returns fewer
/// bytes than requested.
pub const PIECE_COUNT_MAX: usize = 16;
/// The minimum length of the list of remembered closes at which outdated entries are removed.
const CLOSED_COUNT_MIN: usize = 64;
/// The maximum number of bytes of one plan or one write.
const PLAN_BYTES_MAX: u64 = 4 << 20;
/// The smallest average number of cached blocks per segment that the cache provides for. It limits
/// the memory for segments (384 bytes each): their maximum number is the number of blocks in the
/// arena divided by this.
const BLOCKS_PER_SEGMENT_MIN: usize = 2;
/// The maximum number of chunks of an arena, so that block numbers plus one fit in 32 bits.
const CHUNK_COUNT_MAX: u32 = 1 << 22;
