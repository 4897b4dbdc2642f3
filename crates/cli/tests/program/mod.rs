//! The `dafs` program, and waiting for its effects.

use std::process::Command;
use std::time::{Duration, Instant};

/// A guard against hanging. No test expects anything of time.
const HANG: Duration = Duration::from_secs(300);

pub(crate) fn dafs() -> Command {
    Command::new(env!("CARGO_BIN_EXE_dafs"))
}

pub(crate) fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANG, "waited in vain: {what}");
        std::thread::yield_now();
    }
}
