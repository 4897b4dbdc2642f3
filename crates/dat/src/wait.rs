//! When to spin and when to sleep.
//!
//! Spinning answers in a tenth of a microsecond, but only if the other side is
//! running on another core; sleeping costs microseconds but no CPU. The rule:
//! spin while waits have lately been shorter than the policy's bound, never while
//! more threads want cores than there are (seen as gaps in our own running), and
//! never for sockets.

use std::time::{Duration, Instant};

/// Bounds for adaptive waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// Longest spin before sleeping; zero sleeps at once.
    pub spin_max: Duration,
}

impl Default for WaitPolicy {
    fn default() -> Self {
        Self { spin_max: Duration::from_micros(30) }
    }
}

/// What an interface has learned about its waits.
#[derive(Debug)]
pub struct Waiter {
    policy: WaitPolicy,
    /// Smoothed length of recent waits, nanoseconds.
    typical_ns: u64,
    /// No spinning before this moment: cores are short.
    crowded_until: Option<Instant>,
    /// How long the next crowded period lasts.
    crowded_span: Duration,
    /// Waits since the last one that spun in spite of a long typical wait.
    waits_since_trial: u32,
}

impl Waiter {
    pub(crate) fn new(policy: WaitPolicy) -> Self {
        Self {
            policy,
            typical_ns: 0,
            crowded_until: None,
            crowded_span: CROWDED_SPAN_MIN,
            waits_since_trial: 0,
        }
    }

    /// How long to spin in a wait that begins now.
    pub(crate) fn budget(&mut self, now: Instant) -> Duration {
        if let Some(until) = self.crowded_until {
            if now < until {
                return Duration::ZERO;
            }
            self.crowded_until = None;
        }
        let limit = u64::try_from(self.policy.spin_max.as_nanos()).unwrap_or(u64::MAX);
        if self.typical_ns <= limit {
            return self.policy.spin_max;
        }
        self.waits_since_trial += 1;
        if self.waits_since_trial >= WAITS_PER_TRIAL {
            self.waits_since_trial = 0;
            return self.policy.spin_max;
        }
        Duration::ZERO
    }

    /// A wait took this long from its start to the event.
    pub(crate) fn learn(&mut self, waited: Duration) {
        let sample = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX).min(SAMPLE_NS_MAX);
        self.typical_ns = (self.typical_ns * 7 + sample) / 8;
    }

    /// Two looks at the clock inside one spin lay this far apart. A long gap means
    /// that somebody else had our core.
    pub(crate) fn spun(&mut self, gap: Duration, now: Instant) -> bool {
        if gap < PREEMPTED_GAP {
            return false;
        }
        self.crowded_until = Some(now + self.crowded_span);
        self.crowded_span = (self.crowded_span * 2).min(CROWDED_SPAN_MAX);
        true
    }

    /// A whole wait was spun through undisturbed: cores are free again.
    pub(crate) fn undisturbed(&mut self) {
        self.crowded_span = CROWDED_SPAN_MIN;
    }
}

/// A gap in our own running that only another thread on the core explains.
const PREEMPTED_GAP: Duration = Duration::from_micros(150);
const CROWDED_SPAN_MIN: Duration = Duration::from_millis(4);
const CROWDED_SPAN_MAX: Duration = Duration::from_millis(256);
/// One long wait must not outweigh everything learned before.
const SAMPLE_NS_MAX: u64 = 1_000_000;
const WAITS_PER_TRIAL: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_end_spinning_but_for_a_trial() {
        let now = Instant::now();
        let mut waiter = Waiter::new(WaitPolicy::default());
        assert!(!waiter.budget(now).is_zero());
        for _ in 0..32 {
            waiter.learn(Duration::from_millis(1));
        }
        let spins = (0..WAITS_PER_TRIAL).filter(|_| !waiter.budget(now).is_zero()).count();
        assert_eq!(spins, 1);
        for _ in 0..64 {
            waiter.learn(Duration::from_micros(1));
        }
        assert!(!waiter.budget(now).is_zero());
    }

    #[test]
    fn a_gap_means_sleeping_for_a_growing_while() {
        let now = Instant::now();
        let mut waiter = Waiter::new(WaitPolicy::default());
        assert!(!waiter.spun(Duration::from_micros(2), now));
        assert!(waiter.spun(Duration::from_millis(3), now));
        assert!(waiter.budget(now).is_zero());
        let later = now + CROWDED_SPAN_MIN;
        assert!(!waiter.budget(later).is_zero());
        assert!(waiter.spun(Duration::from_millis(3), later));
        assert!(waiter.budget(later + CROWDED_SPAN_MIN).is_zero());
    }
}
