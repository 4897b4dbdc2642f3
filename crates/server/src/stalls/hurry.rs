//! Breaking connections that others wait for in vain.

use std::collections::BTreeMap;

use dafs_store::cache::CachedFile;

use super::{Direction, LOAN_BYTES_MAX, Lane, Oldest};
use crate::reactor::Reactor;
use crate::task::Work;
use crate::transfer::Loan;

impl Reactor {
    /// Breaks the connections that others wait for in vain.
    pub(crate) fn hurry_transfers(&mut self) {
        let keeps_undo = self.ledger.as_ref().is_some_and(|l| l.undo.is_at_work());
        let is_crowded = self.is_crowded_by_batches();
        if !keeps_undo && !is_crowded && !self.tasks.await_progress() {
            return self.stalls.seen.clear();
        }
        let present = self.oldest_transfers(keeps_undo, is_crowded);
        for (endpoint, _) in self.stalls.note(&present, self.now) {
            if let Some(channel) = self.channels.get(endpoint) {
                tracing::warn!(
                    from = %channel.peer,
                    "others wait for a transfer that does not end: the connection is broken"
                );
                self.give_up(endpoint);
            }
        }
    }

    /// The oldest transfers of every connection.
    fn oldest_transfers(&self, keeps_undo: bool, is_crowded: bool) -> BTreeMap<Lane, Oldest> {
        let mut present = BTreeMap::new();
        let mut add = |key: Lane, mark, octets, file: Option<CachedFile>, is_in_the_way: bool| {
            let is_awaited = keeps_undo || is_in_the_way || self.tasks.is_awaited(file, key.0);
            let oldest = present.entry(key).or_insert(Oldest { mark, octets, is_awaited });
            if mark < oldest.mark {
                (oldest.mark, oldest.octets) = (mark, octets);
            }
            oldest.is_awaited |= is_awaited;
        };
        for (begun, task) in self.tasks.with_transfers() {
            let endpoint = task.reply_to.endpoint;
            let (direction, left, octets) = match &task.work {
                Work::Write(write) => {
                    let octets = write.token.as_ref().map_or(write.length, |token| token.length());
                    (Direction::In, write.transfers_left, octets)
                }
                Work::Fetch(fetch) => (Direction::In, fetch.transfers_left, fetch.length),
                Work::SealedBatch(sealed) => {
                    (Direction::In, sealed.transfers_left, sealed.octets())
                }
                Work::Strand(strand) if strand.is_read() => {
                    (Direction::Batches, strand.transfers_left, strand.length)
                }
                Work::Strand(strand) => (Direction::In, strand.transfers_left, strand.length),
                Work::Read(_)
                | Work::Commit(_)
                | Work::Size(_)
                | Work::Times(_)
                | Work::Grant(_) => continue,
            };
            let is_in_the_way = is_crowded && matches!(task.work, Work::SealedBatch(_));
            let mark = (begun, left);
            add((endpoint, direction), mark, u64::from(octets), task.work.file(), is_in_the_way);
        }
        for (begun, endpoint, loan) in self.loans.by_age() {
            let pin = match loan {
                Loan::Pin(pin) => Some(pin),
                Loan::Pins(pins) => pins.first(),
                Loan::Staging(_) => None,
            };
            let handle = pin.and_then(|pin| self.cache.pinned_file(pin));
            let file = handle.and_then(|handle| self.cache.find(&handle));
            add((endpoint, Direction::Out), (begun, 0), LOAN_BYTES_MAX, file, false);
        }
        present
    }
}
