//! Calls that change names.

use std::ffi::{c_char, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;

use dafs_client::{DeviceNumber, NewObject};
use libc::{AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW};

use crate::errors::{Failure, Outcome, fail};
use crate::guard;
use crate::report::{self, Call, Miss};
use crate::route::{LINKS_MAX, Place, Route, route, route_absolute};
use crate::state::State;
use crate::user_memory;

/// Creates a special file for `mknod`, if the server supports its type.
fn make_node(state: &mut State, place: &Place, mode: u32, device: u64) -> Outcome<c_int> {
    let number =
        DeviceNumber { major: libc::major(device).into(), minor: libc::minor(device).into() };
    match mode & libc::S_IFMT {
        libc::S_IFIFO => state.make_special(place, NewObject::Fifo, mode & 0o7777),
        0 | libc::S_IFREG => {
            state.named_slot(place, libc::EEXIST)?.must_not_be_directory()?;
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
            let number = state.open(place, flags, mode & 0o7777)?;
            state.close(number)
        }
        libc::S_IFSOCK => state.make_special(place, NewObject::Socket, mode & 0o7777),
        libc::S_IFCHR => {
            state.make_special(place, NewObject::CharacterDevice(number), mode & 0o7777)
        }
        libc::S_IFBLK => state.make_special(place, NewObject::BlockDevice(number), mode & 0o7777),
        _ => fail(libc::EINVAL),
    }
}

on_path! {
    fn [mkdir](path: *const c_char, mode: c_uint) -> c_int,
        (AT_FDCWD, path), Name, |state, place| state.make_directory(place, mode);
    fn [mkdirat](at: c_int, path: *const c_char, mode: c_uint) -> c_int,
        (at, path), Name, |state, place| state.make_directory(place, mode);
    fn [rmdir](path: *const c_char) -> c_int,
        (AT_FDCWD, path), Name, |state, place| state.remove_directory(place);
    fn [unlink](path: *const c_char) -> c_int,
        (AT_FDCWD, path), Name, |state, place| state.unlink(place);
    fn [unlinkat](at: c_int, path: *const c_char, flags: c_int) -> c_int,
        (at, path), Name, |state, place| match flags {
            0 => state.unlink(place),
            AT_REMOVEDIR => state.remove_directory(place),
            _ => fail(libc::EINVAL),
        };
    fn [remove](path: *const c_char) -> c_int,
        (AT_FDCWD, path), Name, |state, place| state.remove(place);
    fn [mkfifo](path: *const c_char, mode: c_uint) -> c_int,
        (AT_FDCWD, path), Name, |state, place| state.make_special(place, NewObject::Fifo, mode);
    fn [mkfifoat](at: c_int, path: *const c_char, mode: c_uint) -> c_int,
        (at, path), Name, |state, place| state.make_special(place, NewObject::Fifo, mode);
    fn [mknod](path: *const c_char, mode: c_uint, device: u64) -> c_int,
        (AT_FDCWD, path), Name, |state, place| make_node(state, place, mode, device);
    fn [mknodat](at: c_int, path: *const c_char, mode: c_uint, device: u64) -> c_int,
        (at, path), Name, |state, place| make_node(state, place, mode, device);
    fn [symlink](text: *const c_char, path: *const c_char) -> c_int,
        (AT_FDCWD, path), Name,
        // SAFETY: the text does not change during the call.
        |state, place| state.symlink(unsafe { user_memory::text(text) }?, place);
    fn [symlinkat](text: *const c_char, at: c_int, path: *const c_char) -> c_int,
        (at, path), Name,
        // SAFETY: the text does not change during the call.
        |state, place| state.symlink(unsafe { user_memory::text(text) }?, place);
}

/// The result of a call with two paths.
enum TwoPaths {
    Done(c_int),
    /// Both paths belong to the kernel. A path that was not resolved here is passed on as given.
    Kernel(Route, Route),
}

/// Serves a call with two paths if both are in DAFS. A symbolic link at the first path is followed
/// if `follow` is set.
unsafe fn two_paths(
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    follow: bool,
    act: impl Fn(&mut State, &Place, &Place) -> Outcome<c_int>,
) -> TwoPaths {
    if from.1.is_null() || to.1.is_null() {
        return TwoPaths::Done(refused(&Failure::Errno(libc::EFAULT)));
    }
    // SAFETY: the program passes valid paths.
    let (mut from, mut to) = unsafe { (route(from.0, from.1), route(to.0, to.1)) };
    for _ in 0..LINKS_MAX {
        (from, to) = match (from, to) {
            (Route::Dafs(from), Route::Dafs(to)) => {
                report::served(Call::Name);
                match guard::with(|state| act(state, &from, &to)) {
                    Ok(answer) => return TwoPaths::Done(answer),
                    // A directory on one of the paths is a symbolic link that leads out of DAFS.
                    Err(Failure::Elsewhere(_)) => (moved(from, follow), moved(to, false)),
                    Err(failure) => return TwoPaths::Done(refused(&failure)),
                }
            }
            (Route::Refused(errno), _) | (_, Route::Refused(errno)) => {
                return TwoPaths::Done(refused(&Failure::Errno(errno)));
            }
            (Route::Dafs(inside), outside) => {
                let found = within(&inside).and(beyond(&outside));
                return TwoPaths::Done(refused(&found.err().unwrap_or(ACROSS)));
            }
            (outside, Route::Dafs(inside)) => {
                let found = beyond(&outside).and_then(|()| within(&inside));
                return TwoPaths::Done(refused(&found.err().unwrap_or(ACROSS)));
            }
            (from, to) => return TwoPaths::Kernel(from, to),
        }
    }
    TwoPaths::Done(refused(&Failure::Errno(libc::ELOOP)))
}

fn refused(failure: &Failure) -> c_int {
    report::missed(Miss::Refused);
    guard::refused(failure)
}

/// Returns the route at the end of the symbolic links of a place. Returns the place itself if there
/// are no links.
fn moved(place: Place, follow: bool) -> Route {
    let found = guard::with(|state| {
        state.slot(&place)?;
        if follow || place.is_directory { state.object(&place, true).map(drop) } else { Ok(()) }
    });
    match found {
        Err(Failure::Elsewhere(path)) => route_absolute(path.as_bytes()),
        Ok(()) | Err(Failure::Errno(_)) => Route::Dafs(place),
    }
}

/// The error of a call with one path in DAFS and one outside. A missing directory is reported
/// first.
const ACROSS: Failure = Failure::Errno(libc::EXDEV);

fn within(place: &Place) -> Outcome<()> {
    match guard::with(|state| state.slot(place).map(drop)) {
        Err(Failure::Elsewhere(_)) => Err(ACROSS),
        found => found,
    }
}

fn beyond(route: &Route) -> Outcome<()> {
    let Route::KernelAt(path) = route else { return Ok(()) };
    let path = path.to_bytes();
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash @ 1..) => rustix::fs::stat(&path[..slash])
            .map(drop)
            .map_err(|error| Failure::Errno(error.raw_os_error())),
        _ => Ok(()),
    }
}

