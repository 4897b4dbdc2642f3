//! The functions that programs call, with the names of the C library's functions.
//!
//! Invariant: each function has the type of the C library's function of the same name. A function
//! with a variable number of arguments declares all possible arguments, because the supported
//! machines pass variable arguments like fixed ones.

macro_rules! on_descriptor {
    ($(fn [$($name:ident)+] $arguments:tt -> $result:ty,
        $number:ident, $call:ident, |$state:ident, $it:ident| $body:expr;)+) => {
        $($(on_descriptor!(
            @one $name $arguments $result, $number, $call, |$state, $it| $body
        );)+)+
    };
    (@one $name:ident ($($argument:ident: $type:ty),*) $result:ty,
        $number:ident, $call:ident, |$state:ident, $it:ident| $body:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            if $crate::state::is_ours($number) && !$crate::guard::is_inside() {
                $crate::report::served($crate::report::Call::$call);
                let answer: $result = $crate::abi::answer(|$state| {
                    let $it = $state.get($number)?;
                    $body
                });
                return answer;
            }
            real!($name($($argument => $type),*) -> $result)
        }
    };
}

macro_rules! on_path {
    ($(fn [$($name:ident)+] $arguments:tt -> $result:ty,
        ($at:expr, $path:ident), $call:ident, |$state:ident, $place:ident| $body:expr;)+) => {
        $($(on_path!(
            @one $name $arguments $result, ($at, $path), $call, |$state, $place| $body
        );)+)+
    };
    (@one $name:ident ($($argument:ident: $type:ty),*) $result:ty,
        ($at:expr, $path:ident), $call:ident, |$state:ident, $place:ident| $body:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the program passes a path that ends with a zero, or null.
            let mut route = unsafe { $crate::route::route($at, $path) };
            for _ in 0..$crate::route::LINKS_MAX {
                match route {
                    $crate::route::Route::Dafs(place) => {
                        $crate::report::served($crate::report::Call::$call);
                        let done: $crate::errors::Outcome<$result> =
                            $crate::guard::answer(|$state| {
                                let $place = &place;
                                $body
                            });
                        match $crate::abi::next_route($crate::report::Call::$call, done) {
                            Ok(answer) => return answer,
                            Err(elsewhere) => route = elsewhere,
                        }
                    }
                    $crate::route::Route::Refused(errno) => {
                        return $crate::guard::refused(&$crate::errors::Failure::Errno(errno));
                    }
                    $crate::route::Route::KernelAt(text) => {
                        let $path = text.as_ptr();
                        return real!($name($($argument => $type),*) -> $result);
                    }
                    $crate::route::Route::Kernel => {
                        let answer = real!($name($($argument => $type),*) -> $result);
                        if !$crate::abi::may_be_across(&answer) {
                            return answer;
                        }
                        // SAFETY: the program passes a path that ends with a zero, or null.
                        match unsafe { $crate::route::through_kernel_links($at, $path) } {
                            Some(place) => route = $crate::route::Route::Dafs(place),
                            None => {
                                $crate::errors::set(libc::ENOENT);
                                return answer;
                            }
                        }
                    }
                }
            }
            $crate::guard::refused(&$crate::errors::Failure::Errno(libc::ELOOP))
        }
    };
}

pub(crate) mod dir;
pub(crate) mod exec;
pub(crate) mod exec_lists;
pub(crate) mod fd;
pub(crate) mod fork;
pub(crate) mod identity;
pub(crate) mod io;
pub(crate) mod metadata;
pub(crate) mod misc;
pub(crate) mod mmap;
pub(crate) mod namespace;
pub(crate) mod open;
pub(crate) mod paths;
pub(crate) mod poll;
pub(crate) mod socket;
pub(crate) mod spawn;
pub(crate) mod stat;
pub(crate) mod stdio;
pub(crate) mod xattr;

use std::os::unix::ffi::OsStrExt;

use crate::errors::{self, Answer, Failure, Outcome};
use crate::guard;
use crate::report::{self, Call, Miss};
use crate::route::{Route, route_absolute};
use crate::state::State;

/// Runs a call under the lock. If the call fails, counts the failure for the report.
fn answer<T: Answer>(act: impl FnOnce(&mut State) -> Outcome<T>) -> T {
    guard::answer(act).unwrap_or_else(|failure| {
        report::missed(Miss::Refused);
        guard::refused(&failure)
    })
}

/// Decides how a call by path continues: returns its result, or another route to try.
fn next_route<T: Answer>(call: Call, done: Outcome<T>) -> Result<T, Route> {
    match done {
        Ok(answer) => {
            if call == Call::Open {
                crate::streams::follow_all();
            }
            Ok(answer)
        }
        Err(Failure::Elsewhere(path)) => {
            report::missed(Miss::Out);
            Err(route_absolute(path.as_bytes()))
        }
        Err(failure) => {
            report::missed(Miss::Refused);
            // ESTALE means that the directory at which the path begins was removed.
            let is_gone = failure == Failure::Errno(libc::ESTALE);
            let failure = if is_gone { Failure::Errno(libc::ENOENT) } else { failure };
            Ok(guard::refused(&failure))
        }
    }
}

/// True if the kernel did not find a path. Such a path may lead to DAFS through a symbolic link on
/// a local file system.
fn may_be_across<T: Answer>(answer: &T) -> bool {
    answer.has_failed() && errors::get() == libc::ENOENT
}
