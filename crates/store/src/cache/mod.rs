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
//! - Now and then, and after `Pressure`: [`Cache::on_tick`], [`Cache::poll_flush`].
//!
//! "Progress on a file" means that one of its jobs came back, a write of it was done
//! or a pin was given back; requests that were told to wait are tried again then.

use std::sync::Arc;
use std::time::Duration;

use dafs_memory::Memory;
use dafs_types::{CacheHint, CachePattern, FileHandle, Moment, Stability};

use crate::attributes::Attributes;
use crate::error::{Result, StoreError};
use crate::file::{File, FileVersion};

/// How a cache works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Octets of the arena; rounded up to 2 MiB.
    pub arena_bytes: usize,
    /// Most octets written and not yet handed to the file system.
    pub dirty_bytes_max: usize,
    /// Age at which unstable data is written back.
    pub write_back_age: Duration,
    /// Most octets fetched ahead of a sequential reader.
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
    /// Octets from the start of the arena.
    pub offset: u64,
    /// Octets.
    pub length: u32,
    /// Keeps it there.
    pub pin: Pin,
}

/// A contiguous part of the arena to write to; the write's token keeps it in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Octets from the start of the arena.
    pub offset: u64,
    /// Octets.
    pub length: u32,
}

/// Where [`Cache::prepare_write`] puts its spans, in file order.
pub type Spans = arrayvec::ArrayVec<Span, PIECE_COUNT_MAX>;

/// Where [`Cache::read`] puts its pieces, in file order.
pub type Pieces = arrayvec::ArrayVec<Piece, PIECE_COUNT_MAX>;

/// Answer to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The pieces hold `length` octets.
    Hit {
        /// Octets in the pieces now added; 0 only at or behind the end, or if the
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
    /// An earlier write of this file was lost, which is reported here once.
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
    /// Octets the spans take; may be fewer than asked for.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }
}

/// A commit under way. See [`Cache::commit_begin`].
#[derive(Debug)]
pub struct CommitTicket {
    file: CachedFile,
}

/// What a commit needs next.
#[derive(Debug)]
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

/// Reads blocks from a file into the arena.
pub struct FillJob {}
/// What came of a [`FillJob`].
#[derive(Debug)]
pub struct FillDone {}
/// Writes dirty blocks to a file.
pub struct FlushJob {}
/// What came of a [`FlushJob`].
#[derive(Debug)]
pub struct FlushDone {}
/// Makes a file's written data stable.
pub struct SyncJob {}
/// What came of a [`SyncJob`].
#[derive(Debug)]
pub struct SyncDone {}
/// Changes a file's size.
pub struct SizeJob {}
/// What came of a [`SizeJob`].
#[derive(Debug)]
pub struct SizeDone {}

macro_rules! job {
    ($job:ident, $done:ident) => {
        impl $job {
            /// Does the work. Blocks; may run on any thread.
            #[must_use]
            pub fn run(self) -> $done {
                todo!()
            }
        }
        impl std::fmt::Debug for $job {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($job)).finish_non_exhaustive()
            }
        }
    };
}
job!(FillJob, FillDone);
job!(FlushJob, FlushDone);
job!(SyncJob, SyncDone);
job!(SizeJob, SizeDone);

/// Counters since the start, and present amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Reads answered from the arena.
    pub hit_count: u64,
    /// Reads that found their first block missing.
    pub miss_count: u64,
    /// Octets of hits.
    pub hit_bytes: u64,
    /// Octets read from files.
    pub fill_bytes: u64,
    /// Octets moved in by writes.
    pub write_bytes: u64,
    /// Octets written to files.
    pub flush_bytes: u64,
    /// Blocks given up for others.
    pub evicted_block_count: u64,
    /// Octets of unstable data given up after a write error.
    pub lost_bytes: u64,
    /// Octets dirty or being flushed now.
    pub dirty_bytes: u64,
    /// Octets of the arena in use now.
    pub used_bytes: u64,
    /// Files known now.
    pub file_count: u64,
}

/// The cache. See the [module](self).
pub struct Cache {}

#[allow(unused_variables, clippy::unused_self, clippy::ptr_arg)]
impl Cache {
    /// An empty cache. Costs address space; pages come with use.
    ///
    /// # Errors
    /// What `mmap` says.
    pub fn new(config: CacheConfig) -> std::io::Result<Self> {
        todo!()
    }

    /// The arena, for registration with a transport.
    #[must_use]
    pub fn arena(&self) -> &Memory {
        todo!()
    }

    /// Makes a file known, or counts one more open of it. `version` is what
    /// [`File::version`] said just now, after the open: if it is not what the cache saw
    /// last, a local process has changed the file and all clean blocks go.
    ///
    /// # Errors
    /// `Resource` if too many files are open.
    pub fn open(&mut self, file: Arc<dyn File>, version: FileVersion) -> Result<CachedFile> {
        todo!()
    }

    /// Ends one open. Dirty data that is left is written back by age; run a commit
    /// without sync first to have it visible to local processes, and its errors told.
    pub fn close(&mut self, file: CachedFile) {
        todo!()
    }

