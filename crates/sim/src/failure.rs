//! The report of a failed run.
//!
//! Invariant: every failure, including a panic, prints the command that replays it.

use std::fmt;

use crate::reactors::{REACTORS_VARIABLE, reactors_of};

/// A run that failed. Its text contains the last events before the failure. The alternate form
/// (`{:#}`) contains all recorded events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    command: String,
    what: String,
    history: Vec<String>,
}

impl Failure {
    pub(crate) fn new(seed: u64, what: String, history: Vec<String>) -> Self {
        Self { command: command(seed), what, history }
    }

    /// Returns the error that was found.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    pub(crate) fn of_storm(seed: u64, what: String, history: Vec<String>) -> Self {
        Self { command: storm_command(seed), what, history }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = if f.alternate() { self.history.len() } else { LINES_SHOWN };
        for line in &self.history[self.history.len().saturating_sub(count)..] {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "{}", self.what)?;
        write!(f, "replay it with: {}", self.command)
    }
}

impl std::error::Error for Failure {}

/// Returns the command that replays the run of a seed.
#[must_use]
pub fn command(seed: u64) -> String {
    let test = "cargo test -p dafs-sim --test simulation replay";
    format!("{REACTORS_VARIABLE}={} {SEED_VARIABLE}={seed} {test}", reactors_of(seed))
}

/// Returns the command that replays the run of a seed of the crash world.
#[must_use]
pub fn storm_command(seed: u64) -> String {
    let example = "cargo run --release -p dafs-sim --example storm --";
    format!("{REACTORS_VARIABLE}={} {example} --seed {seed}", reactors_of(seed))
}

/// The name of the environment variable from which the test that replays a run takes the seed.
pub const SEED_VARIABLE: &str = "DAFS_SIM_SEED";

const LINES_SHOWN: usize = 60;

/// A guard that prints the command that replays the run if a panic ends the run.
pub(crate) struct SeedGuard(String);

impl SeedGuard {
    pub(crate) fn new(seed: u64) -> Self {
        Self(command(seed))
    }

    pub(crate) fn of_storm(seed: u64) -> Self {
        Self(storm_command(seed))
    }
}

impl Drop for SeedGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("a panic in the simulation; replay it with: {}", self.0);
        }
    }
}