/// Returns the path to pass to the kernel.
fn path_of(route: &Route, given: *const c_char) -> *const c_char {
    match route {
        Route::KernelAt(path) => path.as_ptr(),
        Route::Kernel | Route::Dafs(_) | Route::Refused(_) => given,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn renameat2(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    let act = |state: &mut State, from: &Place, to: &Place| state.rename(from, to, flags);
    // SAFETY: the program passes valid paths.
    match unsafe { two_paths((from_at, from), (to_at, to), false, act) } {
        TwoPaths::Done(answer) => answer,
        TwoPaths::Kernel(first, second) => {
            let (from, to) = (path_of(&first, from), path_of(&second, to));
            real!(renameat2(
                from_at => c_int, from => *const c_char, to_at => c_int, to => *const c_char,
                flags => c_uint,
            ) -> c_int)
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn renameat(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the program passes valid paths.
    unsafe { renameat2(from_at, from, to_at, to, 0) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the program passes valid paths.
    unsafe { renameat2(AT_FDCWD, from, AT_FDCWD, to, 0) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn linkat(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return guard::refused(&Failure::Errno(libc::EINVAL));
    }
    let follow = flags & AT_SYMLINK_FOLLOW != 0;
    let act = |state: &mut State, from: &Place, to: &Place| state.link(from, to, follow);
    // SAFETY: the program passes valid paths.
    match unsafe { two_paths((from_at, from), (to_at, to), follow, act) } {
        TwoPaths::Done(answer) => answer,
        TwoPaths::Kernel(first, second) => {
            let (from, to) = (path_of(&first, from), path_of(&second, to));
            real!(linkat(
                from_at => c_int, from => *const c_char, to_at => c_int, to => *const c_char,
                flags => c_int,
            ) -> c_int)
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the program passes valid paths.
    unsafe { linkat(AT_FDCWD, from, AT_FDCWD, to, 0) }
}
