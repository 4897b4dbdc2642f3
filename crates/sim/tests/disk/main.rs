//! The store that can lose power: each of its guarantees both ways, what no crash may
//! leave, and what every store promises.
//!
//! A failure prints the seed that replays it.

mod conformance;
mod faults;
mod guarantees;
mod model;

mod tools;
