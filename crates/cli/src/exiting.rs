//! Detects processes that are about to end.
//!
//! Invariant: a process that may still run code of its own is never reported as ending.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// True if the process is gone, or was killed or has exited while some of its threads are still
/// ending. The locks of the process become free when these threads have ended.
pub(crate) fn is_ending(process: u32) -> bool {
    let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return false };
    if test_kill_process(pid) == Err(Errno::SRCH) {
        return true;
    }
    let read = |name| std::fs::read_to_string(format!("/proc/{process}/{name}"));
    // Check `status` first: when the process takes SIGKILL, the signal disappears from `status`,
    // and from then on `stat` shows the process as exiting.
    read("status").is_ok_and(|status| is_killed(&status))
        || read("stat").is_ok_and(|stat| leaves(&stat).unwrap_or(false))
}

/// Parses /proc/PID/stat: true if the first thread of the process has exited or is exiting.
fn leaves(stat: &str) -> Option<bool> {
    // The name in parentheses may contain any character. The state and the flags come after it.
    let mut fields = stat.rsplit_once(") ")?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let flags: u64 = fields.nth(FLAGS_BEHIND_STATE)?.parse().ok()?;
    Some(matches!(state, "Z" | "X" | "x") || flags & (EXITING | SIGNALED) != 0)
}

/// Parses /proc/PID/status: true if SIGKILL is pending.
fn is_killed(status: &str) -> bool {
    let pending = |line: &str| {
        let set = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(set.trim(), 16).ok()
    };
    status.lines().filter_map(pending).any(|set| set & SIGKILL != 0)
}

/// The number of fields between the state and the flags in /proc/PID/stat: parent, group, session,
/// terminal and the terminal's group.
const FLAGS_BEHIND_STATE: usize = 5;
/// The flag PF_EXITING of the kernel's `sched.h`.
const EXITING: u64 = 0x4;
/// The flag PF_SIGNALED of the kernel's `sched.h`.
const SIGNALED: u64 = 0x400;
/// The bit of SIGKILL in a signal set.
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
        // The process counts as ending from the moment it is killed, whatever it still has to do.
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
