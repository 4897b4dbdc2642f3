//! Tests of the state machines: scenarios, models and random histories.
//!
//! They are one binary, because linking many takes longer than running them.

mod common;
mod delegations;
mod dice;
mod fences;
mod grace;
mod locks;
mod locks_common;
mod locks_failure;
mod locks_model;
mod locks_waiting;
mod locks_watches;
mod model;
mod opens;
