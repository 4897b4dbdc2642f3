//! Safe wrappers for calls of the C library.
//!
//! Invariant: a preloaded library sees each of these calls under the name that C programs use.
//! Therefore no crate is used that makes system calls directly. All `unsafe` code of this crate is
//! in this module.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An error number of the C library.
pub type Errno = i32;
/// The result of a call.
pub type Outcome<T> = Result<T, Errno>;

/// Returns the `errno` of this thread's previous call.
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

/// Defines calls that take only paths and numbers.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident($($path:ident),*; $($number:ident: $kind:ty),*);)*) => {$(
        $(#[$doc])*
        pub fn $name($($path: &str,)* $($number: $kind),*) -> Outcome<()> {
            $(let $path = text($path)?;)*
            // SAFETY: the strings end with a zero and live through the call; the other arguments
            // are numbers.
            done(unsafe { libc::$name($($path.as_ptr(),)* $($number),*) })
        }
    )*};
}

plain! {
    /// Changes the mode of the object at a path.
    chmod(path; mode: u32);
    /// Changes the owner and group of the object at a path.
    chown(path; uid: u32, gid: u32);
    /// Changes the owner and group without following a symbolic link.
    lchown(path; uid: u32, gid: u32);
    /// Makes a directory.
    mkdir(path; mode: u32);
    /// Makes a named pipe.
    mkfifo(path; mode: u32);
    /// Makes an object of any type.
    mknod(path; mode: u32, device: u64);
    /// Makes a hard link.
    link(from, to;);
    /// Makes a symbolic link.
    symlink(target, path;);
    /// Renames an object.
    rename(from, to;);
    /// Removes an empty directory.
    rmdir(path;);
    /// Removes a name.
    unlink(path;);
    /// Sets the length of a file.
    truncate(path; length: i64);
    /// Checks whether an object may be accessed.
    access(path; mode: i32);
    /// Changes the working directory.
    chdir(path;);
    /// Removes an extended attribute.
    removexattr(path, name;);
}

/// Defines calls on an open file that take only numbers.
macro_rules! of_descriptor {
    ($($(#[$doc:meta])* $name:ident($($number:ident: $kind:ty),*);)*) => {$(
        $(#[$doc])*
        pub fn $name(file: &impl AsRawFd $(, $number: $kind)*) -> Outcome<()> {
            // SAFETY: all arguments are numbers, and the descriptor is open while it is borrowed.
            done(unsafe { libc::$name(file.as_raw_fd() $(, $number)*) })
        }
    )*};
}

of_descriptor! {
    /// Changes the mode of an open file.
    fchmod(mode: u32);
    /// Changes the owner and group of an open file.
    fchown(uid: u32, gid: u32);
    /// Sets the length of an open file.
    ftruncate(length: i64);
    /// Allocates or deallocates space of an open file.
    fallocate(mode: i32, offset: i64, length: i64);
    /// Flushes a file to stable storage.
    fsync();
    /// Flushes the data of a file to stable storage.
    fdatasync();
    /// Takes or releases a lock on the whole file.
    flock(operation: i32);
    /// Changes the working directory to an open directory.
    fchdir();
}

/// Sets the umask and returns the previous one.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: the argument is a number.
    unsafe { libc::umask(mask) }
}

/// Opens the object at a path.
pub fn open(path: &str, flags: i32, mode: u32) -> Outcome<OwnedFd> {
    let path = text(path)?;
    // SAFETY: the string ends with a zero and lives through the call.
    owned(unsafe { libc::open(path.as_ptr(), flags, mode) })
}

/// Opens the object at a path relative to a directory.
pub fn openat(from: &impl AsRawFd, path: &str, flags: i32, mode: u32) -> Outcome<OwnedFd> {
    let path = text(path)?;
    // SAFETY: the string ends with a zero and lives through the call.
    owned(unsafe { libc::openat(from.as_raw_fd(), path.as_ptr(), flags, mode) })
}

fn owned(descriptor: RawFd) -> Outcome<OwnedFd> {
    done(descriptor)?;
    // SAFETY: the descriptor was just created, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Duplicates the descriptor of a file.
pub fn dup(file: &impl AsRawFd) -> Outcome<OwnedFd> {
    // SAFETY: the argument is a number.
    owned(unsafe { libc::dup(file.as_raw_fd()) })
}

/// Closes a descriptor and returns the error, if any.
pub fn close(file: OwnedFd) -> Outcome<()> {
    // SAFETY: the descriptor is owned and given up here.
    done(unsafe { libc::close(std::os::fd::IntoRawFd::into_raw_fd(file)) })
}

/// Makes a hard link with `linkat` from the working directory.
pub fn linkat(from: &str, to: &str, flags: i32) -> Outcome<()> {
    let (from, to) = (text(from)?, text(to)?);
    let here = libc::AT_FDCWD;
    // SAFETY: the strings end with a zero and live through the call.
    done(unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), flags) })
}

