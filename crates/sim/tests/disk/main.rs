//! Tests of the store that can lose power: each guarantee in both directions, what no crash may
//! leave, and the conformance suite of all stores.
//!
//! A failure prints the seed that replays it.

mod conformance;
mod faults;
mod guarantees;
mod model;

mod tools;
