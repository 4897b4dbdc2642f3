//! Decides when an interface spins and when it sleeps.
//!
//! A spinning thread notices an event within a tenth of a microsecond, but only if the peer runs on
//! another core. A wakeup costs tens of microseconds, but no CPU time while asleep. The rules:
//!
//! - Spin for as long as a wakeup would cost. A wait that ends within that time is cheaper with
//!   spinning.
//! - Stop spinning if every third spin ends without its event. Try again from time to time.
//! - Do not spin while more threads want to run than there are cores. Such a shortage shows as a
//!   gap in the run time of this thread during which another thread used the core. A gap without a
//!   preemption is caused by the hypervisor. It does not count, because sleeping would not give
//!   that time to another thread.
//! - A server whose sleeps end soon after they begin spins for longer, up to a limit, because
//!   waking the server costs the client more than the request itself. A client does not extend its
//!   spins, because it should save processor time.
//! - After some microseconds of spinning, yield the core in every turn, because the thread that
//!   this one waits for may need the same core. If two threads on one core both want to run, the
//!   scheduler moves one of them to another core. It does not move threads that sleep in turns.
//! - Polling a socket in vain costs a system call. A client polls its socket only while a single
//!   reply is likely. When several replies are pending, one wake-up collects all that arrive
//!   during the sleep. A server polls its sockets while no other thread wants the core, because
//!   requests arrive together.

use std::time::{Duration, Instant};

use crate::connection::Alarm;

/// Returns the time since a fixed moment before this process started, accurate to a few
/// milliseconds. The returned time never goes back. Use it for limits checked in every turn of a
/// loop, where reading the exact clock would cost as much as the work.
#[must_use]
#[inline]
pub fn coarse_now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs().try_into().unwrap_or(0))
}

/// Returns the number of times that the kernel gave the core of the calling thread to another
/// thread although the calling thread did not sleep.
fn preemptions() -> u64 {
    // SAFETY: zeros are a valid `rusage`, and the call writes nothing else.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nivcsw.unsigned_abs()
    }
}

/// The limits for spinning before a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// The maximum time to spin before sleeping; zero disables spinning. A value above the default
    /// also allows spinning for a single slow reply, which uses up to a whole core and saves the
    /// wakeup.
    pub spin_max: Duration,
}

impl WaitPolicy {
    /// Returns true if the policy allows longer spins than the default.
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

/// The statistics of an interface's earlier waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    policy: WaitPolicy,
    /// The current spin time, which exceeds the policy's maximum if sleeps have been short.
    span: Duration,
    /// A score that rises with each spin that ended without its event and falls with each that got
    /// its event.
    futility: u32,
    /// The number of waits that will skip spinning after the next futile spin.
    rest: u32,
    /// The number of waits that still skip spinning before the next trial spin.
    rest_left: u32,
    /// The time until which spins count preemptions, because there was recently a gap in this
    /// thread's run time.
    watched_until: Option<Instant>,
    /// The time until which the core counts as shared, because this thread was recently preempted.
    shared_until: Option<Instant>,
    /// The time for which the most recent preemption made the core count as shared.
    shared_span: Duration,
    /// The preemption count at the start of the current spin; `None` if the spin does not count
    /// preemptions.
    preemptions_before: Option<u64>,
    /// The time until which the interface does not spin because of a shortage of cores: more
    /// threads want to run than there are cores.
    crowded_until: Option<Instant>,
    /// The assumed duration of the next shortage of cores.
    crowded_span: Duration,
    /// True if a peer woke this interface shortly before sending its message.
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

    /// Records that a peer woke this interface but had sent nothing yet. A peer wakes a sleeper
    /// early when a message is about to follow.
    pub(crate) fn forewarn(&mut self) {
        self.is_forewarned = true;
    }

    /// Clears the announcement of an early wakeup and returns how long to spin for the announced
    /// message; `None` if there was no announcement. The outcome of such a spin does not change the
    /// statistics.
    pub(crate) fn forewarned(&mut self) -> Option<Duration> {
        std::mem::take(&mut self.is_forewarned).then_some(FOREWARNED_SPAN)
    }

    fn ever_spins(&self) -> bool {
        !self.policy.spin_max.is_zero()
    }

    /// Returns the condition that ends a sleep for `threshold` messages. An early wakeup helps only
    /// an interface that spins.
    pub(crate) fn alarm(&self, threshold: usize) -> Alarm {
        Alarm { threshold, early: self.ever_spins() }
    }

    /// Returns true if a wait may start with a few polls before it reads the clock, because the
    /// statistics do not show spinning to be useless.
    #[inline]
    pub(crate) fn is_at_ease(&self) -> bool {
        self.crowded_until.is_none() && self.rest_left == 0 && self.ever_spins()
    }

    /// Returns the maximum time for which a wait that begins now may spin.
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

