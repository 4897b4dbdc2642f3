//! Code that the POSIX interfaces (mount, preload library) share: the placement of advisory locks
//! ([`locks`]), the contents of `stat` ([`stat`]), and the error numbers that programs see
//! ([`errno`]).
//!
//! Invariant: interfaces that use this crate see each other's locks, and report the same attributes
//! for the same file.
#![forbid(unsafe_code)]

pub mod errno;
pub mod locks;
pub mod stat;
