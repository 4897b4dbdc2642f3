//! Local files, read by `pread` and written by `pwrite`. The kernel reads ahead if advised to, and
//! writes in the background. A thread of this crate would only duplicate that work.
//!
//! Invariant: a read is executed when it is waited for. Between its submission and the wait, the
//! kernel can read the data ahead. A write is executed when it is submitted.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dafs_client::shown_path;
use dafs_memory::{Memory, Pages};
use rustix::fs::{Advice, fadvise};
use tempfile::{Builder, TempPath};

use super::{Block, BlockFile, Channel, Engine, Moved, Output};
use crate::error::{Error, Result};

/// The engine for files of the local file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalEngine;

struct LocalFile {
    name: String,
    file: File,
}

struct LocalOutput {
    file: Rc<LocalFile>,
    part: TempPath,
    target: PathBuf,
}

struct LocalChannel {
    file: Rc<LocalFile>,
    queue: VecDeque<Submitted>,
}

struct Submitted {
    moved: Moved,
    /// The file offset of a submitted read that is not executed yet.
    offset: Option<u64>,
}

impl Engine for LocalEngine {
    fn open(&self, path: &OsStr) -> Result<Rc<dyn BlockFile>> {
        let failed = |error| Error::engine(format!("opening {}", shown_path(path)), error);
        let file = File::open(path).map_err(failed)?;
        let is_file = file.metadata().map_err(failed)?.is_file();
        if !is_file {
            return Err(failed(io::Error::other("it is not a regular file")));
        }
        // This is only advice: without it the result is the same, but slower.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        Ok(Rc::new(LocalFile { name: shown_path(path).into_owned(), file }))
    }

    fn temporary(&self, directory: &OsStr) -> Result<Rc<dyn BlockFile>> {
        let name = format!("a temporary file in {}", shown_path(directory));
        match tempfile::tempfile_in(directory) {
            Ok(file) => Ok(Rc::new(LocalFile { name, file })),
            Err(error) => Err(Error::engine(format!("making {name}"), error)),
        }
    }

    fn create(&self, path: &OsStr) -> Result<Box<dyn Output>> {
        let failed = |error| Error::engine(format!("making {}", shown_path(path)), error);
        // If the path is a symbolic link, its target is replaced, not the link.
        let target = Path::new(path).canonicalize().unwrap_or_else(|_| PathBuf::from(path));
        let before = target.metadata().ok();
        if before.as_ref().is_some_and(|before| !before.is_file()) {
            return Err(failed(io::Error::other("the path is not a regular file; choose another")));
        }
        let directory = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let before = before.map(|before| before.mode() & 0o7777);
        let permissions = PermissionsExt::from_mode(before.map_or(0o666, |_| 0o600));
        let part =
            Builder::new().prefix(".dafs-part-").permissions(permissions).tempfile_in(directory);
        let (file, part) = part.map_err(failed)?.into_parts();
        if let Some(mode) = before {
            // The new file gets the mode of the file that it replaces, regardless of the umask.
            file.set_permissions(PermissionsExt::from_mode(mode)).map_err(failed)?;
        }
        let file = Rc::new(LocalFile { name: shown_path(path).into_owned(), file });
        Ok(Box::new(LocalOutput { file, part, target }))
    }
}

impl Output for LocalOutput {
    fn file(&self) -> Rc<dyn BlockFile> {
        self.file.clone()
    }

    fn publish(self: Box<Self>, is_durable: bool) -> Result<()> {
        let name = &self.file.name;
        if is_durable {
            let synced = self.file.file.sync_all();
            synced.map_err(|error| Error::engine(format!("syncing {name}"), error))?;
        }
        let named = self.part.persist(&self.target);
        named.map_err(|error| Error::engine(format!("naming {name}"), error.error))?;
        if is_durable && let Some(directory) = self.target.parent() {
            let synced = File::open(directory).and_then(|directory| directory.sync_all());
            synced.map_err(|error| {
                Error::engine(format!("syncing the directory of {name}"), error)
            })?;
        }
        Ok(())
    }
}

impl BlockFile for LocalFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64> {
        match self.file.metadata() {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) => {
                Err(Error::engine(format!("asking for the size of {}", self.name), error))
            }
        }
    }

    fn channel(self: Rc<Self>) -> Box<dyn Channel> {
        Box::new(LocalChannel { file: self, queue: VecDeque::new() })
    }
}

impl Channel for LocalChannel {
    fn allocate(&mut self, length: usize) -> Result<Block> {
        let memory = Memory::anonymous(length.max(1), Pages::Small);
        Ok(Block::new(memory.map_err(|error| Error::engine("allocating a block", error))?))
    }

    fn submit_read(&mut self, block: Block, offset: u64, length: usize) -> Result<()> {
        if !self.queue.is_empty() {
            let length = std::num::NonZeroU64::new(length as u64);
            // This is only advice, as in `open`.
            let _ = fadvise(&self.file.file, offset, length, Advice::WillNeed);
        }
        self.queue.push_back(Submitted { moved: Moved { block, length }, offset: Some(offset) });
        Ok(())
    }

    fn submit_write(&mut self, block: Block, offset: u64, length: usize) -> Result<()> {
        let written = block.memory().write_file(0, length, self.file.file.as_fd(), offset);
        written.map_err(|error| Error::engine(format!("writing {}", self.file.name), error))?;
        self.queue.push_back(Submitted { moved: Moved { block, length }, offset: None });
        Ok(())
    }

    fn wait(&mut self) -> Result<Option<Moved>> {
        let Some(Submitted { mut moved, offset }) = self.queue.pop_front() else {
            return Ok(None);
        };
        if let Some(offset) = offset {
            let file = self.file.file.as_fd();
            let read = moved.block.memory().read_file(0, moved.length, file, offset);
            moved.length =
                read.map_err(|error| Error::engine(format!("reading {}", self.file.name), error))?;
        }
        Ok(Some(moved))
    }

    fn under_way(&self) -> usize {
        self.queue.len()
    }
}
