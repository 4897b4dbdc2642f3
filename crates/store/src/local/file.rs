//! An open regular file of a local file system.
//!
//! Invariants:
//! - There is one [`LocalFile`] per object at a time, even if the object is opened several times.
//!   The file becomes writable with the first open for writing, and stays writable.
//! - Once a caller other than the superuser may write, each write checks the mode for set-id bits.
//!   The set-id bits can be set at any time, and then a program that the caller writes would run
//!   with the rights of the file's owner.

use std::fs::File as SystemFile;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use dafs_memory::Memory;
use dafs_memory::kernel_handle::KernelHandle;
use dafs_ops::SeekFor;
use dafs_types::{CloneSource, FileHandle};
use reflink_copy::ReflinkBlockBuilder;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;

use super::node::Node;
use super::sys;
use crate::attributes::Attributes;
use crate::error::{Result, StoreError};
use crate::file::{CopySpan, File, FileKey};
use crate::rules::without_set_ids;

/// An open regular file of a local file system; see the [module](self).
pub(super) struct LocalFile {
    pub key: FileKey,
    pub node: Arc<Node>,
    reader: OnceLock<OwnedFd>,
    writer: OnceLock<OwnedFd>,
    /// True if a caller other than the superuser may write. Each write then clears the set-id bits
    /// of the file's mode.
    strips_set_id: AtomicBool,
}

impl LocalFile {
    pub(super) fn new(key: FileKey, node: Arc<Node>) -> Self {
        Self {
            key,
            node,
            reader: OnceLock::new(),
            writer: OnceLock::new(),
            strips_set_id: AtomicBool::new(false),
        }
    }

    /// Sets the descriptor of a file that was just created. The descriptor allows reading and
    /// writing whatever mode the file has.
    pub(super) fn allow_with(&self, writer: OwnedFd, strips_set_id: bool) {
        if strips_set_id {
            self.strips_set_id.store(true, Ordering::Relaxed);
        }
        self.writer.get_or_init(|| writer);
    }

    /// Opens the file for reading and, if `writes` is true, also for writing. Write-back needs
    /// both, because it reads the rest of partly written blocks. If this process can open every
    /// file, the open for reading is delayed until the first read, so that a cached file needs no
    /// descriptor.
    pub(super) fn allow(&self, writes: bool, strips_set_id: bool) -> Result<()> {
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

    /// Returns another path of a file whose former name was removed, if the kernel knows one.
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

    /// Changes the data with `change`, and clears the set-id bits of the mode. The bits are cleared
    /// before the change, and again after it in case a process has set them meanwhile. A file
    /// cannot be executed while it is open for writing. If the server may not change the mode of
    /// other users' files, it is not the superuser, so the kernel itself clears the bits when the
    /// server writes.
    fn clear_set_ids_around(
        &self,
        fd: BorrowedFd<'_>,
        change: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
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
            // The file may still have another name, for example after a rename by LINK and REMOVE.
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
        self.clear_set_ids_around(fd, || {
            Ok(memory.write_file(memory_offset, length, fd, offset)?)
        })
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
        self.clear_set_ids_around(fd, || Ok(rustix::fs::ftruncate(fd, size)?))
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        let fd = self.write_fd()?;
        check_room(fd, (offset, length))?;
        self.clear_set_ids_around(fd, || fallocate(fd, FallocateFlags::empty(), (offset, length)))
    }

    fn deallocate(&self, offset: u64, length: u64) -> Result<()> {
        let fd = self.write_fd()?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.clear_set_ids_around(fd, || match fallocate(fd, flags, (offset, length)) {
            // The range ends after the largest offset of the file system.
            Err(StoreError::TooBig) => {
                let size = u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0);
                match size.saturating_sub(offset) {
                    0 => Ok(()),
                    left => fallocate(fd, flags, (offset, left)),
                }
            }
            done => done,
        })
    }

    fn seek(&self, offset: u64, what: SeekFor) -> Result<u64> {
        let from = match what {
            SeekFor::Data => SeekFrom::Data(offset),
            SeekFor::Hole => SeekFrom::Hole(offset),
        };
        Ok(rustix::fs::seek(self.any_fd()?, from)?)
    }

    fn clone_range(&self, source: &dyn File, span: CopySpan) -> Result<()> {
        let source = source.clone_source()?.ok_or(StoreError::NotSupported)?;
        let from = source.file().ok_or(StoreError::NotSupported)?;
        // A length of 0 would mean the rest of the source.
        let length = NonZeroU64::new(span.length).ok_or(StoreError::Invalid)?;
        let fd = self.write_fd()?;
        let to = SystemFile::from(rustix::io::fcntl_dupfd_cloexec(fd, 0)?);
        let builder = ReflinkBlockBuilder::new(from, &to, length);
        let builder = builder.from_offset(span.source_offset).to_offset(span.offset);
        self.clear_set_ids_around(fd, || match builder.reflink_block() {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTTY) => {
                Err(StoreError::NotSupported)
            }
            other => Ok(other?),
        })
    }

    fn copy_range(&self, source: &dyn File, span: CopySpan) -> Result<u64> {
        let source = source.clone_source()?.ok_or(StoreError::NotSupported)?;
        let from = source.file().ok_or(StoreError::NotSupported)?;
        let fd = self.write_fd()?;
        let mut done = 0;
        self.clear_set_ids_around(fd, || {
            while done < span.length {
                let (mut source_at, mut at) = (span.source_offset + done, span.offset + done);
                let left = usize::try_from(span.length - done).unwrap_or(usize::MAX);
                let (input, output) = (Some(&mut source_at), Some(&mut at));
                match rustix::fs::copy_file_range(from, input, fd, output, left) {
                    Ok(0) => break,
                    Ok(count) => done += count as u64,
                    Err(Errno::INTR) => {}
                    Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                        return Err(StoreError::NotSupported);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })?;
        Ok(done)
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

/// Fails if the file system lacks room for storage of this range. The system itself would first
/// take all the room that is left, and other clients could not write meanwhile.
fn check_room(fd: BorrowedFd<'_>, (offset, length): (u64, u64)) -> Result<()> {
    if offset.checked_add(length).is_none_or(|end| i64::try_from(end).is_err()) {
        // The system says that the range is too far.
        return Ok(());
    }
    let room = rustix::fs::fstatvfs(fd)?;
    let left = room.f_bavail.saturating_mul(room.f_frsize);
    // All that the file has may be in the range.
    let lacking = length.saturating_sub(sys::status(fd)?.attributes.space_used);
    if lacking > left { Err(StoreError::NoSpace) } else { Ok(()) }
}

/// Reserves or frees storage of an open file. A signal does not end the call.
fn fallocate(
    fd: BorrowedFd<'_>,
    flags: FallocateFlags,
    (offset, length): (u64, u64),
) -> Result<()> {
    Ok(rustix::io::retry_on_intr(|| rustix::fs::fallocate(fd, flags, offset, length))?)
}

/// The open file, as a source for sharing blocks.
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

/// True if the kernel lets this process open every readable file. Opening a file early then cannot
/// reveal an error, so the file is opened only when it is needed.
static OPENS_LATE: LazyLock<bool> = LazyLock::new(|| rustix::process::geteuid().is_root());

/// The suffix that the kernel appends to the path of a file whose name was removed.
const GONE: &[u8] = b" (deleted)";
