//! The bytes of a stream that the socket has not accepted yet.
//!
//! Invariants:
//!
//! - The chunks describe the bytes of the stream in order, without gaps. The bytes appended since
//!   the last chunk come after them.
//! - Payload stays in memory that the chunk keeps alive, and is not copied, until the socket has
//!   accepted it.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use dafs_memory::Memory;
use rustix::io::Errno;

/// The queue of the outgoing bytes of one connection.
#[derive(Default)]
pub(crate) struct StreamQueue {
    chunks: VecDeque<Chunk>,
    /// Headers, trailers and copied bytes. Chunks refer to ranges of this buffer.
    scratch: Vec<u8>,
    /// The number of bytes of `scratch` that chunks refer to or have referred to. The bytes after
    /// them come last in the stream.
    named: usize,
    /// The number of bytes of the first chunk that the socket has accepted.
    sent: usize,
    queued_total: u64,
    sent_total: u64,
}

/// A contiguous range of bytes to send.
enum Chunk {
    Scratch { start: usize, length: usize },
    Memory { memory: Memory, offset: usize, length: usize },
}

impl StreamQueue {
    /// Returns true if the queue has so many chunks or copied bytes that it should be written
    /// before more is appended.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.chunks.len() >= CHUNKS_MAX || self.scratch.len() >= SCRATCH_BYTES_MAX
    }

    /// Returns true if the socket has accepted all bytes.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.named == self.scratch.len()
    }

    /// Returns the number of bytes appended since the connection began.
    #[inline]
    pub(crate) fn queued_total(&self) -> u64 {
        self.queued_total
    }

    /// Returns the number of bytes sent since the connection began.
    #[inline]
    pub(crate) fn sent_total(&self) -> u64 {
        self.sent_total
    }

    /// Appends a copy of bytes to send. Returns the place of the copy for
    /// [`StreamQueue::overwrite`].
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) -> usize {
        let start = self.scratch.len();
        self.scratch.extend_from_slice(bytes);
        self.queued_total += bytes.len() as u64;
        start
    }

    /// Appends the first `count` of the given bytes. Copies all `N` bytes and then truncates,
    /// because a copy of constant length takes only a few instructions.
    #[inline]
    pub(crate) fn put_first<const N: usize>(&mut self, bytes: &[u8; N], count: usize) {
        let start = self.scratch.len();
        self.scratch.extend_from_slice(bytes);
        self.scratch.truncate(start + count);
        self.queued_total += count as u64;
    }

    /// Appends space for `count` bytes to send, and returns the space.
    #[inline]
    pub(crate) fn room(&mut self, count: usize) -> &mut [u8] {
        let start = self.scratch.len();
        self.scratch.resize(start + count, 0);
        self.queued_total += count as u64;
        &mut self.scratch[start..]
    }

    /// Replaces copied bytes. No byte may have been sent since they were appended.
    pub(crate) fn overwrite(&mut self, place: usize, bytes: &[u8]) {
        self.scratch[place..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Returns the `count` bytes that were appended most recently as copies.
    pub(crate) fn last(&self, count: usize) -> &[u8] {
        &self.scratch[self.scratch.len() - count..]
    }

    /// Appends bytes of registered memory to send, without copying them.
    #[inline]
    pub(crate) fn name(&mut self, memory: &Memory, offset: usize, length: usize) {
        self.name_scratch();
        self.queued_total += length as u64;
        self.chunks.push_back(Chunk::Memory { memory: memory.clone(), offset, length });
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

    /// Writes until the socket has accepted all bytes or accepts no more. Returns true if it
    /// accepts no more.
    ///
    /// # Errors
    /// The error of `sendmsg`.
    #[inline(never)]
    pub(crate) fn write(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
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
            let error = io::Error::last_os_error();
            match Errno::from_io_error(&error) {
                Some(Errno::AGAIN) => return Ok(true),
                Some(Errno::INTR) => {}
                _ => return Err(error),
            }
        }
        Ok(false)
    }

    /// Copies the next bytes of the stream into `room` and returns their number. The bytes count as
    /// accepted by the socket, so the caller must send them before anything else.
    pub(crate) fn take(&mut self, room: &mut [u8]) -> usize {
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
}

/// The maximum number of entries of one `sendmsg`, which is the kernel's limit.
const IOVECS: usize = 1024;
/// The number of chunks and of bytes of `scratch` at which a queue is full.
const CHUNKS_MAX: usize = 2 * IOVECS;
const SCRATCH_BYTES_MAX: usize = 256 << 10;
