//! The `dafs` command.
#![forbid(unsafe_code)]
fn main() {}
