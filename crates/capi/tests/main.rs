//! The C library: its header, its programs, its packaging, and what it does in trouble.
//!
//! One binary for all of them: linking many takes longer than running them.

mod fio;
mod header;
mod install;
mod programs;
mod stxxl;
mod support;
mod trouble;
