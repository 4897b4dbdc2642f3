//! `execl` and similar calls, which take a variable argument list. They are converted to the calls
//! that take an array.
//!
//! Stable Rust cannot define variadic functions. So each entry point is written in assembly. It
//! pushes the arguments that were passed in registers next to those on the stack, so that together
//! they form an array. Then it calls a Rust function with the first argument and the array.
//!
//! Invariant: if such a call returns, which means that it failed, the stack is unchanged.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

use std::arch::naked_asm;
use std::ffi::{c_char, c_int};

use super::exec::{List, execv, execve, execvp};

macro_rules! listed {
    ($($name:ident, $array:ident;)+) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[cfg(target_arch = "x86_64")]
            pub unsafe extern "C" fn $name() -> c_int {
                // The return address lies between the register arguments and the stack arguments.
                // It is saved below the array, where the stack is aligned to 16 bytes.
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
    // SAFETY: the program passes a list as the manual requires.
    unsafe { execv(path, arguments) }
}

unsafe extern "C" fn by_name(file: *const c_char, arguments: List) -> c_int {
    // SAFETY: the program passes a list as the manual requires.
    unsafe { execvp(file, arguments) }
}

unsafe extern "C" fn with_environment(path: *const c_char, arguments: List) -> c_int {
    // SAFETY: the environment follows the null that ends the list.
    unsafe {
        let mut end = arguments;
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, arguments, *end.add(1).cast::<List>())
    }
}
