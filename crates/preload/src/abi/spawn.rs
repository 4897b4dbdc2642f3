//! `posix_spawn`. The C library performs the call if neither the program nor a file action concerns
//! DAFS. Otherwise this library performs the call step by step, as the manual describes.
//!
//! Invariant: each file action that a program adds is recorded here and in the C library's own
//! list, whose format is private. A list that was not recorded here goes to the C library
//! unchanged.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, PoisonError};

use libc::{AT_FDCWD, O_CLOEXEC, pid_t, posix_spawnattr_t, sigset_t};

use super::exec::{List, concerns, environment_of};
use crate::errors::{self, Failure};
use crate::guard;
use crate::route::{Route, directory, route};
use crate::sharing::Inheritor;
use crate::start;
use crate::user_memory;

/// An action in the child before the program runs.
#[derive(Clone)]
enum Action {
    Close(c_int),
    Copy(c_int, c_int),
    Open(c_int, CString, c_int, c_uint),
    Chdir(CString),
    Fchdir(c_int),
    CloseFrom(c_int),
    Foreground(c_int),
}

/// The recorded actions, by the address of the program's list.
static RECORDED: Mutex<Option<HashMap<usize, Vec<Action>>>> = Mutex::new(None);

fn with_recorded<T>(act: impl FnOnce(&mut HashMap<usize, Vec<Action>>) -> T) -> T {
    guard::without_interception(|| {
        let mut noted = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
        act(noted.get_or_insert_default())
    })
}

macro_rules! recording {
    ($(fn $name:ident($($argument:ident: $type:ty),*), $action:expr;)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(list: *mut c_void, $($argument: $type),*) -> c_int {
                let answer = real!($name(list => *mut c_void, $($argument => $type),*) -> c_int);
                if answer == 0 && concerns() {
                    let action = $action;
                    with_recorded(|noted| noted.entry(list as usize).or_default().push(action));
                }
                answer
            }
        )+
    };
}

/// Copies a path.
///
/// # Safety
/// The path ends with a zero.
unsafe fn text(path: *const c_char) -> CString {
    // SAFETY: the caller guarantees the path.
    unsafe { CStr::from_ptr(path) }.to_owned()
}

recording! {
    fn posix_spawn_file_actions_addclose(fd: c_int), Action::Close(fd);
    fn posix_spawn_file_actions_adddup2(from: c_int, onto: c_int), Action::Copy(from, onto);
    fn posix_spawn_file_actions_addopen
        (fd: c_int, path: *const c_char, flags: c_int, mode: c_uint),
        // SAFETY: the program passes a path that ends with a zero.
        Action::Open(fd, unsafe { text(path) }, flags, mode);
    fn posix_spawn_file_actions_addchdir_np(path: *const c_char),
        // SAFETY: the program passes a path that ends with a zero.
        Action::Chdir(unsafe { text(path) });
    fn posix_spawn_file_actions_addfchdir_np(fd: c_int), Action::Fchdir(fd);
    fn posix_spawn_file_actions_addclosefrom_np(from: c_int), Action::CloseFrom(from);
    fn posix_spawn_file_actions_addtcsetpgrp_np(fd: c_int), Action::Foreground(fd);
}

macro_rules! forgetting {
    ($($name:ident)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(list: *mut c_void) -> c_int {
                if concerns() {
                    with_recorded(|noted| noted.remove(&(list as usize)));
                }
                real!($name(list => *mut c_void) -> c_int)
            }
        )+
    };
}

forgetting! { posix_spawn_file_actions_init posix_spawn_file_actions_destroy }

/// A call of `posix_spawn` or `posix_spawnp`.
struct Spawn {
    path: *const c_char,
    is_searched: bool,
    attributes: *const posix_spawnattr_t,
    arguments: List,
    environment: List,
    actions: Vec<Action>,
}

