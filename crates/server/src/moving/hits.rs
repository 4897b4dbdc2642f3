//! The fast path of plain direct reads and writes, which handles several requests together.
//!
//! A request is queued first. A few queued requests are looked up together, so that their misses
//! in the processor's cache overlap. A request that then needs just one copy is a hit. It is kept
//! until later requests have been looked up; meanwhile the lines that will be copied next are
//! prefetched (docs/decisions/0003). Every other request becomes a task.
//!
//! Invariants:
//! - A request goes this whole way in one turn, in order of arrival, and before any other request
//!   is served.
//! - A queued request holds its file.

mod moving;
mod spoiling;

use std::collections::VecDeque;

use dafs_dat::{EndpointId, LocalSegment, RemoteSegment};
use dafs_files::io::IoFile;
use dafs_memory::{LINE_BYTES, prefetch};
use dafs_store::cache::{Pin, WriteToken};
use dafs_types::CacheHint;
use dafs_wire::{DirectBuffer, TRANSFER_ANSWER_BYTES};

use crate::reply_to::{ReplyTo, TaskId};

/// A request that was admitted, with one buffer and without a checksum.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub answer: ReplyTo,
    pub io: IoFile,
    pub offset: u64,
    pub length: u32,
    pub buffer: DirectBuffer,
    pub way: Way,
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Read(CacheHint),
    /// An unstable write.
    Write,
}

/// A request that needs only one copy.
#[derive(Debug)]
struct Hit {
    answer: ReplyTo,
    local: LocalSegment,
    remote: RemoteSegment,
    io: IoFile,
    hold: Hold,
    /// The result of the attempt to move the bytes: true if they were moved. `None` before it.
    moved: Option<bool>,
    /// The hit's entry in the table of tasks, if it is moved while other reactors take turns.
    moves_as: Option<TaskId>,
    /// True if the reply is already encoded, except for its credits.
    is_foretold: bool,
    message: [u8; TRANSFER_ANSWER_BYTES],
}

/// The reference that keeps a hit's bytes in the cache, and what its end needs.
#[derive(Debug)]
enum Hold {
    Read {
        pin: Pin,
        is_end: bool,
    },
    /// A pin of a read, lent to the transport.
    Lent {
        is_end: bool,
    },
    Write {
        token: WriteToken,
        offset: u64,
        buffer: DirectBuffer,
    },
}

/// A write whose bytes have not arrived yet.
#[derive(Debug)]
struct Late {
    over: EndpointId,
    local: LocalSegment,
    remote: RemoteSegment,
}

/// The queued requests and the hits of one reactor.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    wanted: Vec<Wanted>,
    kept: VecDeque<Hit>,
    /// Writes that were answered too early, by an injected defect.
    late: Vec<Late>,
    ahead: Ahead,
}

/// Address ranges that the processor should prefetch.
#[derive(Debug, Default)]
struct Ahead {
    /// The rest of the first range.
    from: usize,
    to: usize,
    /// The beginnings and ends of the following ranges.
    next: VecDeque<(usize, usize)>,
}

impl Ahead {
    #[inline]
    fn push(&mut self, from: u64, length: u32) {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let to = from.saturating_add(length.min(AHEAD_BYTES_MAX) as usize);
        if self.from < self.to {
            self.next.push_back((from, to));
        } else {
            (self.from, self.to) = (from, to);
        }
    }

    /// Prefetches the next few lines.
    #[inline]
    fn step(&mut self) {
        if self.from >= self.to {
            return;
        }
        for line in 0..STEP_LINES {
            prefetch((self.from + line * LINE_BYTES) as *const u8);
        }
        self.from += STEP_LINES * LINE_BYTES;
        if self.from >= self.to {
            self.skip();
        }
    }

    fn skip(&mut self) {
        (self.from, self.to) = self.next.pop_front().unwrap_or_default();
    }

    /// The number of ranges that are not finished.
    #[inline]
    fn count(&self) -> usize {
        self.next.len() + usize::from(self.from < self.to)
    }
}

impl Hits {
    /// Returns true if there are hits to move.
    #[inline]
    pub(crate) fn has_kept(&self) -> bool {
        !(self.kept.is_empty() & self.late.is_empty())
    }

    /// The oldest hit. Its bytes are no longer prefetched.
    #[inline]
    fn first(&mut self) -> Option<&mut Hit> {
        if self.ahead.count() >= self.kept.len() {
            self.ahead.skip();
        }
        self.kept.front_mut()
    }
}

/// The number of requests that are looked up together.
const WANTED_MAX: usize = 4;
/// The number of hits that are kept while later requests are looked up.
const KEPT_MAX: usize = 4;
/// The same with several reactors.
const SHARED_KEPT_MAX: usize = 64;
/// The number of cache lines prefetched at a time.
const STEP_LINES: usize = 4;
/// The number of bytes of a hit that are prefetched. After them the copy prefetches for itself.
const AHEAD_BYTES_MAX: u32 = 4096;
