//! Utilities for all other crates: a table with keys, and a driver for futures.
//!
//! Invariant: this crate knows nothing of DAFS, transports or the system. It imports none of our
//! other crates, so that crates that are useful without DAFS (`dafs-dat`) can use it too.
#![forbid(unsafe_code)]

mod drive;
mod slab;

pub use drive::{Waiting, drive};
pub use slab::{Key, Slab};
