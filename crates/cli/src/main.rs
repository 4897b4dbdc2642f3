//! The `dafs` command.
fn main() {}
