//! What is framed and not yet with the socket, and what awaits its completion.
//!
//! Invariants: chunks name the bytes of the stream in order and without gap, whole
//! frames only; payload stays where it is, its memory kept by the chunk, until the
//! socket has it; a completion is reported when all bytes of the work, and of
//! everything before it, are with the socket.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use dafs_iwarp::transmit::READ_REQUEST_FPDU_BYTES;
use dafs_iwarp::{ReadyToReceive, Receiver, Transmitter};
use dafs_memory::Memory;

use super::establish::io_reason;
use super::receive::refused;
use super::segments::SegmentList;
use super::transmit::Answer;
use crate::connection::Context;
use crate::{BreakReason, CompletionStatus, Operation, Signal};

/// See the module.
#[derive(Default)]
pub(super) struct Outgoing {
    chunks: VecDeque<Chunk>,
    /// Headers, trailers and bytes taken over; chunks name ranges of it.
    scratch: Vec<u8>,
    /// Bytes of it that chunks name or have named; the rest comes last in the stream.
    named: usize,
    /// Bytes of the first chunk that the socket has.
    sent: usize,
    /// Bytes framed and bytes sent, since the beginning.
    framed_total: u64,
    sent_total: u64,
    /// Framed work in posting order, until it is reported.
    ledger: VecDeque<Entry>,
    /// Scatter lists of reads under way, oldest first.
    pub reads: VecDeque<SegmentList>,
    /// Reads requested and reads answered, since the beginning.
    requested_total: u64,
    answered_total: u64,
    /// Reads of the peer that are not answered, oldest first.
    pub answers: VecDeque<Answer>,
}

/// A run of bytes on its way.
enum Chunk {
    Scratch { start: usize, length: usize },
    Memory { memory: Memory, offset: usize, length: usize },
}

/// One piece of work between framing and completion.
struct Entry {
    operation: Operation,
    cookie: u64,
    length: u32,
    signal: Signal,
    due: Due,
}

/// When work is complete.
enum Due {
    /// When so many bytes are with the socket.
    Sent(u64),
    /// When so many reads are answered.
    Answered(u64),
}

impl Outgoing {
    /// The empty message by which an initiator says that it is ready.
    pub fn ready_to_receive(
        &mut self,
        transmitter: &mut Transmitter,
        receiver: &mut Receiver,
    ) -> Result<(), BreakReason> {
        if transmitter.ready_to_receive_pending() == Some(ReadyToReceive::Read) {
            // Its answer is counted among those to the user's reads.
            self.reads.push_back(SegmentList::new(&[]));
            self.requested_total += 1;
        }
        let mut bytes = [0; READ_REQUEST_FPDU_BYTES];
        let length = transmitter.ready_to_receive(receiver, &mut bytes).map_err(|e| refused(&e))?;
        self.put(&bytes[..length]);
        Ok(())
    }

