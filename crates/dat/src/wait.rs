//! When to spin and when to sleep.
//!
//! Spinning answers in a tenth of a microsecond, but only if the other side is running on
//! another core; a wake-up costs tens of microseconds but no CPU. The rule: spin for as long
//! as a wake-up would cost, since a wait that ends within it is cheaper spun through; stop
//! trying where every third spin is in vain, try again now and then; never spin while more
//! threads want cores than there are. That shows as gaps in our own running in which another
//! thread was given the core. A gap without one is a hypervisor's: nobody would have the core
//! if we slept, so such time does not count.
//!
//! A server whose sleeps end soon after they began is asked by somebody who was nearly back:
//! it spins for that much longer, up to a limit, for a client pays more for waking it than for
//! the request itself. A client does not: its processor time is what it saves.
//!
//! What lasts some microseconds may be waiting for the very core we spin on, and is let have
//! it: of two threads that both want to run the scheduler moves one, of two that sleep in
//! turns it does not.
//!
//! A socket is asked in vain at the price of a system call. So a client asks only while a
//! single answer is likely: with more under way, those that come during a sleep are had for
//! one wake-up. A server, whose requests come together, asks while no other thread wants the
//! core.

use std::time::{Duration, Instant};

use crate::connection::Alarm;

/// Time since some moment before this process, exact to a few milliseconds: for limits
/// that are looked at in every turn, where reading the exact clock would cost as much as
/// the work. Never goes back.
#[must_use]
#[inline]
pub fn coarse_now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs().try_into().unwrap_or(0))
}

/// How often another thread was given the core of the calling thread, which had not slept.
fn preemptions() -> u64 {
    // SAFETY: zeros are a valid `rusage`, and the call writes nothing else.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nivcsw.unsigned_abs()
    }
}

/// Bounds for adaptive waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// Longest spin before sleeping; zero sleeps at once. With more than the default even an
    /// answer that takes long is spun for, if it is all that is awaited: that costs up to a
    /// core, and saves the wake-up.
    pub spin_max: Duration,
}

impl WaitPolicy {
    /// Whether a spin may last longer than usual.
    #[inline]
    pub(crate) fn is_long(self) -> bool {
        self.spin_max > SPIN_MAX
    }
}

impl Default for WaitPolicy {
    fn default() -> Self {
        Self { spin_max: SPIN_MAX }
    }
}

/// What an interface has learned about its waits.
#[derive(Debug)]
pub struct Waiter {
    policy: WaitPolicy,
    /// How long to spin at present: longer than the policy says if that was nearly enough.
    span: Duration,
    /// Goes up with each spin that ended without the event, and down with each that had it.
    futility: u32,
    /// Waits to sleep through before the next trial spin, and what is left of them.
    rest: u32,
    rest_left: u32,
    /// Until then spins count preemptions: there was a gap in our running lately.
    watched_until: Option<Instant>,
    /// Until then cores are thought to be short at times: there was a preemption lately.
    shared_until: Option<Instant>,
    /// How long that is believed the next time.
    shared_span: Duration,
    /// What the present spin began with, if it counts.
    preemptions_before: Option<u64>,
    /// No spinning before this moment: cores are short.
    crowded_until: Option<Instant>,
    /// How long the next crowded period lasts.
    crowded_span: Duration,
    /// A peer woke us ahead of what it has for us.
    is_forewarned: bool,
}

impl Waiter {
    pub(crate) fn new(policy: WaitPolicy) -> Self {
        Self {
            policy,
            span: policy.spin_max,
            futility: 0,
            rest: REST_MIN,
            rest_left: 0,
            watched_until: None,
            shared_until: None,
            shared_span: SHARED_SPAN_MIN,
            preemptions_before: None,
            crowded_until: None,
            crowded_span: CROWDED_SPAN_MIN,
            is_forewarned: false,
        }
    }

    /// A peer woke us and had nothing yet: it wakes us early when it is about to have.
    pub(crate) fn forewarn(&mut self) {
        self.is_forewarned = true;
    }

    /// How long to spin for what a peer has announced. Whatever comes of it teaches nothing
    /// about other waits.
    pub(crate) fn forewarned(&mut self) -> Option<Duration> {
        std::mem::take(&mut self.is_forewarned).then_some(FOREWARNED_SPAN)
    }

    fn ever_spins(&self) -> bool {
        !self.policy.spin_max.is_zero()
    }

    /// What ends a sleep for so many messages. Only who spins would look for them early.
    pub(crate) fn alarm(&self, threshold: usize) -> Alarm {
        Alarm { threshold, early: self.ever_spins() }
    }

    /// Whether a wait may begin with a few polls before it looks at the clock: nothing
    /// speaks against spinning.
    #[inline]
    pub(crate) fn is_at_ease(&self) -> bool {
        self.crowded_until.is_none() && self.rest_left == 0 && self.ever_spins()
    }

