//! The server's data cache: file blocks of 4 KiB in one arena.
//!
//! Invariant: the owner's calls never block, never do I/O and never free or reuse
//! arena memory that a transfer or a job still uses. Whatever takes time is a job
//! that the caller runs elsewhere and whose result it brings back.
//!
//! How a server uses it:
//! - OPEN: [`Cache::open`] with the version just read; CLOSE: a [`CommitTicket`] without
//!   sync run to its end, then [`Cache::close`].
//! - READ: [`Cache::read`]. On `Hit` the pieces are pinned: send them, and give each
//!   [`Pin`] back with [`Cache::unpin`] at the transport's completion. A hit may be
//!   short: call again behind it. On `Miss`: [`Cache::plan_fill`], run its jobs, give each
//!   result to [`Cache::on_filled`], and try the requests parked on that file again.
//! - WRITE: [`Cache::prepare_write`]; move the bytes into the spans; then
//!   [`Cache::write_done`] (or [`Cache::write_abort`]). Then, for DATA_SYNC and FILE_SYNC,
//!   a commit of the range.
//! - COMMIT: [`Cache::commit_begin`], then [`Cache::commit_step`] until `Done`.
//! - Now and then, after `Pressure`, when a flush is back, and when [`Cache::wants_jobs`] says
//!   so: [`Cache::on_tick`], [`Cache::poll_flush`], [`Cache::poll_clear`].
//!
//! "Progress on a file" means that one of its jobs came back, a write of it was done
//! or a pin was given back; requests that were told to wait are tried again then.

mod buddy;
mod files;
mod flush;
mod jobs;
mod numbers;
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

use crate::attributes::Attributes;
use crate::change::{self, Clocks};
use crate::error::{Result, StoreError};
use crate::file::{File, FileVersion};

/// How a cache works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Bytes of the arena; rounded up to 2 MiB.
    pub arena_bytes: usize,
    /// Most bytes written and not yet handed to the file system.
    pub dirty_bytes_max: usize,
    /// Age at which unstable data is written back.
    pub write_back_age: Duration,
    /// Most bytes fetched ahead of a sequential reader.
    pub read_ahead_bytes_max: u32,
    /// Most files known at one time, open or with blocks.
    pub file_count_max: usize,
}

/// A file the cache knows. Good from [`Cache::open`] to the matching [`Cache::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CachedFile {
    index: u32,
    generation: u32,
}

/// Keeps the memory of one piece in place. Must be given back exactly once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "memory stays pinned until the pin is given back"]
pub struct Pin(u32);

/// A contiguous part of the arena.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes from the start of the arena.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// Keeps it there.
    pub pin: Pin,
}

/// A contiguous part of the arena to write to; the write's token keeps it in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bytes from the start of the arena.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// Where [`Cache::prepare_write`] puts its spans, in file order.
pub type Spans = arrayvec::ArrayVec<Span, PIECE_COUNT_MAX>;

/// Where [`Cache::read`] puts its pieces, in file order.
pub type Pieces = arrayvec::ArrayVec<Piece, PIECE_COUNT_MAX>;

/// Answer to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The pieces hold `length` bytes.
    Hit {
        /// Bytes in the pieces now added; 0 only at or behind the end, or if the
        /// pieces were full.
        length: u32,
        /// Whether the file ends with them.
        is_end: bool,
        /// Whether a sequential reader comes near the end of what is cached: call
        /// [`Cache::plan_ahead`].
        wants_more: bool,
    },
    /// The first block is not there.
    Miss,
}

/// What [`Cache::plan_fill`] found to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    /// Jobs were added; try again when one is back.
    Jobs,
    /// Somebody else's job or write will bring it; try again on progress.
    Wait,
    /// No memory can be freed now: call [`Cache::poll_flush`], and try again on progress of any
    /// file.
    Pressure,
    /// Everything is there already.
    Ready,
}

/// Answer to [`Cache::prepare_write`].
#[derive(Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Move the bytes into the spans added, then call [`Cache::write_done`].
    Ready(WriteToken),
    /// Blocks that are written in part must be read first: jobs were added; try again
    /// when they are back.
    Fill,
    /// Try again on progress of this file.
    Wait,
    /// Too much is dirty, or no memory can be freed: call [`Cache::poll_flush`], and try again
    /// on progress of any file.
    Pressure,
    /// An earlier write of this file was lost, of which nobody has been told. Tell who writes, if
    /// it concerns them ([`Cache::take_loss`]), or go on with [`Cache::prepare_write_anyhow`].
    Lost(StoreError),
    /// It cannot be written.
    Failed(StoreError),
}

