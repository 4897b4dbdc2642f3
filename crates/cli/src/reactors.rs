//! How many reactors a server is started with.

use anyhow::{Result, bail};
use dafs_server::REACTORS_MAX;

/// Reads a number of reactors from a command line.
///
/// # Errors
/// What is wrong with it, and what to give.
pub fn parse(text: &str) -> Result<usize, String> {
    let no_number = |_| format!("this is not a number of reactors; give 1 to {REACTORS_MAX}");
    let count = text.parse().map_err(no_number)?;
    in_range(count).map_err(|error| error.to_string())
}

/// The number that a server has if this one was asked for.
pub fn of(asked: Option<usize>) -> Result<usize> {
    match asked {
        Some(count) => in_range(count),
        None => Ok(by_default()),
    }
}

/// The number that a server has if nobody says how many.
pub fn by_default() -> usize {
    if ARE_SPREAD { cores().min(REACTORS_MAX) } else { 1 }
}

/// The cores that this process may use, by its affinity and the quota of its group.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn in_range(count: usize) -> Result<usize> {
    if !(1..=REACTORS_MAX).contains(&count) {
        bail!("a server has 1 to {REACTORS_MAX} reactors, not {count}");
    }
    Ok(count)
}

/// Whether a server uses all cores that it may if nobody says how many reactors it has.
const ARE_SPREAD: bool = false;
