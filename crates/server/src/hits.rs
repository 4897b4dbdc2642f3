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

use std::collections::VecDeque;

use dafs_dat::{LocalSegment, RemoteSegment};
use dafs_memory::{LINE_BYTES, prefetch};
use dafs_store::cache::{Piece, Pieces, Pin, Prepared, Read, Span, Spans, WriteToken};
use dafs_types::{CacheHint, Stability, Status};
use dafs_wire::{Checksum, DirectBuffer, TRANSFER_ANSWER_BYTES};

use crate::data::IoFile;
use crate::direct::remote_of;
use crate::reactor::Reactor;
use crate::read::{read_response, read_task};
use crate::task::{Answer, Buffers, ReadTarget, Task, Wait, WriteSource, WriteTask};
use crate::transfer::Loan;
use crate::write::write_task;

/// A request that was let in, with one buffer and without a checksum.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub answer: Answer,
    pub io: IoFile,
    pub offset: u64,
    pub length: u32,
    pub buffer: DirectBuffer,
    pub way: Way,
}

/// Which way the octets go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Read(CacheHint),
    /// Unstable.
    Write,
}

/// A request that needs one copy and no more.
#[derive(Debug)]
struct Hit {
    answer: Answer,
    local: LocalSegment,
    remote: RemoteSegment,
    io: IoFile,
    hold: Hold,
}

/// What keeps a hit's place in the cache, and what else its end needs.
#[derive(Debug)]
enum Hold {
    /// All that is needed to answer is made beforehand: what is stored right behind the copy
    /// of a page and loaded again in other words waits until the page is through.
    Read {
        pin: Pin,
        message: [u8; TRANSFER_ANSWER_BYTES],
    },
    Write {
        token: WriteToken,
        offset: u64,
        buffer: DirectBuffer,
    },
}

/// What is under way.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    wanted: Vec<Wanted>,
    kept: VecDeque<Hit>,
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
    /// The oldest hit; from now on its octets are no longer asked for.
    #[inline]
    fn pop(&mut self) -> Option<Hit> {
        if self.ahead.count() >= self.kept.len() {
            self.ahead.skip();
        }
        self.kept.pop_front()
    }
}

impl Reactor {
    /// Takes a request. It is looked up with those behind it.
    #[inline]
    pub(crate) fn want(&mut self, wanted: Wanted) {
        if self.hits.wanted.is_empty() && self.interface.event_count() == 0 {
            // Nothing will come that it could be looked up with.
            return self.look_up_one(&wanted);
        }
        self.cache.hold(wanted.io.file);
        self.hits.wanted.push(wanted);
        self.fetch_ahead();
        if self.hits.wanted.len() == WANTED_MAX {
            self.look_up();
            while self.hits.kept.len() > KEPT_MAX {
                self.move_hit();
            }
        }
    }

    /// Has everything wanted moved and answered, or parked.
    #[inline]
    pub(crate) fn settle(&mut self) {
        self.look_up();
        while !self.hits.kept.is_empty() {
            self.move_hit();
        }
    }

    /// Asks the memory for a few more lines of what will be copied next. Called in between
    /// all along a request, twice where much was done since the last time: the processor has
    /// room for about ten lines under way, and who asks for more at once waits.
    #[inline]
    pub(crate) fn fetch_ahead(&mut self) {
        self.hits.ahead.step();
    }

    #[inline]
    fn look_up(&mut self) {
        if self.hits.wanted.is_empty() {
            return;
        }
        let mut wanted = std::mem::take(&mut self.hits.wanted);
        for wanted in &wanted {
            self.cache.prefetch(wanted.io.file, wanted.offset);
        }
        for wanted in &wanted {
            self.look_up_one(wanted);
            self.cache.close(wanted.io.file);
        }
        wanted.clear();
        self.hits.wanted = wanted;
    }

    #[inline]
    fn look_up_one(&mut self, wanted: &Wanted) {
        match wanted.way {
            Way::Read(hint) => self.look_up_read(wanted, hint),
            Way::Write => self.look_up_write(wanted),
        }
    }

    #[inline]
    fn look_up_read(&mut self, wanted: &Wanted, hint: CacheHint) {
        let Wanted { answer, io, offset, length, buffer, .. } = *wanted;
        let mut pieces = Pieces::new();
        let found = self.cache.read(io.file, offset, length, &mut pieces);
        if let (Read::Hit { length: found, is_end, wants_more }, [_]) = (found, &pieces[..])
            && (found == length || is_end)
            && let Some(piece) = pieces.pop()
        {
            if wants_more {
                self.read_ahead(io.file);
            }
            return self.keep_read(wanted, piece, is_end);
        }
        let target = ReadTarget::Direct(Buffers::One(buffer));
        let task = read_task(io, offset, length, hint, target);
        self.start_read_with(answer, task, found, pieces);
    }

