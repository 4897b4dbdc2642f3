//! Spinning for a thread that sleeps on descriptors by itself, such as one that serves an interface
//! and other connections.
//!
//! Invariant: a spin obeys the rules of [`crate::wait`], so that it ends when another thread needs
//! the core, and is left out if earlier spins were useless.

use std::time::{Duration, Instant};

use rustix::thread::sched_yield;

use crate::wait::{Gap, WaitPolicy, Waiter};

/// Spins before the sleeps of its owner.
#[derive(Debug)]
pub struct Spinner {
    waiter: Waiter,
}

/// The result of one poll of a spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// Nothing has arrived.
    Nothing,
    /// What the owner spins for has arrived.
    Awaited,
    /// Something else has arrived, which says nothing about the use of spinning.
    Other,
}

impl Spinner {
    /// Returns a spinner without a history.
    #[must_use]
    pub fn new(policy: WaitPolicy) -> Self {
        Self { waiter: Waiter::new(policy) }
    }

    /// Polls again and again until something arrives, for as long as earlier waits suggest. Returns
    /// the result of the last poll; [`Polled::Nothing`] if the owner must sleep.
    pub fn spin(&mut self, mut poll: impl FnMut() -> Polled) -> Polled {
        let start = Instant::now();
        if !self.waiter.is_alone(start) {
            return Polled::Nothing;
        }
        let budget = self.waiter.budget(start);
        if budget.is_zero() {
            return Polled::Nothing;
        }
        self.waiter.begin(start);
        let (mut last, mut until) = (start, start + budget);
        loop {
            match poll() {
                Polled::Nothing => {}
                Polled::Awaited => {
                    self.waiter.paid();
                    return Polled::Awaited;
                }
                Polled::Other => return Polled::Other,
            }
            let now = Instant::now();
            match self.waiter.judge(now - last, now) {
                Gap::None => {}
                Gap::Stolen(gap) => until += gap,
                Gap::Preempted => return Polled::Nothing,
            }
            if now >= until {
                self.waiter.vain();
                return Polled::Nothing;
            }
            if budget.saturating_sub(until - now) >= YIELD_AFTER {
                sched_yield();
            }
            last = now;
        }
    }

    /// Records the length of a sleep that ended with what the owner has spun for.
    pub fn slept(&mut self, span: Duration) {
        self.waiter.slept(span);
    }
}

/// The time after which a spin yields the core in every turn. It is longer than the usual time
/// until a client sends the next request, because each yield delays the poll that finds it.
const YIELD_AFTER: Duration = Duration::from_micros(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spin_ends_with_the_first_result() {
        for wanted in [Polled::Awaited, Polled::Other] {
            let mut spinner = Spinner::new(WaitPolicy { spin_max: Duration::from_secs(60) });
            let mut left = 3;
            let result = spinner.spin(|| {
                left -= 1;
                if left == 0 { wanted } else { Polled::Nothing }
            });
            // On a machine with too few cores the spin may end before that.
            assert!(result == wanted || left > 0, "{result:?}");
        }
    }

    #[test]
    fn useless_spins_are_left_out() {
        let mut spinner = Spinner::new(WaitPolicy { spin_max: Duration::from_nanos(1) });
        let mut polls = 0;
        for _ in 0..100 {
            let result = spinner.spin(|| {
                polls += 1;
                Polled::Nothing
            });
            assert_eq!(result, Polled::Nothing);
        }
        assert!((1..50).contains(&polls), "{polls} polls");
    }

    #[test]
    fn a_policy_without_spins_does_not_poll() {
        let mut spinner = Spinner::new(WaitPolicy { spin_max: Duration::ZERO });
        assert_eq!(spinner.spin(|| Polled::Awaited), Polled::Nothing);
        spinner.slept(Duration::from_micros(20));
        assert_eq!(spinner.spin(|| Polled::Awaited), Polled::Nothing);
    }
}
