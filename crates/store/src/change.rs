//! The change attribute: a number that never stands for two contents of one object.
//!
//! Invariant: the number shown at any moment depends on nothing but the time of the object's
//! last change and the clock, so it survives evictions, restarts and crashes.
//!
//! File systems stamp changes with a coarse clock: two changes within one of its ticks carry
//! the same time. So that time stands for one content only once its tick is over. Until then
//! the present time is shown, which is another number at each look; from then on the time of
//! the change plus one tick, which is above every number shown before. A reader that caches
//! what it reads within a few milliseconds of a change reads it once more. It never keeps what
//! is no longer there.
//!
//! - Numbers shown before a change lie below the time of that change: they are either the
//!   time of the look or a settled number, which is shown only when the clock has passed it.
//! - Numbers shown after a change at time T lie above T: its stamp is at most one tick old.
//!
//! What a server has taken in and not yet written to the file is shown by a settled number one
//! less: the least that its stamp can come to, whether the file has it already or gets it later,
//! and never the number of what the file had before in that tick, should the server die. So the
//! number rises once when the file is written, to the one that it keeps.

use std::sync::LazyLock;

use dafs_types::Timestamp;
use rustix::time::ClockId;

/// The clocks at one moment. Read before the object is looked at: what is shown then was true
/// at that moment or later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// The time in nanoseconds: what is shown of an object whose change is not over.
    pub exact: u64,
    /// What file systems stamp changes with. Normally less than a tick behind; more if the
    /// processor that advances it has been kept from running.
    coarse: u64,
}

impl Clocks {
    /// Reads both, without a system call.
    pub fn read() -> Self {
        let nanoseconds = |clock| nanoseconds_of(time_of(clock));
        Self { exact: nanoseconds(ClockId::Realtime), coarse: nanoseconds(ClockId::RealtimeCoarse) }
    }
}

/// The change attribute of an object that was changed last at this time.
pub(crate) fn shown(changed: Timestamp, clocks: Clocks) -> u64 {
    shown_after_tick(nanoseconds_of(changed), clocks, *TICK_NS)
}

fn shown_after_tick(changed: u64, clocks: Clocks, tick: u64) -> u64 {
    let settled = changed.wrapping_add(tick);
    // A stamp of the far future comes from another clock than ours: it cannot be waited for.
    let is_foreign = changed > clocks.exact.saturating_add(FOREIGN_NS);
    let is_over = clocks.coarse > changed && clocks.exact >= settled;
    if is_foreign || is_over { settled } else { clocks.exact }
}

/// That of an object that was changed between two moments, as a look at the later one would show
/// it; `None` if only a look tells. As long as no tick can be over since the change, that is the
/// present time, whatever the stamp is.
pub(crate) fn shown_just_after(begun: Clocks, now: Clocks) -> Option<u64> {
    just_after_tick(begun, now, *TICK_NS)
}

fn just_after_tick(begun: Clocks, now: Clocks, tick: u64) -> Option<u64> {
    // Its stamp is no less than what the clock of stamps said before.
    let is_not_over = now.coarse <= begun.coarse || now.exact < begun.coarse.saturating_add(tick);
    is_not_over.then_some(now.exact)
}

/// That of an object whose last change, at this time by the clock of stamps, is not yet known to
/// be in the file, which was stamped last at `on_disk`.
pub(crate) fn shown_unwritten(changed: Timestamp, on_disk: Timestamp, clocks: Clocks) -> u64 {
    unwritten_after_tick(nanoseconds_of(changed), nanoseconds_of(on_disk), clocks, *TICK_NS)
}

fn unwritten_after_tick(changed: u64, on_disk: u64, clocks: Clocks, tick: u64) -> u64 {
    let stamp = changed.max(on_disk);
    if clocks.coarse <= stamp || clocks.exact < stamp.wrapping_add(tick) {
        return clocks.exact;
    }
    // Between stamps to the nanosecond there may be no room: what the file has is another content.
    let before = on_disk.wrapping_add(tick);
    let settled = stamp.wrapping_add(tick - 1);
    if changed > on_disk && settled == before { before + 1 } else { settled }
}

