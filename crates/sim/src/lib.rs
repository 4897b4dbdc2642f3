//! Simulates the whole system in one thread, on a virtual clock, from one seed.
//!
//! A real server, with a real store, and real clients communicate over the simulated network of the
//! crate `dat`. A scheduler steps one of them at a time, or the clock. Clients keep many operations
//! in flight; connections break, bytes flip, messages are late. A small model of a file system
//! checks the replies: each must be possible in the model. If a connection breaks during an
//! operation, the next read shows whether the operation was executed. At the end everything is read
//! back, all clients disconnect, and the server must have released all their state.
//!
//! The modules: `plan` has the parameters of a run, `simulation` schedules it, `actor` is a client
//! and `workload` chooses its operations, `request` sends them, `judge` (with `names`, `content`
//! and `records`) checks the replies, `audit` reads back. The server has one to four reactors:
//! `reactors` chooses how many and which one runs next. `disk` is a store that can lose power, and
//! `life` manages the servers that use one disk, one after the other. `crash` is a separate
//! simulation, in which servers crash and clients recover.
//!
//! Invariants: a run depends only on its seed. No shipped crate depends on this one.
#![forbid(unsafe_code)]

mod actor;
mod audit;
mod content;
mod crash;
pub mod disk;
mod failure;
mod initial;
mod judge;
mod life;
mod names;
mod operation;
mod plan;
mod reactors;
mod records;
mod request;
mod simulation;
mod workload;

pub use crash::{StormPlan, StormReport, storm};
pub use dafs_server::Defect;
pub use dafs_types::Random;
pub use failure::{Failure, SEED_VARIABLE, command, storm_command};
pub use plan::Plan;
pub use reactors::{REACTORS_VARIABLE, reactors_of};
pub use simulation::{Report, run, run_on_disk};
