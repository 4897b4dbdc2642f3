//! Finds connections whose peers do not complete transfers while other requests wait for the
//! resources of these transfers.
//!
//! Until the client's network interface has transferred the bytes, a write holds the cache blocks
//! that it fills, an append holds the end of its file, and a read holds the memory that its bytes
//! are sent from. The server cannot force a client to transfer bytes. As long as no other request
//! waits, a client may take any time; for example, its program may be stopped.
//!
//! While a request waits, each direction of a connection must move bytes at [`RATE_MIN`] or faster.
//! The lateness of a direction is the time that other requests have waited for it, minus the time
//! that the bytes moved since then take at that rate. The limit of lateness is
//! [`Patience::transfer`](crate::Patience::transfer) plus the time that
//! the oldest transfer takes at that rate. A connection over the limit is broken, which ends its
//! transfers, so that the waiting requests continue. Moved bytes reduce the lateness only by the
//! time that they take themselves, so many small transfers give a client no additional time. While
//! no request waits, lateness decays at a tenth of the rate at which it grew.
//!
//! In addition, waiting requests take turns by client ([`in_turns`]).
//!
//! So one connection blocks other requests for at most the patience plus the time that its bytes
//! take at the lowest rate. An append of one client waits for at most two appends of each other
//! client, regardless of how many appends these clients have sent. With the default patience of 10
//! seconds and appends of 1 MiB, that is at most 14 seconds for each connection that stalls.
//!
//! Invariants:
//! - While no request waits and no connection is late, no transfers are examined.
//! - No request waits for one transfer forever.

pub(crate) mod hurry;

use std::collections::BTreeMap;
use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_types::Moment;

/// A kind of transfer. The transfers of one kind on one connection end in the order in which they
/// were started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    /// RDMA reads from the client's memory.
    In,
    /// RDMA writes to the client's memory for single requests.
    Out,
    /// RDMA writes to the client's memory for batches, which may use another connection.
    Batches,
}

/// The oldest transfer of a lane, which is a connection and a direction.
#[derive(Clone, Copy, Debug)]
struct Oldest {
    /// The serial number of the transfer's start: lower numbers started earlier.
    begun: u64,
    bytes: u64,
    /// True if other requests wait for this transfer or for a later transfer of the same lane.
    is_awaited: bool,
}

/// The observed progress of a lane, which is a connection and a direction.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    late: Duration,
    /// The number of bytes moved since the last check.
    moved: u64,
}

/// A connection and a direction, which identify transfers that end in the order in which they were
/// started.
type Lane = (EndpointId, Direction);

/// The lanes (a connection and a direction each) for which other requests have waited. A lane stays
/// in the table until its lateness has decayed.
#[derive(Debug)]
pub(crate) struct Stalls<L = Lane> {
    patience: Duration,
    looked: Moment,
    seen: BTreeMap<L, Seen>,
}

impl<L: Copy + Ord> Stalls<L> {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, looked: Moment(0), seen: BTreeMap::new() }
    }

    /// Returns true if the table contains any lane, so that moved bytes must be counted.
    #[inline]
    pub(crate) fn is_watching(&self) -> bool {
        !self.seen.is_empty()
    }

    /// Adds `bytes` to the number of bytes moved in a lane.
    pub(crate) fn note_moved(&mut self, lane: L, bytes: u32) {
        if let Some(seen) = self.seen.get_mut(&lane) {
            seen.moved = seen.moved.saturating_add(u64::from(bytes));
        }
    }

    /// Updates the lateness of all lanes (connection and direction). Returns the lanes whose
    /// lateness exceeds the limit.
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

/// Returns the time that `bytes` take at [`RATE_MIN`].
fn needed_for(bytes: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / RATE_MIN)
}

/// Orders waiting entries so that their owners take turns: the first entry of every owner comes
/// before the second entry of any owner. Within that rule, the order of arrival is kept.
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

/// The lowest rate at which a connection must move bytes while other requests wait, in bytes per
/// second.
const RATE_MIN: u64 = 512 << 10;
/// The divisor of lateness decay: while no request waits, lateness shrinks by the elapsed time
/// divided by this number.
const FORGIVES_ONE_IN: u32 = 10;

#[cfg(test)]
mod tests {
    use dafs_types::Moment;

    use super::*;

    const PATIENCE: u64 = 10;

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    /// One lane (a connection and a direction) in a test, which checks it once a second.
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

        /// Advances one second in which `moved` bytes were moved. Returns true if the lane is over
        /// the limit.
        fn pass(&mut self, moved: u64, oldest: u64, is_awaited: bool) -> bool {
            self.stalls.note_moved((), u32::try_from(moved).unwrap());
            self.second += 1;
            let oldest = Oldest { begun: self.second, bytes: oldest, is_awaited };
            !self.stalls.note(&[((), oldest)].into(), at(self.second)).is_empty()
        }

        /// Returns the number of seconds that pass until the lane exceeds the limit.
        fn lasts(&mut self, moved: u64, oldest: u64, is_awaited: bool) -> u64 {
            (1..10_000).find(|_| self.pass(moved, oldest, is_awaited)).unwrap_or(u64::MAX)
        }
    }

    #[test]
    fn drop_by_drop_a_client_keeps_others_no_longer_than_its_bytes_need() {
        // One second more than the patience: the first look only finds that a request waits.
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