/// What a clock says.
pub(crate) fn time_of(clock: ClockId) -> Timestamp {
    let time = rustix::time::clock_gettime(clock);
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec as u32 }
}

/// Times before 1970 come out very large, but each as a number of its own.
fn nanoseconds_of(time: Timestamp) -> u64 {
    (time.seconds as u64).wrapping_mul(SECOND_NS).wrapping_add(time.nanoseconds.into())
}

/// Between two values of the clock that file systems stamp changes with.
static TICK_NS: LazyLock<u64> = LazyLock::new(|| {
    let tick = rustix::time::clock_getres(ClockId::RealtimeCoarse);
    (tick.tv_sec as u64).wrapping_mul(SECOND_NS).saturating_add(tick.tv_nsec as u64)
});
const SECOND_NS: u64 = 1_000_000_000;
/// A stamp that is so much later than our clock is not of our clock.
const FOREIGN_NS: u64 = SECOND_NS;

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    const TICK: u64 = 4_000_000;

    /// What happens to an object.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Change,
        Look,
        /// Time passes; the coarse clock follows unless it is held up.
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
        /// Without a state of its own: any look may come after a restart.
        #[test]
        fn no_number_stands_for_two_contents(
            events in prop::collection::vec(event(), 1..200),
            can_be_held_up: bool,
        ) {
            let start = 1_700_000_000 * SECOND_NS + 1_234_567;
            let (mut now, mut coarse) = (start, start);
            let (mut content, mut stamp) = (0u32, start);
            let mut seen = std::collections::HashMap::new();
            let mut highest = (0, 0);
            for event in events {
                now += 50; // Nothing takes no time.
                match event {
                    Event::Change => (content, stamp) = (content + 1, coarse),
                    Event::Look => {
                        let value =
                            shown_after_tick(stamp, Clocks { exact: now, coarse }, TICK);
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
                            coarse = start + (now - start) / TICK * TICK;
                        }
                    }
                }
                if !can_be_held_up {
                    coarse = start + (now - start) / TICK * TICK;
                }
            }
        }
    }

    proptest! {
        /// What is told without a look is what a look would tell.
        #[test]
        fn a_change_just_now_needs_no_look(
            start in SECOND_NS..2_000_000_000 * SECOND_NS,
            until_change in 0..2 * TICK,
            until_look in 0..2 * TICK,
            stamp_is_exact: bool,
        ) {
            let at = |exact: u64| Clocks { exact, coarse: exact / TICK * TICK };
            let (begun, changed) = (at(start), at(start + until_change));
            let now = at(start + until_change + until_look);
            // Newer kernels give a change that somebody waits for a stamp of its own.
            let stamp = if stamp_is_exact { changed.exact } else { changed.coarse };
            if let Some(told) = just_after_tick(begun, now, TICK) {
                prop_assert_eq!(told, shown_after_tick(stamp, now, TICK));
            }
            if until_change + until_look == 0 {
                prop_assert_eq!(just_after_tick(begun, now, TICK), Some(start));
            }
        }
    }

    #[test]
    fn what_has_not_changed_for_a_tick_keeps_its_number() {
        let changed = 1_700_000_000 * SECOND_NS;
        let at = |after: u64| {
            let coarse = changed + after / TICK * TICK;
            shown_after_tick(changed, Clocks { exact: changed + after, coarse }, TICK)
        };
        assert!(at(10) < at(20) && at(20) < at(TICK));
        assert_eq!(at(TICK), at(1000 * TICK));
    }

    #[test]
    fn what_was_stamped_by_another_clock_has_one_number() {
        let clocks = Clocks { exact: SECOND_NS, coarse: SECOND_NS };
        let far = 10_000 * SECOND_NS;
        assert_eq!(shown_after_tick(far, clocks, TICK), far + TICK);
        assert_eq!(shown_after_tick(u64::MAX, clocks, TICK), TICK - 1);
    }
}
