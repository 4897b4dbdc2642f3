//! The C library's calls, one safe function each.
//!
//! Invariant: a program that stands between this one and the kernel (a library that is loaded
//! before the C library) sees each of these calls under the name that C programs use. That is why
//! they are not made by a crate that has system calls of its own. All `unsafe` of this crate is
//! here.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An error's number.
pub type Errno = i32;
/// What a call brings.
pub type Outcome<T> = Result<T, Errno>;

/// The number that the last call of this thread has left.
pub fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn text(path: &str) -> Outcome<CString> {
    CString::new(path).map_err(|_| libc::EINVAL)
}

fn done(result: libc::c_int) -> Outcome<()> {
    if result < 0 { Err(errno()) } else { Ok(()) }
}

fn counted(result: libc::ssize_t) -> Outcome<usize> {
    usize::try_from(result).map_err(|_| errno())
}

/// Calls that take paths and numbers only.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident($($path:ident),*; $($number:ident: $kind:ty),*);)*) => {$(
        $(#[$doc])*
        pub fn $name($($path: &str,)* $($number: $kind),*) -> Outcome<()> {
            $(let $path = text($path)?;)*
            // SAFETY: the strings end with a zero and live through the call; the rest are numbers.
            done(unsafe { libc::$name($($path.as_ptr(),)* $($number),*) })
        }
    )*};
}

plain! {
    /// Changes the mode of what a path leads to.
    chmod(path; mode: u32);
    /// Changes whom something belongs to.
    chown(path; uid: u32, gid: u32);
    /// The same of a symbolic link.
    lchown(path; uid: u32, gid: u32);
    /// Makes a directory.
    mkdir(path; mode: u32);
    /// Makes a pipe with a name.
    mkfifo(path; mode: u32);
    /// Makes an object of any kind.
    mknod(path; mode: u32, device: u64);
    /// Makes another name.
    link(from, to;);
    /// Makes a symbolic link.
    symlink(target, path;);
    /// Moves a name.
    rename(from, to;);
    /// Removes a directory.
    rmdir(path;);
    /// Removes a name.
    unlink(path;);
    /// Gives a file another length.
    truncate(path; length: i64);
    /// Whether something may be used.
    access(path; mode: i32);
    /// Goes to a directory.
    chdir(path;);
    /// Removes an extended attribute.
    removexattr(path, name;);
}

/// Calls of an open file that take numbers only.
macro_rules! of_descriptor {
    ($($(#[$doc:meta])* $name:ident($($number:ident: $kind:ty),*);)*) => {$(
        $(#[$doc])*
        pub fn $name(file: &impl AsRawFd $(, $number: $kind)*) -> Outcome<()> {
            // SAFETY: numbers only; the descriptor is open as long as it is borrowed.
            done(unsafe { libc::$name(file.as_raw_fd() $(, $number)*) })
        }
    )*};
}

of_descriptor! {
    /// Changes the mode of an open file.
    fchmod(mode: u32);
    /// Changes whom an open file belongs to.
    fchown(uid: u32, gid: u32);
    /// Gives an open file another length.
    ftruncate(length: i64);
    /// Gives an open file room, or takes some.
    fallocate(mode: i32, offset: i64, length: i64);
    /// Makes a file durable.
    fsync();
    /// Makes the data of a file durable.
    fdatasync();
    /// Takes or leaves a lock of the whole file.
    flock(operation: i32);
    /// Goes to an open directory.
    fchdir();
}

/// Sets the mask of modes; brings the last one.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: a number only.
    unsafe { libc::umask(mask) }
}

/// Opens what a path leads to.
pub fn open(path: &str, flags: i32, mode: u32) -> Outcome<OwnedFd> {
    let path = text(path)?;
    // SAFETY: the string ends with a zero and lives through the call.
    owned(unsafe { libc::open(path.as_ptr(), flags, mode) })
}

/// Opens what a path from a directory leads to.
pub fn openat(from: &impl AsRawFd, path: &str, flags: i32, mode: u32) -> Outcome<OwnedFd> {
    let path = text(path)?;
    // SAFETY: as in `open`.
    owned(unsafe { libc::openat(from.as_raw_fd(), path.as_ptr(), flags, mode) })
}

fn owned(descriptor: RawFd) -> Outcome<OwnedFd> {
    done(descriptor)?;
    // SAFETY: the call has just made it, so that nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Another descriptor of the same open file.
pub fn dup(file: &impl AsRawFd) -> Outcome<OwnedFd> {
    // SAFETY: a number only.
    owned(unsafe { libc::dup(file.as_raw_fd()) })
}

/// Closes a descriptor and tells what that brings.
pub fn close(file: OwnedFd) -> Outcome<()> {
    // SAFETY: the descriptor is owned and given up here.
    done(unsafe { libc::close(std::os::fd::IntoRawFd::into_raw_fd(file)) })
}

/// `linkat` from the working directory.
pub fn linkat(from: &str, to: &str, flags: i32) -> Outcome<()> {
    let (from, to) = (text(from)?, text(to)?);
    let here = libc::AT_FDCWD;
    // SAFETY: the strings end with a zero and live through the call.
    done(unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), flags) })
}