    /// How long to spin in a wait that begins now.
    pub(crate) fn budget(&mut self, now: Instant) -> Duration {
        if let Some(until) = self.crowded_until {
            if now < until {
                return Duration::ZERO;
            }
            self.crowded_until = None;
        }
        if self.rest_left > 0 {
            self.rest_left -= 1;
            return Duration::ZERO;
        }
        self.span
    }

    /// A spin ended with the event there.
    pub(crate) fn paid(&mut self) {
        self.futility = self.futility.saturating_sub(1);
        if self.futility == 0 {
            self.rest = REST_MIN;
        }
        self.crowded_span = CROWDED_SPAN_MIN;
    }

    /// A spin ended without the event.
    pub(crate) fn vain(&mut self) {
        self.futility = (self.futility + VAIN_WEIGHT).min(FUTILITY_MAX);
        if self.futility >= FUTILE {
            self.rest_left = self.rest;
            self.rest = (self.rest * 2).min(REST_MAX);
        }
    }

    /// A sleep ended, of one who may spin for longer: what that says about the spin before it,
    /// or about one that was left out.
    pub(crate) fn slept(&mut self, span: Duration) {
        if span > NEARLY_SPAN || !self.ever_spins() {
            self.span = self.policy.spin_max;
            return;
        }
        self.span = (self.span + span).min(STRETCHED_SPAN_MAX).max(self.policy.spin_max);
        self.futility = self.futility.saturating_sub(VAIN_WEIGHT);
        self.rest_left = 0;
    }

    /// Whether no thread has wanted our core lately. Some things pay only on a core of one's
    /// own.
    #[inline]
    pub(crate) fn is_alone(&self, now: Instant) -> bool {
        self.shared_until.is_none_or(|until| now >= until)
    }

    /// Another thread wanted our core: that is believed for longer each time, until it is
    /// long past.
    fn share(&mut self, now: Instant) {
        let again = self.shared_until.is_some_and(|until| now < until + RELAPSE_SPAN);
        self.shared_span =
            if again { (self.shared_span * 2).min(SHARED_SPAN_MAX) } else { SHARED_SPAN_MIN };
        self.shared_until = Some(now + self.shared_span);
    }

    /// A spin begins.
    pub(crate) fn begin(&mut self, now: Instant) {
        let is_watched = self.watched_until.is_some_and(|until| now < until);
        self.preemptions_before = is_watched.then(preemptions);
    }

    /// Two looks at the clock inside one spin lay this far apart: what that says.
    #[inline]
    pub(crate) fn judge(&mut self, gap: Duration, now: Instant) -> Gap {
        if gap < GAP_MIN { Gap::None } else { self.judge_long(gap, now, preemptions()) }
    }

    /// The first gap tells nothing, for counting begins with it. Who took the core when it was
    /// offered counts as well: the kernel counts every change of threads that we did not sleep for.
    #[cold]
    fn judge_long(&mut self, gap: Duration, now: Instant, preemptions: u64) -> Gap {
        self.watched_until = Some(now + WATCHED_SPAN);
        let before = self.preemptions_before.replace(preemptions);
        if before.is_none_or(|before| before == preemptions) {
            return Gap::Stolen(gap);
        }
        self.share(now);
        self.crowded_until = Some(now + self.crowded_span);
        self.crowded_span = (self.crowded_span * 2).min(CROWDED_SPAN_MAX);
        Gap::Preempted
    }
}

/// What lies between two looks at the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// Our own running.
    None,
    /// Time in which our core did not run, as far as is known: it does not count.
    Stolen(Duration),
    /// Another thread had our core: stop spinning at once.
    Preempted,
}

