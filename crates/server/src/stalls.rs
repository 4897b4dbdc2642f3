//! Transfers whose peer does not do its part, while others wait for what they hold.
//!
//! A write holds the blocks that it fills, an append the end of its file, a read the memory that
//! it is sent from, until the client's side has done its part; nothing makes a client do that.
//! While nobody waits for it, a client may take its time: it may be a program that is stopped.
//! Once somebody does, its connection must get on: the oldest of its transfers in each direction
//! must end within [`ServerConfig::transfer_patience`](crate::ServerConfig::transfer_patience)
//! and the time that its octets need on a slow link. Otherwise the connection is broken, which
//! ends its transfers, and those who wait go on. Transfers of one direction end in the order in
//! which they began, so another oldest one means progress.
//!
//! Invariant: nothing is looked at while nobody waits, and nobody waits for one transfer for
//! ever.

mod hurry;

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
    /// When it began, as a number that rises, and how much of it is left.
    mark: (u64, u32),
    octets: u64,
    /// Others wait for this one or for one behind it.
    is_awaited: bool,
}

/// What was seen of a connection's transfers, and since when.
#[derive(Clone, Copy, Debug)]
struct Seen {
    mark: (u64, u32),
    since: Moment,
}

/// What transfers that end in order belong to.
type Lane = (EndpointId, Direction);

/// Lanes that others have waited for at the last look.
#[derive(Debug)]
pub(crate) struct Stalls<L = Lane> {
    patience: Duration,
    seen: BTreeMap<L, Seen>,
}

impl<L: Copy + Ord> Stalls<L> {
    pub fn new(patience: Duration) -> Self {
        Self { patience, seen: BTreeMap::new() }
    }

    /// Takes in what is there now. Whose time is up.
    fn note(&mut self, present: &BTreeMap<L, Oldest>, now: Moment) -> Vec<L> {
        let mut overdue = Vec::new();
        let mut seen = BTreeMap::new();
        for (lane, oldest) in present.iter().filter(|(_, oldest)| oldest.is_awaited) {
            let before = self.seen.get(lane).filter(|seen| seen.mark == oldest.mark);
            let since = before.map_or(now, |seen| seen.since);
            let needed = Duration::from_millis(oldest.octets.saturating_mul(1000) / RATE_MIN);
            if now.since(since) >= self.patience + needed {
                overdue.push(*lane);
            }
            seen.insert(*lane, Seen { mark: oldest.mark, since });
        }
        self.seen = seen;
        overdue
    }
}

/// Octets a second that a link is expected to carry for one connection at least.
const RATE_MIN: u64 = 512 << 10;
/// No more than this is lent at a time.
const LOAN_BYTES_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use dafs_types::Moment;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    #[test]
    fn only_a_transfer_that_others_wait_for_and_that_does_not_get_on_is_overdue() {
        let mut stalls = Stalls::new(Duration::from_secs(10));
        let mut overdue = |mark, is_awaited, seconds| {
            let oldest = Oldest { mark, octets: 0, is_awaited };
            !stalls.note(&[((), oldest)].into(), at(seconds)).is_empty()
        };
        assert!(!overdue((1, 2), true, 0));
        assert!(!overdue((1, 1), true, 9), "one of two has ended");
        assert!(!overdue((2, 1), true, 18), "another is the oldest");
        assert!(!overdue((2, 1), true, 27));
        assert!(overdue((2, 1), true, 28));
        assert!(!overdue((2, 1), false, 40), "nobody waits");
        assert!(!overdue((2, 1), true, 41), "the time begins anew");
        assert!(overdue((2, 1), true, 51));
    }
}