    /// Whether enough is framed: what comes next must wait.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.chunks.len() >= CHUNKS_MAX || self.scratch.len() >= SCRATCH_BYTES_MAX
    }

    /// Whether the socket has everything.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.named == self.scratch.len()
    }

    /// Work framed and not reported.
    #[inline]
    pub fn unreported(&self) -> usize {
        self.ledger.len()
    }

    /// Bytes to be sent, copied.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.scratch.extend_from_slice(bytes);
        self.framed_total += bytes.len() as u64;
    }

    /// The first `count` of few bytes: all are copied, since a copy of known length takes
    /// a few instructions, and what is too much is given up.
    #[inline]
    pub fn put_first<const N: usize>(&mut self, bytes: &[u8; N], count: usize) {
        let start = self.scratch.len();
        self.scratch.extend_from_slice(bytes);
        self.scratch.truncate(start + count);
        self.framed_total += count as u64;
    }

    /// Room for bytes to be sent.
    #[inline]
    pub fn room(&mut self, count: usize) -> &mut [u8] {
        let start = self.scratch.len();
        self.scratch.resize(start + count, 0);
        self.framed_total += count as u64;
        &mut self.scratch[start..]
    }

    /// What was put since comes next in the stream, as one chunk.
    #[inline]
    fn name_scratch(&mut self) {
        let (start, length) = (self.named, self.scratch.len() - self.named);
        if length > 0 {
            self.chunks.push_back(Chunk::Scratch { start, length });
            self.named += length;
        }
    }

    /// The last `count` bytes put.
    pub fn last(&self, count: usize) -> &[u8] {
        &self.scratch[self.scratch.len() - count..]
    }

    /// Bytes to be sent from where they are.
    #[inline]
    pub fn name(&mut self, memory: &Memory, offset: usize, length: usize) {
        self.name_scratch();
        self.framed_total += length as u64;
        self.chunks.push_back(Chunk::Memory { memory: memory.clone(), offset, length });
    }

    /// All frames of that work are framed.
    #[inline]
    pub fn enter(&mut self, operation: Operation, cookie: u64, length: u32, signal: Signal) {
        let due = Due::Sent(self.framed_total);
        self.ledger.push_back(Entry { operation, cookie, length, signal, due });
    }

    /// The request of a read is framed.
    pub fn enter_read(&mut self, cookie: u64, length: u32, scatter: SegmentList) {
        self.reads.push_back(scatter);
        self.requested_total += 1;
        let due = Due::Answered(self.requested_total);
        let (operation, signal) = (Operation::RdmaRead, Signal::Always);
        self.ledger.push_back(Entry { operation, cookie, length, signal, due });
    }

    /// A name for the sink of the next read, which this side alone gives a meaning.
    pub fn next_sink(&self) -> u32 {
        (self.requested_total as u32 & SINK_MASK) + 1
    }

    /// The oldest read has been answered whole.
    pub fn read_answered(&mut self, context: &mut Context<'_>) {
        self.reads.pop_front();
        self.answered_total += 1;
        self.report(context);
    }

    /// Writes until everything is with the socket or it takes no more. True if it
    /// takes no more.
    #[inline(never)]
    pub fn write(&mut self, socket: &OwnedFd) -> Result<bool, BreakReason> {
        self.name_scratch();
        while !self.chunks.is_empty() {
            let mut vector = [const { MaybeUninit::<libc::iovec>::uninit() }; IOVECS];
            let mut count = 0;
            let mut skip = self.sent;
            for (chunk, slot) in self.chunks.iter().zip(&mut vector) {
                let (base, length) = match chunk {
                    Chunk::Scratch { start, length } => {
                        (self.scratch[*start..*start + *length].as_ptr().cast_mut(), *length)
                    }
                    Chunk::Memory { memory, offset, length } => {
                        (memory.pointer(*offset, *length), *length)
                    }
                };
                let iov_base = base.wrapping_add(skip).cast();
                slot.write(libc::iovec { iov_base, iov_len: length - skip });
                skip = 0;
                count += 1;
            }
            // SAFETY: a message header of zeros is valid; the first `count` entries of
            // the vector were written above, and their ranges lie in `scratch` and in
            // memories that the chunks keep; all are only read.
            let written = unsafe {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = vector.as_mut_ptr().cast();
                message.msg_iovlen = count;
                let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
                libc::sendmsg(socket.as_raw_fd(), &raw const message, flags)
            };
            if let Ok(written) = usize::try_from(written) {
                self.advance(written);
                continue;
            }
            let error = std::io::Error::last_os_error();
            match rustix::io::Errno::from_io_error(&error) {
                Some(rustix::io::Errno::AGAIN) => return Ok(true),
                Some(rustix::io::Errno::INTR) => {}
                Some(other) => return Err(io_reason(other)),
                None => return Err(super::system(error)),
            }
        }
        Ok(false)
    }

    /// Copies what comes next into `room`, as far as it goes: it counts as being with the
    /// socket, for whoever takes it sends it before anything else. How much it is.
    pub fn take(&mut self, room: &mut [u8]) -> usize {
        self.name_scratch();
        let (mut filled, mut skip) = (0, self.sent);
        for chunk in &self.chunks {
            let left = &mut room[filled..];
            if left.is_empty() {
                break;
            }
            let count = match chunk {
                Chunk::Scratch { start, length } => {
                    let count = left.len().min(length - skip);
                    let from = start + skip;
                    left[..count].copy_from_slice(&self.scratch[from..from + count]);
                    count
                }
                Chunk::Memory { memory, offset, length } => {
                    let count = left.len().min(length - skip);
                    memory.read(offset + skip, &mut left[..count]);
                    count
                }
            };
            filled += count;
            skip = 0;
        }
        self.advance(filled);
        filled
    }

    /// Inlined: a call of it costs a plain connection a tenth of all that a write does.
    #[inline(always)]
    fn advance(&mut self, written: usize) {
        self.sent_total += written as u64;
        self.sent += written;
        while let Some(chunk) = self.chunks.front() {
            let length = match chunk {
                Chunk::Scratch { length, .. } | Chunk::Memory { length, .. } => *length,
            };
            if self.sent < length {
                break;
            }
            self.sent -= length;
            self.chunks.pop_front();
        }
        if self.chunks.is_empty() {
            self.scratch.clear();
            self.named = 0;
        } else if self.scratch.len() >= SCRATCH_BYTES_MAX {
            self.compact();
        }
    }

    /// Gives up the part of the scratch buffer that the socket has, when it is most.
    fn compact(&mut self) {
        let first = self.chunks.iter().find_map(|chunk| match chunk {
            Chunk::Scratch { start, .. } => Some(*start),
            Chunk::Memory { .. } => None,
        });
        let gone = first.unwrap_or(self.scratch.len());
        if gone < self.scratch.len() / 2 {
            return;
        }
        self.scratch.drain(..gone);
        self.named -= gone;
        for chunk in &mut self.chunks {
            if let Chunk::Scratch { start, .. } = chunk {
                *start -= gone;
            }
        }
    }

    /// Reports work whose time has come, in order.
    #[inline]
    pub fn report(&mut self, context: &mut Context<'_>) {
        while let Some(entry) = self.ledger.front() {
            let is_due = match entry.due {
                Due::Sent(total) => total <= self.sent_total,
                Due::Answered(total) => total <= self.answered_total,
            };
            if !is_due {
                break;
            }
            if entry.signal == Signal::Always {
                let success = CompletionStatus::Success;
                context.complete(entry.operation, entry.cookie, success, entry.length);
            }
            self.ledger.pop_front();
        }
    }

    /// Reports all framed work as flushed.
    pub fn abandon(&mut self, context: &mut Context<'_>) {
        for entry in self.ledger.drain(..) {
            context.complete(entry.operation, entry.cookie, CompletionStatus::Flushed, 0);
        }
        *self = Self::default();
    }
}

/// Entries of one sendmsg; the kernel's limit.
const IOVECS: usize = 1024;
/// Framing stops at so many chunks or bytes of scratch, until the socket has taken
/// some: what is posted beyond waits as posted.
const CHUNKS_MAX: usize = 2 * IOVECS;
const SCRATCH_BYTES_MAX: usize = 256 << 10;
/// More sinks than reads can ever be open, none of them named zero.
const SINK_MASK: u32 = 0x00ff_ffff;
