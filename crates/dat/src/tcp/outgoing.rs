//! The bytes that are framed but not yet accepted by the socket, and the framed work that is not
//! completed.
//!
//! Invariants:
//!
//! - The chunks describe the bytes of the stream in order, without gaps, in whole frames.
//! - Payload stays in memory that the chunk keeps alive, and is not copied, until the socket has
//!   accepted it.
//! - A completion is reported when the socket has accepted all bytes of the work and of all earlier
//!   work.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use dafs_iwarp::{READ_REQUEST_FPDU_BYTES, ReadyToReceive, Receiver, Transmitter};
use dafs_memory::Memory;

use super::establish::io_reason;
use super::receive::refused;
use super::segments::SegmentList;
use super::transmit::Answer;
use crate::connection::Context;
use crate::{BreakReason, CompletionStatus, Operation, Signal};

/// The outgoing queue of one connection.
#[derive(Default)]
pub(super) struct Outgoing {
    chunks: VecDeque<Chunk>,
    /// Headers, trailers and copied bytes. Chunks refer to ranges of this buffer.
    scratch: Vec<u8>,
    /// The number of bytes of `scratch` that chunks refer to or have referred to. The bytes after
    /// them come last in the stream.
    named: usize,
    /// The number of bytes of the first chunk that the socket has accepted.
    sent: usize,
    /// The total number of bytes framed since the connection began.
    framed_total: u64,
    /// The total number of bytes sent since the connection began.
    sent_total: u64,
    /// The framed work that is not reported yet, in the order posted.
    ledger: VecDeque<Entry>,
    /// The scatter lists of this side's reads in flight, oldest first.
    pub reads: VecDeque<SegmentList>,
    /// The total number of reads requested since the connection began.
    requested_total: u64,
    /// The total number of reads completed since the connection began.
    answered_total: u64,
    /// The peer's reads that have no response yet, oldest first.
    pub answers: VecDeque<Answer>,
}

/// A contiguous range of bytes to send.
enum Chunk {
    Scratch { start: usize, length: usize },
    Memory { memory: Memory, offset: usize, length: usize },
}

/// One work request between framing and completion.
struct Entry {
    operation: Operation,
    cookie: u64,
    length: u32,
    signal: Signal,
    due: Due,
}

/// The condition under which a work request is complete.
enum Due {
    /// The work is complete when the socket has accepted this total number of bytes.
    Sent(u64),
    /// The work is complete when this total number of reads has completed.
    Answered(u64),
}

impl Outgoing {
    /// Frames the ready-to-receive indication, the empty message by which an initiator shows
    /// readiness.
    pub(super) fn ready_to_receive(
        &mut self,
        transmitter: &mut Transmitter,
        receiver: &mut Receiver,
    ) -> Result<(), BreakReason> {
        if transmitter.ready_to_receive_pending() == Some(ReadyToReceive::Read) {
            // The response to the indication is counted like those to the user's reads.
            self.reads.push_back(SegmentList::new(&[]));
            self.requested_total += 1;
        }
        let mut bytes = [0; READ_REQUEST_FPDU_BYTES];
        let length = transmitter.ready_to_receive(receiver, &mut bytes).map_err(|e| refused(&e))?;
        self.put(&bytes[..length]);
        Ok(())
    }