/// A write whose bytes are on their way into the arena.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "must end in write_done or write_abort"]
pub struct WriteToken {
    file: CachedFile,
    offset: u64,
    length: u32,
}

impl WriteToken {
    /// Bytes the spans take; may be fewer than asked for.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }
}

/// Whom a commit tells that written data was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// Somebody who has heard of so many of the file's losses ([`Cache::losses`]): of all later
    /// ones.
    Who(u32),
    /// Somebody of whom nothing is known: of what nobody has been told yet.
    Anybody,
    /// Nobody who could tell a client: of what is lost while the commit runs, and clients hear of
    /// that as well.
    Nobody,
}

/// A commit under way. See [`Cache::commit_begin`].
#[derive(Debug)]
pub struct CommitTicket {
    file: CachedFile,
    /// Segments still to be looked at.
    next: u64,
    end: u64,
    stability: Stability,
    listener: Listener,
    /// Losses that are not to be told.
    loss_count: u32,
    /// Syncs of the file that were over when its own was begun.
    synced_after: Option<u32>,
}

/// What a commit needs next. A job is moved once; boxing it would not pay.
#[derive(Debug)]
#[expect(clippy::large_enum_variant)]
pub enum CommitStep {
    /// Run it, call [`Cache::on_flushed`], step again.
    Flush(FlushJob),
    /// Run it, call [`Cache::on_synced`], step again.
    Sync(SyncJob),
    /// Step again on progress of this file.
    Wait,
    /// The range is as stable as was asked for, or something was lost.
    Done(Result<()>),
}

/// What [`Cache::set_size`] needs next.
#[derive(Debug)]
pub enum SizeStep {
    /// Run it and call [`Cache::on_sized`], which has the result.
    Job(SizeJob),
    /// Call again on progress of this file.
    Wait,
}

/// Something of a file has moved on: try what waits for it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "requests that wait for this file must be tried again"]
pub struct Progress {
    /// The file.
    pub file: CachedFile,
    /// Why the job failed: requests that wait for its range fail with this.
    pub error: Option<StoreError>,
}

/// Counters since the start, and present amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Reads answered from the arena.
    pub hit_count: u64,
    /// Reads that found their first block missing.
    pub miss_count: u64,
    /// Bytes of hits.
    pub hit_bytes: u64,
    /// Bytes read from files.
    pub fill_bytes: u64,
    /// Bytes moved in by writes.
    pub write_bytes: u64,
    /// Bytes written to files.
    pub flush_bytes: u64,
    /// Blocks given up for others.
    pub evicted_block_count: u64,
    /// Bytes of unstable data given up after a write error.
    pub lost_bytes: u64,
    /// Bytes dirty or being flushed now.
    pub dirty_bytes: u64,
    /// Bytes of the arena in use now.
    pub used_bytes: u64,
    /// Files known now.
    pub file_count: u64,
}

/// The cache. See the [module](self).
pub struct Cache {
    config: CacheConfig,
    arena: Memory,
    buddy: Buddy,
    block_count: usize,
    segments: Segments,
    files: Files,
    /// Files with dirty data, oldest first.
    dirty_files: VecDeque<CachedFile>,
    /// Files that have grown by enough to be worth a flush now.
    ripe_files: VecDeque<CachedFile>,
    /// Closed files in order of closing, each with the number of its close: whose entry
    /// goes when there are too many.
    closed: VecDeque<(CachedFile, u64)>,
    close_count: u64,
    dirty_blocks: usize,
    dirty_blocks_max: usize,
    /// Most bytes one plan or one write takes, so that it cannot push itself out.
    plan_bytes_max: u64,
    has_pressure: bool,
    wants_flush: bool,
    wants_clear: bool,
    is_stopping: bool,
    hand: usize,
    now: Moment,
    /// When the calendar was looked at last, and what it said.
    calendar: (Moment, Timestamp),
    active_at: Moment,
    activity_seen: u64,
    loss_count: u64,
    stats: CacheStats,
}

impl Cache {
    /// An empty cache. Costs address space; pages come with use.
    ///
    /// # Errors
    /// What `mmap` says.
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

    /// The arena, for registration with a transport.
    #[must_use]
    pub fn arena(&self) -> &Memory {
        &self.arena
    }

    /// Makes a file known, or counts one more open of it. `version` is what
    /// [`File::version`] said just now, after the open: if it is not what the cache saw
    /// last, a local process has changed the file and all clean blocks go.
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

