//! Streams of a program's own types.
//!
//! Invariant: a record consists of the bytes of a value. Records follow one another without gaps.

use std::marker::PhantomData;
use std::rc::Rc;

use dafs_memory::Memory;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::engine::BlockFile;
use crate::error::{Error, Result};
use crate::source::whole_records;
use crate::stream::{BlockReader, Flow, Stream, Watch};
use crate::writer::Writer;

/// Reads the values of a stream.
pub struct TypedReader<T> {
    blocks: BlockReader,
    memory: Option<Memory>,
    at: usize,
    end: usize,
    _values: PhantomData<T>,
}

impl<T: FromBytes + IntoBytes> TypedReader<T> {
    /// Creates a reader of a stream's values.
    ///
    /// # Errors
    /// [`Error::Ragged`] if the stream ends within a value; the error of the engine.
    pub fn new(stream: &Stream, flow: Flow, watch: &Watch) -> Result<Self> {
        let (size, record_bytes) = (stream.len(), size_of::<T>().max(1));
        if !size.is_multiple_of(record_bytes as u64) {
            return Err(Error::Ragged { file: stream.name().to_owned(), size, record_bytes });
        }
        let blocks = stream.blocks(whole_records(flow, record_bytes), watch)?;
        Ok(Self { blocks, memory: None, at: 0, end: 0, _values: PhantomData })
    }

    /// Returns the next value, or `None` at the end.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn next_value(&mut self) -> Result<Option<T>> {
        if self.at == self.end {
            let Some((memory, length)) = self.blocks.next_block()? else { return Ok(None) };
            self.memory = Some(memory.clone());
            (self.at, self.end) = (0, length);
        }
        let Some(memory) = &self.memory else { return Ok(None) };
        let mut value = T::new_zeroed();
        memory.read(self.at, value.as_mut_bytes());
        self.at += size_of::<T>();
        Ok(Some(value))
    }
}

impl<T: FromBytes + IntoBytes> Iterator for TypedReader<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        self.next_value().transpose()
    }
}

/// Writes values to a file.
pub struct TypedWriter<T> {
    writer: Writer,
    _values: PhantomData<T>,
}

impl<T: IntoBytes + Immutable> TypedWriter<T> {
    /// Creates a writer that starts at the beginning of a file.
    #[must_use]
    pub fn new(file: Rc<dyn BlockFile>, flow: Flow) -> Self {
        Self { writer: Writer::new(file, 0, flow), _values: PhantomData }
    }

    /// Appends a value.
    ///
    /// # Errors
    /// The error of the engine, for this or an earlier value.
    pub fn put(&mut self, value: &T) -> Result<()> {
        self.writer.put(value.as_bytes())
    }

    /// Writes the remaining values and waits until all values are written. Returns their number.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn finish(self) -> Result<u64> {
        Ok(self.writer.finish()? / size_of::<T>().max(1) as u64)
    }
}
