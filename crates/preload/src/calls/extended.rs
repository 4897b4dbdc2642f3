//! Calls about extended attributes.

use std::ffi::{c_char, c_int, c_void};

use libc::AT_FDCWD;

use crate::errors::{Outcome, fail};
use crate::extended::Bearer;
use crate::given::{self, Purpose, must_have};

type Text = *const c_char;

/// Gives a program what it has room for; without any it is told how much it is.
///
/// # Safety
/// There is so much room.
unsafe fn give(value: &[u8], to: *mut c_void, size: usize) -> Outcome<isize> {
    if size != 0 {
        if value.len() > size {
            return fail(libc::ERANGE);
        }
        must_have(to.cast(), value.len(), Purpose::Writing)?;
        // SAFETY: there is.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), to.cast(), value.len()) };
    }
    Ok(value.len() as isize)
}

/// # Safety
/// As the manual of `getxattr` asks.
unsafe fn get(of: &Bearer, name: Text, to: *mut c_void, size: usize) -> Outcome<isize> {
    // SAFETY: by the caller's word.
    unsafe { give(&of.get(given::text(name)?)?, to, size) }
}

/// # Safety
/// As the manual of `listxattr` asks.
unsafe fn list(of: &Bearer, to: *mut c_char, size: usize) -> Outcome<isize> {
    // SAFETY: by the caller's word.
    unsafe { give(&of.list()?, to.cast(), size) }
}

/// # Safety
/// As the manual of `setxattr` asks.
unsafe fn set(
    of: &Bearer,
    name: Text,
    value: *const c_void,
    size: usize,
    flags: c_int,
) -> Outcome<c_int> {
    must_have(value.cast(), size, Purpose::Reading)?;
    // SAFETY: by the caller's word, and there is so much.
    unsafe {
        let value =
            if size == 0 { &[] } else { std::slice::from_raw_parts(value.cast::<u8>(), size) };
        of.set(given::text(name)?, value, flags)
    }
}

/// # Safety
/// As the manual of `removexattr` asks.
unsafe fn remove(of: &Bearer, name: Text) -> Outcome<c_int> {
    // SAFETY: by the caller's word.
    of.remove(unsafe { given::text(name) }?)
}

on_path! {
    fn [getxattr](path: Text, name: Text, to: *mut c_void, size: usize) -> isize,
        (AT_FDCWD, path), Look,
        // SAFETY: the program gives what the manual asks for.
        |state, place| unsafe { get(&state.bearer(place, true)?, name, to, size) };
    fn [lgetxattr](path: Text, name: Text, to: *mut c_void, size: usize) -> isize,
        (AT_FDCWD, path), Look,
        // SAFETY: the program gives what the manual asks for.
        |state, place| unsafe { get(&state.bearer(place, false)?, name, to, size) };
    fn [listxattr](path: Text, to: *mut c_char, size: usize) -> isize,
        (AT_FDCWD, path), Look,
        // SAFETY: the program gives what the manual asks for.
        |state, place| unsafe { list(&state.bearer(place, true)?, to, size) };
    fn [llistxattr](path: Text, to: *mut c_char, size: usize) -> isize,
        (AT_FDCWD, path), Look,
        // SAFETY: the program gives what the manual asks for.
        |state, place| unsafe { list(&state.bearer(place, false)?, to, size) };
    fn [setxattr]
        (path: Text, name: Text, value: *const c_void, size: usize, flags: c_int) -> c_int,
        (AT_FDCWD, path), Set,
        // SAFETY: the program gives what the manual asks for.
        |state, place| unsafe { set(&state.bearer(place, true)?, name, value, size, flags) };
    fn [lsetxattr]
        (path: Text, name: Text, value: *const c_void, size: usize, flags: c_int) -> c_int,
        (AT_FDCWD, path), Set,
        // SAFETY: the program gives what the manual asks for.
        |state, place| unsafe { set(&state.bearer(place, false)?, name, value, size, flags) };
    fn [removexattr](path: Text, name: Text) -> c_int,
        (AT_FDCWD, path), Set,
        // SAFETY: the program gives what the manual asks for.
        |state, place| unsafe { remove(&state.bearer(place, true)?, name) };
    fn [lremovexattr](path: Text, name: Text) -> c_int,
        (AT_FDCWD, path), Set,
        // SAFETY: the program gives what the manual asks for.
        |state, place| unsafe { remove(&state.bearer(place, false)?, name) };
}

on_descriptor! {
    fn [fgetxattr](fd: c_int, name: Text, to: *mut c_void, size: usize) -> isize,
        // SAFETY: the program gives what the manual asks for.
        fd, Look, |state, it| unsafe { get(&state.bearer_of(&it)?, name, to, size) };
    fn [flistxattr](fd: c_int, to: *mut c_char, size: usize) -> isize,
        // SAFETY: the program gives what the manual asks for.
        fd, Look, |state, it| unsafe { list(&state.bearer_of(&it)?, to, size) };
    fn [fsetxattr]
        (fd: c_int, name: Text, value: *const c_void, size: usize, flags: c_int) -> c_int,
        // SAFETY: the program gives what the manual asks for.
        fd, Set, |state, it| unsafe { set(&state.bearer_of(&it)?, name, value, size, flags) };
    fn [fremovexattr](fd: c_int, name: Text) -> c_int,
        // SAFETY: the program gives what the manual asks for.
        fd, Set, |state, it| unsafe { remove(&state.bearer_of(&it)?, name) };
}
