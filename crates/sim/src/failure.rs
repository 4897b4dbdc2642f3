//! What is said when a run fails.
//!
//! Invariant: every failure, a panic included, prints the command that replays it.

use std::fmt;

/// A run that failed. Its text ends with the latest of what led to it; the alternate
/// form (`{:#}`) has all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    seed: u64,
    what: String,
    history: Vec<String>,
}

impl Failure {
    pub(crate) fn new(seed: u64, what: String, history: Vec<String>) -> Self {
        Self { seed, what, history }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = if f.alternate() { self.history.len() } else { LINES_SHOWN };
        for line in &self.history[self.history.len().saturating_sub(count)..] {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "{}", self.what)?;
        write!(f, "replay it with: {}", command(self.seed))
    }
}

impl std::error::Error for Failure {}

/// What shows the run of a seed again.
#[must_use]
pub fn command(seed: u64) -> String {
    format!("{SEED_VARIABLE}={seed} cargo test -p dafs-sim --test simulation replay")
}

/// The variable that the replaying test looks at.
pub const SEED_VARIABLE: &str = "DAFS_SIM_SEED";

const LINES_SHOWN: usize = 60;

/// Says which run it was if a panic ends it.
pub(crate) struct SeedGuard(pub u64);

impl Drop for SeedGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("a panic in the simulation; replay it with: {}", command(self.0));
        }
    }
}
