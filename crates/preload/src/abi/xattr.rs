//! Calls for extended attributes.

use std::ffi::{c_char, c_int, c_void};

use libc::AT_FDCWD;

use crate::errors::{Outcome, fail};
use crate::user_memory::{self, Purpose, must_have};
use crate::xattrs::XattrOwner;

type Text = *const c_char;

/// Copies a value to the program's buffer. If `size` is zero, only returns the length.
///
/// # Safety
/// The buffer has `size` bytes.
unsafe fn give(value: &[u8], to: *mut c_void, size: usize) -> Outcome<isize> {
    if size != 0 {
        if value.len() > size {
            return fail(libc::ERANGE);
        }
        must_have(to.cast(), value.len(), Purpose::Writing)?;
        // SAFETY: the caller guarantees the buffer, and the value fits.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), to.cast(), value.len()) };
    }
    Ok(value.len() as isize)
}

/// Implements `getxattr` and its variants.
///
/// # Safety
/// The arguments meet the requirements in the manual of `getxattr`.
unsafe fn get(of: &XattrOwner, name: Text, to: *mut c_void, size: usize) -> Outcome<isize> {
    // SAFETY: the caller guarantees the arguments.
    unsafe { give(&of.get(user_memory::text(name)?)?, to, size) }
}

/// Implements `listxattr` and its variants.
///
/// # Safety
/// The arguments meet the requirements in the manual of `listxattr`.
unsafe fn list(of: &XattrOwner, to: *mut c_char, size: usize) -> Outcome<isize> {
    // SAFETY: the caller guarantees the arguments.
    unsafe { give(&of.list()?, to.cast(), size) }
}

/// Implements `setxattr` and its variants.
///
/// # Safety
/// The arguments meet the requirements in the manual of `setxattr`.
unsafe fn set(
    of: &XattrOwner,
    name: Text,
    value: *const c_void,
    size: usize,
    flags: c_int,
) -> Outcome<c_int> {
    must_have(value.cast(), size, Purpose::Reading)?;
    // SAFETY: the caller guarantees the arguments, and the value was checked to be readable.
    unsafe {
        let value =
            if size == 0 { &[] } else { std::slice::from_raw_parts(value.cast::<u8>(), size) };
        of.set(user_memory::text(name)?, value, flags)
    }
}

/// Implements `removexattr` and its variants.
///
/// # Safety
/// The arguments meet the requirements in the manual of `removexattr`.
unsafe fn remove(of: &XattrOwner, name: Text) -> Outcome<c_int> {
    // SAFETY: the caller guarantees the arguments.
    of.remove(unsafe { user_memory::text(name) }?)
}

on_path! {
    fn [getxattr](path: Text, name: Text, to: *mut c_void, size: usize) -> isize,
        (AT_FDCWD, path), Look,
        // SAFETY: the program's arguments are as the manual requires.
        |state, place| unsafe { get(&state.xattr_owner(place, true)?, name, to, size) };
    fn [lgetxattr](path: Text, name: Text, to: *mut c_void, size: usize) -> isize,
        (AT_FDCWD, path), Look,
        // SAFETY: the program's arguments are as the manual requires.
        |state, place| unsafe { get(&state.xattr_owner(place, false)?, name, to, size) };
    fn [listxattr](path: Text, to: *mut c_char, size: usize) -> isize,
        (AT_FDCWD, path), Look,
        // SAFETY: the program's arguments are as the manual requires.
        |state, place| unsafe { list(&state.xattr_owner(place, true)?, to, size) };
    fn [llistxattr](path: Text, to: *mut c_char, size: usize) -> isize,
        (AT_FDCWD, path), Look,
        // SAFETY: the program's arguments are as the manual requires.
        |state, place| unsafe { list(&state.xattr_owner(place, false)?, to, size) };
    fn [setxattr]
        (path: Text, name: Text, value: *const c_void, size: usize, flags: c_int) -> c_int,
        (AT_FDCWD, path), Set,
        // SAFETY: the program's arguments are as the manual requires.
        |state, place| unsafe { set(&state.xattr_owner(place, true)?, name, value, size, flags) };
    fn [lsetxattr]
        (path: Text, name: Text, value: *const c_void, size: usize, flags: c_int) -> c_int,
        (AT_FDCWD, path), Set,
        // SAFETY: the program's arguments are as the manual requires.
        |state, place| unsafe { set(&state.xattr_owner(place, false)?, name, value, size, flags) };
    fn [removexattr](path: Text, name: Text) -> c_int,
        (AT_FDCWD, path), Set,
        // SAFETY: the program's arguments are as the manual requires.
        |state, place| unsafe { remove(&state.xattr_owner(place, true)?, name) };
    fn [lremovexattr](path: Text, name: Text) -> c_int,
        (AT_FDCWD, path), Set,
        // SAFETY: the program's arguments are as the manual requires.
        |state, place| unsafe { remove(&state.xattr_owner(place, false)?, name) };
}

on_descriptor! {
    fn [fgetxattr](fd: c_int, name: Text, to: *mut c_void, size: usize) -> isize,
        // SAFETY: the program's arguments are as the manual requires.
        fd, Look, |state, it| unsafe { get(&state.xattr_owner_of(&it)?, name, to, size) };
    fn [flistxattr](fd: c_int, to: *mut c_char, size: usize) -> isize,
        // SAFETY: the program's arguments are as the manual requires.
        fd, Look, |state, it| unsafe { list(&state.xattr_owner_of(&it)?, to, size) };
    fn [fsetxattr]
        (fd: c_int, name: Text, value: *const c_void, size: usize, flags: c_int) -> c_int,
        // SAFETY: the program's arguments are as the manual requires.
        fd, Set, |state, it| unsafe { set(&state.xattr_owner_of(&it)?, name, value, size, flags) };
    fn [fremovexattr](fd: c_int, name: Text) -> c_int,
        // SAFETY: the program's arguments are as the manual requires.
        fd, Set, |state, it| unsafe { remove(&state.xattr_owner_of(&it)?, name) };
}
