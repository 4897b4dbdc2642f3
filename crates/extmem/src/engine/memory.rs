//! Files in this process's memory, for tests and for streams that fit in memory.
//!
//! Invariant: a transfer is complete when it has been submitted.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::rc::Rc;

use dafs_client::shown_path;
use dafs_memory::{Memory, Pages};

use super::{Block, BlockFile, Channel, Engine, Moved, Output};
use crate::error::{Error, Result};

/// The engine for files in memory, by name. Cheap to clone; clones share the files.
#[derive(Clone, Default)]
pub struct MemoryEngine(Rc<RefCell<BTreeMap<String, Rc<MemoryFile>>>>);

struct MemoryFile {
    name: String,
    bytes: RefCell<Vec<u8>>,
}

struct MemoryOutput {
    engine: MemoryEngine,
    file: Rc<MemoryFile>,
}

struct MemoryChannel {
    file: Rc<MemoryFile>,
    done: VecDeque<Moved>,
}

impl MemoryEngine {
    /// Creates an engine without files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a file with these bytes, or replaces the file of the same name.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let file = MemoryFile { name: name.to_owned(), bytes: RefCell::new(bytes) };
        self.0.borrow_mut().insert(name.to_owned(), Rc::new(file));
    }

    /// Returns the bytes of a file, or `None` if it does not exist.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Vec<u8>> {
        Some(self.0.borrow().get(name)?.bytes.borrow().clone())
    }
}

impl Engine for MemoryEngine {
    fn open(&self, path: &OsStr) -> Result<Rc<dyn BlockFile>> {
        let path = &*shown_path(path);
        match self.0.borrow().get(path) {
            Some(file) => Ok(file.clone()),
            None => Err(Error::engine(
                format!("opening {path} in memory"),
                std::io::Error::from(ErrorKind::NotFound),
            )),
        }
    }

    fn temporary(&self, directory: &OsStr) -> Result<Rc<dyn BlockFile>> {
        let name = format!("a temporary file in {}", shown_path(directory));
        Ok(Rc::new(MemoryFile { name, bytes: RefCell::default() }))
    }

    fn create(&self, path: &OsStr) -> Result<Box<dyn Output>> {
        let file =
            Rc::new(MemoryFile { name: shown_path(path).into_owned(), bytes: RefCell::default() });
        Ok(Box::new(MemoryOutput { engine: self.clone(), file }))
    }
}

impl Output for MemoryOutput {
    fn file(&self) -> Rc<dyn BlockFile> {
        self.file.clone()
    }

    fn publish(self: Box<Self>, _is_durable: bool) -> Result<()> {
        let name = self.file.name.clone();
        self.engine.0.borrow_mut().insert(name, self.file);
        Ok(())
    }
}

impl BlockFile for MemoryFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64> {
        Ok(self.bytes.borrow().len() as u64)
    }

    fn channel(self: Rc<Self>) -> Box<dyn Channel> {
        Box::new(MemoryChannel { file: self, done: VecDeque::new() })
    }
}

impl Channel for MemoryChannel {
    fn allocate(&mut self, length: usize) -> Result<Block> {
        let memory = Memory::anonymous(length.max(1), Pages::Small);
        Ok(Block::new(memory.map_err(|error| Error::engine("allocating a block", error))?))
    }

    fn submit_read(&mut self, block: Block, offset: u64, length: usize) -> Result<()> {
        let bytes = self.file.bytes.borrow();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let length = length.min(bytes.len() - start);
        block.memory().write(0, &bytes[start..start + length]);
        drop(bytes);
        self.done.push_back(Moved { block, length });
        Ok(())
    }

    fn submit_write(&mut self, block: Block, offset: u64, length: usize) -> Result<()> {
        let mut bytes = self.file.bytes.borrow_mut();
        let start = usize::try_from(offset).map_err(|error| {
            Error::engine(format!("writing {} at {offset}", self.file.name), error)
        })?;
        if bytes.len() < start + length {
            bytes.resize(start + length, 0);
        }
        block.memory().read(0, &mut bytes[start..start + length]);
        drop(bytes);
        self.done.push_back(Moved { block, length });
        Ok(())
    }

    fn wait(&mut self) -> Result<Option<Moved>> {
        Ok(self.done.pop_front())
    }

    fn under_way(&self) -> usize {
        self.done.len()
    }
}
