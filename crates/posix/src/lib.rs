//! What the faces that speak POSIX have in common: where advisory locks lie ([`locks`]), what
//! `stat` shows ([`stat`]), and which error number a program sees ([`errno`]).
//!
//! Invariant: two faces that follow this see each other's locks, and show the same of the same
//! file.
#![forbid(unsafe_code)]

pub mod errno;
pub mod locks;
pub mod stat;
