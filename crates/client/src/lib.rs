//! Placeholder until the crate's first commit.
#![forbid(unsafe_code)]
