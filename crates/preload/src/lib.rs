//! A library that programs are started with (`LD_PRELOAD`), which serves what they do beneath
//! chosen paths from DAFS servers, without the kernel.
//!
//! It stands before the C library: each function that opens, names or uses files is here once
//! more (`calls`), looks whether DAFS is meant, and otherwise goes on to the C library's
//! (`real`). What it serves and what it does not is in `docs/preload.md`.
//!
//! Invariants: a call that does not mean DAFS reaches the C library with the arguments it came
//! with, and costs no more than a look into a table or at the beginning of a path; nothing
//! connects before a path beneath a prefix is used; what this library itself asks of the C
//! library is never taken for a call of the program's (`guard`); no panic leaves it.
//!
//! It is for glibc on 64-bit machines. Elsewhere it is empty, and programs run without it.
#![cfg_attr(
    not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")),
    allow(unused)
)]

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
#[macro_use]
mod real;

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod attributes;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod calls;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod config;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod connection;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod data;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod descriptors;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod directories;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod errors;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod extended;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod given;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod guard;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod locks;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod mapping;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod names;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod opening;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod page;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod places;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod programs;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod report;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod route;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod shared;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod sharing;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod sockets;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod start;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod state;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod streams;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod unstable;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod waiting;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod walk;
