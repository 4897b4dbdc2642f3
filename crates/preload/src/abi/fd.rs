//! Calls that duplicate, close, query and configure descriptors, and lock files.

use std::ffi::{c_int, c_uint, c_ulong};

use libc::flock as Lock;

use crate::errors::{self, Failure, Outcome, fail};
use crate::guard;
use crate::locks::Owner;
use crate::report::{self, Call};
use crate::state::{Description, State, is_ours, is_own};
use crate::streams;
use crate::user_memory;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close(fd: c_int) -> c_int {
    if is_own(fd) && !guard::is_inside() {
        // The descriptor belongs to this library, so the program must see it as closed.
        errors::set(libc::EBADF);
        return -1;
    }
    if is_ours(fd) && !guard::is_inside() {
        report::served(Call::Close);
        return super::answer(|state| state.close(fd));
    }
    real!(close(fd => c_int) -> c_int)
}

fn concerns(from: c_int, onto: c_int) -> bool {
    (is_ours(from) || is_ours(onto) || is_own(onto)) && !guard::is_inside()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup2(from: c_int, onto: c_int) -> c_int {
    streams::before_change(onto);
    if concerns(from, onto) {
        report::served(Call::Descriptor);
        let answer = super::answer(|state| state.copy_onto(from, onto, 0));
        streams::follow(onto);
        return answer;
    }
    real!(dup2(from => c_int, onto => c_int) -> c_int)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup3(from: c_int, onto: c_int, flags: c_int) -> c_int {
    streams::before_change(onto);
    if concerns(from, onto) {
        if from == onto {
            errors::set(libc::EINVAL);
            return -1;
        }
        report::served(Call::Descriptor);
        let answer = super::answer(|state| state.copy_onto(from, onto, flags));
        streams::follow(onto);
        return answer;
    }
    real!(dup3(from => c_int, onto => c_int, flags => c_int) -> c_int)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup(from: c_int) -> c_int {
    if is_ours(from) && !guard::is_inside() {
        report::served(Call::Descriptor);
        let answer = super::answer(|state| state.copy(from, 0, libc::F_DUPFD));
        streams::follow(answer);
        return answer;
    }
    real!(dup(from => c_int) -> c_int)
}

on_descriptor! {
    fn [ioctl](fd: c_int, request: c_ulong, argument: usize) -> c_int,
        fd, Descriptor, |state, _it| state.ioctl(fd, request, argument);
    fn [isatty](fd: c_int) -> c_int,
        fd, Descriptor, |_state, _it| {
            errors::set(libc::ENOTTY);
            Ok(0)
        };
}

/// Takes, releases or tests a lock. Returns the result for the program.
fn lock(fd: c_int, command: c_int, asked: *mut Lock) -> c_int {
    report::served(Call::Lock);
    // SAFETY: any bytes are a valid `Lock`.
    let mut lock = match unsafe { user_memory::value(asked) } {
        Ok(lock) => lock,
        Err(failure) => return guard::refused(&failure),
    };
    let owner = match command {
        libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW => Owner::Process,
        _ => Owner::Description,
    };
    if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
        return super::answer(|state| {
            let it = state.get(fd)?;
            let tested = state.test(&it, &mut lock, owner)?;
            // SAFETY: the program passes the lock to be overwritten.
            unsafe { user_memory::put(asked, lock) }.map(|()| tested)
        });
    }
    let waits = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
    until_taken(fd, waits, |state, it| state.lock(it, &lock, owner, waits))
}

/// Tries to take a lock. If the program wants to wait, repeats this until the lock is taken.
fn until_taken(
    fd: c_int,
    waits: bool,
    ask: impl Fn(&mut State, &Description) -> Outcome<bool>,
) -> c_int {
    let mut pause_us = PAUSE_MIN_US;
    loop {
        let asked = guard::with(|state| {
            let it = state.get(fd)?;
            ask(state, &it)
        });
        match asked {
            Ok(true) => return 0,
            Ok(false) if !waits => {
                errors::set(libc::EAGAIN);
                return -1;
            }
            Ok(false) => {}
            Err(failure) => return guard::refused(&failure),
        }
        let pause = libc::timespec { tv_sec: 0, tv_nsec: pause_us * 1000 };
        // If a signal handler interrupts the pause, end the wait, as the handler may intend that.
        // SAFETY: the time is valid, and null means that the remaining time is not requested.
        if unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) } == -1 {
            return -1;
        }
        pause_us = (pause_us * 2).min(PAUSE_MAX_US);
    }
}

macro_rules! controlling {
    ($($name:ident)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: usize) -> c_int {
                if is_ours(fd) && !guard::is_inside() {
                    return control(fd, command, argument);
                }
                real!($name(fd => c_int, command => c_int, argument => usize) -> c_int)
            }
        )+
    };
}

controlling! { fcntl fcntl64 }

fn control(fd: c_int, command: c_int, argument: usize) -> c_int {
    match command {
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => lock(fd, command, argument as *mut Lock),
        _ => {
            report::served(Call::Descriptor);
            let answer = super::answer(|state| state.control(fd, command, argument));
            if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
                streams::follow(answer);
            }
            answer
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn flock(fd: c_int, operation: c_int) -> c_int {
    if is_ours(fd) && !guard::is_inside() {
        report::served(Call::Lock);
        let waits = operation & libc::LOCK_NB == 0;
        return until_taken(fd, waits, |state, it| state.lock_whole(it, operation));
    }
    real!(flock(fd => c_int, operation => c_int) -> c_int)
}

macro_rules! locking {
    ($($name:ident)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(fd: c_int, command: c_int, length: i64) -> c_int {
                if is_ours(fd) && !guard::is_inside() {
                    return lock_from_here(fd, command, length);
                }
                real!($name(fd => c_int, command => c_int, length => i64) -> c_int)
            }
        )+
    };
}

locking! { lockf lockf64 }

fn lock_from_here(fd: c_int, command: c_int, length: i64) -> c_int {
    let (kind, command) = match command {
        libc::F_LOCK => (libc::F_WRLCK, libc::F_SETLKW),
        libc::F_TLOCK => (libc::F_WRLCK, libc::F_SETLK),
        libc::F_ULOCK => (libc::F_UNLCK, libc::F_SETLK),
        libc::F_TEST => (libc::F_RDLCK, libc::F_GETLK),
        _ => return guard::refused(&Failure::Errno(libc::EINVAL)),
    };
    let mut asked = Lock {
        l_type: kind as _,
        l_whence: libc::SEEK_CUR as _,
        l_start: 0,
        l_len: length,
        l_pid: 0,
    };
    let answer = lock(fd, command, &raw mut asked);
    if answer == 0 && command == libc::F_GETLK && i32::from(asked.l_type) != libc::F_UNLCK {
        errors::set(libc::EACCES);
        return -1;
    }
    answer
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if crate::config::get().mounts.is_empty() || guard::is_inside() {
        return real!(close_range(first => c_uint, last => c_uint, flags => c_int) -> c_int);
    }
    super::answer(|state| state.close_range(first, last, flags))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn closefrom(first: c_int) {
    if crate::config::get().mounts.is_empty() || guard::is_inside() {
        return real!(closefrom(first => c_int) -> ());
    }
    let first = first.max(0) as c_uint;
    let closed: c_int = super::answer(|state| match state.close_range(first, c_uint::MAX, 0) {
        Err(Failure::Errno(libc::ENOSYS)) => fail(libc::ENOSYS),
        closed => closed,
    });
    debug_assert!(closed <= 0);
}

const PAUSE_MIN_US: i64 = 200;
const PAUSE_MAX_US: i64 = 20_000;
