//! Detects signals that this process must ignore.
//!
//! Invariant: a signal that was ignored when the process started stays ignored until its end.
//! nohup(1) and shells rely on this for background commands.

/// True if the signal was ignored when this process started.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| (1..=64).contains(&signal) && mask >> (signal - 1) & 1 == 1)
}
