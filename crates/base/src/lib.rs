//! Utilities for all other crates: a table with keys, and a driver for futures.
//!
//! Invariant: this crate does not depend on DAFS, transports or the system, nor on any other crate
//! of this project, so that crates that are useful without DAFS (`dafs-dat`) can use it too.
#![forbid(unsafe_code)]

mod drive;
mod slab;

pub use drive::{Waiting, drive};
pub use slab::{Key, Slab};
