//! Block transfer engines: what moves the blocks of streams, and where files are made.
//!
//! Invariant: a channel gives blocks back in the order they were submitted in, each once.

mod dafs;
mod local;
mod memory;

use std::ffi::OsStr;
use std::rc::Rc;

use dafs_client::Buffer;
use dafs_memory::Memory;

use crate::error::Result;

pub use dafs::DafsEngine;
pub use local::LocalEngine;
pub use memory::MemoryEngine;

/// A place where files are: a server, the local file system, memory.
pub trait Engine {
    /// Opens a file to be read.
    ///
    /// # Errors
    /// If it is not there or may not be read.
    fn open(&self, path: &OsStr) -> Result<Rc<dyn BlockFile>>;

    /// Makes a file without a name in a directory. It is gone with its last user, however that
    /// ends.
    ///
    /// # Errors
    /// If the directory takes none.
    fn temporary(&self, directory: &OsStr) -> Result<Rc<dyn BlockFile>>;

    /// Makes a file that appears under its name when it is whole ([`Output::publish`]).
    ///
    /// # Errors
    /// If its directory takes none.
    fn create(&self, path: &OsStr) -> Result<Box<dyn Output>>;
}

/// A file that is being made. Dropped before [`Output::publish`] it leaves nothing behind.
pub trait Output {
    /// To be written to.
    fn file(&self) -> Rc<dyn BlockFile>;

    /// Gives the file its name, in place of what has it. With `is_durable`, what was written is
    /// on stable storage first.
    ///
    /// # Errors
    /// If what was written is lost, or the name is refused. Nothing has changed then.
    fn publish(self: Box<Self>, is_durable: bool) -> Result<()>;
}

/// An open file that is moved in blocks.
pub trait BlockFile {
    /// Its path, for messages.
    fn name(&self) -> &str;

    /// Bytes it has now.
    ///
    /// # Errors
    /// If the engine does not say.
    fn size(&self) -> Result<u64>;

    /// Transfers of their own, for one stream.
    fn channel(self: Rc<Self>) -> Box<dyn Channel>;
}

/// Transfers of one stream, asynchronous: submitted, and waited for in that order.
pub trait Channel {
    /// Memory for blocks that this engine moves best.
    ///
    /// # Errors
    /// If there is none.
    fn allocate(&mut self, length: usize) -> Result<Block>;

    /// Submits a read of `length` bytes at `offset` of the file, to the block's beginning. Only at
    /// the end of the file fewer are moved.
    ///
    /// # Errors
    /// If it cannot be submitted.
    fn submit_read(&mut self, block: Block, offset: u64, length: usize) -> Result<()>;

    /// Submits a write of the block's first `length` bytes at `offset` of the file.
    ///
    /// # Errors
    /// If it cannot be submitted.
    fn submit_write(&mut self, block: Block, offset: u64, length: usize) -> Result<()>;

    /// Waits for the transfer that was submitted longest ago; `None` if there is none.
    ///
    /// # Errors
    /// Why it failed.
    fn wait(&mut self) -> Result<Option<Moved>>;

    /// Transfers that were not waited for yet.
    fn under_way(&self) -> usize;
}

/// The end of a transfer: its block comes back.
#[derive(Debug)]
pub struct Moved {
    /// The block.
    pub block: Block,
    /// Bytes that were moved.
    pub length: usize,
}

/// Memory of one block.
#[derive(Debug)]
pub struct Block {
    memory: Memory,
    buffer: Option<Buffer>,
}

impl Block {
    /// Of plain memory.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory, buffer: None }
    }

    /// Of memory that servers know.
    #[must_use]
    pub fn registered(buffer: Buffer) -> Self {
        Self { memory: buffer.memory().clone(), buffer: Some(buffer) }
    }

    /// Its bytes.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// As servers know it.
    #[must_use]
    pub fn buffer(&self) -> Option<&Buffer> {
        self.buffer.as_ref()
    }
}
