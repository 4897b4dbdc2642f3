//! The kernel descriptors that represent open files, and the files' offsets and flags. The offset
//! and flags are in this process's memory at first. They move to a page of shared memory before
//! another process can share the descriptor.
//!
//! Invariants:
//! - The kernel assigns the descriptor numbers, so no other file gets the same number. The
//!   descriptors are O_PATH descriptors: a call that this library does not see fails with EBADF
//!   instead of reading or writing another file.
//! - A page contains the identity of its file and its offset, so that children and programs after
//!   `exec` find them. If a process inherits a descriptor that has no page, because this library
//!   did not see how the process was created, calls with the descriptor fail with EBADF.

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

/// The kind of an open object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// An object opened with O_PATH, without an open on the server.
    Object = 3,
}

/// The properties of an open file that do not change.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The index of the mount that contains the file.
    pub mount: usize,
    /// The kind of the object.
    pub kind: Kind,
    /// The server's file handle.
    pub handle: FileHandle,
    /// The path beneath the mount without symbolic links, at the time of the open.
    pub path: OsString,
    /// The access mode: O_RDONLY, O_WRONLY or O_RDWR.
    pub access: i32,
}

/// The properties of an open file that can change. All processes that share the open file share
/// these properties.
#[repr(C)]
#[derive(Debug, Default)]
struct SharedFields {
    offset: AtomicU64,
    flags: AtomicU32,
    reserved: AtomicU32,
}

/// The offset and flags that all descriptors from one open share.
#[derive(Debug)]
pub(crate) struct Page {
    own: SharedFields,
    shared: OnceCell<Mapping>,
}

impl Page {
    /// Makes a page that only this process uses.
    pub(crate) fn new(flags: i32) -> Self {
        let own = SharedFields { flags: AtomicU32::new(flags as u32), ..SharedFields::default() };
        Self { own, shared: OnceCell::new() }
    }

    /// Returns the shared offset.
    pub(crate) fn offset(&self) -> &AtomicU64 {
        &self.fields().offset
    }

    /// Returns the flags that F_SETFL can change.
    pub(crate) fn flags(&self) -> i32 {
        self.fields().flags.load(Ordering::Relaxed) as i32
    }

    /// Sets the status flags of the open file.
    pub(crate) fn set_flags(&self, flags: i32) {
        self.fields().flags.store(flags as u32, Ordering::Relaxed);
    }

    /// True if the page is in shared memory, where processes that inherit the descriptors find it.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.get().is_some()
    }

    /// Moves the page to shared memory, and replaces these descriptors, under the same numbers, by
    /// descriptors of that memory. Other processes find the page through them.
    ///
    /// # Errors
    /// The kernel's error. A descriptor that could not be replaced does not lead other processes to
    /// the page.
    pub(crate) fn share(&self, identity: &Identity, numbers: &[RawFd]) -> Outcome<()> {
        let mut memory = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC).map_err(system)?);
        memory.write_all(&encode(identity)).map_err(|_| Failure::Errno(libc::ENOMEM))?;
        let mapping = Mapping::of(&memory)?;
        let (from, to) = (&self.own, mapping.fields());
        to.offset.store(from.offset.load(Ordering::Acquire), Ordering::Release);
        to.flags.store(from.flags.load(Ordering::Relaxed), Ordering::Relaxed);
        let o_path = o_path_of(&memory)?;
        // From here on, this process uses the shared page too.
        let _ = self.shared.set(mapping);
        let mut outcome = Ok(());
        for &number in numbers {
            outcome = put_onto(&o_path, number).and(outcome);
        }
        outcome
    }

    fn fields(&self) -> &SharedFields {
        self.shared.get().map_or(&self.own, Mapping::fields)
    }
}

/// A mapped page.
#[derive(Debug)]
struct Mapping(NonNull<SharedFields>);

// SAFETY: the memory is shared between processes anyway, and is only accessed as atomics.
unsafe impl Send for Mapping {}

impl Mapping {
    fn fields(&self) -> &SharedFields {
        // SAFETY: the pointer is that of a mapped page, which is unmapped only by `drop`.
        unsafe { self.0.as_ref() }
    }

    fn of(file: &impl AsFd) -> Outcome<Self> {
        // SAFETY: this makes a new mapping, to which no references exist.
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
        // SAFETY: the page was mapped with this length, and there are no references to it any more.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), BYTES) };
    }
}

