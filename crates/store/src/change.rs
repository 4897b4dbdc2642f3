//! The change attribute: a number that never stands for two contents of the same object.
//!
//! Invariant: the number depends only on the time of the object's last change and on the clock, so
//! evictions, restarts and crashes do not affect it.
//!
//! File systems stamp changes with a coarse clock, so two changes within one tick have the same
//! time. A time stamp identifies one content only after its tick has ended. Until then the current
//! time is reported, which differs on each query. After that the time of the change plus two ticks
//! (the settled number) is reported. A reader that caches data within a few milliseconds of a
//! change therefore reads the data once more, but never keeps stale data.
//!
//! Why two ticks: the coarse clock advances by whole ticks, but the interrupts that advance it may
//! come at any distance after the ends of these ticks. This distance is the same until the machine
//! is started again. So the coarse clock is up to two ticks late, even on an idle machine. As long
//! as it is not later than that, the settled number is greater than every number reported before.
//!
//! - A number reported before a change is less than the time of that change. It is either the time
//!   of the query, or a settled number, which is reported only after the clock has passed it.
//! - A number reported after a change at time T is greater than T, because the change's stamp is
//!   less than two ticks old.
//!
//! A change that the server has accepted but not yet written to the file is reported as the settled
//! number minus one. This is the least number that the change's stamp can lead to, whether the
//! change reaches the file early or late. It also differs from the number of the content that the
//! file had earlier in the same tick, in case the server dies before the write. When the file is
//! written, the number rises once, to the settled number.

use std::sync::LazyLock;

use dafs_types::Timestamp;
use rustix::time::ClockId;

/// The readings of two clocks. They are read before the object's state is queried, so the reported
/// state is at least as new as these readings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// The reading of the exact clock, in nanoseconds. This is the change attribute of an object
    /// that was changed within the current tick.
    pub exact: u64,
    /// The reading, in nanoseconds, of the clock from which file systems take time stamps. Usually
    /// this clock is less than two ticks late; it is later if the processor that advances it could
    /// not run.
    coarse: u64,
}

impl Clocks {
    /// Reads both clocks, without a system call.
    pub(crate) fn read() -> Self {
        let nanoseconds = |clock| nanoseconds_of(time_of(clock));
        Self { exact: nanoseconds(ClockId::Realtime), coarse: nanoseconds(ClockId::RealtimeCoarse) }
    }
}

/// Returns the change attribute of an object whose last change was at time `changed`.
pub(crate) fn shown(changed: Timestamp, clocks: Clocks) -> u64 {
    shown_settling(nanoseconds_of(changed), clocks, *SETTLING_NS)
}

fn shown_settling(changed: u64, clocks: Clocks, settling: u64) -> u64 {
    let settled = changed.wrapping_add(settling);
    // A stamp far in the future comes from another machine's clock, so its tick cannot be awaited.
    let is_foreign = changed > clocks.exact.saturating_add(FOREIGN_NS);
    let is_over = clocks.coarse > changed && clocks.exact >= settled;
    if is_foreign || is_over { settled } else { clocks.exact }
}

/// Returns the change attribute of an object that was changed between `begun` and `now`, as a query
/// at `now` would report it. As long as the number cannot have settled since the change, this is
/// the current time, whatever time stamp the object has. Returns `None` if the object must be
/// queried.
pub(crate) fn shown_just_after(begun: Clocks, now: Clocks) -> Option<u64> {
    just_after_settling(begun, now, *SETTLING_NS)
}

fn just_after_settling(begun: Clocks, now: Clocks, settling: u64) -> Option<u64> {
    // The stamp is not earlier than the coarse clock before the change.
    let settled = begun.coarse.saturating_add(settling);
    let is_not_over = now.coarse <= begun.coarse || now.exact < settled;
    is_not_over.then_some(now.exact)
}

/// Returns the change attribute of an object whose last change may not be in the file yet.
/// `changed` is the time of the change by the coarse clock, and `on_disk` is the time stamp of the
/// file's last change on disk.
pub(crate) fn shown_unwritten(changed: Timestamp, on_disk: Timestamp, clocks: Clocks) -> u64 {
    unwritten_settling(nanoseconds_of(changed), nanoseconds_of(on_disk), clocks, *SETTLING_NS)
}

fn unwritten_settling(changed: u64, on_disk: u64, clocks: Clocks, settling: u64) -> u64 {
    let stamp = changed.max(on_disk);
    if clocks.coarse <= stamp || clocks.exact < stamp.wrapping_add(settling) {
        return clocks.exact;
    }
    // Stamps may be exact to the nanosecond, so that no number is left between them. In that case
    // the content in the file counts as different from the cached content.
    let before = on_disk.wrapping_add(settling);
    let settled = stamp.wrapping_add(settling - 1);
    if changed > on_disk && settled == before { before + 1 } else { settled }
}

/// Returns the change attribute of an object that is changing now, and the time. The number is
/// greater than each number that was reported before.
pub fn change_of_now() -> (u64, Timestamp) {
    let time = time_of(ClockId::Realtime);
    (nanoseconds_of(time), time)
}

/// Returns the current time of a clock.
pub(crate) fn time_of(clock: ClockId) -> Timestamp {
    let time = rustix::time::clock_gettime(clock);
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec as u32 }
}

