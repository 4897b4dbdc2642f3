//! Calls that create processes, directly or inside the C library.
//!
//! Invariant: before each of these calls, the state that the new process may inherit is moved to
//! shared memory, where the new process can find it.

use std::ffi::{c_char, c_int, c_void};

use libc::{FILE, pid_t};

use super::exec::concerns;
use crate::sharing::Inheritor;
use crate::start;

/// Calls `fork` instead of `vfork`, which POSIX allows. A `vfork` child runs in its parent's
/// memory, so the child's changes to descriptors would change the parent's table.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn vfork() -> pid_t {
    // SAFETY: `fork` has no preconditions.
    unsafe { libc::fork() }
}

macro_rules! before {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $inheritor:ident;)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                if concerns() {
                    start::share_before(Inheritor::$inheritor);
                }
                real!($name($($argument => $type),*) -> $result)
            }
        )+
    };
}

before! {
    fn _Fork() -> pid_t, Child;
    fn system(command: *const c_char) -> c_int, Program;
    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE, Program;
    fn wordexp(words: *const c_char, found: *mut c_void, flags: c_int) -> c_int, Program;
}

/// The C library's `clone`. Its last three arguments are present only if the flags require them.
///
/// # Safety
/// The arguments meet the requirements in the manual of `clone`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clone(
    run: Option<extern "C" fn(*mut c_void) -> c_int>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_id: *mut pid_t,
    local: *mut c_void,
    child_id: *mut pid_t,
) -> c_int {
    if flags & libc::CLONE_FILES == 0 && concerns() {
        start::share_before(Inheritor::Child);
    }
    real!(clone(
        run => Option<extern "C" fn(*mut c_void) -> c_int>, stack => *mut c_void, flags => c_int,
        argument => *mut c_void, parent_id => *mut pid_t, local => *mut c_void,
        child_id => *mut pid_t,
    ) -> c_int)
}
