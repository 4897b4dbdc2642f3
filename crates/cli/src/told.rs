//! Failures that were told where they happened, and what nobody could be told.

use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use anyhow::{Context, Result};

/// Something has failed, and was told: nothing is left to say but the exit status.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("something has failed; see above")]
pub struct Told;

/// Tells what has failed, unless nobody hears what else there is to say. Returns whether something
/// has.
pub fn told(done: Result<()>) -> Result<bool> {
    match done {
        Ok(()) => Ok(false),
        Err(error) if crate::is_broken_pipe(&error) => Err(error),
        Err(error) => {
            if !error.is::<Told>() {
                eprintln!("dafs: {}", crate::shown::complaint(&error));
            }
            Ok(true)
        }
    }
}

/// Why standard output takes no more.
struct Unheard(std::io::Error);

/// Writes to standard output; where that fails, `unless_unheard` ends.
pub fn print(what: fmt::Arguments<'_>) {
    if let Err(error) = std::io::stdout().write_fmt(what) {
        // Everything that is to be cleaned up on the way is, and no hook speaks of a panic.
        resume_unwind(Box::new(Unheard(error)));
    }
}

/// Does something, to the end or as far as what it prints can be written.
pub fn unless_unheard(work: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|end| match end.downcast::<Unheard>() {
        Ok(unheard) => Err(unheard.0).context("writing to standard output"),
        Err(panic) => resume_unwind(panic),
    })
}
