//! Processes that are on their way out.
//!
//! Invariant: one that may still do something by itself is never said to be ending.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Whether a process is gone, or ends by itself now: it was killed or has left, and some of its
/// threads have not ended yet. What it has locked is free as soon as they have.
pub fn is_ending(process: u32) -> bool {
    let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return false };
    if test_kill_process(pid) == Err(Errno::SRCH) {
        return true;
    }
    let read = |name| std::fs::read_to_string(format!("/proc/{process}/{name}"));
    // In this order: what has taken the signal is about to leave.
    read("status").is_ok_and(|status| is_killed(&status))
        || read("stat").is_ok_and(|stat| leaves(&stat).unwrap_or(false))
}

/// What `stat` says: whether the process's first thread has left, or is about to.
fn leaves(stat: &str) -> Option<bool> {
    // The name before may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let flags: u64 = fields.nth(FLAGS_BEHIND_STATE)?.parse().ok()?;
    Some(matches!(state, "Z" | "X" | "x") || flags & (EXITING | SIGNALED) != 0)
}

/// What `status` says: whether SIGKILL is on its way.
fn is_killed(status: &str) -> bool {
    let pending = |line: &str| {
        let set = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(set.trim(), 16).ok()
    };
    status.lines().filter_map(pending).any(|set| set & SIGKILL != 0)
}

/// Parent, group, session, terminal and the terminal's group stand between.
const FLAGS_BEHIND_STATE: usize = 5;
/// PF_EXITING and PF_SIGNALED of the kernel's `sched.h`.
const EXITING: u64 = 0x4;
const SIGNALED: u64 = 0x400;
/// Its bit in a set of signals.
const SIGKILL: u64 = 1 << 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_lives_is_not_ending_and_one_that_was_not_waited_for_is() {
        assert!(!is_ending(std::process::id()) && !is_ending(1));
        let mut child = std::process::Command::new("cat");
        let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(!is_ending(child.id()));
        child.kill().unwrap();
        // From the moment in which it was killed, whatever it still has to do.
        assert!(is_ending(child.id()));
        let id = child.id();
        child.wait().unwrap();
        assert!(is_ending(id), "nobody has its number");
    }

    #[test]
    fn what_the_kernel_says_is_read_whatever_the_name_is() {
        let stat = |state: &str, flags: u64| format!("7 (a) Z ) {state} 1 7 7 0 -1 {flags} 0 0");
        for (state, flags, is) in [
            ("S", 0x40_0100, false),
            ("D", 0x40_0104, true),
            ("R", 0x40_0500, true),
            ("Z", 0x40_0100, true),
        ] {
            assert_eq!(leaves(&stat(state, flags)), Some(is), "{state} {flags:x}");
        }
        assert_eq!(leaves("7 (a"), None);
        assert!(is_killed("Name:\tx\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(is_killed("SigPnd:\t0000000000000000\nShdPnd:\t0000000000004100\n"));
        assert!(!is_killed("SigPnd:\t0000000000004000\nSigCgt:\t0000000000000100\n"));
    }
}
