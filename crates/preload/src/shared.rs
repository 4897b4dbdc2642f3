//! Memory that the processes of one user on one host share for a mapped file.
//!
//! The memory is a file in `/dev/shm`, named after the user, the server's name and the file's
//! handle. A second file next to it, the base file, has the contents that the DAFS file had when it
//! was last read or written through this memory. A difference between memory and base is a change
//! that is not in the DAFS file yet. So changes are known even after all processes that made them
//! were killed.
//!
//! Invariants:
//! - Every process that uses the memory holds a shared kernel lock on it. A process holds the
//!   [guard] while it checks whether the memory is used, fills it or removes it.
//! - Bytes are written to the memory before they are written to the base file, and the base file
//!   never contains data that the DAFS file never contained. This holds even if a writer is killed.
//!
//! [guard]: SharedObject::guard

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::rc::Rc;

use dafs_types::FileHandle;
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};

use crate::config;
use crate::errors::{Failure, Outcome, fail};

/// The shared memory of one file.
pub(crate) struct SharedObject {
    memory: File,
    base: File,
    path: String,
    /// The process that opened the memory. A child process shares its kernel lock and must not
    /// remove the memory.
    process: u32,
    /// True if no process used the memory when it was opened: it is new, or its users were killed.
    is_abandoned: Cell<bool>,
    /// The open on the server that holds the claim to share the memory.
    pub claim: RefCell<Option<Rc<dafs_client::File>>>,
}

/// Bytes that were changed in the memory.
pub(crate) struct Change {
    /// The offset in the file.
    pub offset: u64,
    /// The bytes after the change.
    pub now: Vec<u8>,
    /// The bytes that the file contained.
    pub base: Vec<u8>,
}

impl SharedObject {
    /// Opens the memory of a file, or creates it. The caller holds the guard.
    pub(crate) fn open(mount: usize, handle: &FileHandle) -> Outcome<Self> {
        Self::at(path_of(mount, handle), OFlags::CREATE)
    }

    fn at(path: String, flags: OFlags) -> Outcome<Self> {
        let memory = open_own(&path, flags)?;
        let base = open_own(&base_of(&path), OFlags::CREATE)?;
        let alone = rustix::fs::flock(&memory, FlockOperation::NonBlockingLockExclusive);
        let shared = rustix::fs::flock(&memory, FlockOperation::LockShared);
        shared.map_err(|error| Failure::Errno(error.raw_os_error()))?;
        let (process, claim) = (std::process::id(), RefCell::new(None));
        Ok(Self { memory, base, path, process, is_abandoned: Cell::new(alone.is_ok()), claim })
    }

    /// Takes the lock that a process holds while it checks whether shared memory is used.
    pub(crate) fn guard() -> Outcome<File> {
        lock(&format!("{}.lock", stem()))
    }

    /// Takes the lock for writing changes to the DAFS file, so that an older state never overwrites
    /// a newer one.
    pub(crate) fn writing(&self) -> Outcome<File> {
        lock(&base_of(&self.path))
    }

    /// Returns the shared memory that killed programs of this user have left, with the numbers of
    /// the servers and the file handles. The caller must hold the lock that [`Self::guard`] takes.
    pub(crate) fn abandoned() -> Vec<(u64, FileHandle, Self)> {
        let own = format!("{}-", stem());
        let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let left = entries.filter_map(|entry| {
            let path = entry.path().to_str()?.to_owned();
            let (server, handle) = path.strip_prefix(&own)?.split_once('-')?;
            let (server, handle) = (u64::from_str_radix(server, 16).ok()?, handle_of(handle)?);
            let object = Self::at(path, OFlags::empty()).ok()?;
            object.is_abandoned().then_some((server, handle, object))
        });
        left.collect()
    }

