//! Calls that set attributes.

use std::ffi::{c_char, c_int, c_uint};

use dafs_client::SetAttributes;
use libc::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, off_t, timespec, timeval, utimbuf};

use crate::attributes::{owners, times};
use crate::errors::{Outcome, fail};
use crate::guard;
use crate::opening::note_umask;
use crate::route::Place;
use crate::state::{Description, State};
use crate::user_memory;

const NOW: timespec = timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };

/// Reads the two times of a call. A null pointer means the current time for both.
///
/// # Safety
/// The pointer is null or points to two times.
unsafe fn two(given: *const timespec) -> Outcome<[timespec; 2]> {
    // SAFETY: the caller guarantees the pointer.
    if given.is_null() { Ok([NOW, NOW]) } else { unsafe { user_memory::value(given.cast()) } }
}

/// Reads two times in microseconds. A null pointer means the current time for both.
///
/// # Safety
/// The pointer is null or points to two times.
unsafe fn two_micro(given: *const timeval) -> Outcome<[timespec; 2]> {
    let exact = |time: timeval| {
        let tv_nsec = time.tv_usec.saturating_mul(1000);
        timespec { tv_sec: time.tv_sec, tv_nsec }
    };
    let two: [timeval; 2] = match given.is_null() {
        true => return Ok([NOW, NOW]),
        // SAFETY: any bytes are valid times.
        false => unsafe { user_memory::value(given.cast()) }?,
    };
    Ok(two.map(exact))
}

/// Reads two times in seconds. A null pointer means the current time for both.
///
/// # Safety
/// The pointer is null or points to a `utimbuf`.
unsafe fn two_whole(given: *const utimbuf) -> Outcome<[timespec; 2]> {
    let whole = |seconds| timespec { tv_sec: seconds, tv_nsec: 0 };
    if given.is_null() {
        return Ok([NOW, NOW]);
    }
    // SAFETY: any bytes are valid times.
    let utimbuf { actime, modtime } = unsafe { user_memory::value(given) }?;
    Ok([whole(actime), whole(modtime)])
}

fn set_times(state: &mut State, place: &Place, follow: bool, to: [timespec; 2]) -> Outcome<c_int> {
    match times(to[0], to[1])? {
        Some(wanted) => state.set(place, follow, &wanted),
        None => state.object(place, follow).map(|_| 0),
    }
}

fn set_open(state: &mut State, it: &Description, wanted: Option<SetAttributes>) -> Outcome<c_int> {
    wanted.map_or(Ok(0), |wanted| state.set_attributes(it, &wanted))
}

fn set_owners(
    state: &mut State,
    place: &Place,
    follow: bool,
    user: c_uint,
    group: c_uint,
) -> Outcome<c_int> {
    match owners(user, group) {
        Some(wanted) => state.set(place, follow, &wanted),
        None => state.object(place, follow).map(|_| 0),
    }
}

fn follows(flags: c_int) -> bool {
    flags & AT_SYMLINK_NOFOLLOW == 0
}

on_path! {
    fn [chmod](path: *const c_char, mode: c_uint) -> c_int,
        (AT_FDCWD, path), Set, |state, place| state.set_mode(place, true, mode);
    fn [lchmod](path: *const c_char, mode: c_uint) -> c_int,
        (AT_FDCWD, path), Set, |state, place| state.set_mode(place, false, mode);
    fn [fchmodat](at: c_int, path: *const c_char, mode: c_uint, flags: c_int) -> c_int,
        (at, path), Set, |state, place| state.set_mode(place, follows(flags), mode);
    fn [chown](path: *const c_char, user: c_uint, group: c_uint) -> c_int,
        (AT_FDCWD, path), Set, |state, place| set_owners(state, place, true, user, group);
    fn [lchown](path: *const c_char, user: c_uint, group: c_uint) -> c_int,
        (AT_FDCWD, path), Set, |state, place| set_owners(state, place, false, user, group);
    fn [fchownat]
        (at: c_int, path: *const c_char, user: c_uint, group: c_uint, flags: c_int) -> c_int,
        (at, path), Set, |state, place| {
            if place.descriptor.is_some() && flags & AT_EMPTY_PATH == 0 {
                return fail(libc::ENOENT);
            }
            set_owners(state, place, follows(flags), user, group)
        };
    fn [utimes](path: *const c_char, to: *const timeval) -> c_int,
        (AT_FDCWD, path), Set,
        // SAFETY: the program passes two times or null.
        |state, place| set_times(state, place, true, unsafe { two_micro(to) }?);
    fn [lutimes](path: *const c_char, to: *const timeval) -> c_int,
        (AT_FDCWD, path), Set,
        // SAFETY: the program passes two times or null.
        |state, place| set_times(state, place, false, unsafe { two_micro(to) }?);
    fn [futimesat](at: c_int, path: *const c_char, to: *const timeval) -> c_int,
        // SAFETY: the program passes two times or null.
        (at, path), Set, |state, place| set_times(state, place, true, unsafe { two_micro(to) }?);
    fn [utime](path: *const c_char, to: *const utimbuf) -> c_int,
        (AT_FDCWD, path), Set,
        // SAFETY: the program passes two times or null.
        |state, place| set_times(state, place, true, unsafe { two_whole(to) }?);
    fn [utimensat](at: c_int, path: *const c_char, to: *const timespec, flags: c_int) -> c_int,
        (at, path), Set,
        // SAFETY: the program passes two times or null. Without a path the call is for the
        // descriptor.
        |state, place| set_times(state, place, follows(flags), unsafe { two(to) }?);
    fn [truncate truncate64](path: *const c_char, length: off_t) -> c_int,
        (AT_FDCWD, path), Set, |state, place| state.truncate(place, length);
}

on_descriptor! {
    fn [futimens](fd: c_int, to: *const timespec) -> c_int,
        fd, Set, |state, it| {
            // SAFETY: the program passes two times or null.
            let to = unsafe { two(to) }?;
            set_open(state, &it, times(to[0], to[1])?)
        };
    fn [futimes](fd: c_int, to: *const timeval) -> c_int,
        fd, Set, |state, it| {
            // SAFETY: the program passes two times or null.
            let to = unsafe { two_micro(to) }?;
            set_open(state, &it, times(to[0], to[1])?)
        };
    fn [fchmod](fd: c_int, mode: c_uint) -> c_int,
        fd, Set, |state, it| {
            it.must_be_open()?;
            let mode = Some(mode & 0o7777);
            state.set_attributes(&it, &SetAttributes { mode, ..SetAttributes::default() })
        };
    fn [fchown](fd: c_int, user: c_uint, group: c_uint) -> c_int,
        fd, Set, |state, it| {
            it.must_be_open()?;
            set_open(state, &it, owners(user, group))
        };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn umask(mask: c_uint) -> c_uint {
    if !guard::is_inside() {
        note_umask(mask);
    }
    real!(umask(mask => c_uint) -> c_uint)
}
