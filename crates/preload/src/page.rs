//! What stands for an open file in the kernel, and where its offset and flags are: in this process
//! at first, and in a page of memory from when another process may come to share them.
//!
//! Invariants: a descriptor's number is the kernel's, so that no other file has it, and it is one
//! for paths only: a call that this library does not see fails with EBADF instead of reading or
//! writing something else. A page says which file it is and where its offset stands, to children
//! and behind `exec` too; who inherits a descriptor without one, by a way that was not seen, has
//! nothing there (EBADF).

use std::cell::OnceCell;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dafs_client::Metadata;
use dafs_types::FileHandle;
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
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
    pub path: OsString,
    /// O_RDONLY, O_WRONLY or O_RDWR.
    pub access: i32,
}

/// What changes of an open file.
#[repr(C)]
#[derive(Debug, Default)]
struct Changing {
    offset: AtomicU64,
    flags: AtomicU32,
    reserved: AtomicU32,
}

/// Offset and flags of all descriptors that came from one open.
#[derive(Debug)]
pub struct Page {
    own: Changing,
    shared: OnceCell<Mapping>,
}

impl Page {
    /// One of this process alone.
    pub fn new(flags: i32) -> Self {
        let own = Changing { flags: AtomicU32::new(flags as u32), ..Changing::default() };
        Self { own, shared: OnceCell::new() }
    }

    /// The offset of all that share it.
    pub fn offset(&self) -> &AtomicU64 {
        &self.changing().offset
    }

    /// The flags that F_SETFL sets.
    pub fn flags(&self) -> i32 {
        self.changing().flags.load(Ordering::Relaxed) as i32
    }

    /// Sets them.
    pub fn set_flags(&self, flags: i32) {
        self.changing().flags.store(flags as u32, Ordering::Relaxed);
    }

    /// Whether processes that inherit its descriptors find it.
    pub fn is_shared(&self) -> bool {
        self.shared.get().is_some()
    }

    /// Lays it where other processes find it by these descriptors, which keep their numbers.
    ///
    /// # Errors
    /// What the kernel says. Other processes find nothing by a descriptor that has not got it.
    pub fn share(&self, identity: &Identity, numbers: &[RawFd]) -> Outcome<()> {
        let mut memory = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC).map_err(system)?);
        memory.write_all(&encode(identity)).map_err(|_| Failure::Errno(libc::ENOMEM))?;
        let mapping = Mapping::of(&memory)?;
        let (from, to) = (&self.own, mapping.changing());
        to.offset.store(from.offset.load(Ordering::Acquire), Ordering::Release);
        to.flags.store(from.flags.load(Ordering::Relaxed), Ordering::Relaxed);
        let bare = bare(&memory)?;
        // From here on it is the page that counts, whoever has got it.
        let _ = self.shared.set(mapping);
        let mut outcome = Ok(());
        for &number in numbers {
            outcome = put_onto(&bare, number).and(outcome);
        }
        outcome
    }

    fn changing(&self) -> &Changing {
        self.shared.get().map_or(&self.own, Mapping::changing)
    }
}

/// A mapped page.
#[derive(Debug)]
struct Mapping(NonNull<Changing>);

// SAFETY: what it points to is shared between processes anyway, and only touched as atomics.
unsafe impl Send for Mapping {}

impl Mapping {
    fn changing(&self) -> &Changing {
        // SAFETY: it points to a mapping of a page, which ends with this value.
        unsafe { self.0.as_ref() }
    }

    fn of(file: &impl AsFd) -> Outcome<Self> {
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
        let mapped = mapped.map_err(system)?;
        NonNull::new(mapped.cast()).map(Self).ok_or(Failure::Errno(libc::ENOMEM))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), BYTES) };
    }
}

/// What all descriptors of this process's own are copies of: nothing can be done with it.
#[derive(Debug)]
pub struct Placeholder {
    number: RawFd,
    /// Device and inode, which its copies have too.
    object: (u64, u64),
}

impl Placeholder {
    /// Makes it, at a number from `floor` on if there is room.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(floor: RawFd) -> Outcome<Self> {
        let bare = bare(&memfd_create(PRIVATE_NAME, MemfdFlags::CLOEXEC).map_err(system)?)?;
        let object = object(&bare).map_err(system)?;
        let kept = rustix::io::fcntl_dupfd_cloexec(&bare, floor).unwrap_or(bare);
        Ok(Self { number: kept.into_raw_fd(), object })
    }

    /// Its own descriptor.
    pub fn number(&self) -> RawFd {
        self.number
    }

    /// A copy, at the lowest number that is free.
    ///
    /// # Errors
    /// EMFILE.
    pub fn copy(&self, closes_at_exec: bool) -> Outcome<RawFd> {
        let command = if closes_at_exec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
        let number = real!(fcntl(self.number => RawFd, command => i32, 0 => i32) -> i32);
        if number == -1 { Err(Failure::Errno(crate::errors::get())) } else { Ok(number) }
    }

    /// Whether a number is still a copy's: not closed, or another's, by a call that was not seen.
    pub fn is_at(&self, number: RawFd) -> bool {
        let is_open = real!(fcntl(number => RawFd, libc::F_GETFD => i32, 0 => usize) -> i32) != -1;
        // SAFETY: it is open, and is not kept.
        is_open && object(&unsafe { BorrowedFd::borrow_raw(number) }) == Ok(self.object)
    }
}

fn object(of: &impl AsFd) -> rustix::io::Result<(u64, u64)> {
    let status = rustix::fs::fstat(of)?;
    Ok((status.st_dev, status.st_ino))
}

/// Puts a copy onto a number, which is closed at `exec` as before.
fn put_onto(from: &OwnedFd, number: RawFd) -> Outcome<()> {
    let flags = real!(fcntl(number => RawFd, libc::F_GETFD => i32, 0 => usize) -> i32);
    let flags = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
    let from = from.as_raw_fd();
    let moved = real!(dup3(from => RawFd, number => RawFd, flags => i32) -> i32);
    if moved == -1 { Err(Failure::Errno(crate::errors::get())) } else { Ok(()) }
}

/// The same memory by a descriptor that nothing can be read from.
fn bare(memory: &impl AsFd) -> Outcome<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", memory.as_fd().as_raw_fd());
    rustix::fs::open(path, flags, Mode::empty()).map_err(system)
}

fn system(error: rustix::io::Errno) -> Failure {
    Failure::Errno(error.raw_os_error())
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
    let shared = OnceCell::from(Mapping::of(&file).ok()?);
    Some((inode, identity, Page { own: Changing::default(), shared }))
}

/// As few bytes as it takes: memory that is not written costs nothing.
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
        path: OsStr::from_bytes(path).to_owned(),
        access: i32::try_from(word(3)?).ok()?,
    })
}

impl Identity {
    /// Of an object that was looked at.
    pub fn of(mount: usize, kind: Kind, metadata: &Metadata, path: OsString, access: i32) -> Self {
        Self { mount, kind, handle: metadata.handle, path, access }
    }
}

const NAME: &str = "dafs";
/// How the kernel shows a descriptor that has a page; the placeholder is no such.
const LINK: &str = "/memfd:dafs ";
const PRIVATE_NAME: &str = "dafs-private";
const MAGIC: u64 = 0x6461_6673_7061_6765;
/// Bytes of a page: one beginning, and the longest path.
const BYTES: usize = 8192;
const HEAD: usize = 64;
const HANDLE: usize = 128;
const PATH: usize = 256;
