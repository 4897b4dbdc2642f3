//! Requests whose process received a signal.
//!
//! Invariant: a signal ends only two kinds of requests: a request that waits for a lock, as on a
//! local disk, and a request of a process that is being killed, which cannot see the failure. All
//! other requests wait for the server as long as it is unreachable, because programs do not expect
//! calls to a disk to be interrupted.
//!
//! The kernel reports only the first signal of a request. Therefore, after a harmless signal, the
//! request is checked repeatedly until it has ended or its process is being killed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::tasks::Requester;

/// The unfinished requests that received a signal, by their numbers. Their number is limited by the
/// number of threads that wait for this mount.
#[derive(Default)]
pub(crate) struct Interrupts {
    all: RefCell<HashMap<u64, Interrupted>>,
    is_watching: Cell<bool>,
}

#[derive(Clone, Copy)]
struct Interrupted {
    requester: Requester,
    since: Instant,
}

impl Engine {
    /// Serves INTERRUPT: a thread that waits for a reply received a signal.
    pub(crate) fn interrupt(self: &Rc<Self>, unique: u64) {
        if self.locks.borrow_mut().take_waiting(unique) {
            return self.end_with_interrupt(unique);
        }
        let Some(requester) = self.waiting_requester(unique) else { return };
        let interrupted = Interrupted { requester, since: Instant::now() };
        self.interrupts.all.borrow_mut().insert(unique, interrupted);
        if !self.interrupts.is_watching.replace(true) {
            let engine = self.clone();
            self.tasks.spawn(Requester::NONE, async move { engine.watch_interrupted().await });
        }
    }

    async fn watch_interrupted(self: Rc<Self>) {
        while self.check_interrupted() {
            self.tasks.sleep(LOOKS).await;
        }
        self.interrupts.is_watching.set(false);
    }

    /// Ends the requests of processes that are being killed. Returns true if requests of other
    /// processes remain.
    fn check_interrupted(&self) -> bool {
        let all: Vec<_> = self.interrupts.all.borrow().values().copied().collect();
        for Interrupted { requester, since } in all {
            let Requester { unique, pid } = requester;
            // Wait for a reachable server, whose reply comes soon, so that no request is half done.
            let is_late = self.is_down() || since.elapsed() >= PATIENCE;
            let is_waiting = self.waiting_requester(unique).is_some();
            if is_waiting && !(is_late && is_being_killed(pid)) {
                continue;
            }
            self.interrupts.all.borrow_mut().remove(&unique);
            if is_waiting {
                self.end_with_interrupt(unique);
            }
        }
        !self.interrupts.all.borrow().is_empty()
    }

    /// Returns the process that waits for the reply to a request; `None` if the reply was sent.
    fn waiting_requester(&self, unique: u64) -> Option<Requester> {
        let waits_in_file = || self.all_unstable().find_map(|unstable| unstable.requester(unique));
        let requester = self.tasks.requester(unique);
        requester.or_else(|| self.transfers.borrow_mut().requester(unique)).or_else(waits_in_file)
    }

    fn end_with_interrupt(&self, unique: u64) {
        let is_ended = self.tasks.cancel(unique)
            || self.transfers.borrow_mut().give_up(unique)
            || self.all_unstable().any(|unstable| unstable.give_up(unique));
        if is_ended {
            self.device.fail(unique, EINTR);
        }
    }
}

/// True if the thread's process is ending and will not return to its program. A process that cannot
/// be inspected counts as alive.
fn is_being_killed(thread: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"));
    status.is_ok_and(|status| is_ending(&status))
}

/// True if the thread's status in `/proc` shows that its process is ending.
fn is_ending(status: &str) -> bool {
    let field = |name: &str| {
        let mut values = status.lines().filter_map(|line| line.strip_prefix(name));
        values.next().and_then(|rest| rest.strip_prefix(':')).map(str::trim)
    };
    let mask = |name: &str| u64::from_str_radix(field(name).unwrap_or("0"), 16).unwrap_or(0);
    let has_ended = field("State").is_some_and(|state| state.starts_with(['Z', 'X']));
    let pending = mask("SigPnd") | mask("ShdPnd");
    // A pending signal ends the process if the program does not block, ignore or handle it, and its
    // default action is to end the process.
    let deadly = pending & !mask("SigBlk") & !mask("SigIgn") & !mask("SigCgt") & !HARMLESS;
    has_ended || pending & bit(SIGKILL) != 0 || deadly != 0
}

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Signals whose default action does not end the process: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG,
/// WINCH.
const HARMLESS: u64 = bit(17) | bit(18) | bit(19) | bit(20) | bit(21) | bit(22) | bit(23) | bit(28);
const SIGKILL: u32 = 9;
/// The pause between two checks of processes that received a signal.
const LOOKS: Duration = Duration::from_millis(100);
/// The time that a reachable server has to reply to a process that is being killed.
const PATIENCE: Duration = Duration::from_secs(1);
const EINTR: i32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pending: u64, blocked: u64, ignored: u64, caught: u64) -> String {
        format!(
            "Name:\tx\nState:\tD (disk sleep)\nSigQ:\t0/1\nSigPnd:\t{pending:016x}\n\
             ShdPnd:\t0000000000000000\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n\
             SigCgt:\t{caught:016x}\n"
        )
    }

    #[test]
    fn only_a_signal_that_nothing_is_done_about_kills() {
        let (term, alarm, child, kill) = (bit(15), bit(14), bit(17), bit(9));
        assert!(!is_ending(&status(0, 0, 0, 0)));
        assert!(is_ending(&status(term, 0, 0, 0)));
        assert!(!is_ending(&status(term, term, 0, 0)), "blocked");
        assert!(!is_ending(&status(term, 0, term, 0)), "ignored");
        assert!(!is_ending(&status(alarm, 0, 0, alarm)), "handled");
        assert!(!is_ending(&status(child, 0, 0, 0)), "of no effect");
        assert!(is_ending(&status(kill | alarm, u64::MAX, 0, alarm)), "for good");
        assert!(is_ending("State:\tZ (zombie)\n") && !is_ending(""));
    }

    #[test]
    fn whoever_runs_is_not_being_killed() {
        assert!(!is_being_killed(std::process::id()) && !is_being_killed(0));
    }
}