    /// Returns true if so much is framed that further work must wait.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.chunks.len() >= CHUNKS_MAX || self.scratch.len() >= SCRATCH_BYTES_MAX
    }

    /// Returns true if the socket has accepted all framed bytes.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.named == self.scratch.len()
    }

    /// Returns the number of framed work requests that are not reported.
    #[inline]
    pub(super) fn unreported(&self) -> usize {
        self.ledger.len()
    }

    /// Appends a copy of bytes to send.
    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.scratch.extend_from_slice(bytes);
        self.framed_total += bytes.len() as u64;
    }

    /// Appends the first `count` of the given bytes. Copies all `N` bytes and then truncates,
    /// because a copy of constant length takes only a few instructions.
    #[inline]
    pub(super) fn put_first<const N: usize>(&mut self, bytes: &[u8; N], count: usize) {
        let start = self.scratch.len();
        self.scratch.extend_from_slice(bytes);
        self.scratch.truncate(start + count);
        self.framed_total += count as u64;
    }

    /// Appends space for `count` bytes to send, and returns the space.
    #[inline]
    pub(super) fn room(&mut self, count: usize) -> &mut [u8] {
        let start = self.scratch.len();
        self.scratch.resize(start + count, 0);
        self.framed_total += count as u64;
        &mut self.scratch[start..]
    }

    /// Creates one chunk from the bytes appended since the previous chunk.
    #[inline]
    fn name_scratch(&mut self) {
        let (start, length) = (self.named, self.scratch.len() - self.named);
        if length > 0 {
            self.chunks.push_back(Chunk::Scratch { start, length });
            self.named += length;
        }
    }

    /// Returns the `count` bytes that were appended most recently.
    pub(super) fn last(&self, count: usize) -> &[u8] {
        &self.scratch[self.scratch.len() - count..]
    }

    /// Adds bytes of registered memory to send, without copying them.
    #[inline]
    pub(super) fn name(&mut self, memory: &Memory, offset: usize, length: usize) {
        self.name_scratch();
        self.framed_total += length as u64;
        self.chunks.push_back(Chunk::Memory { memory: memory.clone(), offset, length });
    }

    /// Records work whose frames have all been made.
    #[inline]
    pub(super) fn enter(&mut self, operation: Operation, cookie: u64, length: u32, signal: Signal) {
        let due = Due::Sent(self.framed_total);
        self.ledger.push_back(Entry { operation, cookie, length, signal, due });
    }

    /// Records a read whose request has been framed.
    pub(super) fn enter_read(&mut self, cookie: u64, length: u32, scatter: SegmentList) {
        self.reads.push_back(scatter);
        self.requested_total += 1;
        let due = Due::Answered(self.requested_total);
        let (operation, signal) = (Operation::RdmaRead, Signal::Always);
        self.ledger.push_back(Entry { operation, cookie, length, signal, due });
    }

    /// Returns the STag of the next read's sink, which has a meaning only on this side.
    pub(super) fn next_sink(&self) -> u32 {
        (self.requested_total as u32 & SINK_MASK) + 1
    }

    /// Completes the oldest read, whose response has arrived.
    pub(super) fn read_answered(&mut self, context: &mut Context<'_>) {
        self.reads.pop_front();
        self.answered_total += 1;
        self.report(context);
    }

    /// Writes until the socket has accepted all bytes or accepts no more. Returns true if it
    /// accepts no more.
    #[inline(never)]
    pub(super) fn write(&mut self, socket: &OwnedFd) -> Result<bool, BreakReason> {
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
            // SAFETY: an all-zero message header is valid. The first `count` entries of the vector
            // were written above. Their ranges lie in `scratch` and in memories that the chunks
            // keep alive. The kernel only reads them.
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

    /// Copies the next bytes of the stream into `room` and returns their number. The bytes count as
    /// accepted by the socket, so the caller must send them before anything else.
    pub(super) fn take(&mut self, room: &mut [u8]) -> usize {
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

    /// Counts bytes as sent. Inlined, because a call would cost a tenth of the total cost of a
    /// write to a plain connection.
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

    /// Removes the bytes that the socket has accepted from the start of the scratch buffer, if they
    /// are more than half of the buffer.
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

    /// Reports completed work, in the order posted.
    #[inline]
    pub(super) fn report(&mut self, context: &mut Context<'_>) {
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
    pub(super) fn abandon(&mut self, context: &mut Context<'_>) {
        for entry in self.ledger.drain(..) {
            context.complete(entry.operation, entry.cookie, CompletionStatus::Flushed, 0);
        }
        *self = Self::default();
    }
}

/// The maximum number of entries of one `sendmsg`, which is the kernel's limit.
const IOVECS: usize = 1024;
/// The number of chunks at which framing stops until the socket has accepted some. Further posted
/// work waits without being framed. There is also a limit for the bytes of `scratch`.
const CHUNKS_MAX: usize = 2 * IOVECS;
const SCRATCH_BYTES_MAX: usize = 256 << 10;
/// The mask for sink STags. It allows more STags than there can be open reads. No sink has the STag
/// zero.
const SINK_MASK: u32 = 0x00ff_ffff;
