//! The tests of the crate, in one binary.

mod shares;
mod stepped;
mod threads;