/// `unlinkat` from the working directory.
pub fn unlinkat(path: &str, flags: i32) -> Outcome<()> {
    let path = text(path)?;
    // SAFETY: the string ends with a zero and lives through the call.
    done(unsafe { libc::unlinkat(libc::AT_FDCWD, path.as_ptr(), flags) })
}

/// `fchmodat` from the working directory.
pub fn fchmodat(path: &str, mode: u32, flags: i32) -> Outcome<()> {
    let path = text(path)?;
    // SAFETY: the string ends with a zero and lives through the call.
    done(unsafe { libc::fchmodat(libc::AT_FDCWD, path.as_ptr(), mode, flags) })
}

/// `faccessat` from the working directory.
pub fn faccessat(path: &str, mode: i32, flags: i32) -> Outcome<()> {
    let path = text(path)?;
    // SAFETY: the string ends with a zero and lives through the call.
    done(unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), mode, flags) })
}

/// Moves a name, with flags.
pub fn renameat2(from: &str, to: &str, flags: u32) -> Outcome<()> {
    let (from, to) = (text(from)?, text(to)?);
    let here = libc::AT_FDCWD;
    // SAFETY: the strings end with a zero and live through the call.
    done(unsafe { libc::renameat2(here, from.as_ptr(), here, to.as_ptr(), flags) })
}

/// What a symbolic link says.
pub fn readlink(path: &str, room: usize) -> Outcome<Vec<u8>> {
    let path = text(path)?;
    let mut into = vec![0u8; room];
    // SAFETY: the string lives through the call, and the vector has room for `room` bytes.
    let count = unsafe { libc::readlink(path.as_ptr(), into.as_mut_ptr().cast(), room) };
    into.truncate(counted(count)?);
    Ok(into)
}

/// What is known of an object.
pub type Stat = libc::stat;

fn stat_by(call: impl FnOnce(*mut Stat) -> libc::c_int) -> Outcome<Stat> {
    let mut into = std::mem::MaybeUninit::<Stat>::zeroed();
    done(call(into.as_mut_ptr()))?;
    // SAFETY: zeros are a valid `stat`, and the call has filled it in.
    Ok(unsafe { into.assume_init() })
}

/// Of what a path leads to.
pub fn stat(path: &str) -> Outcome<Stat> {
    let path = text(path)?;
    // SAFETY: the string and the structure live through the call.
    stat_by(|into| unsafe { libc::stat(path.as_ptr(), into) })
}

/// Of a symbolic link itself.
pub fn lstat(path: &str) -> Outcome<Stat> {
    let path = text(path)?;
    // SAFETY: the string and the structure live through the call.
    stat_by(|into| unsafe { libc::lstat(path.as_ptr(), into) })
}

/// Of an open file.
pub fn fstat(file: &impl AsRawFd) -> Outcome<Stat> {
    // SAFETY: the structure lives through the call.
    stat_by(|into| unsafe { libc::fstat(file.as_raw_fd(), into) })
}

/// What is known of a file system.
pub fn statvfs(path: &str) -> Outcome<libc::statvfs> {
    let path = text(path)?;
    let mut into = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the string and the structure live through the call.
    done(unsafe { libc::statvfs(path.as_ptr(), into.as_mut_ptr()) })?;
    // SAFETY: zeros are a valid `statvfs`, and the call has filled it in.
    Ok(unsafe { into.assume_init() })
}

/// Sets times (of access, of modification) of what a path leads to.
pub fn utimensat(path: &str, times: [libc::timespec; 2], flags: i32) -> Outcome<()> {
    let path = text(path)?;
    // SAFETY: the string and the two times live through the call.
    done(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), flags) })
}

