//! The number of reactors of a server.

use anyhow::{Result, bail};
use dafs_server::REACTORS_MAX;

/// Parses a number of reactors from a command line.
///
/// # Errors
/// The text says what is wrong and which values are valid.
pub(crate) fn parse(text: &str) -> Result<usize, String> {
    let no_number = |_| format!("not a number of reactors; give 1 to {REACTORS_MAX}");
    let count = text.parse().map_err(no_number)?;
    in_range(count).map_err(|error| error.to_string())
}

/// Returns the number of reactors to start: the requested one, or the default.
pub(crate) fn of(asked: Option<usize>) -> Result<usize> {
    match asked {
        Some(count) => in_range(count),
        None => Ok(by_default()),
    }
}

/// Returns the default number of reactors.
pub(crate) fn by_default() -> usize {
    if ARE_SPREAD { cores().min(REACTORS_MAX) } else { 1 }
}

/// Returns the number of cores that this process may use, by its affinity and its cgroup quota.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn in_range(count: usize) -> Result<usize> {
    if !(1..=REACTORS_MAX).contains(&count) {
        bail!("a server has 1 to {REACTORS_MAX} reactors, not {count}");
    }
    Ok(count)
}

/// True if servers use all available cores by default.
const ARE_SPREAD: bool = false;