impl Spawn {
    /// True if the C library alone would not perform the call correctly.
    ///
    /// # Safety
    /// The path does not change during the call.
    unsafe fn is_ours(&self) -> bool {
        // SAFETY: the caller guarantees the path.
        let leads_here = |path: *const c_char| unsafe { route(AT_FDCWD, path) } != Route::Kernel;
        let acts_here = self.actions.iter().any(|action| match action {
            Action::Open(_, path, ..) => leads_here(path.as_ptr()),
            // The child reads its working directory from its environment, so the environment must
            // be changed here.
            Action::Chdir(path) => directory().is_some() || leads_here(path.as_ptr()),
            Action::Fchdir(fd) => directory().is_some() || crate::state::is_ours(*fd),
            Action::Close(_) | Action::Copy(..) | Action::CloseFrom(_) | Action::Foreground(_) => {
                false
            }
        });
        // SAFETY: the caller guarantees that the path does not change. The C library's call reports
        // the error of a path that is not readable.
        let Ok(name) = (unsafe { user_memory::text(self.path) }) else { return acts_here };
        if acts_here || !self.is_searched || name.contains(&b'/') {
            return acts_here || leads_here(self.path);
        }
        let search = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&search).any(|directory| {
            use std::os::unix::ffi::OsStrExt;
            CString::new(directory.as_os_str().as_bytes()).is_ok_and(|it| leads_here(it.as_ptr()))
        })
    }

    /// Starts the child. Returns its process id or an error number.
    fn run(&self) -> Result<pid_t, c_int> {
        let mut ends = [-1; 2];
        // SAFETY: the array has two elements.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), O_CLOEXEC) } == -1 {
            return Err(errors::get());
        }
        let [read_end, write_end] = ends;
        // SAFETY: these C library calls use memory of this function. The child performs the file
        // actions and then runs another program or exits.
        unsafe {
            // Use a descriptor number that none of the file actions uses.
            let told = libc::fcntl(write_end, libc::F_DUPFD_CLOEXEC, HIGH);
            let told = if told == -1 { write_end } else { told };
            let (mut all, mut before) = (std::mem::zeroed::<sigset_t>(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            let child = libc::fork();
            if child == 0 {
                let errno = self.become_it(&before);
                libc::write(told, (&raw const errno).cast(), size_of::<c_int>());
                super::exec::_exit(127);
            }
            let failed = errors::get();
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            for end in [write_end, told] {
                super::fd::close(end);
            }
            let mut errno: c_int = 0;
            let read = loop {
                let read = libc::read(read_end, (&raw mut errno).cast(), size_of::<c_int>());
                if read != -1 || errors::get() != libc::EINTR {
                    break read;
                }
            };
            super::fd::close(read_end);
            match child {
                -1 => Err(failed),
                child if read == size_of::<c_int>() as isize => {
                    libc::waitpid(child, std::ptr::null_mut(), 0);
                    Err(errno)
                }
                child => Ok(child),
            }
        }
    }

    /// Replaces the child process by the program. Returns the error number if that is not possible.
    ///
    /// # Safety
    /// The arguments meet the requirements in the manual of `posix_spawn`. This is called in the
    /// child, which has no other thread.
    unsafe fn become_it(&self, mask: &sigset_t) -> c_int {
        // SAFETY: the caller guarantees the arguments and that this is the only thread.
        unsafe {
            let mut mask = *mask;
            if !self.attributes.is_null() && self.set_attributes(&mut mask) == -1 {
                return errors::get();
            }
            for action in &self.actions {
                if act(action) == -1 {
                    return errors::get();
                }
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
            if self.is_searched {
                super::exec::execvpe(self.path, self.arguments, self.environment);
            } else {
                super::exec::execve(self.path, self.arguments, self.environment);
            }
            errors::get()
        }
    }

    /// Applies the attributes of the call to the child. Returns an error number or 0.
    ///
    /// # Safety
    /// `attributes` is not null.
    unsafe fn set_attributes(&self, mask: &mut sigset_t) -> c_int {
        // SAFETY: the caller guarantees the attributes; all other memory belongs to this function.
        unsafe {
            let (mut flags, mut group) = (0, 0);
            libc::posix_spawnattr_getflags(self.attributes, &raw mut flags);
            let has = |flag: c_int| c_int::from(flags) & flag != 0;
            if has(SETSID) && libc::setsid() == -1 {
                return -1;
            }
            if has(libc::POSIX_SPAWN_SETPGROUP) {
                libc::posix_spawnattr_getpgroup(self.attributes, &raw mut group);
                if libc::setpgid(0, group) == -1 {
                    return -1;
                }
            }
            if has(libc::POSIX_SPAWN_RESETIDS)
                && (libc::setegid(libc::getgid()) == -1 || libc::seteuid(libc::getuid()) == -1)
            {
                return -1;
            }
            if has(libc::POSIX_SPAWN_SETSIGDEF) {
                let mut defaults = std::mem::zeroed();
                libc::posix_spawnattr_getsigdefault(self.attributes, &raw mut defaults);
                for number in 1..libc::SIGRTMAX() {
                    if libc::sigismember(&raw const defaults, number) == 1 {
                        libc::signal(number, libc::SIG_DFL);
                    }
                }
            }
            if has(libc::POSIX_SPAWN_SETSIGMASK) {
                libc::posix_spawnattr_getsigmask(self.attributes, mask);
            }
            0
        }
    }
}

/// Performs a file action in the child. Returns an error number or 0.
///
/// # Safety
/// Must be called only in a child, because it changes descriptors.
unsafe fn act(action: &Action) -> c_int {
    // SAFETY: these calls accept any number, and the paths end with a zero.
    unsafe {
        match action {
            Action::Close(fd) => {
                // Closing a number that is not open is not a failure.
                super::fd::close(*fd);
                0
            }
            Action::Copy(from, onto) if from == onto => super::fd::fcntl(*from, libc::F_SETFD, 0),
            Action::Copy(from, onto) => super::fd::dup2(*from, *onto),
            Action::Open(fd, path, flags, mode) => {
                super::fd::close(*fd);
                let opened = super::open::open(path.as_ptr(), *flags, *mode);
                if opened == -1 || opened == *fd {
                    return opened;
                }
                let copied = super::fd::dup2(opened, *fd);
                super::fd::close(opened);
                copied
            }
            Action::Chdir(path) => super::paths::chdir(path.as_ptr()),
            Action::Fchdir(fd) => super::paths::fchdir(*fd),
            Action::CloseFrom(from) => {
                super::fd::closefrom(*from);
                0
            }
            Action::Foreground(fd) => libc::tcsetpgrp(*fd, libc::getpgrp()),
        }
    }
}

macro_rules! spawning {
    ($($name:ident $is_searched:literal;)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                process: *mut pid_t,
                path: *const c_char,
                actions: *const c_void,
                attributes: *const posix_spawnattr_t,
                arguments: List,
                given: List,
            ) -> c_int {
                if !concerns() || path.is_null() {
                    return real!($name(
                        process => *mut pid_t, path => *const c_char, actions => *const c_void,
                        attributes => *const posix_spawnattr_t, arguments => List, given => List,
                    ) -> c_int);
                }
                // SAFETY: the program does not change the list during the call.
                let held = match unsafe { environment_of(given) } {
                    Ok(held) => held,
                    Err(Failure::Errno(errno)) => return errno,
                    Err(Failure::Elsewhere(_)) => return libc::ENOENT,
                };
                let environment = held.as_ptr();
                let actions_here = with_recorded(|recorded| {
                    recorded.get(&(actions as usize)).cloned().unwrap_or_default()
                });
                let (is_searched, actions_noted) = ($is_searched, actions_here);
                let spawn = Spawn {
                    path, is_searched, attributes, arguments, environment, actions: actions_noted,
                };
                // SAFETY: the program passes a path that ends with a zero.
                if !unsafe { spawn.is_ours() } {
                    // A file action may duplicate a descriptor that `exec` would close otherwise.
                    start::share_before(Inheritor::Child);
                    return real!($name(
                        process => *mut pid_t, path => *const c_char, actions => *const c_void,
                        attributes => *const posix_spawnattr_t, arguments => List,
                        environment => List,
                    ) -> c_int);
                }
                match spawn.run() {
                    Err(errno) => errno,
                    Ok(child) => {
                        if !process.is_null() {
                            // SAFETY: the program passes memory for the process id.
                            unsafe { *process = child };
                        }
                        0
                    }
                }
            }
        )+
    };
}

spawning! {
    posix_spawn false;
    posix_spawnp true;
}

const SETSID: c_int = 0x80;
/// The lowest number for this library's own descriptors, above the numbers that programs use.
const HIGH: c_int = 512;
