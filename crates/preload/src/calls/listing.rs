//! `execl` and its like, whose arguments are a list in the call itself: as arrays, they go on to
//! the calls that take one.
//!
//! Rust defines no function with such a list. So each of these lays the arguments that came in
//! registers before those on the stack, where they are an array then, and calls the function
//! behind its name with the first argument and that array.
//!
//! Invariant: the stack is as it was when such a call comes back, which it does when it fails.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

use std::arch::naked_asm;
use std::ffi::{c_char, c_int};

use super::programs::{List, execv, execve, execvp};

macro_rules! listed {
    ($($name:ident, $array:ident;)+) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[cfg(target_arch = "x86_64")]
            pub unsafe extern "C" fn $name() -> c_int {
                // Where to return to stands between the two parts: it is put aside, below the
                // array, and the stack is on a boundary of 16 bytes there.
                naked_asm!(
                    "pop rax",
                    "push r9",
                    "push r8",
                    "push rcx",
                    "push rdx",
                    "push rsi",
                    "mov rsi, rsp",
                    "push rax",
                    "call {array}",
                    "pop rcx",
                    "add rsp, 40",
                    "push rcx",
                    "ret",
                    array = sym $array,
                )
            }

            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[cfg(target_arch = "aarch64")]
            pub unsafe extern "C" fn $name() -> c_int {
                naked_asm!(
                    "sub sp, sp, #80",
                    "stp x29, x30, [sp]",
                    "mov x29, sp",
                    "str x1, [sp, #24]",
                    "stp x2, x3, [sp, #32]",
                    "stp x4, x5, [sp, #48]",
                    "stp x6, x7, [sp, #64]",
                    "add x1, sp, #24",
                    "bl {array}",
                    "ldp x29, x30, [sp]",
                    "add sp, sp, #80",
                    "ret",
                    array = sym $array,
                )
            }
        )+
    };
}

listed! {
    execl, by_path;
    execlp, by_name;
    execle, with_environment;
}

unsafe extern "C" fn by_path(path: *const c_char, arguments: List) -> c_int {
    // SAFETY: the program gives a list as the manual asks for.
    unsafe { execv(path, arguments) }
}

unsafe extern "C" fn by_name(file: *const c_char, arguments: List) -> c_int {
    // SAFETY: the same.
    unsafe { execvp(file, arguments) }
}

unsafe extern "C" fn with_environment(path: *const c_char, arguments: List) -> c_int {
    // SAFETY: the environment stands behind the null that ends the list.
    unsafe {
        let mut end = arguments;
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, arguments, *end.add(1).cast::<List>())
    }
}
