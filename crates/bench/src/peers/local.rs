//! The machine's own limits: local file access, memory copies by this thread, memory copies by
//! another thread while this one sleeps, and two cores that exchange a cache line.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{current, park};
use std::time::Duration;

use anyhow::Result;
use dafs_memory::{Memory, Pages};

use super::{BLOCK_BYTES_MAX, Kind, Label, Offsets, Peer, Tally, Times, repeat, repeat_together};

/// A competitor that calls `pread` or `pwrite` on a file in the page cache.
pub(crate) struct Local {
    label: Label,
    file: std::fs::File,
    memory: Memory,
    offsets: Offsets,
}

impl Local {
    /// Makes a file of `file_bytes` in the temporary directory.
    ///
    /// # Errors
    /// If there is no room for it.
    pub(crate) fn new(file_bytes: u64, kind: Kind) -> Result<Self> {
        let file = tempfile::tempfile()?;
        let memory = filled(BLOCK_BYTES_MAX)?;
        for offset in (0..file_bytes).step_by(BLOCK_BYTES_MAX) {
            let length = BLOCK_BYTES_MAX.min(usize::try_from(file_bytes - offset)?);
            memory.write_file(0, length, file.as_fd(), offset)?;
        }
        let peer = if kind == Kind::Write { "pwrite" } else { "pread" };
        let label = Label::plain(peer, kind);
        Ok(Self { label, file, memory, offsets: Offsets::new(file_bytes) })
    }
}

impl Peer for Local {
    fn label(&self) -> Label {
        self.label
    }

    fn run(&mut self, block: usize, span: Duration, times: Option<&mut Times>) -> Result<Tally> {
        let Self { label, file, memory, offsets } = self;
        repeat(span, times, || {
            let offset = offsets.next(block);
            if label.kind == Kind::Write {
                memory.write_file(0, block, file.as_fd(), offset)?;
            } else {
                memory.read_file(0, block, file.as_fd(), offset)?;
            }
            Ok(1)
        })
    }
}

/// Copies from a mapping as large as the file into one block, or into several in turn, as
/// concurrent reads do.
pub(crate) struct Copies {
    source: Memory,
    target: Memory,
    offsets: Offsets,
    depth: usize,
    turn: usize,
}

impl Copies {
    /// Makes the mapping and the blocks.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn new(file_bytes: u64, depth: usize) -> Result<Self> {
        let source = filled(usize::try_from(file_bytes)?)?;
        let target = filled(BLOCK_BYTES_MAX * depth)?;
        Ok(Self { source, target, offsets: Offsets::new(file_bytes), depth, turn: 0 })
    }

    fn one(&mut self, block: usize) {
        let from = usize::try_from(self.offsets.next(block)).unwrap_or(0);
        self.turn = (self.turn + 1) % self.depth;
        Memory::copy(&self.source, from, &self.target, self.turn * block, block);
    }
}

impl Peer for Copies {
    fn label(&self) -> Label {
        Label { depth: self.depth, ..Label::plain("memcpy", Kind::Read) }
    }

    fn run(&mut self, block: usize, span: Duration, times: Option<&mut Times>) -> Result<Tally> {
        repeat(span, times, || {
            self.one(block);
            Ok(1)
        })
    }
}

/// A competitor whose copies are made by another thread, one or many at a time, while this thread
/// sleeps. This is the least that a sleeping client can cost.
pub(crate) struct Sleeper {
    copies: Copies,
}

impl Sleeper {
    /// Makes the memory and starts the thread.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn new(file_bytes: u64, depth: usize) -> Result<Self> {
        Ok(Self { copies: Copies::new(file_bytes, depth)? })
    }
}

impl Peer for Sleeper {
    fn label(&self) -> Label {
        Label { sleeps: true, ..self.copies.label() }
    }

    fn run(&mut self, block: usize, span: Duration, times: Option<&mut Times>) -> Result<Tally> {
        let (copies, sleeper) = (&mut self.copies, current());
        let depth = copies.depth;
        let (asked, done) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let copier = scope.spawn(|| {
                for turn in 1.. {
                    while asked.load(Ordering::Acquire) < turn {
                        park();
                    }
                    if asked.load(Ordering::Acquire) == END {
                        return;
                    }
                    (0..depth).for_each(|_| copies.one(block));
                    done.store(turn, Ordering::Release);
                    sleeper.unpark();
                }
            });
            let ask = |turn| {
                asked.store(turn, Ordering::Release);
                copier.thread().unpark();
            };
            let mut turn = 0;
            let tally = repeat_together(depth, span, times, || {
                turn += 1;
                ask(turn);
                while done.load(Ordering::Acquire) < turn {
                    park();
                }
                Ok(depth as u64)
            });
            ask(END);
            tally
        })
    }
}

/// A competitor of two threads that pass a number back and forth through memory. This is the least
/// that a round trip over shared memory can cost.
#[derive(Default)]
pub(crate) struct PingPong {
    shared: Lines,
}

/// The numbers passed to the other thread and back, each in a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

#[derive(Default)]
struct Lines {
    there: Line,
    back: Line,
}

impl Peer for PingPong {
    fn label(&self) -> Label {
        Label::plain("ping-pong", Kind::Echo)
    }

    /// Returns true for a single block size, because every round trip moves one cache line.
    fn serves(&self, block: usize) -> bool {
        block == 4096
    }

    fn run(&mut self, _block: usize, span: Duration, times: Option<&mut Times>) -> Result<Tally> {
        let shared = &self.shared;
        shared.there.0.store(0, Ordering::Release);
        shared.back.0.store(0, Ordering::Release);
        std::thread::scope(|scope| {
            scope.spawn(|| answer(shared));
            let _ends = Ends(shared);
            let mut number = 0;
            repeat(span, times, || {
                number += 1;
                shared.there.0.store(number, Ordering::Release);
                while shared.back.0.load(Ordering::Acquire) != number {
                    std::hint::spin_loop();
                }
                Ok(number)
            })
        })
    }
}

/// Ends the other thread when this value is dropped, even by a panic.
struct Ends<'l>(&'l Lines);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.there.0.store(END, Ordering::Release);
    }
}

fn answer(shared: &Lines) {
    let mut seen = 0;
    loop {
        let number = shared.there.0.load(Ordering::Acquire);
        if number == END {
            return;
        }
        if number != seen {
            seen = number;
            shared.back.0.store(number, Ordering::Release);
        }
        std::hint::spin_loop();
    }
}

const END: u64 = u64::MAX;

fn filled(length: usize) -> Result<Memory> {
    let memory = Memory::anonymous(length, Pages::Huge)?;
    let ones = vec![1; BLOCK_BYTES_MAX];
    for offset in (0..length).step_by(ones.len()) {
        memory.write(offset, &ones[..ones.len().min(length - offset)]);
    }
    Ok(memory)
}