    /// Compares a version just read with what the cache saw last, as [`Cache::open`]
    /// does. For long opens: call it with what a GETATTR has read anyway.
    pub fn revalidate(&mut self, file: CachedFile, version: FileVersion) {
        let entry = self.files.get_mut(file);
        if entry.version == version || entry.is_sizing {
            return;
        }
        entry.version = version;
        self.drop_clean(file.index);
        self.recompute_size(file);
    }

    /// Attributes of a file were set, not its size: `before` and `after` are the versions around
    /// that, and `set` what its time of modification was set to, if it was. What is cached stays if
    /// nobody else has been at the file, as far as that time tells.
    pub fn note_altered(
        &mut self,
        file: CachedFile,
        (before, after): (FileVersion, FileVersion),
        set: Option<SetTime>,
    ) {
        let is_ours = match set {
            None => after.time_modify == before.time_modify,
            Some(SetTime::Client(time)) => after.time_modify == time,
            // A write of the same moment would look like it.
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

    /// Opens a file that is open, or known to be in use, once more.
    pub fn hold(&mut self, file: CachedFile) {
        self.files.get_mut(file).open_count += 1;
    }

    /// Ends one open. Dirty data that is left is written back by age; run a commit
    /// without sync first to have it visible to local processes, and its errors told.
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
            // A file counts by its last close. Only when most are of the past is it worth
            // looking at all of them.
            if self.closed.len() > 2 * self.files.count() + CLOSED_COUNT_MIN {
                let files = &self.files;
                self.closed.retain(|(file, number)| files.was_closed_last(*file, *number));
            }
        }
    }

    /// Drops the entry of the file closed longest ago, if it has nothing to lose.
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

    /// The file with this handle, if the cache knows it: for GETATTR of files that may
    /// have unflushed data. Unless the caller has an open of it, the token is good for
    /// [`Cache::overlay`], [`Cache::size`] and commits only, and only until the next call
    /// that changes the cache.
    #[must_use]
    pub fn find(&self, handle: &FileHandle) -> Option<CachedFile> {
        self.files.index_of(handle).map(|index| self.files.name(index))
    }

    /// Whatever is cached of an object whose last name is gone serves only those who have
    /// it open: drops everything at once if nobody has, at the last close otherwise.
    pub fn forget(&mut self, handle: &FileHandle) {
        let Some(file) = self.find(handle) else { return };
        self.files.get_mut(file).is_unlinked = true;
        if self.files.get(file).open_count == 0 {
            self.drop_all(file);
            self.drop_entry_if_unused(file.index);
        }
    }

    /// An object has got a name: should it have lost its last before, what is cached of it
    /// is worth keeping again.
    pub fn remember(&mut self, handle: &FileHandle) {
        if let Some(file) = self.find(handle) {
            self.files.get_mut(file).is_unlinked = false;
        }
    }

    /// Corrects attributes read from the store for what only the cache has: size, space,
    /// change and modification time, and the mode that writing leaves.
    pub fn overlay(&mut self, file: CachedFile, attributes: &mut Attributes) {
        let entry = self.files.get_mut(file);
        entry.is_shown = true;
        let clocks = Clocks::read();
        let is_unwritten = !entry.dirty.is_empty() || entry.is_flushing;
        let is_known = FileVersion::from(&*attributes) == entry.version || entry.is_flushing;
        if entry.is_sizing || !is_known {
            // The file is ahead of what is cached of it: its number is not yet that of what a
            // READ shows.
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

    /// The file's size as clients see it: with what is not flushed yet.
    #[must_use]
    pub fn size(&self, file: CachedFile) -> u64 {
        self.files.get(file).size
    }

    /// The handle of an open file; none for one that is closed.
    #[must_use]
    pub fn handle(&self, file: CachedFile) -> FileHandle {
        self.files.get(file).file.as_ref().map_or(FileHandle::NULL, |file| file.handle())
    }

    /// Rises whenever unstable data was lost: part of the write verifier, so that clients
    /// send again what they have not committed.
    #[must_use]
    pub fn loss_count(&self) -> u64 {
        self.loss_count
    }

    /// Counters.
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

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;
/// Most pieces in one answer. A read or write that needs more is answered in part.
pub const PIECE_COUNT_MAX: usize = 16;
/// Closes remembered before the first look for those that count no more.
const CLOSED_COUNT_MIN: usize = 64;
/// Most bytes one plan or one write takes at once.
const PLAN_BYTES_MAX: u64 = 4 << 20;
/// Bounds the segments' descriptions (384 bytes each) to some part of the arena: as
/// many as if each held this many blocks.
const BLOCKS_PER_SEGMENT_MIN: usize = 2;
/// Largest arena: block numbers plus one fit 32 bits.
const CHUNK_COUNT_MAX: u32 = 1 << 22;
