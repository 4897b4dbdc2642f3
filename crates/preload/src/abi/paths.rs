//! Calls for the working directory and for resolving paths.

use std::ffi::{CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use libc::AT_FDCWD;

use crate::errors::{self, Outcome, fail};
use crate::guard;
use crate::route::{Route, directory, route};
use crate::user_memory::{Purpose, must_have};
use crate::working_directory::set_working_directory;

mod kernel {
    //! Calls that change the kernel's own working directory.

    use std::ffi::{c_char, c_int};

    pub(super) fn chdir(path: *const c_char) -> c_int {
        real!(chdir(path => *const c_char) -> c_int)
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the program passes a path that ends with a zero, or null.
    let answer = unsafe { dafs_chdir(path) };
    answer.unwrap_or_else(|path| {
        let answer = kernel::chdir(path.0.as_ptr());
        if answer == 0 {
            set_working_directory(None, None);
        }
        answer
    })
}

/// A path that is passed to the kernel, owned so that it outlives the call.
struct ForKernel(CString);

unsafe fn dafs_chdir(path: *const c_char) -> Result<c_int, ForKernel> {
    // SAFETY: the caller guarantees the path.
    let mut next = unsafe { route(AT_FDCWD, path) };
    for _ in 0..crate::route::LINKS_MAX {
        match next {
            Route::Dafs(place) => {
                crate::report::served(crate::report::Call::Directory);
                let done = crate::guard::with(|state| state.change_directory(&place));
                match super::next_route(crate::report::Call::Directory, done) {
                    Ok(answer) => return Ok(answer),
                    Err(elsewhere) => next = elsewhere,
                }
            }
            Route::Refused(errno) => {
                errors::set(errno);
                return Ok(-1);
            }
            Route::KernelAt(text) => return Err(ForKernel(text)),
            Route::Kernel => {
                if kernel::chdir(path) == 0 {
                    set_working_directory(None, None);
                    return Ok(0);
                }
                if errors::get() != libc::ENOENT {
                    return Ok(-1);
                }
                // SAFETY: the caller guarantees the path.
                match unsafe { crate::route::through_kernel_links(AT_FDCWD, path) } {
                    Some(place) => next = Route::Dafs(place),
                    None => {
                        errors::set(libc::ENOENT);
                        return Ok(-1);
                    }
                }
            }
        }
    }
    errors::set(libc::ELOOP);
    Ok(-1)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fchdir(fd: c_int) -> c_int {
    if crate::state::is_ours(fd) && !crate::guard::is_inside() {
        crate::report::served(crate::report::Call::Directory);
        return super::answer(|state| {
            let it = state.get(fd)?;
            state.change_directory_to(&it)
        });
    }
    let answer = real!(fchdir(fd => c_int) -> c_int);
    if answer == 0 && !crate::guard::is_inside() {
        set_working_directory(None, None);
    }
    answer
}

/// Copies a text into the program's buffer, or into newly allocated memory if there is none.
///
/// # Safety
/// The buffer is null, or has `size` bytes to which there is no reference.
unsafe fn give(text: &OsStr, to: *mut c_char, size: usize) -> Outcome<*mut c_char> {
    let needed = text.len() + 1;
    let to = if to.is_null() {
        // SAFETY: `malloc` accepts any length.
        unsafe { libc::malloc(needed.max(size)) }.cast()
    } else if size < needed {
        return fail(if size == 0 { libc::EINVAL } else { libc::ERANGE });
    } else {
        must_have(to.cast(), needed, Purpose::Writing)?;
        to
    };
    if to.is_null() {
        return fail(libc::ENOMEM);
    }
    // SAFETY: the buffer is large enough, and was allocated or checked to be writable.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_bytes().as_ptr().cast(), to, text.len());
        *to.add(text.len()) = 0;
    }
    Ok(to)
}

/// Copies a text like [`give`], outside the lock.
///
/// # Safety
/// The same as for [`give`].
unsafe fn give_now(text: &OsStr, to: *mut c_char, size: usize) -> *mut c_char {
    // SAFETY: the caller guarantees the buffer.
    unsafe { give(text, to, size) }.unwrap_or_else(|failure| guard::refused(&failure))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getcwd(to: *mut c_char, size: usize) -> *mut c_char {
    match directory() {
        // SAFETY: the program's buffer has this size.
        Some(path) if !crate::guard::is_inside() => unsafe { give_now(&path, to, size) },
        _ => real!(getcwd(to => *mut c_char, size => usize) -> *mut c_char),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __getcwd_chk(
    to: *mut c_char,
    size: usize,
    room: usize,
) -> *mut c_char {
    // SAFETY: the program's buffer has this size.
    unsafe { getcwd(to, size.min(room)) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn get_current_dir_name() -> *mut c_char {
    match directory() {
        // SAFETY: without a buffer, new memory is allocated.
        Some(path) if !crate::guard::is_inside() => unsafe {
            give_now(&path, std::ptr::null_mut(), 0)
        },
        _ => real!(get_current_dir_name() -> *mut c_char),
    }
}

on_path! {
    fn [realpath](path: *const c_char, to: *mut c_char) -> *mut c_char,
        (AT_FDCWD, path), Look, |state, place| {
            let found = state.real_path(place)?;
            if found.len() >= libc::PATH_MAX as usize {
                return fail(libc::ENAMETOOLONG);
            }
            // SAFETY: the program's buffer has room for the longest path, or is null.
            unsafe { give(&found, to, libc::PATH_MAX as usize) }
        };
    fn [__realpath_chk](path: *const c_char, to: *mut c_char, room: usize) -> *mut c_char,
        (AT_FDCWD, path), Look, |state, place| {
            let found = state.real_path(place)?;
            // SAFETY: the program's buffer has this size, or is null.
            unsafe { give(&found, to, room.min(libc::PATH_MAX as usize)) }
        };
    fn [canonicalize_file_name](path: *const c_char) -> *mut c_char,
        (AT_FDCWD, path), Look, |state, place| {
            let found = state.real_path(place)?;
            // SAFETY: without a buffer, new memory is allocated.
            unsafe { give(&found, std::ptr::null_mut(), 0) }
        };
}
