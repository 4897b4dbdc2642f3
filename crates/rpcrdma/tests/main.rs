//! The tests of the crate.

#[path = "common/mod.rs"]
mod common;

mod bindings;
mod by_hand;
mod callbacks;
mod corpus;
mod ends;
mod hostile;
mod malformed;
mod round_trip;
mod vectors;
