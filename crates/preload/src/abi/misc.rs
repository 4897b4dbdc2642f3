//! Miscellaneous calls: file name patterns, limits, watches, kernel directory entries, and system
//! calls by number.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use libc::{AT_FDCWD, dirent64, stat};

use crate::config;
use crate::errors::fail;
use crate::guard;
use crate::report::{Miss, missed};
use crate::sharing::Inheritor;
use crate::start;
use crate::user_memory::{self, Purpose, must_have};

on_path! {
    fn [pathconf](path: *const c_char, name: c_int) -> c_long,
        (AT_FDCWD, path), Look, |state, place| {
            state.object(place, true)?;
            limit(name)
        };
    fn [inotify_add_watch](fd: c_int, path: *const c_char, mask: c_uint) -> c_int,
        (AT_FDCWD, path), Look, |state, place| {
            state.object(place, true)?;
            missed(Miss::Watch);
            fail(libc::EOPNOTSUPP)
        };
}

on_descriptor! {
    fn [fpathconf](fd: c_int, name: c_int) -> c_long,
        fd, Look, |_state, _it| limit(name);
    fn [getdents64](fd: c_int, to: *mut c_void, size: usize) -> isize,
        fd, List, |state, it| {
            let size = size.min(ROOM_MAX);
            must_have(to.cast(), size, Purpose::Writing)?;
            let room = match size {
                0 => &mut [],
                // SAFETY: the memory was checked to be writable, and the program passes it for this
                // call.
                size => unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), size) },
            };
            state.entries_into(fd, &it, room)
        };
}

/// Returns a limit of `pathconf` that is the same for all files in DAFS. Returns -1 without an
/// error if there is no limit.
fn limit(name: c_int) -> crate::errors::Outcome<c_long> {
    Ok(match name {
        libc::_PC_NAME_MAX => 255,
        libc::_PC_PATH_MAX | libc::_PC_PIPE_BUF | libc::_PC_REC_MIN_XFER_SIZE => 4096,
        libc::_PC_REC_XFER_ALIGN | libc::_PC_ALLOC_SIZE_MIN => 4096,
        libc::_PC_LINK_MAX => 65000,
        libc::_PC_FILESIZEBITS => 64,
        libc::_PC_CHOWN_RESTRICTED | libc::_PC_NO_TRUNC | libc::_PC_2_SYMLINKS => 1,
        libc::_PC_VDISABLE => 0,
        libc::_PC_MAX_CANON | libc::_PC_MAX_INPUT => 255,
        _ => -1,
    })
}

/// The part of the C library's `glob_t` that contains the callbacks to list directories.
#[repr(C)]
pub(crate) struct Glob {
    count: usize,
    paths: *mut *mut c_char,
    offset: usize,
    flags: c_int,
    closedir: Option<unsafe extern "C" fn(*mut c_void)>,
    readdir: Option<unsafe extern "C" fn(*mut c_void) -> *mut dirent64>,
    opendir: Option<unsafe extern "C" fn(*const c_char) -> *mut c_void>,
    lstat: Option<unsafe extern "C" fn(*const c_char, *mut stat) -> c_int>,
    stat: Option<unsafe extern "C" fn(*const c_char, *mut stat) -> c_int>,
}

type OnError = Option<unsafe extern "C" fn(*const c_char, c_int) -> c_int>;

unsafe extern "C" fn closedir(stream: *mut c_void) {
    // SAFETY: the C library passes a stream that it got from `opendir`.
    unsafe { super::dir::closedir(stream) };
}

macro_rules! globbing {
    ($($name:ident)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                pattern: *const c_char,
                flags: c_int,
                on_error: OnError,
                found: *mut Glob,
            ) -> c_int {
                let mut flags = flags;
                let is_ours = !config::get().mounts.is_empty() && !guard::is_inside();
                if is_ours && !found.is_null() && flags & GLOB_ALTDIRFUNC == 0 {
                    flags |= GLOB_ALTDIRFUNC;
                    // SAFETY: the program passes a `glob_t`, and the C library reads these fields
                    // only if this flag is set.
                    unsafe {
                        (*found).closedir = Some(closedir);
                        (*found).readdir = Some(super::dir::readdir64);
                        (*found).opendir = Some(super::dir::opendir);
                        (*found).lstat = Some(super::stat::lstat);
                        (*found).stat = Some(super::stat::stat);
                    }
                }
                real!($name(
                    pattern => *const c_char, flags => c_int, on_error => OnError,
                    found => *mut Glob,
                ) -> c_int)
            }
        )+
    };
}

globbing! { glob glob64 }

/// Performs a system call by its number. Programs use this where the C library may lack a function.
///
/// # Safety
/// The arguments meet the requirements in the manual of the system call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    if !config::get().mounts.is_empty() && !guard::is_inside() {
        // SAFETY: the caller guarantees that the arguments meet the requirements of the system
        // call, so that they have these types.
        unsafe {
            let path = |address: usize| address as *const c_char;
            match number {
                libc::SYS_renameat2 => {
                    let (from, to) = (path(b), path(d));
                    return super::namespace::renameat2(a as _, from, c as _, to, e as _).into();
                }
                libc::SYS_statx => {
                    let (flags, mask) = (c as c_int, d as c_uint);
                    return super::stat::statx(a as _, path(b), flags, mask, e as _).into();
                }
                libc::SYS_faccessat2 => {
                    return super::stat::faccessat(a as _, path(b), c as _, d as _).into();
                }
                libc::SYS_close_range => {
                    return super::fd::close_range(a as _, b as _, c as _).into();
                }
                libc::SYS_getdents64 => return getdents64(a as _, b as _, c) as c_long,
                libc::SYS_copy_file_range => {
                    let (to, at) = (c as c_int, d as *mut i64);
                    let (from, from_at) = (a as c_int, b as *mut i64);
                    let moved = super::io::copy_file_range(from, from_at, to, at, e, f as c_uint);
                    return moved as c_long;
                }
                libc::SYS_execveat => {
                    let (arguments, given) = (c as *const _, d as *const _);
                    let flags = e as c_int;
                    return super::exec::execveat(a as _, path(b), arguments, given, flags).into();
                }
                libc::SYS_io_uring_setup => missed(Miss::Ring),
                libc::SYS_clone | libc::SYS_clone3 => start::share_before(Inheritor::Child),
                #[cfg(target_arch = "x86_64")]
                libc::SYS_fork | libc::SYS_vfork => start::share_before(Inheritor::Child),
                _ => {}
            }
        }
    }
    let answer = real!(syscall(
        number => c_long, a => usize, b => usize, c => usize, d => usize, e => usize, f => usize,
    ) -> c_long);
    if CHANGES_OF_MEMORY.contains(&number) {
        user_memory::forget();
    }
    answer
}

/// The system calls after which memory may be gone or protected.
const CHANGES_OF_MEMORY: [c_long; 7] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_pkey_mprotect,
    libc::SYS_shmdt,
    libc::SYS_brk,
];

/// The maximum number of bytes of directory entries returned by one call.
const ROOM_MAX: usize = 1 << 20;
/// The flag that makes the C library use the callbacks in `glob_t`.
const GLOB_ALTDIRFUNC: c_int = 1 << 9;
