//! The whole system in one thread, on a virtual clock, from one seed.
//!
//! A real server over a real store and real clients meet on `dat`'s simulated network.
//! A scheduler steps one of them at a time, or the clock; clients keep many operations
//! under way; connections break, bytes flip, messages are late. A small model of a file
//! system judges: an answer must be possible in it, and what a broken connection left
//! open is decided by the next look. At the end everything is read back, everybody
//! leaves, and the server must have forgotten them.
//!
//! By file: `plan` says what a run is like, `simulation` schedules it, `actor` is a
//! client and `workload` what it does next, `request` turns that into messages, `judge`
//! (with `names`, `content` and `records`) watches, `audit` reads back.
//! The server has one to four reactors: `reactors` says how many and which has the next turn.
//! `disk` is a store that can lose power, and `life` the servers that one disk has seen.
//! `crash` is a world of its own, in which servers end and clients recover.
//!
//! Invariant: a seed is a run. Nothing that ships depends on this crate.
#![forbid(unsafe_code)]

mod actor;
mod audit;
mod content;
mod crash;
pub mod disk;
mod failure;
mod judge;
mod life;
mod names;
mod operation;
mod plan;
mod reactors;
mod records;
mod request;
mod simulation;
mod stage;
mod workload;

pub use crash::{StormPlan, StormReport, storm};
pub use dafs_server::Defect;
pub use dafs_types::Random;
pub use failure::{Failure, SEED_VARIABLE, command, storm_command};
pub use plan::Plan;
pub use reactors::{REACTORS_VARIABLE, reactors_of};
pub use simulation::{Report, run, run_on_disk};