    #[inline]
    fn keep_read(&mut self, wanted: &Wanted, piece: Piece, is_end: bool) {
        let Wanted { answer, io, buffer, .. } = *wanted;
        self.hits.ahead.push(self.cache.arena().address() + piece.offset, piece.length);
        self.fetch_ahead();
        let response = read_response(piece.length, is_end, Checksum::NONE);
        let mut message = [0; TRANSFER_ANSWER_BYTES];
        if let Err(error) = self.encode(answer, Status::Ok, &response, &mut message) {
            self.cache.unpin(piece.pin);
            self.send_failure(answer, error.status());
            return self.give_back(io.file, io.borrowed);
        }
        self.fetch_ahead();
        self.hits.kept.push_back(Hit {
            answer,
            local: self.arena.local(piece.offset, piece.length),
            remote: remote_of(&buffer, piece.length),
            io,
            hold: Hold::Read { pin: piece.pin, message },
        });
        self.fetch_ahead();
    }

    fn look_up_write(&mut self, wanted: &Wanted) {
        let Wanted { answer, io, offset, length, buffer, .. } = *wanted;
        let (mut spans, mut jobs) = (Spans::new(), Vec::new());
        let found = self.cache.prepare_write(io.file, offset, length, &mut spans, &mut jobs);
        if let (Prepared::Ready(_), [span]) = (&found, &spans[..])
            && span.length == length
            && let Prepared::Ready(token) = found
        {
            self.hits.ahead.push(self.cache.arena().address() + span.offset, length);
            self.fetch_ahead();
            return self.hits.kept.push_back(Hit {
                answer,
                local: self.arena.local(span.offset, length),
                remote: remote_of(&buffer, length),
                io,
                hold: Hold::Write { token, offset, buffer },
            });
        }
        let task = plain_write(io, offset, length, buffer);
        self.start_write_with(answer, task, found, &spans, jobs);
    }

    #[inline]
    fn move_hit(&mut self) {
        let Some(hit) = self.hits.pop() else { return };
        self.fetch_ahead();
        self.fetch_ahead();
        let Hit { answer, local, remote, io, hold } = hit;
        let (endpoint, from) = (answer.endpoint, std::slice::from_ref(&local));
        match hold {
            Hold::Read { pin, message } => {
                if self.interface.rdma_write_now(endpoint, from, remote) {
                    self.fetch_ahead();
                    self.cache.unpin(pin);
                } else {
                    let cookie = self.loans.insert(endpoint, Loan::Pin(pin));
                    self.post_write(endpoint, from, remote, cookie, true);
                }
                self.send(endpoint, &message);
                self.give_back(io.file, io.borrowed);
            }
            Hold::Write { token, offset, buffer } => {
                let length = token.length();
                if self.interface.rdma_read_now(self.reads_over(endpoint), from, remote) {
                    self.fetch_ahead();
                    let progress = self.cache.write_done(token, self.now);
                    self.on_progress(progress);
                    self.give_back(io.file, io.borrowed);
                    self.reply_written(answer, length, Stability::Unstable);
                } else {
                    let id = self.tasks.reserve();
                    let mut task = plain_write(io, offset, length, buffer);
                    let spans = Spans::from_iter([Span { offset: local.offset, length }]);
                    let is_there = self.fetch_into(id, answer, &mut task, token, &spans);
                    let task = Task::Write(answer, task);
                    if is_there {
                        self.drive(id, task);
                    } else {
                        self.park(id, task, Wait::Transfers);
                    }
                }
            }
        }
        self.fetch_ahead();
    }
}

fn plain_write(io: IoFile, offset: u64, length: u32, buffer: DirectBuffer) -> WriteTask {
    let source = WriteSource::Direct(Buffers::One(buffer));
    write_task(io, offset, length, Stability::Unstable, source)
}

/// Requests looked up together.
const WANTED_MAX: usize = 4;
/// Hits that are kept while later requests are looked at.
const KEPT_MAX: usize = 4;
/// Lines asked for at a time.
const STEP_LINES: usize = 4;
/// Octets of a hit that are asked for ahead; beyond them the copy itself runs ahead.
const AHEAD_BYTES_MAX: u32 = 4096;