/// Removes a name with `unlinkat` from the working directory.
pub fn unlinkat(path: &str, flags: i32) -> Outcome<()> {
    let path = text(path)?;
    // SAFETY: the string ends with a zero and lives through the call.
    done(unsafe { libc::unlinkat(libc::AT_FDCWD, path.as_ptr(), flags) })
}

/// Changes a mode with `fchmodat` from the working directory.
pub fn fchmodat(path: &str, mode: u32, flags: i32) -> Outcome<()> {
    let path = text(path)?;
    // SAFETY: the string ends with a zero and lives through the call.
    done(unsafe { libc::fchmodat(libc::AT_FDCWD, path.as_ptr(), mode, flags) })
}

/// Checks access with `faccessat` from the working directory.
pub fn faccessat(path: &str, mode: i32, flags: i32) -> Outcome<()> {
    let path = text(path)?;
    // SAFETY: the string ends with a zero and lives through the call.
    done(unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), mode, flags) })
}

/// Renames an object with flags.
pub fn renameat2(from: &str, to: &str, flags: u32) -> Outcome<()> {
    let (from, to) = (text(from)?, text(to)?);
    let here = libc::AT_FDCWD;
    // SAFETY: the strings end with a zero and live through the call.
    done(unsafe { libc::renameat2(here, from.as_ptr(), here, to.as_ptr(), flags) })
}

/// Returns the text of a symbolic link.
pub fn readlink(path: &str, room: usize) -> Outcome<Vec<u8>> {
    let path = text(path)?;
    let mut into = vec![0u8; room];
    // SAFETY: the string lives through the call, and the vector has room for `room` bytes.
    let count = unsafe { libc::readlink(path.as_ptr(), into.as_mut_ptr().cast(), room) };
    into.truncate(counted(count)?);
    Ok(into)
}

/// The attributes of an object.
pub type Stat = libc::stat;

fn stat_by(call: impl FnOnce(*mut Stat) -> libc::c_int) -> Outcome<Stat> {
    let mut into = std::mem::MaybeUninit::<Stat>::zeroed();
    done(call(into.as_mut_ptr()))?;
    // SAFETY: all-zero bytes are a valid `stat`, and the call has filled it in.
    Ok(unsafe { into.assume_init() })
}

/// Returns the attributes of the object at a path.
pub fn stat(path: &str) -> Outcome<Stat> {
    let path = text(path)?;
    // SAFETY: the string and the structure live through the call.
    stat_by(|into| unsafe { libc::stat(path.as_ptr(), into) })
}

/// Returns the attributes without following a symbolic link.
pub fn lstat(path: &str) -> Outcome<Stat> {
    let path = text(path)?;
    // SAFETY: the string and the structure live through the call.
    stat_by(|into| unsafe { libc::lstat(path.as_ptr(), into) })
}

