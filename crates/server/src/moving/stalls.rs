//! Transfers whose peer does not do its part, while others wait for what they hold.
//!
//! A write holds the blocks that it fills, an append the end of its file, a read the memory that
//! it is sent from, until the client's side has done its part; nothing makes a client do that.
//! While nobody waits for it, a client may take its time: it may be a program that is stopped.
//!
//! Once somebody waits, a connection must get on, in each direction, at [`RATE_MIN`] or faster. It
//! is late by the time for which others have waited, less the time that the bytes it has moved
//! since then need at that rate. It may be late by
//! [`ServerConfig::transfer_patience`](crate::ServerConfig::transfer_patience) and by what its
//! oldest transfer needs at that rate; then it is broken, which ends its transfers, and those who
//! wait go on. What is moved pays for itself alone: however many small transfers a client ends
//! one after another, they buy it no patience anew. While nobody waits lateness is forgotten, ten
//! times slower than it came.
//!
//! Those who wait take turns besides, client by client ([`in_turns`]).
//!
//! So one connection keeps others waiting no longer than the patience and the time that its bytes
//! need at the lowest rate. An append of one client waits for two of each other client's at most,
//! however many those have sent: with the 10 seconds that a server has by default and appends of
//! 1 MiB no longer than 14 seconds for each connection that stalls.
//!
//! Invariant: nothing is looked at while nobody waits and nobody is late, and nobody waits for one
//! transfer for ever.

pub(crate) mod hurry;

use std::collections::BTreeMap;
use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_types::Moment;

/// Which transfers of a connection end in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    /// The client's memory is read.
    In,
    /// It is written, for single requests.
    Out,
    /// It is written, for batches, which may use another connection for that.
    Batches,
}

/// The oldest transfer of a connection in one direction.
#[derive(Clone, Copy, Debug)]
struct Oldest {
    /// When it began, as a number that rises.
    begun: u64,
    bytes: u64,
    /// Others wait for this one or for one behind it.
    is_awaited: bool,
}

/// What was seen of a connection's transfers.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    late: Duration,
    /// Bytes that have been moved since the last look.
    moved: u64,
}

/// What transfers that end in order belong to.
type Lane = (EndpointId, Direction);

/// Lanes that others have waited for, until their lateness is forgotten.
#[derive(Debug)]
pub(crate) struct Stalls<L = Lane> {
    patience: Duration,
    looked: Moment,
    seen: BTreeMap<L, Seen>,
}

impl<L: Copy + Ord> Stalls<L> {
    pub fn new(patience: Duration) -> Self {
        Self { patience, looked: Moment(0), seen: BTreeMap::new() }
    }

    /// Whether what is moved counts for anything.
    #[inline]
    pub fn is_watching(&self) -> bool {
        !self.seen.is_empty()
    }

    /// So much of a lane has been moved.
    pub fn note_moved(&mut self, lane: L, bytes: u32) {
        if let Some(seen) = self.seen.get_mut(&lane) {
            seen.moved = seen.moved.saturating_add(u64::from(bytes));
        }
    }

    /// Takes in what is there now. Whose time is up.
    fn note(&mut self, present: &BTreeMap<L, Oldest>, now: Moment) -> Vec<L> {
        let passed = now.since(std::mem::replace(&mut self.looked, now));
        self.seen.retain(|lane, seen| {
            let moved = needed_for(std::mem::take(&mut seen.moved));
            let is_awaited = present.get(lane).is_some_and(|oldest| oldest.is_awaited);
            seen.late = if is_awaited {
                (seen.late + passed).saturating_sub(moved)
            } else {
                seen.late.saturating_sub(moved + passed / FORGIVES_ONE_IN)
            };
            is_awaited || !seen.late.is_zero()
        });
        let mut overdue = Vec::new();
        for (lane, oldest) in present.iter().filter(|(_, oldest)| oldest.is_awaited) {
            let seen = self.seen.entry(*lane).or_default();
            if seen.late >= self.patience + needed_for(oldest.bytes) {
                overdue.push(*lane);
            }
        }
        overdue
    }
}

/// How long bytes may take.
fn needed_for(bytes: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / RATE_MIN)
}

