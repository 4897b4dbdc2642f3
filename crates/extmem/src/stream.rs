//! Streams: files, or ranges of them, read from front to back in blocks.
//!
//! Invariant: blocks come in the order of the file and without a gap, and exactly the bytes of
//! the stream's range.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dafs_memory::Memory;

use crate::engine::{Block, BlockFile, Channel};
use crate::error::{Error, Result};

/// How the blocks of a stream are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Bytes of a block. Streams of records take whole records.
    pub block_bytes: usize,
    /// Blocks of a stream: the one in use, and those under way. 1 is synchronous, 2 double
    /// buffered.
    pub depth: usize,
}

impl Flow {
    /// The same with at least a block of a byte.
    pub(crate) fn checked(self) -> Self {
        Self { block_bytes: self.block_bytes.max(1), depth: self.depth.max(1) }
    }
}

impl Default for Flow {
    /// Double buffered, in blocks of 1 MiB.
    fn default() -> Self {
        Self { block_bytes: 1 << 20, depth: 2 }
    }
}

/// Looks after long work: hears of its progress, and may end it. Cheap to clone.
#[derive(Clone, Default)]
pub struct Watch {
    stop: Option<Arc<AtomicBool>>,
    told: Option<Rc<dyn Fn(u64)>>,
}

impl Watch {
    /// Work ends with [`Error::Interrupted`] soon after `stop` is true.
    #[must_use]
    pub fn stopped_by(stop: Arc<AtomicBool>) -> Self {
        Self { stop: Some(stop), told: None }
    }

    /// The same, and `told` hears how many bytes more were read.
    #[must_use]
    pub fn telling(self, told: impl Fn(u64) + 'static) -> Self {
        Self { told: Some(Rc::new(told)), ..self }
    }

    /// Whether the work is to go on.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
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
    /// All that a file has now.
    ///
    /// # Errors
    /// If the engine does not say how much that is.
    pub fn whole(file: Rc<dyn BlockFile>) -> Result<Self> {
        let range = 0..file.size()?;
        Ok(Self { file, range })
    }

    /// A range of a file's bytes, which must be there.
    #[must_use]
    pub fn new(file: Rc<dyn BlockFile>, range: Range<u64>) -> Self {
        Self { file, range }
    }

    /// A range of this stream's bytes as a stream; what lies beyond its end is left out.
    #[must_use]
    pub fn sub(&self, range: Range<u64>) -> Self {
        let at = |offset: u64| self.range.start.saturating_add(offset).min(self.range.end);
        Self { file: self.file.clone(), range: at(range.start)..at(range.end) }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.file.name()
    }

    /// Reads it, ahead of its user if the flow says so.
    ///
    /// # Errors
    /// If there is no memory, or nothing can be submitted.
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
    /// Up to where was asked for.
    asked: u64,
    /// Up to where was given out.
    given: u64,
    end: u64,
    flow: Flow,
    current: Option<Block>,
    watch: Watch,
}

impl BlockReader {
    /// Asks for blocks until so many are under way.
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

    /// The next block's memory, and how many bytes it has; `None` at the stream's end. The one
    /// before is used again.
    ///
    /// # Errors
    /// What the engine says; [`Error::Cut`] if the file has become shorter;
    /// [`Error::Interrupted`].
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

    /// The file's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.file.name()
    }
}
