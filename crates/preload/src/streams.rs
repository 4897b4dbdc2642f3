//! Streams of the C library (`FILE`) on files in DAFS.
//!
//! The C library's own streams read and write without a call that could be seen. So a stream on
//! a file in DAFS is one with functions of its own (`fopencookie`), and while a standard
//! descriptor is one of ours, the program's `stdin`, `stdout` or `stderr` is such a stream.
//!
//! Invariant: a stream's descriptor is the one that `fileno` tells, and closes with it.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::FILE;

use crate::config;
use crate::guard;
use crate::state::is_ours;

/// The C library's functions of a stream.
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
    // SAFETY: the C library gives memory of this length.
    unsafe { crate::calls::data::read(cookie as usize as RawFd, buffer.cast(), length) }
}

unsafe extern "C" fn write(cookie: *mut c_void, buffer: *const c_char, length: usize) -> isize {
    let mut done = 0;
    while done < length {
        // SAFETY: the C library gives memory of this length.
        let written = unsafe {
            let from = buffer.add(done).cast();
            crate::calls::data::write(cookie as usize as RawFd, from, length - done)
        };
        if written <= 0 {
            // What a stream's function answers when it fails.
            return done as isize;
        }
        done += written as usize;
    }
    done as isize
}

unsafe extern "C" fn seek(cookie: *mut c_void, offset: *mut i64, whence: c_int) -> c_int {
    // SAFETY: the C library gives the address of an offset.
    unsafe {
        let sought = crate::calls::data::lseek(cookie as usize as RawFd, *offset, whence);
        if sought < 0 {
            return -1;
        }
        *offset = sought;
    }
    0
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: any number can be closed.
    unsafe { crate::calls::descriptors::close(cookie as usize as RawFd) }
}

unsafe extern "C" fn close_nothing(_: *mut c_void) -> c_int {
    0
}

/// A stream on a descriptor; null, with the error number set, if there is none.
///
/// # Safety
/// The mode ends with a zero.
pub unsafe fn open(number: RawFd, mode: *const c_char, closes: bool) -> *mut FILE {
    let close = if closes { close } else { close_nothing };
    let functions = Functions { read, write, seek, close };
    // SAFETY: the functions are there for as long as the program; the mode by the caller's word.
    let stream = unsafe { fopencookie(number as usize as *mut c_void, mode, functions) };
    if !stream.is_null() {
        // SAFETY: a stream of glibc on a 64-bit machine has its descriptor there; streams with
        // functions of their own do nothing with it but tell it.
        unsafe { stream.cast::<u8>().add(NUMBER_AT).cast::<c_int>().write(number) };
    }
    stream
}

/// The flags of a stream's mode; `None` if it is none.
pub fn flags_of(mode: &[u8]) -> Option<i32> {
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

/// What stands in for a standard stream, and what stood there before.
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

/// Before a standard descriptor becomes another file: what its stream holds goes to the one it
/// is now.
pub fn before_change(number: RawFd) {
    if !(0..=2).contains(&number) || config::get().mounts.is_empty() || guard::is_inside() {
        return;
    }
    if number != 0 && !STANDARD[number as usize].ours.load(Ordering::Acquire).is_null() {
        // SAFETY: the variable holds a stream.
        unsafe { libc::fflush(*variable(number)) };
    }
}

/// A standard descriptor may be another file now: its stream follows.
pub fn follow(number: RawFd) {
    if !(0..=2).contains(&number) || config::get().mounts.is_empty() || guard::is_inside() {
        return;
    }
    let standard = &STANDARD[number as usize];
    let variable = variable(number);
    // SAFETY: the C library's variables hold a stream each; one thread changes a standard
    // descriptor, as for any of its uses.
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
        // SAFETY: it is a stream that nothing was written to yet.
        unsafe { libc::setvbuf(stream, std::ptr::null_mut(), libc::_IONBF, 0) };
    }
    stream
}

/// The stream of a standard descriptor as it is now.
pub fn standard(number: RawFd) -> *mut FILE {
    // SAFETY: the C library's variables hold a stream each.
    unsafe { *variable(number) }
}

/// The same for all of them.
pub fn follow_all() {
    for number in 0..=2 {
        follow(number);
    }
}

/// Writes out what streams hold.
pub fn flush_all() {
    // SAFETY: null is for all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Where glibc has the descriptor in a stream, on 64-bit machines.
const NUMBER_AT: usize = 112;
