//! Calls that query attributes: `stat`, `access`, `readlink` and similar.

use std::ffi::{c_char, c_int, c_uint};

use dafs_client::FileSystemAttributes;
use dafs_types::FileHandle;
use libc::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW};

use crate::attributes::{to_statfs, to_statvfs};
use crate::errors::{Outcome, fail};
use crate::route::Place;
use crate::state::{Description, State};
use crate::user_memory::{self, Purpose, must_have};
use crate::waiting::wait_result;

/// Writes a result into the program's memory.
fn put<T: Copy>(to: *mut T, value: T) -> Outcome<c_int> {
    // SAFETY: this library has no reference to the program's memory.
    unsafe { user_memory::put(to, value) }.map(|()| 0)
}

fn look(state: &mut State, place: &Place, follow: bool, to: *mut libc::stat) -> Outcome<c_int> {
    let object = state.object(place, follow)?;
    put(to, state.shown(&object.metadata, object.mount))
}

fn look_at(state: &mut State, place: &Place, flags: c_int, to: *mut libc::stat) -> Outcome<c_int> {
    must_be_empty_by_flag(place, flags)?;
    look(state, place, flags & AT_SYMLINK_NOFOLLOW == 0, to)
}

/// Fails with ENOENT if the path is empty and AT_EMPTY_PATH, which allows that, is not set.
fn must_be_empty_by_flag(place: &Place, flags: c_int) -> Outcome<()> {
    let is_meant = place.descriptor.is_none() || flags & AT_EMPTY_PATH != 0;
    if is_meant { Ok(()) } else { fail(libc::ENOENT) }
}

fn look_open(state: &mut State, it: &Description, to: *mut libc::stat) -> Outcome<c_int> {
    let metadata = state.metadata_of(it)?;
    put(to, state.shown(&metadata, it.identity.mount))
}

fn file_system(
    state: &mut State,
    mount: usize,
    handle: FileHandle,
) -> Outcome<FileSystemAttributes> {
    let (session, _) = state.connection.mount(mount)?;
    wait_result(&session.client(), session.file_system_async(handle, ""))
}

fn file_system_of(state: &mut State, place: &Place) -> Outcome<FileSystemAttributes> {
    let object = state.object(place, true)?;
    file_system(state, object.mount, object.metadata.handle)
}

/// Copies a text into the program's buffer, without a terminating zero, truncated to its size.
fn put_text(text: &[u8], to: *mut c_char, size: usize) -> Outcome<isize> {
    if size == 0 {
        return fail(libc::EINVAL);
    }
    let length = text.len().min(size);
    must_have(to.cast(), length, Purpose::Writing)?;
    // SAFETY: the program's buffer has this size.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, length) };
    Ok(length as isize)
}

on_path! {
    fn [stat stat64](path: *const c_char, to: *mut libc::stat) -> c_int,
        (AT_FDCWD, path), Look, |state, place| look(state, place, true, to);
    fn [lstat lstat64](path: *const c_char, to: *mut libc::stat) -> c_int,
        (AT_FDCWD, path), Look, |state, place| look(state, place, false, to);
    fn [__xstat __xstat64](version: c_int, path: *const c_char, to: *mut libc::stat) -> c_int,
        (AT_FDCWD, path), Look, |state, place| look(state, place, true, to);
    fn [__lxstat __lxstat64](version: c_int, path: *const c_char, to: *mut libc::stat) -> c_int,
        (AT_FDCWD, path), Look, |state, place| look(state, place, false, to);
    fn [fstatat fstatat64]
        (at: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int,
        (at, path), Look, |state, place| look_at(state, place, flags, to);
    fn [__fxstatat __fxstatat64]
        (version: c_int, at: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int)
        -> c_int,
        (at, path), Look, |state, place| look_at(state, place, flags, to);
    fn [statx]
        (at: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int,
        (at, path), Look, |state, place| {
            must_be_empty_by_flag(place, flags)?;
            let object = state.object(place, flags & AT_SYMLINK_NOFOLLOW == 0)?;
            put(to, state.shown_more(&object.metadata, object.mount))
        };
    fn [access](path: *const c_char, mode: c_int) -> c_int,
        (AT_FDCWD, path), Look, |state, place| state.access(place, mode, true);
    fn [eaccess](path: *const c_char, mode: c_int) -> c_int,
        (AT_FDCWD, path), Look, |state, place| state.access(place, mode, true);
    fn [euidaccess](path: *const c_char, mode: c_int) -> c_int,
        (AT_FDCWD, path), Look, |state, place| state.access(place, mode, true);
    fn [faccessat](at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int,
        (at, path), Look,
        |state, place| state.access(place, mode, flags & AT_SYMLINK_NOFOLLOW == 0);
    fn [readlink](path: *const c_char, to: *mut c_char, size: usize) -> isize,
        (AT_FDCWD, path), Look, |state, place| put_text(&state.link_text(place)?, to, size);
    fn [__readlink_chk]
        (path: *const c_char, to: *mut c_char, size: usize, room: usize) -> isize,
        (AT_FDCWD, path), Look,
        |state, place| put_text(&state.link_text(place)?, to, size.min(room));
    fn [readlinkat](at: c_int, path: *const c_char, to: *mut c_char, size: usize) -> isize,
        (at, path), Look, |state, place| put_text(&state.link_text(place)?, to, size);
    fn [__readlinkat_chk]
        (at: c_int, path: *const c_char, to: *mut c_char, size: usize, room: usize) -> isize,
        (at, path), Look,
        |state, place| put_text(&state.link_text(place)?, to, size.min(room));
    fn [statfs statfs64](path: *const c_char, to: *mut libc::statfs) -> c_int,
        (AT_FDCWD, path), Look,
        |state, place| put(to, to_statfs(&file_system_of(state, place)?));
    fn [statvfs statvfs64](path: *const c_char, to: *mut libc::statvfs) -> c_int,
        (AT_FDCWD, path), Look,
        |state, place| put(to, to_statvfs(&file_system_of(state, place)?));
}

on_descriptor! {
    fn [fstat fstat64](fd: c_int, to: *mut libc::stat) -> c_int,
        fd, Look, |state, it| look_open(state, &it, to);
    fn [__fxstat __fxstat64](version: c_int, fd: c_int, to: *mut libc::stat) -> c_int,
        fd, Look, |state, it| look_open(state, &it, to);
    fn [fstatfs fstatfs64](fd: c_int, to: *mut libc::statfs) -> c_int,
        fd, Look, |state, it| {
            put(to, to_statfs(&file_system(state, it.identity.mount, it.identity.handle)?))
        };
    fn [fstatvfs fstatvfs64](fd: c_int, to: *mut libc::statvfs) -> c_int,
        fd, Look, |state, it| {
            put(to, to_statvfs(&file_system(state, it.identity.mount, it.identity.handle)?))
        };
}
