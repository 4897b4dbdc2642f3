//! Writes a file from an offset on, in blocks, in the background.
//!
//! Invariant: the bytes are written to the file in the order in which they were put, without gaps.

use std::rc::Rc;

use dafs_memory::Memory;

use crate::engine::{Block, BlockFile, Channel};
use crate::error::Result;
use crate::stream::Flow;

/// Writes a stream. Without a call of [`Writer::finish`], the final bytes are not written.
pub struct Writer {
    channel: Box<dyn Channel>,
    /// The block that is being filled.
    block: Option<Block>,
    filled: usize,
    /// The file offset of the block that is being filled.
    offset: u64,
    flow: Flow,
    spare: Vec<Block>,
}

impl Writer {
    /// Creates a writer that starts at `offset` of a file.
    #[must_use]
    pub fn new(file: Rc<dyn BlockFile>, offset: u64, flow: Flow) -> Self {
        let (channel, flow) = (file.channel(), flow.checked());
        Self { channel, block: None, filled: 0, offset, flow, spare: Vec::new() }
    }

    /// Returns the file offset of the next byte.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.offset + self.filled as u64
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The error of the engine, for these or for earlier bytes.
    pub fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (memory, at, room) = self.room()?;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            memory.write(at, now);
            self.note(now.len())?;
            bytes = later;
        }
        Ok(())
    }

    /// Appends the `length` bytes at `offset` of a memory.
    ///
    /// # Errors
    /// The error of the engine, for these or for earlier bytes.
    ///
    /// # Panics
    /// Panics if the range is not within the memory.
    #[inline]
    pub fn put_from(&mut self, from: &Memory, mut offset: usize, mut length: usize) -> Result<()> {
        while length > 0 {
            let (memory, at, room) = self.room()?;
            let now = room.min(length);
            Memory::copy_forward(from, offset, memory, at, now);
            self.note(now)?;
            (offset, length) = (offset + now, length - now);
        }
        Ok(())
    }

    /// Returns the block that is being filled, the position in it, and the room left.
    #[inline]
    fn room(&mut self) -> Result<(&Memory, usize, usize)> {
        if self.block.is_none() {
            self.block = Some(match self.spare.pop() {
                Some(block) => block,
                None => self.channel.allocate(self.flow.block_bytes)?,
            });
        }
        match &self.block {
            Some(block) => Ok((block.memory(), self.filled, self.flow.block_bytes - self.filled)),
            None => unreachable!("a block was put there"),
        }
    }

    #[inline]
    fn note(&mut self, length: usize) -> Result<()> {
        self.filled += length;
        if self.filled == self.flow.block_bytes { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<()> {
        let Some(block) = self.block.take() else { return Ok(()) };
        let length = std::mem::take(&mut self.filled);
        self.channel.submit_write(block, self.offset, length)?;
        self.offset += length as u64;
        while self.channel.under_way() >= self.flow.depth {
            self.take()?;
        }
        Ok(())
    }

    fn take(&mut self) -> Result<()> {
        if let Some(moved) = self.channel.wait()? {
            self.spare.push(moved.block);
        }
        Ok(())
    }

    /// Writes the remaining bytes and waits until all bytes are written. Returns the file offset
    /// after the last byte.
    ///
    /// # Errors
    /// The error of the engine, for any of the bytes.
    pub fn finish(mut self) -> Result<u64> {
        self.flush()?;
        Ok(self.offset)
    }

    /// Writes the bytes put so far and waits until they are written. The writer can still be used.
    ///
    /// # Errors
    /// The error of the engine, for any of the bytes.
    pub fn flush(&mut self) -> Result<()> {
        if self.filled > 0 {
            self.send()?;
        }
        while self.channel.under_way() > 0 {
            self.take()?;
        }
        Ok(())
    }
}