/// What waits, in the order in which it has come, but such that those who wait take turns: the
/// first of each comes before the second of any.
pub(crate) fn in_turns<T: Copy, W: Ord>(waiting: Vec<T>, whose: impl Fn(T) -> W) -> Vec<T> {
    let mut counts = BTreeMap::<W, usize>::new();
    let ranked = waiting.into_iter().map(|one| {
        let count = counts.entry(whose(one)).or_default();
        *count += 1;
        (*count, one)
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, one)| one).collect()
}

/// Bytes a second that a link is expected to carry for one connection at least.
const RATE_MIN: u64 = 512 << 10;
/// While nobody waits, lateness is forgotten by one part in so many of the time that passes.
const FORGIVES_ONE_IN: u32 = 10;

#[cfg(test)]
mod tests {
    use dafs_types::Moment;

    use super::*;

    const PATIENCE: u64 = 10;

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    /// One lane, second by second.
    struct Watched {
        stalls: Stalls<()>,
        second: u64,
    }

    impl Watched {
        fn new() -> Self {
            let mut stalls = Stalls::new(Duration::from_secs(PATIENCE));
            stalls.note(&BTreeMap::new(), at(100));
            Self { stalls, second: 100 }
        }

        /// A second in which so much was moved. Whether the lane's time is up.
        fn pass(&mut self, moved: u64, oldest: u64, is_awaited: bool) -> bool {
            self.stalls.note_moved((), u32::try_from(moved).unwrap());
            self.second += 1;
            let oldest = Oldest { begun: self.second, bytes: oldest, is_awaited };
            !self.stalls.note(&[((), oldest)].into(), at(self.second)).is_empty()
        }

        /// How many seconds pass until the lane's time is up.
        fn lasts(&mut self, moved: u64, oldest: u64, is_awaited: bool) -> u64 {
            (1..10_000).find(|_| self.pass(moved, oldest, is_awaited)).unwrap_or(u64::MAX)
        }
    }

    #[test]
    fn drop_by_drop_a_client_keeps_others_no_longer_than_its_bytes_need() {
        // Beginning with the first look, which finds somebody waiting.
        assert_eq!(Watched::new().lasts(0, 0, true), PATIENCE + 1, "it moves nothing");
        assert_eq!(Watched::new().lasts(100, 0, true), PATIENCE + 1, "drop by drop");
        assert_eq!(Watched::new().lasts(RATE_MIN / 2, 0, true), 2 * PATIENCE + 1, "half as fast");
        assert_eq!(Watched::new().lasts(RATE_MIN, 0, true), u64::MAX, "as it should be");
        let large = 20 * RATE_MIN;
        assert_eq!(Watched::new().lasts(0, large, true), PATIENCE + 21, "much is under way");
        let mut slow = Watched::new();
        for _ in 0..10 {
            let is_up = (0..19).any(|_| slow.pass(0, large, true));
            assert!(!is_up && !slow.pass(large, large, true), "it is as fast as it must be");
        }
    }

    #[test]
    fn what_a_client_was_late_is_forgotten_slowly() {
        let mut watched = Watched::new();
        assert_eq!(watched.lasts(0, 0, false), u64::MAX, "nobody waits");
        for _ in 0..PATIENCE {
            assert!(!watched.pass(0, 0, true));
        }
        assert!(!watched.pass(0, 0, false), "nobody waits any more");
        assert_eq!(watched.lasts(0, 0, true), 1 + 1, "somebody else does");
        for _ in 0..PATIENCE * u64::from(FORGIVES_ONE_IN) + 20 {
            watched.pass(0, 0, false);
        }
        assert!(!watched.stalls.is_watching(), "it is forgotten");
        assert_eq!(watched.lasts(0, 0, true), PATIENCE + 1);
    }

    #[test]
    fn those_who_wait_take_turns() {
        let waiting = vec![(1, 'a'), (1, 'b'), (1, 'c'), (2, 'd'), (3, 'e'), (3, 'f')];
        let turns: String = in_turns(waiting, |(whose, _)| whose).iter().map(|w| w.1).collect();
        assert_eq!(turns, "adebfc");
    }
}