    /// Records a spin that ended with its event.
    pub(crate) fn paid(&mut self) {
        self.futility = self.futility.saturating_sub(1);
        if self.futility == 0 {
            self.rest = REST_MIN;
        }
        self.crowded_span = CROWDED_SPAN_MIN;
    }

    /// Records a spin that ended without its event.
    pub(crate) fn vain(&mut self) {
        self.futility = (self.futility + VAIN_WEIGHT).min(FUTILITY_MAX);
        if self.futility >= FUTILE {
            self.rest_left = self.rest;
            self.rest = (self.rest * 2).min(REST_MAX);
        }
    }

    /// Records the length of a server's sleep. If the sleep was short, a slightly longer spin would
    /// have caught the event, so the next spins are longer and no waits skip spinning.
    pub(crate) fn slept(&mut self, span: Duration) {
        if span > NEARLY_SPAN || !self.ever_spins() {
            self.span = self.policy.spin_max;
            return;
        }
        self.span = (self.span + span).min(STRETCHED_SPAN_MAX).max(self.policy.spin_max);
        self.futility = self.futility.saturating_sub(VAIN_WEIGHT);
        self.rest_left = 0;
    }

    /// Returns true if no other thread has wanted this core recently. Only then does it pay to
    /// yield, and to poll the sockets of many clients.
    #[inline]
    pub(crate) fn is_alone(&self, now: Instant) -> bool {
        self.shared_until.is_none_or(|until| now >= until)
    }

    /// Records that another thread wanted this core. Each repeated preemption makes the core count
    /// as shared for longer, until none has happened for a while.
    fn share(&mut self, now: Instant) {
        let again = self.shared_until.is_some_and(|until| now < until + RELAPSE_SPAN);
        self.shared_span =
            if again { (self.shared_span * 2).min(SHARED_SPAN_MAX) } else { SHARED_SPAN_MIN };
        self.shared_until = Some(now + self.shared_span);
    }

    /// Prepares the preemption count for a spin that begins now.
    pub(crate) fn begin(&mut self, now: Instant) {
        let is_watched = self.watched_until.is_some_and(|until| now < until);
        self.preemptions_before = is_watched.then(preemptions);
    }

    /// Classifies the time between two readings of the clock within one spin.
    #[inline]
    pub(crate) fn judge(&mut self, gap: Duration, now: Instant) -> Gap {
        if gap < GAP_MIN { Gap::None } else { self.judge_long(gap, now, preemptions()) }
    }

    /// Classifies a long gap. The first gap cannot be classified, because it only starts the
    /// counting of preemptions. If another thread took the core when this one yielded it, that
    /// counts as a preemption too: the kernel counts every change of threads for which this thread
    /// did not sleep.
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

/// The cause of the time between two readings of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// There was no gap: the thread kept running.
    None,
    /// The core did not run this thread or, as far as known, any other. This time does not count as
    /// spinning.
    Stolen(Duration),
    /// Another thread used the core, so spinning must stop immediately.
    Preempted,
}

/// The default maximum of a spin: the time that a wakeup costs.
const SPIN_MAX: Duration = Duration::from_micros(50);
/// The shortest gap that may be another thread's turn on the core. A scheduler grants turns of
/// milliseconds; shorter gaps are noise of the machine.
const GAP_MIN: Duration = Duration::from_millis(1);
/// The time for which spins count preemptions after a gap. Each count takes a system call.
const WATCHED_SPAN: Duration = Duration::from_secs(1);
/// The time for which the core counts as shared after the first preemption.
const SHARED_SPAN_MIN: Duration = Duration::from_millis(50);
/// The maximum time for which the core counts as shared. The time doubles with each repeated
/// preemption.
const SHARED_SPAN_MAX: Duration = Duration::from_secs(16);
/// If a preemption occurs within this time after the core last counted as shared, the cause is
/// assumed to be the same as before.
const RELAPSE_SPAN: Duration = Duration::from_secs(2);
/// The time to spin for a message that a peer has announced by an early wakeup.
const FOREWARNED_SPAN: Duration = Duration::from_micros(30);
/// The length up to which a server's sleep counts as too short to be worthwhile. The wakeup takes
/// half of this time.
const NEARLY_SPAN: Duration = Duration::from_micros(150);
/// The maximum spin of a server whose sleeps are short.
const STRETCHED_SPAN_MAX: Duration = Duration::from_micros(250);
const CROWDED_SPAN_MIN: Duration = Duration::from_millis(2);
const CROWDED_SPAN_MAX: Duration = Duration::from_millis(64);
/// The weight of a spin without its event relative to a successful spin. If every third spin ends
/// without its event, sleeping costs less.
const VAIN_WEIGHT: u32 = 2;
/// The score at which the interface stops spinning: three spins in a row without their events.
/// Fewer may be chance.
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
