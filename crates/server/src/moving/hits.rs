//! The fast path of plain direct reads and writes, which handles several requests together.
//!
//! A request is queued first. A few queued requests are looked up in the data cache together, so
//! that their processor cache misses overlap. A request that is found in the cache, so that only
//! one copy of its bytes remains to be done, is a *hit*. A hit is kept until later requests have
//! been looked up; meanwhile the processor prefetches the lines to be copied next
//! (docs/decisions/0003). Every other request becomes a task.
//!
//! Invariants:
//! - A request passes through all these steps in one turn, in order of arrival, and before any
//!   request outside the fast path is served.
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

/// A request that may take the fast path: it is admitted, has one buffer and has no checksum.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub answer: ReplyTo,
    pub io: IoFile,
    pub offset: u64,
    pub length: u32,
    pub buffer: DirectBuffer,
    pub way: Way,
}

/// The direction in which a request transfers bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Read(CacheHint),
    /// A write that does not ask for stable storage.
    Write,
}

/// A request whose file and bytes were found in the cache, so that only one copy of the bytes
/// remains to be made.
#[derive(Debug)]
struct Hit {
    answer: ReplyTo,
    local: LocalSegment,
    remote: RemoteSegment,
    io: IoFile,
    hold: Hold,
    /// True if the bytes were moved, false if the attempt failed. `None` before the attempt.
    moved: Option<bool>,
    /// The hit's entry in the table of tasks. `None` unless the bytes are moved while other
    /// reactors take turns.
    moves_as: Option<TaskId>,
    /// True if the reply is already encoded, except for the number of credits.
    is_foretold: bool,
    message: [u8; TRANSFER_ANSWER_BYTES],
}

/// The reference that keeps the bytes of a hit in the cache, and the data to finish the hit.
#[derive(Debug)]
enum Hold {
    Read {
        pin: Pin,
        is_end: bool,
    },
    /// A pin of a read, which is lent to the transport until a completion.
    Lent {
        is_end: bool,
    },
    Write {
        token: WriteToken,
        offset: u64,
        buffer: DirectBuffer,
    },
}

/// A write whose reply was sent before its bytes arrived, because a test injects that defect.
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
    /// Writes whose replies were sent too early, because a test injects that defect.
    late: Vec<Late>,
    ahead: Ahead,
}

/// The address ranges that the processor should prefetch, in this order.
#[derive(Debug, Default)]
struct Ahead {
    /// The address at which the remaining part of the first range begins.
    from: usize,
    to: usize,
    /// The start and end addresses of the following ranges.
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

    /// Prefetches the next few cache lines.
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

    /// Returns the number of ranges that are not fully prefetched.
    #[inline]
    fn count(&self) -> usize {
        self.next.len() + usize::from(self.from < self.to)
    }
}

impl Hits {
    /// Returns true if there are hits whose bytes must be moved.
    #[inline]
    pub(crate) fn has_kept(&self) -> bool {
        !(self.kept.is_empty() & self.late.is_empty())
    }

    /// Returns the oldest hit, and stops prefetching its bytes.
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
/// The number of hits that a server with one reactor keeps while it looks up later requests.
const KEPT_MAX: usize = 4;
/// The number of hits that a server with several reactors keeps in a turn.
const SHARED_KEPT_MAX: usize = 64;
/// The number of cache lines prefetched in one step.
const STEP_LINES: usize = 4;
/// The number of a hit's first bytes that are prefetched. The processor prefetches later bytes by
/// itself during the copy.
const AHEAD_BYTES_MAX: u32 = 4096;
