//! What every other crate may use: a table with keys, and a driver of futures.
//!
//! Invariant: nothing here knows of DAFS, of transports or of the system. It imports none of our
//! other crates, so that even those that are useful without DAFS (`dafs-dat`) may use it.
#![forbid(unsafe_code)]

mod drive;
mod slab;

pub use drive::{Waiting, drive};
pub use slab::{Key, Slab};
