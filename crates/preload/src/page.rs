//! What stands for an open file in the kernel: a descriptor of its own, behind which lies a page
//! of memory that all processes share that have inherited it.
//!
//! Invariants: the descriptor's number is the kernel's, so that no other file has it, and it is
//! one for paths only: a call that this library does not see fails with EBADF instead of reading
//! or writing something else. The page says which file it is and where its offset stands, to
//! children and behind `exec` too.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dafs_client::Metadata;
use dafs_types::FileHandle;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::errors::{Failure, Outcome};

/// What a descriptor is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file that was opened.
    File = 1,
    /// A directory.
    Directory = 2,
    /// An object, without an open (O_PATH).
    Object = 3,
}

/// Which file it is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Number of its mount.
    pub mount: usize,
    /// What it is of.
    pub kind: Kind,
    /// Its handle.
    pub handle: FileHandle,
    /// Where it was found, beneath the mount, without symbolic links.
    pub path: String,
    /// O_RDONLY, O_WRONLY or O_RDWR.
    pub access: i32,
}

/// The part of the page that changes.
#[repr(C)]
pub struct Shared {
    offset: AtomicU64,
    flags: AtomicU32,
    reserved: AtomicU32,
}

/// A mapped page.
#[derive(Debug)]
pub struct Page(NonNull<Shared>);

// SAFETY: what it points to is shared between processes anyway, and only touched as atomics.
unsafe impl Send for Page {}

impl Page {
    /// The offset of all that share it.
    pub fn offset(&self) -> &AtomicU64 {
        &self.shared().offset
    }

    /// The flags that F_SETFL sets.
    pub fn flags(&self) -> i32 {
        self.shared().flags.load(Ordering::Relaxed) as i32
    }

    /// Sets them.
    pub fn set_flags(&self, flags: i32) {
        self.shared().flags.store(flags as u32, Ordering::Relaxed);
    }

    fn shared(&self) -> &Shared {
        // SAFETY: it points to a mapping of a page, which ends with this value.
        unsafe { self.0.as_ref() }
    }

    fn map(file: &impl std::os::fd::AsFd) -> Outcome<Self> {
        // SAFETY: new memory, which nothing else refers to.
        let mapped = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        let mapped = mapped.map_err(|error| Failure::Errno(error.raw_os_error()))?;
        NonNull::new(mapped.cast()).map(Self).ok_or(Failure::Errno(libc::ENOMEM))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), BYTES) };
    }
}

/// Makes a descriptor, the lowest that is free, and its page.
pub fn make(identity: &Identity, flags: i32, closes_at_exec: bool) -> Outcome<(RawFd, Page)> {
    let system = |error: rustix::io::Errno| Failure::Errno(error.raw_os_error());
    let memory = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC).map_err(system)?;
    let mut memory = File::from(memory);
    memory.write_all(&encode(identity)).map_err(|_| Failure::Errno(libc::ENOMEM))?;
    let page = Page::map(&memory)?;
    page.set_flags(flags);
    let number = memory.as_raw_fd();
    let at_exec = if closes_at_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: both numbers are of descriptors that this function owns.
    let moved = bare(number).map(|bare| unsafe { libc::dup3(bare.as_raw_fd(), number, at_exec) });
    if moved != Ok(number) && !closes_at_exec {
        rustix::io::fcntl_setfd(&memory, rustix::io::FdFlags::empty()).map_err(system)?;
    }
    Ok((memory.into_raw_fd(), page))
}

/// The same memory by a descriptor that nothing can be read from.
fn bare(number: RawFd) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::open(format!("/proc/self/fd/{number}"), flags, Mode::empty())
}

/// What a descriptor stands for that was inherited; `None` if it is none of ours. The number
/// tells apart what shares a page.
pub fn adopt(number: RawFd) -> Option<(u64, Identity, Page)> {
    let link = format!("/proc/self/fd/{number}");
    let target = rustix::fs::readlink(&*link, Vec::new()).ok()?;
    if !target.to_bytes().starts_with(LINK.as_bytes()) {
        return None;
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let memory = rustix::fs::open(CString::new(link).ok()?, flags, Mode::empty()).ok()?;
    let inode = rustix::fs::fstat(&memory).ok()?.st_ino;
    let file = File::from(memory);
    let mut bytes = Vec::new();
    (&file).take(BYTES as u64).read_to_end(&mut bytes).ok()?;
    let identity = decode(&bytes)?;
    Some((inode, identity, Page::map(&file).ok()?))
}

/// As few octets as it takes: memory that is not written costs nothing.
fn encode(identity: &Identity) -> Vec<u8> {
    let length = identity.path.len().min(BYTES - PATH);
    let mut bytes = vec![0; PATH + length];
    let words = [
        MAGIC,
        identity.mount as u64,
        identity.kind as u64,
        identity.access as u64,
        identity.path.len() as u64,
    ];
    for (index, word) in words.iter().enumerate() {
        bytes[HEAD + index * 8..HEAD + index * 8 + 8].copy_from_slice(&word.to_ne_bytes());
    }
    bytes[HANDLE..HANDLE + FileHandle::LENGTH].copy_from_slice(&identity.handle.0);
    bytes[PATH..].copy_from_slice(&identity.path.as_bytes()[..length]);
    bytes
}

fn decode(bytes: &[u8]) -> Option<Identity> {
    let word = |index: usize| -> Option<u64> {
        let at = HEAD + index * 8;
        Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    if word(0)? != MAGIC {
        return None;
    }
    let kind = match word(2)? {
        1 => Kind::File,
        2 => Kind::Directory,
        3 => Kind::Object,
        _ => return None,
    };
    let path = bytes.get(PATH..PATH.checked_add(usize::try_from(word(4)?).ok()?)?)?;
    Some(Identity {
        mount: usize::try_from(word(1)?).ok()?,
        kind,
        handle: FileHandle(bytes.get(HANDLE..HANDLE + FileHandle::LENGTH)?.try_into().ok()?),
        path: String::from_utf8(path.to_vec()).ok()?,
        access: i32::try_from(word(3)?).ok()?,
    })
}

/// Closes a descriptor that was made here and is not in any table.
pub fn discard(number: RawFd) {
    // SAFETY: the caller has it from `make`, and nobody else.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
}

impl Identity {
    /// Of an object that was looked at.
    pub fn of(mount: usize, kind: Kind, metadata: &Metadata, path: String, access: i32) -> Self {
        Self { mount, kind, handle: metadata.handle, path, access }
    }
}

const NAME: &str = "dafs";
const LINK: &str = "/memfd:dafs";
const MAGIC: u64 = 0x6461_6673_7061_6765;
/// Octets of a page: one beginning, and the longest path.
const BYTES: usize = 8192;
const HEAD: usize = 64;
const HANDLE: usize = 128;
const PATH: usize = 256;
