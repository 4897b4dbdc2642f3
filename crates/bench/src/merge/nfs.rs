//! A block transfer engine over libnfs, for comparison. It has as many requests in flight as the
//! DAFS engine, with the same blocks, and reads into and writes from the same memory.
//!
//! Invariant: one connection serves all files. A completion is kept until the channel that sent the
//! request asks for it.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::rc::Rc;

use dafs_extmem::{Block, BlockFile, Channel, Engine, Error, Moved, Output, Result};
use dafs_memory::{Memory, Pages};
use dafs_peers::{FileId, Nfs, PeerError, Range, Reply, Request, Ticket, flag};

/// An export of an NFS server.
#[derive(Clone)]
pub(super) struct NfsEngine(Rc<RefCell<Shared>>);

struct Shared {
    nfs: Nfs,
    ended: HashMap<Ticket, std::result::Result<Reply, PeerError>>,
}

struct NfsFile {
    engine: NfsEngine,
    name: String,
    file: FileId,
}

struct NfsOutput {
    file: Rc<NfsFile>,
    part: String,
}

struct NfsChannel {
    file: Rc<NfsFile>,
    queue: VecDeque<(Ticket, Block, usize)>,
}

impl NfsEngine {
    pub(super) fn new(nfs: Nfs) -> Self {
        Self(Rc::new(RefCell::new(Shared { nfs, ended: HashMap::new() })))
    }

    pub(super) fn remove(&self, path: &str) -> std::result::Result<(), PeerError> {
        self.0.borrow_mut().nfs.call(Request::Unlink(path)).map(drop)
    }

    fn open_file(&self, path: &str, name: &str, flags: i32) -> Result<Rc<NfsFile>> {
        let file = self.0.borrow_mut().nfs.open(path, flags, 0o644);
        let file = file.map_err(|error| Error::engine(format!("opening {path}"), error))?;
        Ok(Rc::new(NfsFile { engine: self.clone(), name: name.to_owned(), file }))
    }
}

impl Shared {
    /// Sends as much of a request as the socket accepts immediately, because libnfs makes no
    /// progress between calls.
    fn submit(&mut self, request: Request<'_>) -> std::result::Result<Ticket, PeerError> {
        let ticket = self.nfs.submit(request)?;
        self.serve()?;
        Ok(ticket)
    }

    /// Processes replies that have arrived, without waiting.
    fn serve(&mut self) -> std::result::Result<(), PeerError> {
        while let Some(completion) = self.nfs.poll()? {
            self.ended.insert(completion.ticket, completion.result);
        }
        Ok(())
    }

    fn wait(&mut self, ticket: Ticket) -> std::result::Result<Reply, PeerError> {
        loop {
            if let Some(result) = self.ended.remove(&ticket) {
                return result;
            }
            let completion = self.nfs.wait()?;
            self.ended.insert(completion.ticket, completion.result);
        }
    }
}

impl Engine for NfsEngine {
    fn open(&self, path: &OsStr) -> Result<Rc<dyn BlockFile>> {
        // The names are made by the benchmark, and are valid text.
        let path = &*path.to_string_lossy();
        Ok(self.open_file(path, path, flag::READ)?)
    }

    fn temporary(&self, directory: &OsStr) -> Result<Rc<dyn BlockFile>> {
        let what = format!("making an unnamed file in {}", directory.display());
        Err(Error::engine(what, std::io::Error::from(std::io::ErrorKind::Unsupported)))
    }

    fn create(&self, path: &OsStr) -> Result<Box<dyn Output>> {
        let path = &*path.to_string_lossy();
        let part = format!("{path}.part");
        let file = self.open_file(&part, path, flag::READ_WRITE | flag::CREATE)?;
        Ok(Box::new(NfsOutput { file, part }))
    }
}

impl Output for NfsOutput {
    fn file(&self) -> Rc<dyn BlockFile> {
        self.file.clone()
    }

    fn publish(self: Box<Self>, is_durable: bool) -> Result<()> {
        let NfsFile { engine, name, file } = &*self.file;
        let failed = |error| Error::engine(format!("naming {name}"), error);
        let nfs = &mut engine.0.borrow_mut().nfs;
        if is_durable {
            nfs.fsync(*file).map_err(failed)?;
        }
        nfs.call(Request::Rename(&self.part, name)).map_err(failed)?;
        Ok(())
    }
}

impl Drop for NfsFile {
    fn drop(&mut self) {
        // Ignore an error: a file that was read has no data to lose, and errors of a file that was
        // written were reported before.
        let _ = self.engine.0.borrow_mut().nfs.close(self.file);
    }
}

impl BlockFile for NfsFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64> {
        let found = self.engine.0.borrow_mut().nfs.stat(&self.name);
        let failed = |error| Error::engine(format!("reading the size of {}", self.name), error);
        Ok(found.map_err(failed)?.size)
    }

    fn channel(self: Rc<Self>) -> Box<dyn Channel> {
        Box::new(NfsChannel { file: self, queue: VecDeque::new() })
    }
}

impl NfsChannel {
    fn submit(&mut self, request: Request<'_>, block: Block, length: usize) -> Result<()> {
        let ticket = self.file.engine.0.borrow_mut().submit(request);
        let failed = |error| Error::engine(format!("requesting {}", self.file.name), error);
        self.queue.push_back((ticket.map_err(failed)?, block, length));
        Ok(())
    }
}

impl Channel for NfsChannel {
    fn allocate(&mut self, length: usize) -> Result<Block> {
        let memory = Memory::anonymous(length.max(1), Pages::Small);
        Ok(Block::new(memory.map_err(|error| Error::engine("allocating a block", error))?))
    }

    fn submit_read(&mut self, block: Block, offset: u64, length: usize) -> Result<()> {
        let to = Range { memory: block.memory().clone(), start: 0, length };
        self.submit(Request::ReadTo { file: self.file.file, offset, to }, block, length)
    }

    fn submit_write(&mut self, block: Block, offset: u64, length: usize) -> Result<()> {
        let from = Range { memory: block.memory().clone(), start: 0, length };
        self.submit(Request::WriteFrom { file: self.file.file, offset, from }, block, length)
    }

    fn wait(&mut self) -> Result<Option<Moved>> {
        let Some((ticket, block, _)) = self.queue.pop_front() else { return Ok(None) };
        let answer = self.file.engine.0.borrow_mut().wait(ticket);
        let failed = |error| Error::engine(format!("moving blocks of {}", self.file.name), error);
        let Reply::Moved { count: length, .. } = answer.map_err(failed)? else {
            unreachable!("a transfer returns a count");
        };
        Ok(Some(Moved { block, length }))
    }

    fn under_way(&self) -> usize {
        self.queue.len()
    }
}
