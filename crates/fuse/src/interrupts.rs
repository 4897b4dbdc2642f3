//! Requests whose process has got a signal.
//!
//! Invariant: a signal ends two kinds of requests alone: one that waits for a lock, as it does on
//! a disk, and one of a process that is being killed, which nobody can see fail. All others wait
//! for the server however long it is away: programs do not expect a disk's calls to be interrupted.
//!
//! The kernel tells of a request's first signal and of no other. So a request that a harmless
//! signal came to is looked at again and again, until it has ended or its process is killed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::tasks::Asker;

/// Requests that a signal came to and that have not ended, by their numbers. There are no more of
/// them than threads wait for this mount.
#[derive(Default)]
pub(crate) struct Interrupts {
    all: RefCell<HashMap<u64, Interrupted>>,
    is_watching: Cell<bool>,
}

#[derive(Clone, Copy)]
struct Interrupted {
    asker: Asker,
    since: Instant,
}

impl Engine {
    /// INTERRUPT: a thread that waits for an answer has got a signal.
    pub fn interrupt(self: &Rc<Self>, unique: u64) {
        if self.locks.borrow_mut().take_waiting(unique) {
            return self.end_with_interrupt(unique);
        }
        let Some(asker) = self.waiting_asker(unique) else { return };
        let interrupted = Interrupted { asker, since: Instant::now() };
        self.interrupts.all.borrow_mut().insert(unique, interrupted);
        if !self.interrupts.is_watching.replace(true) {
            let engine = self.clone();
            self.tasks.spawn(Asker::NOBODY, async move { engine.watch_interrupted().await });
        }
    }

    async fn watch_interrupted(self: Rc<Self>) {
        while self.look_at_interrupted() {
            self.tasks.sleep(LOOKS).await;
        }
        self.interrupts.is_watching.set(false);
    }

    /// Ends the requests of processes that are being killed. Whether any others are left.
    fn look_at_interrupted(&self) -> bool {
        let all: Vec<_> = self.interrupts.all.borrow().values().copied().collect();
        for Interrupted { asker, since } in all {
            let Asker { unique, pid } = asker;
            // A server that is there answers soon, and leaves nothing half done.
            let is_late = self.is_down() || since.elapsed() >= PATIENCE;
            let is_waiting = self.waiting_asker(unique).is_some();
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

    /// Who waits for the answer to a request, if it has none yet.
    fn waiting_asker(&self, unique: u64) -> Option<Asker> {
        let waits_in_file = || self.all_unstable().find_map(|unstable| unstable.asker(unique));
        let asker = self.tasks.asker(unique);
        asker.or_else(|| self.transfers.borrow_mut().asker(unique)).or_else(waits_in_file)
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

/// Whether a thread's process is on its way to its end: nothing brings it back to its program. One
/// that cannot be looked at is taken for alive.
fn is_being_killed(thread: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"));
    status.is_ok_and(|status| shows_death(&status))
}

/// The same by what `/proc` says of the thread.
fn shows_death(status: &str) -> bool {
    let field = |name: &str| {
        let mut values = status.lines().filter_map(|line| line.strip_prefix(name));
        values.next().and_then(|rest| rest.strip_prefix(':')).map(str::trim)
    };
    let mask = |name: &str| u64::from_str_radix(field(name).unwrap_or("0"), 16).unwrap_or(0);
    let has_ended = field("State").is_some_and(|state| state.starts_with(['Z', 'X']));
    let pending = mask("SigPnd") | mask("ShdPnd");
    // The program does nothing about these, and their default is the end.
    let deadly = pending & !mask("SigBlk") & !mask("SigIgn") & !mask("SigCgt") & !HARMLESS;
    has_ended || pending & bit(SIGKILL) != 0 || deadly != 0
}

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Signals whose default is not the end: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH.
const HARMLESS: u64 = bit(17) | bit(18) | bit(19) | bit(20) | bit(21) | bit(22) | bit(23) | bit(28);
const SIGKILL: u32 = 9;
/// Between two looks at processes that a signal came to.
const LOOKS: Duration = Duration::from_millis(100);
/// How long a server that is there is given to answer a process that is being killed.
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
        assert!(!shows_death(&status(0, 0, 0, 0)));
        assert!(shows_death(&status(term, 0, 0, 0)));
        assert!(!shows_death(&status(term, term, 0, 0)), "blocked");
        assert!(!shows_death(&status(term, 0, term, 0)), "ignored");
        assert!(!shows_death(&status(alarm, 0, 0, alarm)), "handled");
        assert!(!shows_death(&status(child, 0, 0, 0)), "of no effect");
        assert!(shows_death(&status(kill | alarm, u64::MAX, 0, alarm)), "for good");
        assert!(shows_death("State:\tZ (zombie)\n") && !shows_death(""));
    }

    #[test]
    fn whoever_runs_is_not_being_killed() {
        assert!(!is_being_killed(std::process::id()) && !is_being_killed(0));
    }
}
