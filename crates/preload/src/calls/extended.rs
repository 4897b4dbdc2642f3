//! Calls about extended attributes, which are not served: every one on a file in DAFS fails with
//! ENOTSUP, as on a file system that has none.

use std::ffi::{c_char, c_int, c_void};

use libc::AT_FDCWD;

use crate::errors::{Outcome, fail};
use crate::report::{Miss, missed};
use crate::route::Place;
use crate::state::State;

fn unsupported<T>(state: &mut State, place: &Place, follow: bool) -> Outcome<T> {
    state.object(place, follow)?;
    missed(Miss::Attributes);
    fail(libc::ENOTSUP)
}

fn unsupported_open<T>() -> Outcome<T> {
    missed(Miss::Attributes);
    fail(libc::ENOTSUP)
}

on_path! {
    fn [getxattr](path: *const c_char, name: *const c_char, to: *mut c_void, size: usize) -> isize,
        (AT_FDCWD, path), Look, |state, place| unsupported(state, place, true);
    fn [lgetxattr](path: *const c_char, name: *const c_char, to: *mut c_void, size: usize) -> isize,
        (AT_FDCWD, path), Look, |state, place| unsupported(state, place, false);
    fn [listxattr](path: *const c_char, to: *mut c_char, size: usize) -> isize,
        (AT_FDCWD, path), Look, |state, place| unsupported(state, place, true);
    fn [llistxattr](path: *const c_char, to: *mut c_char, size: usize) -> isize,
        (AT_FDCWD, path), Look, |state, place| unsupported(state, place, false);
    fn [setxattr]
        (path: *const c_char, name: *const c_char, value: *const c_void, size: usize,
        flags: c_int) -> c_int,
        (AT_FDCWD, path), Set, |state, place| unsupported(state, place, true);
    fn [lsetxattr]
        (path: *const c_char, name: *const c_char, value: *const c_void, size: usize,
        flags: c_int) -> c_int,
        (AT_FDCWD, path), Set, |state, place| unsupported(state, place, false);
    fn [removexattr](path: *const c_char, name: *const c_char) -> c_int,
        (AT_FDCWD, path), Set, |state, place| unsupported(state, place, true);
    fn [lremovexattr](path: *const c_char, name: *const c_char) -> c_int,
        (AT_FDCWD, path), Set, |state, place| unsupported(state, place, false);
}

on_descriptor! {
    fn [fgetxattr](fd: c_int, name: *const c_char, to: *mut c_void, size: usize) -> isize,
        fd, Look, |_state, _it| unsupported_open();
    fn [flistxattr](fd: c_int, to: *mut c_char, size: usize) -> isize,
        fd, Look, |_state, _it| unsupported_open();
    fn [fsetxattr]
        (fd: c_int, name: *const c_char, value: *const c_void, size: usize, flags: c_int) -> c_int,
        fd, Set, |_state, _it| unsupported_open();
    fn [fremovexattr](fd: c_int, name: *const c_char) -> c_int,
        fd, Set, |_state, _it| unsupported_open();
}
