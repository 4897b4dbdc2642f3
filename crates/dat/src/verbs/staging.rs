//! Registered memory for bytes that posts copy, and for messages with more segments than the device
//! supports.
//!
//! Invariant: a range is in use from [`Staging::take`] until [`Staging::give_back`]. A chunk is
//! reused only when none of its ranges is in use. Chunks are kept until the connection ends, so
//! that nothing is allocated or registered once there are enough.

use std::io;
use std::sync::Arc;

use dafs_memory::{Memory, Pages};

use super::protection::{ProtectionDomain, Registered};
use super::raw;

/// The staging memory of one connection.
#[derive(Default)]
pub(super) struct Staging {
    chunks: Vec<Chunk>,
    current: usize,
}

struct Chunk {
    registered: Registered,
    memory: Memory,
    used: usize,
    /// The number of ranges of the chunk that are in use.
    ranges: u32,
}

/// A range of staging memory that is in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Staged {
    chunk: u32,
    offset: u32,
}

impl Staging {
    /// Reserves a contiguous range of `length` bytes.
    pub(super) fn take(
        &mut self,
        protection: &Arc<ProtectionDomain>,
        length: usize,
    ) -> io::Result<Staged> {
        let fits = |chunk: &Chunk| chunk.memory.length() - chunk.used >= length;
        if !self.chunks.get(self.current).is_some_and(fits) {
            let empty =
                self.chunks.iter().position(|c| c.ranges == 0 && c.memory.length() >= length);
            self.current = match empty {
                Some(empty) => empty,
                None => {
                    self.chunks.push(Chunk::new(protection, length.max(CHUNK_BYTES))?);
                    self.chunks.len() - 1
                }
            };
            self.chunks[self.current].used = 0;
        }
        let chunk = &mut self.chunks[self.current];
        let staged = Staged { chunk: self.current as u32, offset: chunk.used as u32 };
        chunk.used += length.next_multiple_of(dafs_memory::LINE_BYTES).min(
            // The gap after the last range may be cut off at the end of the chunk.
            chunk.memory.length() - chunk.used,
        );
        chunk.ranges += 1;
        Ok(staged)
    }

    /// Releases a range that is no longer in use.
    #[inline]
    pub(super) fn give_back(&mut self, staged: Staged) {
        let chunk = &mut self.chunks[staged.chunk as usize];
        chunk.ranges -= 1;
        if chunk.ranges == 0 {
            chunk.used = 0;
        }
    }

    /// Returns the memory that contains a range, and the offset of the range in that memory.
    pub(super) fn memory(&self, staged: Staged) -> (&Memory, usize) {
        (&self.chunks[staged.chunk as usize].memory, staged.offset as usize)
    }

    /// Returns part of a range as a segment for the device.
    pub(super) fn sge(&self, staged: Staged, offset: usize, length: u32) -> raw::Sge {
        let chunk = &self.chunks[staged.chunk as usize];
        let address = chunk.memory.address() + u64::from(staged.offset) + offset as u64;
        raw::Sge { address, length, lkey: chunk.registered.lkey() }
    }
}

impl Chunk {
    fn new(protection: &Arc<ProtectionDomain>, length: usize) -> io::Result<Self> {
        let memory = Memory::anonymous(length, Pages::Small)?;
        let access = raw::access::LOCAL_WRITE;
        let registered = Registered::new(protection, &memory, 0, length, access)?;
        Ok(Self { registered, memory, used: 0, ranges: 0 })
    }
}

/// The number of bytes that are allocated and registered together.
const CHUNK_BYTES: usize = 128 << 10;
