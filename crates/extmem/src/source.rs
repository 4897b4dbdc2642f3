//! Sorted streams as sources of a merge, one record at a time.
//!
//! Invariant: between two steps, a source is positioned at one whole record, even if a block
//! boundary splits the record.

use std::cmp::Ordering;
use std::rc::Rc;

use dafs_memory::Memory;

use crate::error::{Error, Result};
use crate::order::{LineOrder, Order, RecordLayout};
use crate::stream::{BlockReader, Flow, Stream, Watch};
use crate::writer::Writer;

/// A sorted stream, positioned at one of its records.
pub trait Source {
    /// Moves to the next record; the first call moves to the first record. Returns false at the
    /// end.
    ///
    /// # Errors
    /// The error of the engine; an error if the file does not consist of such records.
    fn advance(&mut self) -> Result<bool>;

    /// Returns the prefix of the current record's sort key, as an integer that sorts like the key.
    fn prefix(&self) -> u64;

    /// Compares the current record with that of another source. Their prefixes must be equal.
    fn compare(&self, other: &Self) -> Ordering;

    /// Appends the current record to a stream.
    ///
    /// # Errors
    /// The error of the engine.
    fn put(&self, writer: &mut Writer) -> Result<()>;

    /// True if the current record has the key stored in `last`.
    fn repeats(&self, last: &[u8]) -> bool;

    /// Stores in `last` the bytes of the current record that [`Source::repeats`] compares.
    fn remember(&self, last: &mut Vec<u8>);

    /// Returns the name of the stream's file.
    fn name(&self) -> &str;
}

/// A source of records of a fixed size, in the blocks they were read to.
pub struct RecordSource {
    blocks: BlockReader,
    memory: Option<Memory>,
    layout: RecordLayout,
    at: usize,
    end: usize,
    prefix: u64,
}

impl RecordSource {
    /// Creates the source of a stream's records.
    ///
    /// # Errors
    /// [`Error::Ragged`] if the stream ends within a record; the error of the engine.
    pub fn new(stream: &Stream, layout: RecordLayout, flow: Flow, watch: &Watch) -> Result<Self> {
        let record_bytes = layout.record_bytes();
        check_whole(stream, layout)?;
        let flow = whole_records(flow, record_bytes);
        let blocks = stream.blocks(flow, watch)?;
        Ok(Self { blocks, memory: None, layout, at: 0, end: 0, prefix: 0 })
    }

    fn place(&self) -> (&Memory, usize) {
        match &self.memory {
            Some(memory) => (memory, self.at),
            None => panic!("a source has no record before its first advance"),
        }
    }

    /// Copies the key's bytes from `skip` on into `piece`.
    fn key_piece(&self, skip: usize, piece: &mut [u8]) {
        let (memory, at) = self.place();
        memory.read(at + self.layout.key_range().start + skip, piece);
    }

    /// Returns the memory that contains the current record, and its offset there.
    ///
    /// # Panics
    /// Panics before the first [`Source::advance`].
    #[must_use]
    pub fn record(&self) -> (&Memory, usize) {
        self.place()
    }

    fn find_prefix(&mut self) {
        let mut key = [0; 8];
        let count = self.layout.key_range().len().min(8);
        self.key_piece(0, &mut key[..count]);
        self.prefix = self.layout.prefix_of_key(&key[..count]);
    }

    #[cold]
    fn next_block(&mut self) -> Result<bool> {
        let Some((memory, length)) = self.blocks.next_block()? else { return Ok(false) };
        (self.at, self.end) = (0, length);
        self.memory = Some(memory.clone());
        self.find_prefix();
        Ok(true)
    }
}

impl Source for RecordSource {
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        self.at += self.layout.record_bytes();
        if self.at >= self.end {
            return self.next_block();
        }
        self.find_prefix();
        Ok(true)
    }

    #[inline]
    fn prefix(&self) -> u64 {
        self.prefix
    }

    fn compare(&self, other: &Self) -> Ordering {
        if self.layout.is_in_prefix() {
            return Ordering::Equal;
        }
        let length = self.layout.key_range().len();
        let (mut left, mut right) = ([0; PIECE_BYTES], [0; PIECE_BYTES]);
        for skip in (8..length).step_by(PIECE_BYTES) {
            let count = PIECE_BYTES.min(length - skip);
            self.key_piece(skip, &mut left[..count]);
            other.key_piece(skip, &mut right[..count]);
            let ordering = self.layout.compare_pieces(&left[..count], &right[..count]);
            if ordering.is_ne() {
                return ordering;
            }
        }
        Ordering::Equal
    }

    #[inline]
    fn put(&self, writer: &mut Writer) -> Result<()> {
        let (memory, at) = self.place();
        writer.put_from(memory, at, self.layout.record_bytes())
    }

    fn repeats(&self, last: &[u8]) -> bool {
        let mut key = Vec::new();
        self.remember(&mut key);
        key == last
    }

    fn remember(&self, last: &mut Vec<u8>) {
        last.resize(self.layout.key_range().len(), 0);
        self.key_piece(0, last);
    }

    fn name(&self) -> &str {
        self.blocks.name()
    }
}