    /// True if no process has used the memory since it was created, or since its users were killed.
    /// In the second case it may contain changes that are not in the DAFS file.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.get()
    }

    /// Returns the descriptor to map.
    pub(crate) fn number(&self) -> RawFd {
        self.memory.as_raw_fd()
    }

    /// Returns the path of the memory's file.
    pub(crate) fn name(&self) -> &str {
        &self.path
    }

    /// Returns the number of bytes of the file that the memory represents.
    pub(crate) fn length(&self) -> u64 {
        length_of(&self.base)
    }

    /// Empties the memory, so that it can be filled again.
    pub(crate) fn empty(&self) -> Outcome<()> {
        self.base.set_len(0).and_then(|()| self.memory.set_len(0)).map_err(no_room)?;
        self.is_abandoned.set(false);
        Ok(())
    }

    /// Extends the memory by the next bytes of the file.
    pub(crate) fn extend(&self, bytes: &[u8]) -> Outcome<()> {
        let held = self.length();
        // Allocate the memory now: touching memory that cannot be allocated would kill the program.
        rustix::fs::fallocate(&self.memory, FallocateFlags::empty(), held, bytes.len() as u64)
            .map_err(|error| Failure::Errno(error.raw_os_error()))?;
        let written = self.memory.write_all_at(bytes, held);
        written.and_then(|()| self.base.write_all_at(bytes, held)).map_err(no_room)
    }

    /// Updates the memory and the base after a write call to the file.
    pub(crate) fn note_written(&self, offset: u64, bytes: &[u8]) {
        note(&self.memory, &self.base, offset, bytes);
    }

    /// Updates the base after a change in the memory was written to the DAFS file.
    pub(crate) fn note_base(&self, offset: u64, bytes: &[u8]) {
        let _ = self.base.write_all_at(bytes, offset);
    }

    /// Clears the memory beyond the new end of a truncated or extended file, for all processes that
    /// map the file, and in memory that killed programs have left. The pages stay allocated,
    /// because a process would be killed if it accessed missing pages.
    pub(crate) fn note_length(mount: usize, handle: &FileHandle, length: u64) {
        let path = path_of(mount, handle);
        // Take no lock, because that would mark the memory as used.
        let Ok(memory) = open_own(&path, OFlags::empty()) else { return };
        let Ok(base) = open_own(&base_of(&path), OFlags::empty()) else { return };
        let behind = length_of(&base).saturating_sub(length);
        note(&memory, &base, length, &vec![0; behind as usize]);
    }

    /// Returns the changes in a range, at most one page each.
    pub(crate) fn changes(&self, start: u64, end: u64) -> impl Iterator<Item = Change> + '_ {
        let end = end.min(self.length());
        let blocks = (start..end).step_by(BLOCK_BYTES);
        blocks.flat_map(move |offset| {
            let length = (end - offset).min(BLOCK_BYTES as u64) as usize;
            let (mut now, mut base) = (vec![0; length], vec![0; length]);
            let read = self.memory.read_exact_at(&mut now, offset);
            let read = read.and_then(|()| self.base.read_exact_at(&mut base, offset));
            let pages = now.chunks(PAGE).zip(base.chunks(PAGE)).enumerate();
            let found = pages.filter_map(|(index, (now, base))| {
                let (from, to) = changed(now, base)?;
                let offset = offset + (index * PAGE + from) as u64;
                Some(Change { offset, now: now[from..to].into(), base: base[from..to].into() })
            });
            if read.is_ok() { found.collect() } else { Vec::new() }
        })
    }

    /// Removes the memory if this process opened it and no other process uses it. The caller holds
    /// the guard.
    pub(crate) fn remove_if_last(&self) {
        if self.process != std::process::id() {
            return;
        }
        let alone = rustix::fs::flock(&self.memory, FlockOperation::NonBlockingLockExclusive);
        if alone.is_ok() {
            let _ = rustix::fs::unlink(&*self.path);
            let _ = rustix::fs::unlink(base_of(&self.path));
        }
    }
}

