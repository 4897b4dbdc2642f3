//! Programs under the preload library.
//!
//! One binary for all of them: linking many takes longer than running them.

mod common;
mod corners;
mod programs;
