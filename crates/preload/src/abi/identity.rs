//! Calls that change the user or group of the process. Later calls by path use new sessions with
//! the new identity. Open files keep their sessions.

use std::ffi::{c_int, c_void};

use libc::{gid_t, uid_t};

use crate::config;
use crate::guard;

/// Notes that the user or group was changed if `answer` is 0, so that the next session uses the new
/// identity. Returns `answer`.
fn note(answer: c_int) -> c_int {
    if answer == 0 && !config::get().mounts.is_empty() && !guard::is_inside() {
        let _ = guard::with(|state| {
            state.connection.change_identity();
            Ok(())
        });
    }
    answer
}

macro_rules! becoming {
    ($(fn $name:ident($($argument:ident: $type:ty),*);)+) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                note(real!($name($($argument => $type),*) -> c_int))
            }
        )+
    };
}

becoming! {
    fn setuid(user: uid_t);
    fn seteuid(user: uid_t);
    fn setreuid(real: uid_t, effective: uid_t);
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t);
    fn setgid(group: gid_t);
    fn setegid(group: gid_t);
    fn setregid(real: gid_t, effective: gid_t);
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t);
    fn setgroups(count: usize, groups: *const c_void);
    fn initgroups(user: *const c_void, group: gid_t);
}