/// Writes data of the DAFS file to the memory and the base, as far as they extend. The memory is
/// written first: if the writer is killed in between, the difference counts as a change and is
/// compared with the DAFS file.
fn note(memory: &File, base: &File, offset: u64, bytes: &[u8]) {
    let length = length_of(base).saturating_sub(offset).min(bytes.len() as u64) as usize;
    let _ = memory.write_all_at(&bytes[..length], offset);
    let _ = base.write_all_at(&bytes[..length], offset);
}

fn length_of(base: &File) -> u64 {
    base.metadata().map_or(0, |metadata| metadata.size())
}

fn lock(path: &str) -> Outcome<File> {
    let file = open_own(path, OFlags::CREATE)?;
    let locked = rustix::fs::flock(&file, FlockOperation::LockExclusive);
    locked.map_err(|error| Failure::Errno(error.raw_os_error()))?;
    Ok(file)
}

/// Opens a file that belongs to this user alone. Fails if another user created the file.
fn open_own(path: &str, flags: OFlags) -> Outcome<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | flags;
    let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
    let opened = opened.map_err(|error| Failure::Errno(error.raw_os_error()))?;
    let number = rustix::io::fcntl_dupfd_cloexec(&opened, HIGH).unwrap_or(opened);
    let file = File::from(number);
    let own = rustix::process::geteuid().as_raw();
    match file.metadata() {
        Ok(metadata) if metadata.uid() == own => Ok(file),
        _ => fail(libc::EACCES),
    }
}

fn no_room(_: std::io::Error) -> Failure {
    Failure::Errno(libc::ENOMEM)
}

/// Returns the offset of the first byte that differs, and the end of the last one that differs.
fn changed(now: &[u8], base: &[u8]) -> Option<(usize, usize)> {
    if now == base {
        return None;
    }
    let differs = |(one, other): (&u8, &u8)| one != other;
    let first = now.iter().zip(base).position(differs)?;
    let last = now.iter().zip(base).rposition(differs)?;
    Some((first, last + 1))
}

fn path_of(mount: usize, handle: &FileHandle) -> String {
    format!("{}-{:016x}-{}", stem(), server_of(mount), name_of(handle))
}

fn base_of(path: &str) -> String {
    format!("{path}.base")
}

/// Returns a hash of the server's name. Mounts that use different names of the same server do not
/// share memory.
pub(crate) fn server_of(mount: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    config::get().mounts[mount].location.server.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Returns a hash that is equal for processes that can share memory: those on this host (with this
/// `/dev/shm`, if there are several), of this user, and with this name of the server.
pub(crate) fn host_of(mount: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let memory = std::fs::metadata("/dev/shm").map(|it| (it.dev(), it.ino())).ok();
    (boot, memory, rustix::process::geteuid().as_raw(), server_of(mount)).hash(&mut hasher);
    hasher.finish()
}

/// Returns the common prefix of the paths of this user's files in `/dev/shm`.
pub(crate) fn stem() -> String {
    format!("/dev/shm/dafs-{}", rustix::process::geteuid().as_raw())
}

/// Encodes a handle in hexadecimal.
pub(crate) fn name_of(handle: &FileHandle) -> String {
    handle.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes a handle, or returns `None` for another text.
fn handle_of(text: &str) -> Option<FileHandle> {
    let is_hexadecimal = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hexadecimal || text.len() != 2 * FileHandle::LENGTH {
        return None;
    }
    let byte = |index: usize| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok();
    let bytes: Vec<u8> = (0..FileHandle::LENGTH).map(byte).collect::<Option<_>>()?;
    Some(FileHandle(bytes.try_into().ok()?))
}

/// The size in bytes of the units in which changes are tracked.
pub(crate) const PAGE: usize = 4096;
/// The number of bytes compared in one step.
const BLOCK_BYTES: usize = 1 << 20;
/// The lowest number for descriptors of shared memory, above the numbers that programs use.
const HIGH: RawFd = 512;
