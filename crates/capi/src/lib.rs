//! libdafs: the client library for programs in C and C++. Its interface is `include/dafs.h`, which
//! is generated from this crate (`tests/header.rs`).
//!
//! The interface follows the ideas of the DAFS API of 2001, whose text is lost: asynchronous
//! transfers, memory descriptors, completion groups, batches, fences, keys and authentication
//! callbacks (described in the FAST 2003 paper, section 4).
//!
//! Invariants:
//! - A handle in C is a number with a pointer type that is looked up at each call ([`handles`]), so
//!   a closed handle is never dereferenced.
//! - No panic crosses the boundary to C ([`failure`]).
//! - Memory at an address from C is accessed only as the caller of that function has guaranteed.
//! - No thread holds the client's lock for longer than one exchange with the server. Transfers and
//!   waits do not hold it at all while they wait.
//!
//! All functions are `unsafe` in Rust, with the same requirements: pointers are NULL where that is
//! allowed, or valid for their types, and texts end with a NUL.
// The comment of each function is its documentation for C programmers.
#![allow(clippy::missing_safety_doc)]
// The type names follow C conventions.
#![allow(non_camel_case_types)]

mod async_io;
mod authenticate;
mod batch;
mod check;
mod client;
mod close;
mod connect;
mod directory;
mod failure;
mod fence;
mod file;
mod groups;
mod handles;
mod lock;
mod memory;
mod names;
mod operations;
mod setattr;
mod sync_io;
mod types;
mod wait;

pub use async_io::*;
pub use batch::*;
pub use client::*;
pub use close::*;
pub use connect::*;
pub use directory::*;
pub use failure::*;
pub use fence::*;
pub use file::*;
pub use lock::*;
pub use memory::*;
pub use names::*;
pub use setattr::*;
pub use sync_io::*;
pub use types::*;
pub use wait::*;
