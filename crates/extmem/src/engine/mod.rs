//! Block transfer engines, which create files and move the blocks of streams.
//!
//! Invariant: a channel returns blocks in the order in which they were submitted, each once.

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

/// A store of files: a server, the local file system, or memory.
pub trait Engine {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine) if the file does not exist or cannot be read.
    fn open(&self, path: &OsStr) -> Result<Rc<dyn BlockFile>>;

    /// Creates an unnamed file in a directory. The file is removed when its last user has dropped
    /// it or the process has crashed.
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine) if the file cannot be created.
    fn temporary(&self, directory: &OsStr) -> Result<Rc<dyn BlockFile>>;

    /// Creates a file that appears under its name only when it is complete ([`Output::publish`]).
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine) if the file cannot be created in the directory.
    fn create(&self, path: &OsStr) -> Result<Box<dyn Output>>;
}

/// A file under construction. If it is dropped before [`Output::publish`], nothing of it remains.
pub trait Output {
    /// Returns the file to write to.
    fn file(&self) -> Rc<dyn BlockFile>;

    /// Gives the file its name and replaces an existing file. If `is_durable`, all data is on
    /// stable storage first.
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine) if written data is lost or the name is refused. No
    /// existing file is changed in that case.
    fn publish(self: Box<Self>, is_durable: bool) -> Result<()>;
}

/// An open file that is transferred in blocks.
pub trait BlockFile {
    /// Returns the path of the file, for messages.
    fn name(&self) -> &str;

    /// Returns the current size in bytes.
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine) if the engine cannot determine it.
    fn size(&self) -> Result<u64>;

    /// Creates a channel for the transfers of one stream.
    fn channel(self: Rc<Self>) -> Box<dyn Channel>;
}

/// The asynchronous transfers of one stream, which are waited for in the order of submission.
pub trait Channel {
    /// Allocates a block of `length` bytes in the memory best suited for this engine.
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine) if there is no memory.
    fn allocate(&mut self, length: usize) -> Result<Block>;

    /// Submits a read of `length` bytes at `offset` of the file, to the start of the block. Fewer
    /// bytes are moved only at the end of the file.
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine) if the read cannot be submitted.
    fn submit_read(&mut self, block: Block, offset: u64, length: usize) -> Result<()>;

    /// Submits a write of the first `length` bytes of the block to `offset` of the file.
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine) if the write cannot be submitted.
    fn submit_write(&mut self, block: Block, offset: u64, length: usize) -> Result<()>;

    /// Waits for the transfer that was submitted first. Returns `None` if there is none.
    ///
    /// # Errors
    /// The error of that transfer.
    fn wait(&mut self) -> Result<Option<Moved>>;

    /// Returns the number of transfers that were submitted and not waited for.
    fn under_way(&self) -> usize;
}

/// A completed transfer, which returns its block.
#[derive(Debug)]
pub struct Moved {
    /// The block that was submitted.
    pub block: Block,
    /// The number of bytes moved.
    pub length: usize,
}

/// The memory of one block.
#[derive(Debug)]
pub struct Block {
    memory: Memory,
    buffer: Option<Buffer>,
}

impl Block {
    /// Creates a block of ordinary memory.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory, buffer: None }
    }

    /// Creates a block of memory that is registered for servers.
    #[must_use]
    pub fn registered(buffer: Buffer) -> Self {
        Self { memory: buffer.memory().clone(), buffer: Some(buffer) }
    }

    /// Returns the memory of the block.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the registered buffer, if the block has one.
    #[must_use]
    pub fn buffer(&self) -> Option<&Buffer> {
        self.buffer.as_ref()
    }
}
