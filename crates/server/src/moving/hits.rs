//! Plain direct reads and writes: several at a time on their way through the server.
//!
//! A request is wanted first. A few that are wanted are looked up together, so that what the
//! cache's index misses is fetched side by side. What then needs one copy and no more is a
//! hit, and kept until later ones have been looked at; all along, the processor is asked
//! for the lines that will be copied next (docs/decisions/0003). Whatever else is found goes
//! the long way of a task.
//!
//! Invariant: all of it happens in one turn, in the order in which the requests came, and
//! before anything else is served; what is wanted holds its file.

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

/// A request that was let in, with one buffer and without a checksum.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub answer: ReplyTo,
    pub io: IoFile,
    pub offset: u64,
    pub length: u32,
    pub buffer: DirectBuffer,
    pub way: Way,
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Read(CacheHint),
    /// Unstable.
    Write,
}

/// A request that needs one copy and no more.
#[derive(Debug)]
struct Hit {
    answer: ReplyTo,
    local: LocalSegment,
    remote: RemoteSegment,
    io: IoFile,
    hold: Hold,
    /// Whether its bytes are where they go, once that has been tried.
    moved: Option<bool>,
    /// Its name among what goes on while others have their turns.
    moves_as: Option<TaskId>,
    /// Whether the answer is made beforehand, as far as it can be known.
    is_foretold: bool,
    message: [u8; TRANSFER_ANSWER_BYTES],
}

/// What keeps a hit's place in the cache, and what else its end needs.
#[derive(Debug)]
enum Hold {
    Read {
        pin: Pin,
        is_end: bool,
    },
    /// A read's, lent to the transport.
    Lent {
        is_end: bool,
    },
    Write {
        token: WriteToken,
        offset: u64,
        buffer: DirectBuffer,
    },
}

/// A write whose bytes are still to come.
#[derive(Debug)]
struct Late {
    over: EndpointId,
    local: LocalSegment,
    remote: RemoteSegment,
}

/// What is under way.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    wanted: Vec<Wanted>,
    kept: VecDeque<Hit>,
    /// Writes that are answered already, which is a defect.
    late: Vec<Late>,
    ahead: Ahead,
}

/// What the processor is to fetch into its own caches, by address.
#[derive(Debug, Default)]
struct Ahead {
    /// What is left of the first range.
    from: usize,
    to: usize,
    /// Where the ranges behind it begin and end.
    next: VecDeque<(usize, usize)>,
}

impl Ahead {
    /// Adds a range.
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

    /// Asks for the next few lines.
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

    /// Goes on to the next range.
    fn skip(&mut self) {
        (self.from, self.to) = self.next.pop_front().unwrap_or_default();
    }

    /// Ranges begun or to be begun.
    #[inline]
    fn count(&self) -> usize {
        self.next.len() + usize::from(self.from < self.to)
    }
}

impl Hits {
    /// Whether there is anything to move.
    #[inline]
    pub fn has_kept(&self) -> bool {
        !(self.kept.is_empty() & self.late.is_empty())
    }

    /// The oldest hit. From now on its bytes are no longer asked for.
    #[inline]
    fn first(&mut self) -> Option<&mut Hit> {
        if self.ahead.count() >= self.kept.len() {
            self.ahead.skip();
        }
        self.kept.front_mut()
    }
}

/// Requests looked up together.
const WANTED_MAX: usize = 4;
/// Hits that are kept while later requests are looked at.
const KEPT_MAX: usize = 4;
/// The same where several reactors share.
const SHARED_KEPT_MAX: usize = 64;
/// Lines asked for at a time.
const STEP_LINES: usize = 4;
/// Bytes of a hit that are asked for ahead; beyond them the copy itself runs ahead.
const AHEAD_BYTES_MAX: u32 = 4096;