/// Converts a time to nanoseconds since 1970. A time before 1970 becomes a very large number, which
/// still differs from the numbers of all other times.
fn nanoseconds_of(time: Timestamp) -> u64 {
    (time.seconds as u64).wrapping_mul(SECOND_NS).wrapping_add(time.nanoseconds.into())
}

/// The time in nanoseconds after a time stamp at which the number settles: two ticks of the coarse
/// clock, from which file systems take time stamps.
static SETTLING_NS: LazyLock<u64> = LazyLock::new(|| {
    let tick = rustix::time::clock_getres(ClockId::RealtimeCoarse);
    let tick = (tick.tv_sec as u64).wrapping_mul(SECOND_NS).saturating_add(tick.tv_nsec as u64);
    tick.saturating_mul(2)
});
const SECOND_NS: u64 = 1_000_000_000;
/// The difference in nanoseconds between a time stamp and this machine's clock from which the stamp
/// is taken to come from another machine's clock.
const FOREIGN_NS: u64 = SECOND_NS;

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    const TICK: u64 = 4_000_000;
    const SETTLING: u64 = 2 * TICK;

    /// An event in a simulation that affects an object or the clocks.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Change,
        Look,
        /// Time passes. The coarse clock follows unless it is held up.
        Pass {
            nanoseconds: u64,
            is_held_up: bool,
        },
    }

    fn event() -> impl Strategy<Value = Event> {
        let pass = (1..3 * TICK, prop::bool::weighted(0.2));
        prop_oneof![
            Just(Event::Change),
            Just(Event::Look),
            pass.prop_map(|(nanoseconds, is_held_up)| Event::Pass { nanoseconds, is_held_up }),
            (1u64..1000).prop_map(|nanoseconds| Event::Pass { nanoseconds, is_held_up: false }),
        ]
    }

    proptest! {
        /// Checks random sequences of events. There is no state besides clocks and time stamps, so
        /// every query is like a query after a restart. The coarse clock advances at a fixed
        /// distance after the end of each tick.
        #[test]
        fn no_number_stands_for_two_contents(
            events in prop::collection::vec(event(), 1..200),
            distance in 0..TICK,
            can_be_held_up: bool,
        ) {
            let start = 1_700_000_000 * SECOND_NS + 1_234_567;
            let coarse_at = |now: u64| start + (now - start - distance) / TICK * TICK;
            let (mut now, mut coarse) = (start + distance, start);
            let (mut content, mut stamp) = (0u32, start);
            let mut seen = std::collections::HashMap::new();
            let mut highest = (0, 0);
            for event in events {
                now += 50; // Every event takes some time.
                match event {
                    Event::Change => (content, stamp) = (content + 1, coarse),
                    Event::Look => {
                        let value =
                            shown_settling(stamp, Clocks { exact: now, coarse }, SETTLING);
                        let before = *seen.entry(value).or_insert(content);
                        prop_assert_eq!(before, content, "{} stands for both", value);
                        if !can_be_held_up {
                            let is_later = value > highest.0 || highest == (value, content);
                            prop_assert!(is_later, "{} after {:?}", value, highest);
                            highest = (value, content);
                        }
                    }
                    Event::Pass { nanoseconds, is_held_up } => {
                        now += nanoseconds;
                        if !(is_held_up && can_be_held_up) {
                            coarse = coarse_at(now);
                        }
                    }
                }
                if !can_be_held_up {
                    coarse = coarse_at(now);
                }
            }
        }
    }

    proptest! {
        /// Checks that the number computed without a query equals the number that a query would
        /// return.
        #[test]
        fn a_change_just_now_needs_no_look(
            start in SECOND_NS..2_000_000_000 * SECOND_NS,
            until_change in 0..2 * TICK,
            until_look in 0..2 * TICK,
            distance in 0..TICK,
            stamp_is_exact: bool,
        ) {
            let at = |exact: u64| Clocks { exact, coarse: (exact - distance) / TICK * TICK };
            let (begun, changed) = (at(start), at(start + until_change));
            let now = at(start + until_change + until_look);
            // Newer kernels give a change its own stamp after its time was queried.
            let stamp = if stamp_is_exact { changed.exact } else { changed.coarse };
            if let Some(told) = just_after_settling(begun, now, SETTLING) {
                prop_assert_eq!(told, shown_settling(stamp, now, SETTLING));
            }
            if until_change + until_look == 0 {
                prop_assert_eq!(just_after_settling(begun, now, SETTLING), Some(start));
            }
        }
    }

    #[test]
    fn what_has_not_changed_for_two_ticks_keeps_its_number() {
        let changed = 1_700_000_000 * SECOND_NS;
        let at = |after: u64| {
            let coarse = changed + after / TICK * TICK;
            shown_settling(changed, Clocks { exact: changed + after, coarse }, SETTLING)
        };
        assert!(at(10) < at(20) && at(20) < at(TICK) && at(TICK) < at(SETTLING));
        assert_eq!(at(SETTLING), at(1000 * TICK));
    }

    #[test]
    fn what_was_stamped_by_another_clock_has_one_number() {
        let clocks = Clocks { exact: SECOND_NS, coarse: SECOND_NS };
        let far = 10_000 * SECOND_NS;
        assert_eq!(shown_settling(far, clocks, SETTLING), far + SETTLING);
        assert_eq!(shown_settling(u64::MAX, clocks, SETTLING), SETTLING - 1);
    }
}
