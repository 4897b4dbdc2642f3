//! C library streams (`FILE`) on files in DAFS.
//!
//! The C library's streams read and write internally, without a call that this library could
//! intercept. Therefore a stream on a file in DAFS is a stream with custom functions
//! (`fopencookie`). While a standard descriptor refers to a file in DAFS, the program's `stdin`,
//! `stdout` or `stderr` is such a stream.
//!
//! Invariant: `fileno` of a stream returns the descriptor of the file in DAFS, which is closed with
//! the stream.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::FILE;

use crate::config;
use crate::guard;
use crate::state::is_ours;

/// The functions for `fopencookie`.
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> isize,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> isize,
    seek: unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

unsafe extern "C" fn read(cookie: *mut c_void, buffer: *mut c_char, length: usize) -> isize {
    // SAFETY: the C library passes a buffer of this length.
    unsafe { crate::abi::io::read(cookie as usize as RawFd, buffer.cast(), length) }
}

unsafe extern "C" fn write(cookie: *mut c_void, buffer: *const c_char, length: usize) -> isize {
    let mut done = 0;
    while done < length {
        // SAFETY: the C library passes a buffer of this length.
        let written = unsafe {
            let from = buffer.add(done).cast();
            crate::abi::io::write(cookie as usize as RawFd, from, length - done)
        };
        if written <= 0 {
            // A stream's write function reports a failure by a short count.
            return done as isize;
        }
        done += written as usize;
    }
    done as isize
}

unsafe extern "C" fn seek(cookie: *mut c_void, offset: *mut i64, whence: c_int) -> c_int {
    // SAFETY: the C library passes the address of an offset.
    unsafe {
        let sought = crate::abi::io::lseek(cookie as usize as RawFd, *offset, whence);
        if sought < 0 {
            return -1;
        }
        *offset = sought;
    }
    0
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: `close` accepts any number.
    unsafe { crate::abi::fd::close(cookie as usize as RawFd) }
}

unsafe extern "C" fn close_nothing(_: *mut c_void) -> c_int {
    0
}

/// Makes a stream on a descriptor. `closes` says whether closing the stream closes the descriptor.
/// Returns null and sets `errno` on failure.
///
/// # Safety
/// The mode ends with a zero.
pub(crate) unsafe fn open(number: RawFd, mode: *const c_char, closes: bool) -> *mut FILE {
    let close = if closes { close } else { close_nothing };
    let functions = Functions { read, write, seek, close };
    // SAFETY: the functions exist as long as the program, and the caller guarantees the mode.
    let stream = unsafe { fopencookie(number as usize as *mut c_void, mode, functions) };
    if !stream.is_null() {
        // SAFETY: a glibc stream on a 64-bit machine stores its descriptor at this offset. Streams
        // with custom functions use the field only for `fileno`.
        unsafe { stream.cast::<u8>().add(NUMBER_AT).cast::<c_int>().write(number) };
    }
    stream
}

/// Parses the mode of a stream into open flags. Returns `None` if it is invalid.
pub(crate) fn flags_of(mode: &[u8]) -> Option<i32> {
    let base = match mode.first()? {
        b'r' => libc::O_RDONLY,
        b'w' => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
        b'a' => libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND,
        _ => return None,
    };
    let rest = mode[1..].split(|byte| *byte == b',').next().unwrap_or_default();
    Some(rest.iter().fold(base, |flags, byte| match byte {
        b'+' => flags & !libc::O_ACCMODE | libc::O_RDWR,
        b'x' => flags | libc::O_EXCL,
        b'e' => flags | libc::O_CLOEXEC,
        _ => flags,
    }))
}

/// A replacement for a standard stream, and the original one.
struct Standard {
    ours: AtomicPtr<FILE>,
    theirs: AtomicPtr<FILE>,
}

static STANDARD: [Standard; 3] = [const {
    Standard {
        ours: AtomicPtr::new(std::ptr::null_mut()),
        theirs: AtomicPtr::new(std::ptr::null_mut()),
    }
}; 3];

fn variable(number: RawFd) -> *mut *mut FILE {
    match number {
        0 => &raw mut stdin,
        1 => &raw mut stdout,
        _ => &raw mut stderr,
    }
}

/// Flushes the stream of a standard descriptor before the descriptor changes to another file.
pub(crate) fn before_change(number: RawFd) {
    if !(0..=2).contains(&number) || config::get().mounts.is_empty() || guard::is_inside() {
        return;
    }
    if number != 0 && !STANDARD[number as usize].ours.load(Ordering::Acquire).is_null() {
        // SAFETY: the variable holds a stream.
        unsafe { libc::fflush(*variable(number)) };
    }
}

/// Updates the stream of a standard descriptor after the descriptor may have changed to another
/// file.
pub(crate) fn follow(number: RawFd) {
    if !(0..=2).contains(&number) || config::get().mounts.is_empty() || guard::is_inside() {
        return;
    }
    let standard = &STANDARD[number as usize];
    let variable = variable(number);
    // SAFETY: each of the C library's variables holds a stream. The program must not use a standard
    // descriptor in other threads while it changes the descriptor.
    unsafe {
        let now = *variable;
        let ours = standard.ours.load(Ordering::Acquire);
        let stands_in = !ours.is_null() && now == ours;
        match (is_ours(number), stands_in) {
            (true, false) => {
                if number != 0 && !now.is_null() {
                    libc::fflush(now);
                }
                let stream = if ours.is_null() { open_standard(number) } else { ours };
                if !stream.is_null() {
                    standard.theirs.store(now, Ordering::Release);
                    standard.ours.store(stream, Ordering::Release);
                    *variable = stream;
                }
            }
            (false, true) => {
                libc::fflush(now);
                *variable = standard.theirs.load(Ordering::Acquire);
            }
            (true, true) | (false, false) => {}
        }
    }
}

unsafe fn open_standard(number: RawFd) -> *mut FILE {
    let mode = if number == 0 { c"r" } else { c"w" };
    // SAFETY: the mode ends with a zero.
    let stream = unsafe { open(number, mode.as_ptr(), true) };
    if number == 2 && !stream.is_null() {
        // SAFETY: nothing has been written to this stream yet.
        unsafe { libc::setvbuf(stream, std::ptr::null_mut(), libc::_IONBF, 0) };
    }
    stream
}

/// Returns the current stream of a standard descriptor.
pub(crate) fn standard(number: RawFd) -> *mut FILE {
    // SAFETY: the C library's variables each hold a stream.
    unsafe { *variable(number) }
}

/// Updates the streams of all standard descriptors.
pub(crate) fn follow_all() {
    for number in 0..=2 {
        follow(number);
    }
}

/// Flushes all streams of the C library.
pub(crate) fn flush_all() {
    // SAFETY: a null pointer means all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// The offset at which glibc stores the descriptor in a stream on 64-bit machines.
const NUMBER_AT: usize = 112;
