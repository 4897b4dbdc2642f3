//! The store against real servers: `object_store`'s own suite, and what that does not ask.
//!
//! One binary for all of them: linking many takes longer than running them.

mod conditions;
mod names;
mod reading;
mod server;
mod suite;
mod trouble;
mod uploads;