/// The descriptor that is duplicated for each open file that only this process uses. No operation
/// succeeds on it.
#[derive(Debug)]
pub(crate) struct Placeholder {
    number: RawFd,
    /// The device and inode of the descriptor, which are those of its duplicates too.
    object: (u64, u64),
}

impl Placeholder {
    /// Makes the placeholder. Its number is at least `floor` if the descriptor limit allows that.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn new(floor: RawFd) -> Outcome<Self> {
        let o_path = o_path_of(&memfd_create(PRIVATE_NAME, MemfdFlags::CLOEXEC).map_err(system)?)?;
        let object = object(&o_path).map_err(system)?;
        let kept = rustix::io::fcntl_dupfd_cloexec(&o_path, floor).unwrap_or(o_path);
        Ok(Self { number: kept.into_raw_fd(), object })
    }

    /// Returns the descriptor number of the placeholder itself.
    pub(crate) fn number(&self) -> RawFd {
        self.number
    }

    /// Duplicates the placeholder to the lowest free number.
    ///
    /// # Errors
    /// EMFILE if the process has too many descriptors.
    pub(crate) fn copy(&self, closes_at_exec: bool) -> Outcome<RawFd> {
        let command = if closes_at_exec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
        let number = real!(fcntl(self.number => RawFd, command => i32, 0 => i32) -> i32);
        if number == -1 { Err(Failure::Errno(crate::errors::get())) } else { Ok(number) }
    }

    /// True if a number is still a duplicate of the placeholder. It is not if the program closed or
    /// reused the number by a call that this library did not see.
    pub(crate) fn is_at(&self, number: RawFd) -> bool {
        let is_open = real!(fcntl(number => RawFd, libc::F_GETFD => i32, 0 => usize) -> i32) != -1;
        // SAFETY: the descriptor is open, and it is borrowed only for this call.
        is_open && object(&unsafe { BorrowedFd::borrow_raw(number) }) == Ok(self.object)
    }
}

fn object(of: &impl AsFd) -> rustix::io::Result<(u64, u64)> {
    let status = rustix::fs::fstat(of)?;
    Ok((status.st_dev, status.st_ino))
}

/// Duplicates a descriptor onto a number. The number keeps its close-on-exec flag.
fn put_onto(from: &OwnedFd, number: RawFd) -> Outcome<()> {
    let flags = real!(fcntl(number => RawFd, libc::F_GETFD => i32, 0 => usize) -> i32);
    let flags = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
    let from = from.as_raw_fd();
    let moved = real!(dup3(from => RawFd, number => RawFd, flags => i32) -> i32);
    if moved == -1 { Err(Failure::Errno(crate::errors::get())) } else { Ok(()) }
}

/// Reopens shared memory as an O_PATH descriptor, which cannot be read or written.
fn o_path_of(memory: &impl AsFd) -> Outcome<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", memory.as_fd().as_raw_fd());
    rustix::fs::open(path, flags, Mode::empty()).map_err(system)
}

fn system(error: rustix::io::Errno) -> Failure {
    Failure::Errno(error.raw_os_error())
}

/// Returns the identity and the page of an inherited descriptor; `None` if this library did not
/// make the descriptor. Also returns the page's inode number: descriptors with the same number
/// share a page.
pub(crate) fn inherited(number: RawFd) -> Option<(u64, Identity, Page)> {
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
    Some((inode, identity, Page { own: SharedFields::default(), shared }))
}

/// Encodes an identity in as few bytes as possible, because memory that is not written costs
/// nothing.
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
    /// Makes the identity of an object from its attributes.
    pub(crate) fn of(
        mount: usize,
        kind: Kind,
        metadata: &Metadata,
        path: OsString,
        access: i32,
    ) -> Self {
        Self { mount, kind, handle: metadata.handle, path, access }
    }
}

const NAME: &str = "dafs";
/// The beginning of the link in /proc of a descriptor with a page. The placeholder's link differs.
const LINK: &str = "/memfd:dafs ";
const PRIVATE_NAME: &str = "dafs-private";
const MAGIC: u64 = 0x6461_6673_7061_6765;
/// The size of a page in bytes: room for a header and the longest path.
const BYTES: usize = 8192;
const HEAD: usize = 64;
const HANDLE: usize = 128;
const PATH: usize = 256;