/// Checks that a stream consists of whole records.
pub(crate) fn check_whole(stream: &Stream, layout: RecordLayout) -> Result<()> {
    let (size, record_bytes) = (stream.len(), layout.record_bytes());
    if size.is_multiple_of(record_bytes as u64) {
        return Ok(());
    }
    Err(Error::Ragged { file: stream.name().to_owned(), size, record_bytes })
}

/// Returns a flow whose blocks are whole records.
pub(crate) fn whole_records(flow: Flow, record_bytes: usize) -> Flow {
    let count = (flow.block_bytes / record_bytes).max(1);
    Flow { block_bytes: count * record_bytes, ..flow }
}

/// A source of lines of text. The final line need not have a terminator.
pub struct LineSource {
    lines: Lines,
    order: Rc<LineOrder>,
    prefix: u64,
}

impl LineSource {
    /// Creates the source of a stream's lines.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn new(stream: &Stream, order: Rc<LineOrder>, flow: Flow, watch: &Watch) -> Result<Self> {
        let lines = Lines::new(stream, order.terminator, flow, watch)?;
        Ok(Self { lines, order, prefix: 0 })
    }

    /// Returns the current line, without its terminator.
    #[must_use]
    pub fn line(&self) -> &[u8] {
        self.lines.line()
    }
}

impl Source for LineSource {
    fn advance(&mut self) -> Result<bool> {
        let is_there = self.lines.advance()?;
        if is_there {
            self.prefix = self.order.prefix(self.lines.line());
        }
        Ok(is_there)
    }

    fn prefix(&self) -> u64 {
        self.prefix
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.order.compare(self.line(), other.line())
    }

    fn put(&self, writer: &mut Writer) -> Result<()> {
        writer.put(self.line())?;
        writer.put(&[self.order.terminator])
    }

    fn repeats(&self, last: &[u8]) -> bool {
        self.order.is_same(self.line(), last)
    }

    fn remember(&self, last: &mut Vec<u8>) {
        last.clear();
        last.extend_from_slice(self.line());
    }

    fn name(&self) -> &str {
        self.lines.blocks.name()
    }
}

/// A reader of the lines of a stream, without any order.
pub(crate) struct Lines {
    blocks: BlockReader,
    terminator: u8,
    /// The bytes that were read but are not consumed yet, followed by unused room.
    window: Vec<u8>,
    filled: usize,
    line: std::ops::Range<usize>,
    /// The position of the next line in `window`.
    next: usize,
    is_end: bool,
}

impl Lines {
    pub(crate) fn new(stream: &Stream, terminator: u8, flow: Flow, watch: &Watch) -> Result<Self> {
        let blocks = stream.blocks(flow, watch)?;
        let (window, line) = (Vec::new(), 0..0);
        Ok(Self { blocks, terminator, window, filled: 0, line, next: 0, is_end: false })
    }

    /// Returns the current line, without its terminator.
    pub(crate) fn line(&self) -> &[u8] {
        &self.window[self.line.clone()]
    }

    /// Moves to the next line. Returns false if there is none.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        let mut searched = self.next;
        loop {
            let found = memchr::memchr(self.terminator, &self.window[searched..self.filled]);
            if let Some(length) = found {
                self.line = self.next..searched + length;
                self.next = self.line.end + 1;
                return Ok(true);
            }
            searched = self.filled - self.next;
            if self.is_end || !self.fill()? {
                self.is_end = true;
                self.line = self.next..self.filled;
                self.next = self.filled;
                return Ok(!self.line.is_empty());
            }
        }
    }

    /// Moves the remaining bytes to the front and reads another block after them.
    fn fill(&mut self) -> Result<bool> {
        let Some((memory, length)) = self.blocks.next_block()? else { return Ok(false) };
        self.window.copy_within(self.next..self.filled, 0);
        (self.filled, self.next) = (self.filled - self.next, 0);
        let end = self.filled + length;
        if self.window.len() < end {
            self.window.resize(end, 0);
        }
        memory.read(0, &mut self.window[self.filled..end]);
        self.filled = end;
        Ok(true)
    }
}

/// The number of bytes of two keys that are compared in one step.
const PIECE_BYTES: usize = 64;
