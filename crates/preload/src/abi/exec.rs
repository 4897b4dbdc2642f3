//! Calls that start programs.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use libc::AT_FDCWD;

use crate::config;
use crate::errors::{self, Failure};
use crate::guard;
pub(crate) use crate::programs::environment as environment_of;
use crate::programs::{Program, environment, script_arguments};
use crate::report::{self, Call};
use crate::route::{Route, route};
use crate::start;
use crate::user_memory;

/// A list of strings, as `exec` takes it: an array of pointers that ends with a null pointer.
pub(crate) type List = *const *const c_char;

unsafe extern "C" {
    static environ: List;
}

/// True if programs that this process starts may need this library.
pub(crate) fn concerns() -> bool {
    !config::get().mounts.is_empty() && !guard::is_inside()
}

fn kernel_execve(path: *const c_char, arguments: List, environment: List) -> c_int {
    real!(execve(path => *const c_char, arguments => List, environment => List) -> c_int)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execve(path: *const c_char, arguments: List, given: List) -> c_int {
    if !concerns() {
        return kernel_execve(path, arguments, given);
    }
    // SAFETY: the program passes lists and a path as the manual requires.
    unsafe {
        let environment = match environment(given) {
            Ok(environment) => environment,
            Err(failure) => return guard::refused(&failure),
        };
        match route(AT_FDCWD, path) {
            Route::Dafs(place) => {
                report::served(Call::Program);
                match guard::with(|state| state.program(&place)) {
                    Err(failure) => guard::refused(&failure),
                    Ok(program) => run(&program, path, arguments, environment.as_ptr()),
                }
            }
            Route::Refused(errno) => guard::refused(&Failure::Errno(errno)),
            Route::KernelAt(text) => {
                start::before_exec();
                kernel_execve(text.as_ptr(), arguments, environment.as_ptr())
            }
            Route::Kernel => {
                start::before_exec();
                kernel_execve(path, arguments, environment.as_ptr())
            }
        }
    }
}

/// Runs a program that is in DAFS.
///
/// # Safety
/// The path ends with a zero, and the lists are as `exec` takes them.
unsafe fn run(program: &Program, path: *const c_char, arguments: List, environment: List) -> c_int {
    match program {
        Program::Copy(number) => {
            let text = CString::new(format!("/proc/self/fd/{number}")).unwrap_or_default();
            start::before_exec();
            kernel_execve(text.as_ptr(), arguments, environment)
        }
        Program::Script(interpreter, argument) => {
            // SAFETY: the caller guarantees the path and the lists.
            let arguments = unsafe {
                let script = CStr::from_ptr(path);
                script_arguments(interpreter, argument.as_deref(), script, arguments)
            };
            match arguments {
                // SAFETY: the lists were made here or come from the caller.
                Ok(arguments) => unsafe {
                    execve(interpreter.as_ptr(), arguments.as_ptr(), environment)
                },
                Err(failure) => guard::refused(&failure),
            }
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execv(path: *const c_char, arguments: List) -> c_int {
    // SAFETY: the program passes a list and a path as the manual requires.
    unsafe { execve(path, arguments, environ) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: List,
    given: List,
) -> c_int {
    if !concerns() || file.is_null() {
        return real!(execvpe(file => *const c_char, arguments => List, given => List) -> c_int);
    }
    // SAFETY: the program passes lists and a name as the manual requires.
    unsafe {
        let name = match user_memory::text(file) {
            Ok(name) => name,
            Err(failure) => return guard::refused(&failure),
        };
        if name.contains(&b'/') || name.is_empty() {
            return execve(file, arguments, given);
        }
        let mut errno = libc::ENOENT;
        let search = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        for directory in std::env::split_paths(&search) {
            use std::os::unix::ffi::OsStrExt;
            let whole = [directory.as_os_str().as_bytes(), b"/", name].concat();
            let Ok(whole) = CString::new(whole) else { continue };
            if super::stat::access(whole.as_ptr(), libc::X_OK) != 0 {
                if errors::get() == libc::EACCES {
                    errno = libc::EACCES;
                }
                continue;
            }
            execve(whole.as_ptr(), arguments, given);
            match errors::get() {
                libc::ENOEXEC => return run_by_shell(whole.as_ptr(), arguments, given),
                libc::EACCES => errno = libc::EACCES,
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV => {}
                _ => return -1,
            }
        }
        errors::set(errno);
        -1
    }
}

/// Runs a script that has no `#!` line with the shell.
unsafe fn run_by_shell(path: *const c_char, arguments: List, given: List) -> c_int {
    // SAFETY: the caller guarantees the path and the lists.
    unsafe {
        match script_arguments(c"/bin/sh", None, CStr::from_ptr(path), arguments) {
            Ok(arguments) => execve(c"/bin/sh".as_ptr(), arguments.as_ptr(), given),
            Err(failure) => guard::refused(&failure),
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execvp(file: *const c_char, arguments: List) -> c_int {
    // SAFETY: the program passes a list and a name as the manual requires.
    unsafe { execvpe(file, arguments, environ) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fexecve(fd: c_int, arguments: List, given: List) -> c_int {
    if !concerns() {
        return real!(fexecve(fd => c_int, arguments => List, given => List) -> c_int);
    }
    if crate::state::is_ours(fd) {
        let whole = whole_path(fd, c"");
        // SAFETY: the program passes lists as the manual requires.
        return unsafe { execve(whole.as_ptr(), arguments, given) };
    }
    // SAFETY: the program does not change the list during the call.
    let environment = match unsafe { environment(given) } {
        Ok(environment) => environment,
        Err(failure) => return guard::refused(&failure),
    };
    start::before_exec();
    real!(fexecve(fd => c_int, arguments => List, environment.as_ptr() => List) -> c_int)
}

/// Resolves a path, which may be relative to a descriptor of a DAFS directory, to an absolute path.
fn whole_path(at: c_int, path: &CStr) -> CString {
    let shown = guard::with(|state| {
        let it = state.get(at)?;
        Ok(crate::working_directory::shown(it.identity.mount, &it.identity.path))
    });
    match shown {
        Ok(shown) if path.is_empty() => CString::new(shown.into_vec()).unwrap_or_default(),
        Ok(shown) if !path.to_bytes().starts_with(b"/") => {
            let whole = [shown.as_bytes(), b"/", path.to_bytes()].concat();
            CString::new(whole).unwrap_or_default()
        }
        _ => path.to_owned(),
    }
}

macro_rules! ending {
    ($($name:ident)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(status: c_int) -> ! {
                if concerns() {
                    start::finish();
                }
                real!($name(status => c_int) -> ());
                std::process::abort();
            }
        )+
    };
}

ending! { _exit _Exit }

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execveat(
    at: c_int,
    path: *const c_char,
    arguments: List,
    given: List,
    flags: c_int,
) -> c_int {
    // SAFETY: the program passes lists and a path as the manual requires.
    unsafe {
        if concerns() && matches!(route(at, path), Route::Dafs(_)) {
            // A null path is routed to the descriptor itself.
            let path = if path.is_null() { c"" } else { CStr::from_ptr(path) };
            let whole = whole_path(at, path);
            return execve(whole.as_ptr(), arguments, given);
        }
    }
    if !concerns() {
        return real!(execveat(
            at => c_int, path => *const c_char, arguments => List, given => List, flags => c_int,
        ) -> c_int);
    }
    // SAFETY: the program does not change the list during the call.
    let environment = match unsafe { environment(given) } {
        Ok(environment) => environment,
        Err(failure) => return guard::refused(&failure),
    };
    start::before_exec();
    real!(execveat(
        at => c_int, path => *const c_char, arguments => List, environment.as_ptr() => List,
        flags => c_int,
    ) -> c_int)
}
