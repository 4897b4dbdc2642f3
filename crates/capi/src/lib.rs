//! libdafs: the client for programs in C and C++. What they see is `include/dafs.h`, which is made
//! from this crate (`tests/header.rs`).
//!
//! The interface is our own, in the spirit of the DAFS API of 2001, whose text is lost:
//! asynchronous transfers, memory descriptors, completion groups, batches, fences, keys, callbacks
//! for authentication (the FAST 2003 paper, section 4, tells of them).
//!
//! Invariants: what C holds is a number in the clothes of a pointer, looked up at each call
//! ([`handles`]), so that none that was closed is ever followed; no panic crosses the boundary
//! ([`failure`]); what is read or written at an address from C is what the caller of that very
//! call has promised; nobody waits with the client's lock held for longer than one exchange with
//! the server takes, transfers and waits not even for that.
//!
//! Functions are `unsafe` in Rust, and all in the same way: pointers are NULL where that is
//! allowed, or point to what their types say, and texts end with a NUL.
// What C is told of each function is in its comment, in C's words.
#![allow(clippy::missing_safety_doc)]
// Their names are C's.
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
