//! Signals that are not meant for this process.
//!
//! Invariant: whoever has a command ignore a signal, as nohup(1) does and a shell for what it runs
//! in the background, has it ignored to the end.

/// Whether this process was started with a signal ignored.
pub fn is_ignored(signal: i32) -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| (1..=64).contains(&signal) && mask >> (signal - 1) & 1 == 1)
}
