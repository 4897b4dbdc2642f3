//! Tests of the C library: its header, its programs, its packaging, and its behaviour on failures.
//!
//! All tests are in one binary, because linking many takes longer than running them.

mod fio;
mod header;
mod install;
mod programs;
mod stxxl;
mod support;
mod trouble;
