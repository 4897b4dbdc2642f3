//! The replies of a connection that the kernel has not accepted yet.
//!
//! Invariant: the memory of a payload is kept alive by its chunk until the kernel has accepted the
//! payload.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use dafs_memory::Memory;

use super::{Part, RecordEvent};

/// The queue of replies of one connection.
#[derive(Default)]
pub(super) struct Outgoing {
    chunks: VecDeque<Chunk>,
    /// The bytes that are sent as copies. Chunks refer to ranges of this buffer.
    copied: Vec<u8>,
    /// The number of bytes of the first chunk that the kernel has accepted.
    sent: usize,
    queued_total: u64,
    sent_total: u64,
    /// The cookies that were not reported yet. Each comes with the number of sent bytes, counted
    /// from the start of the connection, at which it is reported.
    cookies: VecDeque<(u64, u64)>,
}

/// A contiguous range of bytes to send.
enum Chunk {
    Copied { start: usize, length: usize },
    Memory { memory: Memory, offset: usize, length: usize },
}

impl Chunk {
    fn length(&self) -> usize {
        match self {
            Self::Copied { length, .. } | Self::Memory { length, .. } => *length,
        }
    }
}

impl Outgoing {
    /// Returns the number of bytes that the kernel has not accepted yet.
    pub(super) fn unsent(&self) -> u64 {
        self.queued_total - self.sent_total
    }

    /// Appends a reply, preceded by its mark (the record's length).
    pub(super) fn put<'a>(
        &mut self,
        parts: impl IntoIterator<Item = Part<'a>>,
        cookies: impl Iterator<Item = u64>,
    ) {
        let mark = self.copied.len();
        self.put_bytes(&[0; 4]);
        let mut total = 0;
        for part in parts {
            match part {
                Part::Bytes(bytes) => {
                    self.put_bytes(bytes);
                    total += bytes.len();
                }
                Part::Memory { memory, offset, length } => {
                    let (memory, length) = (memory.clone(), length as usize);
                    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                    self.chunks.push_back(Chunk::Memory { memory, offset, length });
                    total += length;
                }
            }
        }
        // The length does not reach the bit that marks the last fragment, because replies are
        // limited to a few MiB.
        self.copied[mark..mark + 4].copy_from_slice(&(LAST | total as u32).to_be_bytes());
        self.queued_total += 4 + total as u64;
        self.cookies.extend(cookies.map(|cookie| (self.queued_total, cookie)));
    }

    /// Appends a copy of the bytes, to the last chunk if that has copied bytes, too.
    fn put_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let start = self.copied.len();
        self.copied.extend_from_slice(bytes);
        match self.chunks.back_mut() {
            Some(Chunk::Copied { length, .. }) => *length += bytes.len(),
            _ => self.chunks.push_back(Chunk::Copied { start, length: bytes.len() }),
        }
    }

    /// Writes to the socket until the kernel has accepted all bytes or accepts no more.
    pub(super) fn write(
        &mut self,
        socket: BorrowedFd<'_>,
        events: &mut VecDeque<RecordEvent>,
    ) -> Result<(), &'static str> {
        while !self.chunks.is_empty() {
            let mut vector = [const { MaybeUninit::<libc::iovec>::uninit() }; IOVECS];
            let mut count = 0;
            let mut skip = self.sent;
            for (chunk, slot) in self.chunks.iter().zip(&mut vector) {
                let (base, length) = match chunk {
                    Chunk::Copied { start, length } => {
                        (self.copied[*start..*start + *length].as_ptr().cast_mut(), *length)
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
            // were written above. Their ranges lie in `copied` and in memories that the chunks keep
            // alive. The kernel only reads them.
            let written = unsafe {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = vector.as_mut_ptr().cast();
                message.msg_iovlen = count;
                let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
                libc::sendmsg(socket.as_raw_fd(), &raw const message, flags)
            };
            if let Ok(written) = usize::try_from(written) {
                self.advance(written, events);
                continue;
            }
            match rustix::io::Errno::from_io_error(&std::io::Error::last_os_error()) {
                Some(rustix::io::Errno::AGAIN) => return Ok(()),
                Some(rustix::io::Errno::INTR) => {}
                _ => return Err("the connection broke"),
            }
        }
        Ok(())
    }

    fn advance(&mut self, written: usize, events: &mut VecDeque<RecordEvent>) {
        self.sent += written;
        self.sent_total += written as u64;
        while let Some(length) = self.chunks.front().map(Chunk::length)
            && self.sent >= length
        {
            self.sent -= length;
            self.chunks.pop_front();
        }
        if self.chunks.is_empty() {
            self.copied.clear();
        } else if self.copied.len() >= COPIED_BYTES_MAX {
            self.compact();
        }
        while let Some((total, cookie)) = self.cookies.front().copied()
            && total <= self.sent_total
        {
            events.push_back(RecordEvent::Sent { cookie });
            self.cookies.pop_front();
        }
    }

    /// Removes the bytes that the kernel has accepted from the buffer of copied bytes, if they are
    /// more than half of it.
    fn compact(&mut self) {
        let first = self.chunks.iter().find_map(|chunk| match chunk {
            Chunk::Copied { start, .. } => Some(*start),
            Chunk::Memory { .. } => None,
        });
        let gone = first.unwrap_or(self.copied.len());
        if gone < self.copied.len() / 2 {
            return;
        }
        self.copied.drain(..gone);
        for chunk in &mut self.chunks {
            if let Chunk::Copied { start, .. } = chunk {
                *start -= gone;
            }
        }
    }

    /// Drops all replies and reports their cookies.
    pub(super) fn abandon(&mut self, events: &mut VecDeque<RecordEvent>) {
        let cookies = self.cookies.drain(..);
        events.extend(cookies.map(|(_, cookie)| RecordEvent::Sent { cookie }));
        *self = Self::default();
    }
}

/// The bit of a mark that is set if the fragment is the last of its record.
const LAST: u32 = 1 << 31;
/// The maximum number of ranges of bytes that one system call sends.
const IOVECS: usize = 256;
/// The size in bytes of the buffer of copied bytes above which bytes that were sent are removed
/// from it.
const COPIED_BYTES_MAX: usize = 256 << 10;