/// Sets times of an open file.
pub fn futimens(file: &impl AsRawFd, times: [libc::timespec; 2]) -> Outcome<()> {
    // SAFETY: the two times live through the call.
    done(unsafe { libc::futimens(file.as_raw_fd(), times.as_ptr()) })
}

/// Reads where the file stands.
pub fn read(file: &impl AsRawFd, into: &mut [u8]) -> Outcome<usize> {
    // SAFETY: the slice has room for its length.
    counted(unsafe { libc::read(file.as_raw_fd(), into.as_mut_ptr().cast(), into.len()) })
}

/// Writes where the file stands.
pub fn write(file: &impl AsRawFd, data: &[u8]) -> Outcome<usize> {
    // SAFETY: the slice has bytes for its length.
    counted(unsafe { libc::write(file.as_raw_fd(), data.as_ptr().cast(), data.len()) })
}

/// Reads at an offset.
pub fn pread(file: &impl AsRawFd, into: &mut [u8], offset: i64) -> Outcome<usize> {
    let (start, length) = (into.as_mut_ptr().cast(), into.len());
    // SAFETY: the slice has room for its length.
    counted(unsafe { libc::pread(file.as_raw_fd(), start, length, offset) })
}

/// Writes at an offset.
pub fn pwrite(file: &impl AsRawFd, data: &[u8], offset: i64) -> Outcome<usize> {
    let (start, length) = (data.as_ptr().cast(), data.len());
    // SAFETY: the slice has bytes for its length.
    counted(unsafe { libc::pwrite(file.as_raw_fd(), start, length, offset) })
}

/// Moves where the file stands.
pub fn lseek(file: &impl AsRawFd, offset: i64, from: i32) -> Outcome<i64> {
    // SAFETY: numbers only.
    let at = unsafe { libc::lseek(file.as_raw_fd(), offset, from) };
    if at < 0 { Err(errno()) } else { Ok(at) }
}

/// Copies from one open file to another, at the offsets given, which are moved.
pub fn copy_file_range(
    (from, from_offset): (&impl AsRawFd, &mut i64),
    (to, to_offset): (&impl AsRawFd, &mut i64),
    length: usize,
) -> Outcome<usize> {
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: both offsets live through the call.
    counted(unsafe { libc::copy_file_range(from, from_offset, to, to_offset, length, 0) })
}

/// A lock of a range: set, asked for, or waited for (`F_SETLK`, `F_GETLK`, `F_OFD_SETLK` ...).
pub fn lock(file: &impl AsRawFd, command: i32, lock: &mut libc::flock) -> Outcome<()> {
    // SAFETY: the structure lives through the call, and these commands take a pointer to one.
    done(unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) })
}

/// `fcntl` with a number.
pub fn fcntl(file: &impl AsRawFd, command: i32, argument: i32) -> Outcome<i32> {
    // SAFETY: numbers only.
    let brought = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    done(brought).map(|()| brought)
}

/// Sets an extended attribute.
pub fn setxattr(path: &str, name: &str, value: &[u8], flags: i32) -> Outcome<()> {
    let (path, name) = (text(path)?, text(name)?);
    let (start, length) = (value.as_ptr().cast(), value.len());
    // SAFETY: strings and value live through the call.
    done(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), start, length, flags) })
}

/// Sets an extended attribute of an open file.
pub fn fsetxattr(file: &impl AsRawFd, name: &str, value: &[u8], flags: i32) -> Outcome<()> {
    let name = text(name)?;
    let (start, length) = (value.as_ptr().cast(), value.len());
    // SAFETY: string and value live through the call.
    done(unsafe { libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), start, length, flags) })
}

/// An extended attribute, if it is no longer than `room`; with no room, so many zeros as it is
/// long.
pub fn getxattr(path: &str, name: &str, room: usize) -> Outcome<Vec<u8>> {
    let (path, name) = (text(path)?, text(name)?);
    filled(room, |start, room| {
        // SAFETY: the strings live through the call; there is room for `room` bytes.
        unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), start.cast(), room) }
    })
}

/// The same of an open file.
pub fn fgetxattr(file: &impl AsRawFd, name: &str, room: usize) -> Outcome<Vec<u8>> {
    let name = text(name)?;
    filled(room, |start, room| {
        // SAFETY: the string lives through the call; there is room for `room` bytes.
        unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), start.cast(), room) }
    })
}

/// The names of extended attributes, each with a zero behind it.
pub fn listxattr(path: &str, room: usize) -> Outcome<Vec<u8>> {
    let path = text(path)?;
    filled(room, |start, room| {
        // SAFETY: the string lives through the call; there is room for `room` bytes.
        unsafe { libc::listxattr(path.as_ptr(), start.cast(), room) }
    })
}

