//! What is said when a run fails.
//!
//! Invariant: every failure, a panic included, prints the command that replays it.

use std::fmt;

use crate::reactors::{REACTORS_VARIABLE, reactors_of};

/// A run that failed. Its text ends with the latest of what led to it; the alternate
/// form (`{:#}`) has all of it.
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

    /// What was wrong.
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

/// What shows the run of a seed again.
#[must_use]
pub fn command(seed: u64) -> String {
    let test = "cargo test -p dafs-sim --test simulation replay";
    format!("{REACTORS_VARIABLE}={} {SEED_VARIABLE}={seed} {test}", reactors_of(seed))
}

/// What shows the run of a seed of the crash world again.
#[must_use]
pub fn storm_command(seed: u64) -> String {
    let example = "cargo run --release -p dafs-sim --example storm --";
    format!("{REACTORS_VARIABLE}={} {example} --seed {seed}", reactors_of(seed))
}

/// The variable that the replaying test looks at.
pub const SEED_VARIABLE: &str = "DAFS_SIM_SEED";

const LINES_SHOWN: usize = 60;

/// Says which run it was if a panic ends it.
pub(crate) struct SeedGuard(String);

impl SeedGuard {
    pub fn new(seed: u64) -> Self {
        Self(command(seed))
    }

    pub fn of_storm(seed: u64) -> Self {
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