/// Returns the attributes of an open file.
pub fn fstat(file: &impl AsRawFd) -> Outcome<Stat> {
    // SAFETY: the structure lives through the call.
    stat_by(|into| unsafe { libc::fstat(file.as_raw_fd(), into) })
}

/// Returns the attributes of a file system.
pub fn statvfs(path: &str) -> Outcome<libc::statvfs> {
    let path = text(path)?;
    let mut into = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the string and the structure live through the call.
    done(unsafe { libc::statvfs(path.as_ptr(), into.as_mut_ptr()) })?;
    // SAFETY: all-zero bytes are a valid `statvfs`, and the call has filled it in.
    Ok(unsafe { into.assume_init() })
}

/// Sets the access and modification times of the object at a path.
pub fn utimensat(path: &str, times: [libc::timespec; 2], flags: i32) -> Outcome<()> {
    let path = text(path)?;
    // SAFETY: the string and the two times live through the call.
    done(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), flags) })
}

/// Sets the access and modification times of an open file.
pub fn futimens(file: &impl AsRawFd, times: [libc::timespec; 2]) -> Outcome<()> {
    // SAFETY: the two times live through the call.
    done(unsafe { libc::futimens(file.as_raw_fd(), times.as_ptr()) })
}

/// Reads at the file's current offset.
pub fn read(file: &impl AsRawFd, into: &mut [u8]) -> Outcome<usize> {
    // SAFETY: the slice has room for its length.
    counted(unsafe { libc::read(file.as_raw_fd(), into.as_mut_ptr().cast(), into.len()) })
}

/// Writes at the file's current offset.
pub fn write(file: &impl AsRawFd, data: &[u8]) -> Outcome<usize> {
    // SAFETY: the call reads no more bytes than the slice has.
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
    // SAFETY: the call reads no more bytes than the slice has.
    counted(unsafe { libc::pwrite(file.as_raw_fd(), start, length, offset) })
}

/// Moves the file's current offset.
pub fn lseek(file: &impl AsRawFd, offset: i64, from: i32) -> Outcome<i64> {
    // SAFETY: all arguments are numbers.
    let at = unsafe { libc::lseek(file.as_raw_fd(), offset, from) };
    if at < 0 { Err(errno()) } else { Ok(at) }
}

/// Copies between open files at the given offsets, which are advanced.
pub fn copy_file_range(
    (from, from_offset): (&impl AsRawFd, &mut i64),
    (to, to_offset): (&impl AsRawFd, &mut i64),
    length: usize,
) -> Outcome<usize> {
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: both offsets live through the call.
    counted(unsafe { libc::copy_file_range(from, from_offset, to, to_offset, length, 0) })
}

/// Sets, tests or waits for a lock of a range (`F_SETLK`, `F_GETLK`, `F_OFD_SETLK` ...).
pub fn lock(file: &impl AsRawFd, command: i32, lock: &mut libc::flock) -> Outcome<()> {
    // SAFETY: the structure lives through the call, and these commands take a pointer to one.
    done(unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) })
}

/// Calls `fcntl` with a number.
pub fn fcntl(file: &impl AsRawFd, command: i32, argument: i32) -> Outcome<i32> {
    // SAFETY: all arguments are numbers.
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

/// Returns an extended attribute that is not longer than `room`. If `room` is 0, returns as many
/// zeros as the attribute has bytes.
pub fn getxattr(path: &str, name: &str, room: usize) -> Outcome<Vec<u8>> {
    let (path, name) = (text(path)?, text(name)?);
    filled(room, |start, room| {
        // SAFETY: the strings live through the call; there is room for `room` bytes.
        unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), start.cast(), room) }
    })
}

/// Returns an extended attribute of an open file, like [`getxattr`].
pub fn fgetxattr(file: &impl AsRawFd, name: &str, room: usize) -> Outcome<Vec<u8>> {
    let name = text(name)?;
    filled(room, |start, room| {
        // SAFETY: the string lives through the call; there is room for `room` bytes.
        unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), start.cast(), room) }
    })
}

