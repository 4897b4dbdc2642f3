//! Memory that the processes of one user on one host share for a file that they have mapped.
//!
//! It is a file in `/dev/shm`, named by the user, the server's name and the file's handle. Beside
//! it lies its base: what the file in DAFS held when it was last read or written through it. What
//! differs was changed in memory, by whomever, and is not in the file yet; so it is known even
//! when all who changed it were killed.
//!
//! Invariants: whoever uses it has a shared lock of the kernel's on it, and whoever decides
//! whether it is used, fills it or removes it holds the [guard]; no byte of the base is there
//! before that of the memory, and none of it says more than the file held, wherever its writer is
//! killed.
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

/// It.
pub struct SharedObject {
    memory: File,
    base: File,
    path: String,
    /// The process that opened it: a child has the same lock on it, and does not remove it.
    process: u32,
    /// Nobody used it when it was found: it is new, or who used it was killed.
    is_left: Cell<bool>,
    /// The open that the right to share it stands on.
    pub claim: RefCell<Option<Rc<dafs_client::File>>>,
}

/// Bytes that were changed in memory.
pub struct Change {
    /// Where in the file.
    pub offset: u64,
    /// What they are.
    pub now: Vec<u8>,
    /// What the file held.
    pub base: Vec<u8>,
}

impl SharedObject {
    /// Makes or finds the memory of a file. The guard is held.
    pub fn open(mount: usize, handle: &FileHandle) -> Outcome<Self> {
        Self::at(path_of(mount, handle), OFlags::CREATE)
    }

    fn at(path: String, flags: OFlags) -> Outcome<Self> {
        let memory = open_own(&path, flags)?;
        let base = open_own(&base_of(&path), OFlags::CREATE)?;
        let alone = rustix::fs::flock(&memory, FlockOperation::NonBlockingLockExclusive);
        let shared = rustix::fs::flock(&memory, FlockOperation::LockShared);
        shared.map_err(|error| Failure::Errno(error.raw_os_error()))?;
        let (process, claim) = (std::process::id(), RefCell::new(None));
        Ok(Self { memory, base, path, process, is_left: Cell::new(alone.is_ok()), claim })
    }

    /// Held while somebody decides whether an object is used.
    pub fn guard() -> Outcome<File> {
        lock(&format!("{}.lock", stem()))
    }

    /// Held while what was changed goes into the file, so that no older state follows a newer.
    pub fn writing(&self) -> Outcome<File> {
        lock(&base_of(&self.path))
    }

    /// What this user's programs have left when they were killed: of which server, which file.
    /// The guard is held.
    pub fn left() -> Vec<(u64, FileHandle, Self)> {
        let own = format!("{}-", stem());
        let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let left = entries.filter_map(|entry| {
            let path = entry.path().to_str()?.to_owned();
            let (server, handle) = path.strip_prefix(&own)?.split_once('-')?;
            let (server, handle) = (u64::from_str_radix(server, 16).ok()?, handle_of(handle)?);
            let object = Self::at(path, OFlags::empty()).ok()?;
            object.is_left().then_some((server, handle, object))
        });
        left.collect()
    }

    /// Whether nobody has used it since it was made, or since those who did were killed: what was
    /// changed in it is in no file.
    pub fn is_left(&self) -> bool {
        self.is_left.get()
    }

    /// The descriptor to be mapped.
    pub fn number(&self) -> RawFd {
        self.memory.as_raw_fd()
    }

    /// Where it is.
    pub fn name(&self) -> &str {
        &self.path
    }

    /// Bytes that it stands for.
    pub fn length(&self) -> u64 {
        length_of(&self.base)
    }

    /// Begins it anew, empty.
    pub fn empty(&self) -> Outcome<()> {
        self.base.set_len(0).and_then(|()| self.memory.set_len(0)).map_err(no_room)?;
        self.is_left.set(false);
        Ok(())
    }

    /// Makes it longer by what the file holds there.
    pub fn extend(&self, bytes: &[u8]) -> Outcome<()> {
        let held = self.length();
        // Memory that is not there when it is touched would be the program's end.
        rustix::fs::fallocate(&self.memory, FallocateFlags::empty(), held, bytes.len() as u64)
            .map_err(|error| Failure::Errno(error.raw_os_error()))?;
        let written = self.memory.write_all_at(bytes, held);
        written.and_then(|()| self.base.write_all_at(bytes, held)).map_err(no_room)
    }

    /// The file holds this now by a call, and so does the memory.
    pub fn note_written(&self, offset: u64, bytes: &[u8]) {
        note(&self.memory, &self.base, offset, bytes);
    }

    /// The file holds what the memory held.
    pub fn note_base(&self, offset: u64, bytes: &[u8]) {
        let _ = self.base.write_all_at(bytes, offset);
    }

    /// The file of this handle was cut or extended: behind its end is nothing any more, for
    /// whoever has it mapped, and whatever killed programs have left. Its pages stay, or whoever
    /// looks at them would be killed.
    pub fn note_length(mount: usize, handle: &FileHandle, length: u64) {
        let path = path_of(mount, handle);
        // No lock is taken: it would seem used.
        let Ok(memory) = open_own(&path, OFlags::empty()) else { return };
        let Ok(base) = open_own(&base_of(&path), OFlags::empty()) else { return };
        let behind = length_of(&base).saturating_sub(length);
        note(&memory, &base, length, &vec![0; behind as usize]);
    }

    /// What was changed in a range, a page at a time.
    pub fn changes(&self, start: u64, end: u64) -> impl Iterator<Item = Change> + '_ {
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

    /// Removes it, if this process made it and nobody else uses it. The guard is held.
    pub fn remove_if_last(&self) {
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

/// Notes in both what a file holds, as far as they reach. The memory is first: one that is newer
/// than its base is compared with the file.
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

/// A file of this user's alone; one that somebody else has put there is refused.
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

/// The first byte that differs, and the one behind the last that does.
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

/// A server by its name: who knows it by another shares no memory.
pub fn server_of(mount: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    config::get().mounts[mount].location.server.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Those who share memory: this host (this `/dev/shm`, where there are several), this user, this
/// name of the server.
pub fn host_of(mount: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let memory = std::fs::metadata("/dev/shm").map(|it| (it.dev(), it.ino())).ok();
    (boot, memory, rustix::process::geteuid().as_raw(), server_of(mount)).hash(&mut hasher);
    hasher.finish()
}

/// What everything of this user's in memory begins with.
pub fn stem() -> String {
    format!("/dev/shm/dafs-{}", rustix::process::geteuid().as_raw())
}

/// A handle as text.
pub fn name_of(handle: &FileHandle) -> String {
    handle.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The handle that a text stands for; `None` if it is none.
fn handle_of(text: &str) -> Option<FileHandle> {
    let is_hexadecimal = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hexadecimal || text.len() != 2 * FileHandle::LENGTH {
        return None;
    }
    let byte = |index: usize| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok();
    let bytes: Vec<u8> = (0..FileHandle::LENGTH).map(byte).collect::<Option<_>>()?;
    Some(FileHandle(bytes.try_into().ok()?))
}

/// Bytes of memory that are written together.
pub const PAGE: usize = 4096;
/// Bytes that are compared at once.
const BLOCK_BYTES: usize = 1 << 20;
/// Descriptors of shared memory are above those that programs look at.
const HIGH: RawFd = 512;
