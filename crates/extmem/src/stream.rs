//! Streams: files or ranges of files, read from front to back in blocks.
//!
//! Invariant: the blocks come in the order of the file, without gaps, and contain exactly the bytes
//! of the stream's range.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dafs_memory::Memory;

use crate::engine::{Block, BlockFile, Channel};
use crate::error::{Error, Result};

/// The size and number of a stream's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The size of a block in bytes. Streams of records round it to whole records.
    pub block_bytes: usize,
    /// The number of blocks of a stream: the one in use and those in flight. 1 is synchronous, 2 is
    /// double buffering.
    pub depth: usize,
}

impl Flow {
    /// Returns the flow with both values raised to at least 1.
    pub(crate) fn checked(self) -> Self {
        Self { block_bytes: self.block_bytes.max(1), depth: self.depth.max(1) }
    }
}

impl Default for Flow {
    /// Returns double buffering in blocks of 1 MiB.
    fn default() -> Self {
        Self { block_bytes: 1 << 20, depth: 2 }
    }
}

/// Observes long operations: gets their progress and may stop them. Cheap to clone.
#[derive(Clone, Default)]
pub struct Watch {
    stop: Option<Arc<AtomicBool>>,
    told: Option<Rc<dyn Fn(u64)>>,
}

impl Watch {
    /// Creates a watch that ends operations with [`Error::Interrupted`] soon after `stop` is true.
    #[must_use]
    pub fn stopped_by(stop: Arc<AtomicBool>) -> Self {
        Self { stop: Some(stop), told: None }
    }

    /// Adds a function that is called with the number of bytes read since its previous call.
    #[must_use]
    pub fn telling(self, told: impl Fn(u64) + 'static) -> Self {
        Self { told: Some(Rc::new(told)), ..self }
    }

    /// Checks that the operation may continue.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the caller asked it to stop.
    pub fn check(&self) -> Result<()> {
        match &self.stop {
            Some(stop) if stop.load(Ordering::Relaxed) => Err(Error::Interrupted),
            _ => Ok(()),
        }
    }

    fn note(&self, bytes: usize) -> Result<()> {
        if let Some(told) = &self.told {
            told(bytes as u64);
        }
        self.check()
    }
}

/// A file or a range of one. Cheap to clone.
#[derive(Clone)]
pub struct Stream {
    file: Rc<dyn BlockFile>,
    range: Range<u64>,
}

impl Stream {
    /// Creates a stream of all bytes that a file has now.
    ///
    /// # Errors
    /// The error of the engine if it cannot determine the size.
    pub fn whole(file: Rc<dyn BlockFile>) -> Result<Self> {
        let range = 0..file.size()?;
        Ok(Self { file, range })
    }

    /// Creates a stream of a range of a file. The range must lie within the file.
    #[must_use]
    pub fn new(file: Rc<dyn BlockFile>, range: Range<u64>) -> Self {
        Self { file, range }
    }

    /// Returns a range of this stream as a stream. Bytes beyond its end are left out.
    #[must_use]
    pub fn sub(&self, range: Range<u64>) -> Self {
        let at = |offset: u64| self.range.start.saturating_add(offset).min(self.range.end);
        Self { file: self.file.clone(), range: at(range.start)..at(range.end) }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// True if the stream has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the name of the file.
    #[must_use]
    pub fn name(&self) -> &str {
        self.file.name()
    }

    /// Begins to read the stream, with read-ahead according to the flow.
    ///
    /// # Errors
    /// The error of the engine if there is no memory or a read cannot be submitted.
    pub fn blocks(&self, flow: Flow, watch: &Watch) -> Result<BlockReader> {
        let flow = flow.checked();
        let mut reader = BlockReader {
            file: self.file.clone(),
            channel: self.file.clone().channel(),
            asked: self.range.start,
            given: self.range.start,
            end: self.range.end,
            flow,
            current: None,
            watch: watch.clone(),
        };
        reader.submit(flow.depth - 1)?;
        Ok(reader)
    }
}

/// Reads the blocks of a stream.
pub struct BlockReader {
    file: Rc<dyn BlockFile>,
    channel: Box<dyn Channel>,
    /// The file offset up to which reads were submitted.
    asked: u64,
    /// The file offset up to which blocks were returned.
    given: u64,
    end: u64,
    flow: Flow,
    current: Option<Block>,
    watch: Watch,
}

impl BlockReader {
    /// Submits reads until `count` are in flight.
    fn submit(&mut self, count: usize) -> Result<()> {
        while self.channel.under_way() < count && self.asked < self.end {
            let length = self.length_at(self.asked);
            let block = match self.current.take() {
                Some(block) => block,
                None => self.channel.allocate(self.flow.block_bytes)?,
            };
            self.channel.submit_read(block, self.asked, length)?;
            self.asked += length as u64;
        }
        Ok(())
    }

    fn length_at(&self, offset: u64) -> usize {
        (self.end - offset).min(self.flow.block_bytes as u64) as usize
    }

    /// Returns the memory of the next block and the number of its bytes, or `None` at the end of
    /// the stream. The memory of the previous block is reused.
    ///
    /// # Errors
    /// The error of the engine; [`Error::Cut`] if the file was truncated; [`Error::Interrupted`].
    pub fn next_block(&mut self) -> Result<Option<(&Memory, usize)>> {
        self.submit(self.flow.depth)?;
        if self.given == self.end {
            return Ok(None);
        }
        let expected = self.length_at(self.given);
        let Some(moved) = self.channel.wait()? else { return Ok(None) };
        self.given += moved.length as u64;
        if moved.length != expected {
            return Err(Error::Cut { file: self.file.name().to_owned(), end: self.given });
        }
        self.watch.note(moved.length)?;
        let block = self.current.insert(moved.block);
        Ok(Some((block.memory(), moved.length)))
    }

    /// Returns the name of the file.
    #[must_use]
    pub fn name(&self) -> &str {
        self.file.name()
    }
}