/// Longest spin unless somebody wants it otherwise: what a wake-up costs.
const SPIN_MAX: Duration = Duration::from_micros(50);
/// A gap in our own running that may be another thread's turn on the core: a scheduler
/// hands it the core for milliseconds. Shorter gaps are a noisy machine.
const GAP_MIN: Duration = Duration::from_millis(1);
/// How long after a gap spins count preemptions, which takes a system call each.
const WATCHED_SPAN: Duration = Duration::from_secs(1);
/// How long after a preemption nothing is done that only pays on a core of one's own: the
/// first time, and if it was so again and again.
const SHARED_SPAN_MIN: Duration = Duration::from_millis(50);
const SHARED_SPAN_MAX: Duration = Duration::from_secs(16);
/// A preemption so long after the time in which another was believed is of the same cause.
const RELAPSE_SPAN: Duration = Duration::from_secs(2);
/// How long something is worth waiting for that a peer has announced by waking us.
const FOREWARNED_SPAN: Duration = Duration::from_micros(30);
/// A sleep no longer than this, which a wake-up takes half of, was not worth it.
const NEARLY_SPAN: Duration = Duration::from_micros(150);
/// Longest spin of who was nearly awake for long enough.
const STRETCHED_SPAN_MAX: Duration = Duration::from_micros(250);
const CROWDED_SPAN_MIN: Duration = Duration::from_millis(2);
const CROWDED_SPAN_MAX: Duration = Duration::from_millis(64);
/// A spin in vain counts as much as two that paid: where every third is vain, sleeping costs
/// less.
const VAIN_WEIGHT: u32 = 2;
/// Less may be chance: three vain spins in a row are not.
const FUTILE: u32 = 3 * VAIN_WEIGHT;
const FUTILITY_MAX: u32 = FUTILE + 4 * VAIN_WEIGHT;
const REST_MIN: u32 = 4;
const REST_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vain_spins_end_spinning_but_for_rare_trials() {
        let now = Instant::now();
        let mut waiter = Waiter::new(WaitPolicy::default());
        let mut spins = 0;
        for _ in 0..1000 {
            if !waiter.budget(now).is_zero() {
                spins += 1;
                waiter.vain();
            }
        }
        assert!((5..30).contains(&spins), "{spins} spins");
    }

    #[test]
    fn one_success_brings_spinning_back() {
        let now = Instant::now();
        let mut waiter = Waiter::new(WaitPolicy::default());
        for _ in 0..3 {
            waiter.vain();
        }
        while waiter.budget(now).is_zero() {}
        waiter.paid();
        assert!((0..100).all(|_| !waiter.budget(now).is_zero()));
    }

    #[test]
    fn who_nearly_spun_for_long_enough_spins_longer() {
        let now = Instant::now();
        let mut waiter = Waiter::new(WaitPolicy::default());
        let shortest = waiter.budget(now);
        for _ in 0..4 {
            waiter.vain();
            waiter.slept(Duration::from_micros(70));
            assert!(waiter.budget(now) > shortest, "it is no rest that is wanted");
        }
        assert_eq!(waiter.budget(now), STRETCHED_SPAN_MAX);
        waiter.slept(Duration::from_millis(3));
        assert_eq!(waiter.budget(now), shortest);
        let mut sleeper = Waiter::new(WaitPolicy { spin_max: Duration::ZERO });
        sleeper.slept(Duration::from_micros(70));
        assert!(sleeper.budget(now).is_zero());
    }

    #[test]
    fn preemption_means_sleeping_for_a_growing_while() {
        let now = Instant::now();
        let mut waiter = Waiter::new(WaitPolicy::default());
        assert_eq!(waiter.judge(Duration::from_micros(2), now), Gap::None);
        let gap = Duration::from_millis(3);
        assert_eq!(waiter.judge_long(gap, now, 7), Gap::Stolen(gap), "nothing was counted");
        assert!(!waiter.budget(now).is_zero());
        assert_eq!(waiter.judge_long(gap, now, 8), Gap::Preempted);
        assert!(waiter.budget(now).is_zero());
        let later = now + CROWDED_SPAN_MIN;
        assert!(!waiter.budget(later).is_zero());
        assert_eq!(waiter.judge_long(gap, later, 9), Gap::Preempted);
        assert!(waiter.budget(later + CROWDED_SPAN_MIN).is_zero());
    }

    #[test]
    fn who_shares_a_core_time_and_again_is_alone_ever_less() {
        let begin = Instant::now();
        let mut waiter = Waiter::new(WaitPolicy::default());
        let mut now = begin;
        assert!(waiter.is_alone(now));
        for _ in 0..20 {
            waiter.share(now);
            assert!(!waiter.is_alone(now));
            while !waiter.is_alone(now) {
                now += Duration::from_millis(10);
            }
        }
        assert!(now - begin > 10 * SHARED_SPAN_MAX);
        now += 2 * RELAPSE_SPAN;
        waiter.share(now);
        assert!(waiter.is_alone(now + SHARED_SPAN_MIN), "that one is new");
    }

    #[test]
    fn a_host_that_takes_our_core_away_keeps_nobody_from_spinning() {
        let now = Instant::now();
        let mut waiter = Waiter::new(WaitPolicy::default());
        let gap = Duration::from_millis(5);
        for _ in 0..10 {
            assert_eq!(waiter.judge_long(gap, now, 3), Gap::Stolen(gap));
            assert!(!waiter.budget(now).is_zero());
        }
        waiter.begin(now + WATCHED_SPAN);
        assert_eq!(waiter.judge_long(gap, now, 4), Gap::Stolen(gap), "no longer counted");
        assert!(waiter.is_alone(now));
        assert_eq!(waiter.judge_long(gap, now, 5), Gap::Preempted);
        assert!(!waiter.is_alone(now), "somebody had the core");
    }
}