/// Returns the names of extended attributes, each followed by a zero.
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

/// Changes the user of this process permanently.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> Outcome<()> {
    // SAFETY: the slice has this many groups; the other arguments are numbers.
    unsafe {
        done(libc::setgroups(groups.len(), groups.as_ptr()))?;
        done(libc::setresgid(gid, gid, gid))?;
        done(libc::setresuid(uid, uid, uid))
    }
}

/// Returns the effective user id.
pub fn effective_user() -> u32 {
    // SAFETY: the call takes no arguments.
    unsafe { libc::geteuid() }
}

/// An open stream of directory entries.
#[derive(Debug)]
pub struct Directory(std::ptr::NonNull<libc::DIR>);

impl Directory {
    /// Opens a directory for reading its entries.
    pub fn open(path: &str) -> Outcome<Self> {
        let path = text(path)?;
        // SAFETY: the string lives through the call.
        let opened = unsafe { libc::opendir(path.as_ptr()) };
        std::ptr::NonNull::new(opened).map(Self).ok_or_else(errno)
    }

    /// Returns the next name with its type (`DT_DIR` ...); `None` at the end.
    pub fn next_entry(&mut self) -> Outcome<Option<(String, u8)>> {
        // SAFETY: the stream is open and owned; the entry is read before the next call; this
        // thread's `errno` may be written.
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

    /// Returns the current position.
    pub fn tell(&mut self) -> i64 {
        // SAFETY: the stream is open.
        unsafe { telldir(self.0.as_ptr()) }
    }

    /// Moves to a position that `tell` returned.
    pub fn seek(&mut self, position: i64) {
        // SAFETY: the stream is open.
        unsafe { seekdir(self.0.as_ptr(), position) }
    }

    /// Returns to the beginning.
    pub fn rewind(&mut self) {
        // SAFETY: the stream is open.
        unsafe { libc::rewinddir(self.0.as_ptr()) }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: the stream is open and not used afterwards.
        unsafe { libc::closedir(self.0.as_ptr()) };
    }
}

// The `libc` crate does not define these for every system.
unsafe extern "C" {
    fn telldir(stream: *mut libc::DIR) -> libc::c_long;
    fn seekdir(stream: *mut libc::DIR, position: libc::c_long);
}

/// A mapping of part of a file.
///
/// The mapped memory may change at any time, so bytes are copied and never borrowed.
#[derive(Debug)]
pub struct Map {
    start: *mut u8,
    length: usize,
}

impl Map {
    /// Maps a file from `offset`, which must be a multiple of the page size.
    pub fn new(
        file: &impl AsRawFd,
        (offset, length): (i64, usize),
        protection: i32,
        flags: i32,
    ) -> Outcome<Self> {
        let nowhere = std::ptr::null_mut();
        // SAFETY: the kernel chooses the address, so no other mapping is replaced.
        let start =
            unsafe { libc::mmap(nowhere, length, protection, flags, file.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(errno());
        }
        Ok(Self { start: start.cast(), length })
    }

    /// Copies bytes out of the mapping. The file must be long enough.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= self.length, "behind the map");
        // SAFETY: the range is within the mapping. Other processes may write it meanwhile, as with
        // any file.
        unsafe {
            std::ptr::copy_nonoverlapping(self.start.add(offset), into.as_mut_ptr(), into.len());
        }
    }

    /// Copies bytes into the mapping. The file must be long enough.
    pub fn write(&self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.length, "behind the map");
        // SAFETY: the range is within the mapping, of which no borrows exist.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), self.start.add(offset), data.len());
        }
    }

    /// Writes changes in the mapping to the file.
    pub fn sync(&self) -> Outcome<()> {
        // SAFETY: the range is the whole mapping.
        done(unsafe { libc::msync(self.start.cast(), self.length, libc::MS_SYNC) })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is the whole mapping, of which no borrows exist.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}
