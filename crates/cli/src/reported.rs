//! Failures that were already reported, and output that could not be written.

use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use anyhow::{Context, Result};

/// The error of a command whose failures were already reported, so that it only sets the exit
/// status.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("something has failed; see above")]
pub(crate) struct AlreadyReported;

/// Prints a failure, and returns true if there was one. If the failure means that the output is
/// closed, returns it as an error instead.
pub(crate) fn report(done: Result<()>) -> Result<bool> {
    match done {
        Ok(()) => Ok(false),
        Err(error) if crate::is_broken_pipe(&error) => Err(error),
        Err(error) => {
            if !error.is::<AlreadyReported>() {
                eprintln!("dafs: {}", crate::terminal_text::complaint(&error));
            }
            Ok(true)
        }
    }
}

/// The reason why standard output failed.
struct OutputClosed(std::io::Error);

/// Writes to standard output. A failure unwinds to [`unless_output_closed`].
pub(crate) fn print(what: fmt::Arguments<'_>) {
    if let Err(error) = std::io::stdout().write_fmt(what) {
        // Unwind so that destructors clean up, without running the panic hook.
        resume_unwind(Box::new(OutputClosed(error)));
    }
}

/// Runs `work` until it ends or its output can no longer be written.
pub(crate) fn unless_output_closed(work: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|end| {
        match end.downcast::<OutputClosed>() {
            Ok(unheard) => Err(unheard.0).context("writing to standard output"),
            Err(panic) => resume_unwind(panic),
        }
    })
}
