//! An open regular file of a local file system.
//!
//! Invariant: one [`LocalFile`] per object at a time, however many opens it has; it
//! gains the right to write with the first open that may, and never loses it. Once somebody
//! other than the superuser may write, each write looks at the mode: set-id bits can come at any
//! time, and whoever runs the file would run what was written with its owner's rights.

use std::fs::File as SystemFile;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use dafs_memory::Memory;
use dafs_memory::kernel_handle::KernelHandle;
use dafs_types::{CloneSource, FileHandle};
use rustix::fs::OFlags;

use super::node::Node;
use super::sys;
use crate::attributes::Attributes;
use crate::error::{Result, StoreError};
use crate::file::{File, FileKey};
use crate::rules::without_set_ids;

/// See the [module](self).
pub(super) struct LocalFile {
    pub key: FileKey,
    pub node: Arc<Node>,
    reader: OnceLock<OwnedFd>,
    writer: OnceLock<OwnedFd>,
    /// Somebody other than the superuser may write: each write takes set-id bits away.
    strips_set_id: AtomicBool,
}

impl LocalFile {
    pub fn new(key: FileKey, node: Arc<Node>) -> Self {
        Self {
            key,
            node,
            reader: OnceLock::new(),
            writer: OnceLock::new(),
            strips_set_id: AtomicBool::new(false),
        }
    }

    /// A new file comes open for both, whatever its mode says.
    pub fn allow_with(&self, writer: OwnedFd, strips_set_id: bool) {
        if strips_set_id {
            self.strips_set_id.store(true, Ordering::Relaxed);
        }
        self.writer.get_or_init(|| writer);
    }

    /// Opens for reading, or for both: write-back reads the rest of blocks. Who may open
    /// everything does not open for reading before there is something to read: a file that is
    /// cached costs no descriptor.
    pub fn allow(&self, writes: bool, strips_set_id: bool) -> Result<()> {
        let (slot, flags) =
            if writes { (&self.writer, OFlags::RDWR) } else { (&self.reader, OFlags::RDONLY) };
        if writes && strips_set_id {
            self.strips_set_id.store(true, Ordering::Relaxed);
        }
        if slot.get().is_none() && (writes || !*OPENS_LATE) {
            let fd = sys::reopen(self.node.fd(), flags)?;
            slot.get_or_init(|| fd);
        }
        Ok(())
    }

    /// Where the file is now if the name is gone that it was opened by, as far as the kernel tells.
    fn another_name(&self) -> Option<Vec<u8>> {
        let handle = KernelHandle::of(self.node.fd()).ok()?;
        let again = handle.open(self.any_fd().ok()?).ok()?;
        sys::present_path(again.as_fd()).ok().filter(|place| !place.ends_with(GONE))
    }

    fn any_fd(&self) -> Result<BorrowedFd<'_>> {
        if let Some(fd) = self.writer.get().or(self.reader.get()) {
            return Ok(fd.as_fd());
        }
        let fd = sys::reopen(self.node.fd(), OFlags::RDONLY)?;
        Ok(self.reader.get_or_init(|| fd).as_fd())
    }

    fn write_fd(&self) -> Result<BorrowedFd<'_>> {
        self.writer.get().map(AsFd::as_fd).ok_or(StoreError::Access)
    }

    /// Changes the data, and takes set-id bits away. They go before it and, if somebody has set
    /// them between the look and the change, behind it: nobody can run the file while it is open
    /// to be written. Who may not change another's mode is no superuser, and the kernel takes the
    /// bits away as he writes.
    fn strip_around(&self, fd: BorrowedFd<'_>, change: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.strips_set_id.load(Ordering::Relaxed) {
            return change();
        }
        match sys::take_set_ids(fd) {
            Err(StoreError::NotPermitted) => {}
            taken => taken?,
        }
        let changed = change();
        sys::take_set_ids(fd)?;
        changed
    }
}

impl File for LocalFile {
    fn key(&self) -> FileKey {
        self.key
    }

    fn handle(&self) -> FileHandle {
        self.node.handle
    }

    fn place(&self) -> Option<String> {
        let told = sys::present_path(self.node.fd()).ok()?;
        let place = match told.strip_suffix(GONE) {
            // By another name it may still be there, as after LINK and REMOVE for a rename.
            Some(former) => self.another_name().unwrap_or_else(|| former.to_vec()),
            None => told,
        };
        Some(String::from_utf8_lossy(&place).into_owned())
    }

    fn read_at(
        &self,
        memory: &Memory,
        memory_offset: usize,
        length: usize,
        offset: u64,
    ) -> Result<usize> {
        Ok(memory.read_file(memory_offset, length, self.any_fd()?, offset)?)
    }

    fn write_at(
        &self,
        memory: &Memory,
        memory_offset: usize,
        length: usize,
        offset: u64,
    ) -> Result<()> {
        let fd = self.write_fd()?;
        self.strip_around(fd, || Ok(memory.write_file(memory_offset, length, fd, offset)?))
    }

    fn mode_behind_writes(&self, mode: u32) -> u32 {
        if self.strips_set_id.load(Ordering::Relaxed) { without_set_ids(mode) } else { mode }
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        let fd = self.any_fd()?;
        Ok(if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) }?)
    }

    fn mark_changed(&self) {
        if let Ok(fd) = self.any_fd() {
            let _ = sys::stamp(fd);
        }
    }

    fn attributes(&self) -> Result<Attributes> {
        Ok(sys::status(self.node.fd())?.attributes)
    }

    fn set_size(&self, size: u64) -> Result<()> {
        let fd = self.write_fd()?;
        self.strip_around(fd, || Ok(rustix::fs::ftruncate(fd, size)?))
    }

    fn file_system(&self) -> u64 {
        let (major, minor) = self.node.device;
        u64::from(major) << 32 | u64::from(minor)
    }

    fn reader(&self) -> Result<Option<OwnedFd>> {
        Ok(Some(sys::reopen(self.node.fd(), OFlags::RDONLY)?))
    }

    fn clone_source(&self) -> Result<Option<Box<dyn CloneSource>>> {
        let file = rustix::io::fcntl_dupfd_cloexec(self.any_fd()?, 0)?;
        Ok(Some(Box::new(Blocks(file.into()))))
    }
}

/// The file as the system knows it.
struct Blocks(SystemFile);

impl CloneSource for Blocks {
    fn file(&self) -> Option<&SystemFile> {
        Some(&self.0)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn block_bytes(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstatvfs(&self.0)?.f_bsize)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// Whether the kernel refuses this process no file that may be read at all: then nothing is
/// learned by opening one early.
static OPENS_LATE: LazyLock<bool> = LazyLock::new(|| rustix::process::geteuid().is_root());

/// What the kernel says behind a name that is gone.
const GONE: &[u8] = b" (deleted)";
