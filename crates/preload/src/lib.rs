//! A library that programs load with `LD_PRELOAD`. It serves their calls beneath chosen paths from
//! DAFS servers, without the kernel.
//!
//! The library precedes the C library in the order of symbol lookup, and defines each function that
//! opens, names or uses files (`abi`). Such a function checks whether the call is for DAFS, and
//! otherwise calls the C library's function (`real`). `docs/preload.md` lists the calls that the
//! library serves and those that it does not.
//!
//! Invariants:
//! - A call that is not for DAFS reaches the C library with unchanged arguments. The overhead is a
//!   table lookup or a comparison of the beginning of a path.
//! - No connection is made before a path beneath a prefix is used.
//! - A C library call made by this library is never treated as a call of the program (`guard`).
//! - No panic leaves the library.
//!
//! The library supports glibc on 64-bit machines. Elsewhere it is empty, and programs run without
//! it.
#![cfg_attr(
    not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")),
    allow(unused)
)]

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
#[macro_use]
mod real;

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
// The functions are exported by their C names, so `pub` is needed although Rust cannot reach them.
#[allow(unreachable_pub)]
mod abi;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod attributes;
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
mod user_memory;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod waiting;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod walk;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod working_directory;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod xattrs;