fn filled(room: usize, call: impl FnOnce(*mut u8, usize) -> libc::ssize_t) -> Outcome<Vec<u8>> {
    let mut into = vec![0u8; room];
    let count = counted(call(into.as_mut_ptr(), room))?;
    into.resize(count, 0);
    Ok(into)
}

/// Becomes somebody else for good.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> Outcome<()> {
    // SAFETY: the slice has so many groups; the rest are numbers.
    unsafe {
        done(libc::setgroups(groups.len(), groups.as_ptr()))?;
        done(libc::setresgid(gid, gid, gid))?;
        done(libc::setresuid(uid, uid, uid))
    }
}

/// Who runs this.
pub fn effective_user() -> u32 {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() }
}

/// A directory that is being read.
#[derive(Debug)]
pub struct Directory(std::ptr::NonNull<libc::DIR>);

impl Directory {
    /// Opens a directory.
    pub fn open(path: &str) -> Outcome<Self> {
        let path = text(path)?;
        // SAFETY: the string lives through the call.
        let opened = unsafe { libc::opendir(path.as_ptr()) };
        std::ptr::NonNull::new(opened).map(Self).ok_or_else(errno)
    }

    /// The next name with its kind (`DT_DIR` ...); `None` at the end.
    pub fn next_entry(&mut self) -> Outcome<Option<(String, u8)>> {
        // SAFETY: the stream is open, and nobody else has it; the entry is read before the next
        // call; `errno` of this thread may be written.
        unsafe {
            *libc::__errno_location() = 0;
            let entry = libc::readdir(self.0.as_ptr());
            if entry.is_null() {
                return if errno() == 0 { Ok(None) } else { Err(errno()) };
            }
            let name = CStr::from_ptr((&raw const (*entry).d_name).cast());
            Ok(Some((name.to_string_lossy().into_owned(), (*entry).d_type)))
        }
    }

    /// Where it stands.
    pub fn tell(&mut self) -> i64 {
        // SAFETY: the stream is open.
        unsafe { telldir(self.0.as_ptr()) }
    }

    /// Goes back to where it stood.
    pub fn seek(&mut self, position: i64) {
        // SAFETY: the stream is open.
        unsafe { seekdir(self.0.as_ptr(), position) }
    }

    /// Begins again.
    pub fn rewind(&mut self) {
        // SAFETY: the stream is open.
        unsafe { libc::rewinddir(self.0.as_ptr()) }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: the stream is open, and this is its end.
        unsafe { libc::closedir(self.0.as_ptr()) };
    }
}

// The `libc` crate does not have these for every system.
unsafe extern "C" {
    fn telldir(stream: *mut libc::DIR) -> libc::c_long;
    fn seekdir(stream: *mut libc::DIR, position: libc::c_long);
}

/// A part of a file in memory.
///
/// What is mapped may change under it at any time, so that bytes are copied, never borrowed.
#[derive(Debug)]
pub struct Map {
    start: *mut u8,
    length: usize,
}

impl Map {
    /// Maps a file from `offset`, which is a multiple of a page.
    pub fn new(
        file: &impl AsRawFd,
        (offset, length): (i64, usize),
        protection: i32,
        flags: i32,
    ) -> Outcome<Self> {
        let nowhere = std::ptr::null_mut();
        // SAFETY: the kernel chooses the place, so that nothing else is mapped over.
        let start =
            unsafe { libc::mmap(nowhere, length, protection, flags, file.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(errno());
        }
        Ok(Self { start: start.cast(), length })
    }

    /// Copies bytes out of the map; the file must be that long.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= self.length, "behind the map");
        // SAFETY: within the map; others may write it meanwhile, as they may any file that is
        // read.
        unsafe {
            std::ptr::copy_nonoverlapping(self.start.add(offset), into.as_mut_ptr(), into.len());
        }
    }

    /// Copies bytes into the map; the file must be that long.
    pub fn write(&self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.length, "behind the map");
        // SAFETY: within the map, which nobody borrows.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), self.start.add(offset), data.len());
        }
    }

    /// Hands what was changed to the file.
    pub fn sync(&self) -> Outcome<()> {
        // SAFETY: the whole map.
        done(unsafe { libc::msync(self.start.cast(), self.length, libc::MS_SYNC) })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the whole map, which nobody borrows.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}