    /// The file with this handle, if the cache holds something of it that the file
    /// system does not show yet. For GETATTR of files that are not open.
    #[must_use]
    pub fn find(&self, handle: &FileHandle) -> Option<CachedFile> {
        todo!()
    }

    /// Whatever is cached of an object whose last name is gone serves only those who have
    /// it open: drops everything at once if nobody has, at the last close otherwise.
    pub fn forget(&mut self, handle: &FileHandle) {
        todo!()
    }

    /// Corrects attributes read from the store for what only the cache has: size, space,
    /// change and modification time.
    pub fn overlay(&self, file: CachedFile, attributes: &mut Attributes) {
        todo!()
    }

    /// The file's size as clients see it: with what is not flushed yet.
    #[must_use]
    pub fn size(&self, file: CachedFile) -> u64 {
        todo!()
    }

    /// Looks for up to `length` octets from `offset`, and pins what it finds.
    #[inline]
    pub fn read(&mut self, file: CachedFile, offset: u64, length: u32, out: &mut Pieces) -> Read {
        todo!()
    }

    /// Ends the use of a piece. Progress for requests that met `Pressure`.
    #[inline]
    pub fn unpin(&mut self, pin: Pin) {
        todo!()
    }

    /// Plans what a missed read needs, and more for a sequential reader.
    pub fn plan_fill(
        &mut self,
        file: CachedFile,
        offset: u64,
        length: u32,
        hint: CacheHint,
        jobs: &mut Vec<FillJob>,
    ) -> Planned {
        todo!()
    }

    /// Plans the next stretch for a sequential reader ([`Read::Hit`] `wants_more`).
    pub fn plan_ahead(&mut self, file: CachedFile, jobs: &mut Vec<FillJob>) {
        todo!()
    }

    /// Takes a fill's result.
    pub fn on_filled(&mut self, done: FillDone) -> Progress {
        todo!()
    }

    /// Obeys CACHE_HINT; may plan fills.
    pub fn hint(
        &mut self,
        file: CachedFile,
        offset: u64,
        length: u64,
        pattern: CachePattern,
        hint: CacheHint,
        jobs: &mut Vec<FillJob>,
    ) {
        todo!()
    }

    /// Finds or makes room for up to `length` octets at `offset`. The spans stay in place
    /// until the token comes back.
    pub fn prepare_write(
        &mut self,
        file: CachedFile,
        offset: u64,
        length: u32,
        out: &mut Spans,
        jobs: &mut Vec<FillJob>,
    ) -> Prepared {
        todo!()
    }

    /// The bytes are in place: they are the file's content from now on.
    pub fn write_done(&mut self, token: WriteToken, now: Moment) -> Progress {
        todo!()
    }

    /// The transfer broke: what was valid counts as written in part, the rest as absent.
    pub fn write_abort(&mut self, token: WriteToken, now: Moment) -> Progress {
        todo!()
    }

    /// Starts to bring a range to the file (`Unstable`: to the file system only, as for
    /// CLOSE), or to stable storage. `length` 0 means to the end.
    #[must_use]
    pub fn commit_begin(
        &mut self,
        file: CachedFile,
        offset: u64,
        length: u64,
        stability: Stability,
    ) -> CommitTicket {
        todo!()
    }

    /// What a commit needs next.
    pub fn commit_step(&mut self, ticket: &mut CommitTicket) -> CommitStep {
        todo!()
    }

    /// Takes a flush's result.
    pub fn on_flushed(&mut self, done: FlushDone) -> Progress {
        todo!()
    }

    /// Takes a sync's result.
    pub fn on_synced(&mut self, done: SyncDone) -> Progress {
        todo!()
    }

    /// Changes a file's size (SETATTR), in order with flushes.
    pub fn set_size(&mut self, file: CachedFile, size: u64) -> SizeStep {
        todo!()
    }

    /// Takes a change of size; its result is in `error`.
    pub fn on_sized(&mut self, done: SizeDone) -> Progress {
        todo!()
    }

    /// Tells the time: ages dirty data, gives pages back when idle. Call every 100 ms
    /// or so while anything is cached.
    pub fn on_tick(&mut self, now: Moment) {
        todo!()
    }

    /// The next flush that is due by age or pressure. Ask until `None`.
    pub fn poll_flush(&mut self) -> Option<FlushJob> {
        todo!()
    }

    /// Makes everything dirty due at once, for an orderly stop: poll until `None` and
    /// all jobs are back.
    pub fn flush_all(&mut self) {
        todo!()
    }

    /// Rises whenever unstable data was lost: part of the write verifier, so that clients
    /// send again what they have not committed.
    #[must_use]
    pub fn loss_count(&self) -> u64 {
        todo!()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        todo!()
    }
}

/// Octets of a block.
pub const BLOCK_BYTES: usize = 4096;
/// Most pieces in one answer. A read or write that needs more is answered in part.
pub const PIECE_COUNT_MAX: usize = 16;
