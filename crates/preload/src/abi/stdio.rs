//! Calls that make C library streams.

use std::ffi::{CStr, c_char, c_int};

use libc::{AT_FDCWD, FILE};

use crate::errors;
use crate::guard;
use crate::report::{self, Call};
use crate::route::{Route, route};
use crate::state::is_ours;
use crate::streams;

fn is_served(path: *const c_char) -> bool {
    // SAFETY: the program passes a path that ends with a zero, or null.
    match unsafe { route(AT_FDCWD, path) } {
        Route::Dafs(_) | Route::KernelAt(_) | Route::Refused(_) => true,
        Route::Kernel => false,
    }
}

/// Opens a path with this library's own `open`, and makes a stream for the descriptor.
unsafe fn open(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program passes texts that end with a zero.
    unsafe {
        let Some(flags) = streams::flags_of(CStr::from_ptr(mode).to_bytes()) else {
            errors::set(libc::EINVAL);
            return std::ptr::null_mut();
        };
        let number = super::open::open(path, flags, 0o666);
        if number == -1 {
            return std::ptr::null_mut();
        }
        let stream = fdopen(number, mode);
        if stream.is_null() {
            let errno = errors::get();
            super::fd::close(number);
            errors::set(errno);
        }
        stream
    }
}

macro_rules! opening {
    ($($name:ident)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
                if is_served(path) {
                    // SAFETY: the program passes texts that end with a zero.
                    return unsafe { open(path, mode) };
                }
                let before = errors::get();
                let stream =
                    real!($name(path => *const c_char, mode => *const c_char) -> *mut FILE);
                if stream.is_null() && errors::get() == libc::ENOENT {
                    // SAFETY: the program passes texts that end with a zero.
                    unsafe {
                        if crate::route::through_kernel_links(AT_FDCWD, path).is_some() {
                            errors::set(before);
                            return open(path, mode);
                        }
                    }
                    errors::set(libc::ENOENT);
                }
                stream
            }
        )+
    };
}

opening! { fopen fopen64 }

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if is_ours(fd) && !guard::is_inside() {
        report::served(Call::Stream);
        // SAFETY: the program passes a mode that ends with a zero.
        unsafe {
            if streams::flags_of(CStr::from_ptr(mode).to_bytes()).is_none() {
                errors::set(libc::EINVAL);
                return std::ptr::null_mut();
            }
            return streams::open(fd, mode, true);
        }
    }
    real!(fdopen(fd => c_int, mode => *const c_char) -> *mut FILE)
}

macro_rules! reopening {
    ($($name:ident)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                path: *const c_char,
                mode: *const c_char,
                stream: *mut FILE,
            ) -> *mut FILE {
                // SAFETY: the program passes a stream.
                let number = unsafe { libc::fileno(stream) };
                if path.is_null() || !(is_served(path) || is_ours(number)) {
                    return real!($name(
                        path => *const c_char, mode => *const c_char, stream => *mut FILE,
                    ) -> *mut FILE);
                }
                // SAFETY: the program passes valid texts and a stream.
                unsafe { reopen(path, mode, stream, number) }
            }
        )+
    };
}

reopening! { freopen freopen64 }

/// Reopens a stream. For a standard stream, reopens its descriptor; any other stream is closed and
/// created again.
unsafe fn reopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
    number: c_int,
) -> *mut FILE {
    // SAFETY: the caller guarantees the texts and the stream.
    unsafe {
        libc::fflush(stream);
        let Some(flags) = streams::flags_of(CStr::from_ptr(mode).to_bytes()) else {
            errors::set(libc::EINVAL);
            return std::ptr::null_mut();
        };
        let opened = super::open::open(path, flags, 0o666);
        if opened == -1 {
            return std::ptr::null_mut();
        }
        if !(0..=2).contains(&number) {
            libc::fclose(stream);
            return fdopen(opened, mode);
        }
        if opened != number {
            super::fd::dup2(opened, number);
            super::fd::close(opened);
        }
        streams::standard(number)
    }
}
