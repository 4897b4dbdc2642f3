//! Tests of programs under the preload library.
//!
//! All tests are in one binary, because linking many takes longer than running them.

mod common;
mod corners;
mod programs;
