//! Breaking connections that others wait for in vain.

use std::collections::BTreeMap;

use dafs_store::cache::CachedFile;

use super::{Direction, Lane, Oldest};
use crate::reactor::Reactor;
use crate::reply_to::TaskId;
use crate::task::Work;

impl Work {
    /// What of its transfers is under way, if it waits for some.
    fn moving(&self) -> Option<(Direction, u32)> {
        match self {
            Work::Write(write) => {
                let writing = &write.writing;
                let octets = writing.token.as_ref().map_or(writing.length, |token| token.length());
                Some((Direction::In, octets))
            }
            Work::Fetch(fetch) => Some((Direction::In, fetch.length)),
            Work::SealedBatch(sealed) => Some((Direction::In, sealed.octets())),
            Work::Strand(strand) if strand.is_read() => {
                Some((Direction::Batches, strand.octets_moving()))
            }
            Work::Strand(strand) => Some((Direction::In, strand.octets_moving())),
            Work::Read(_)
            | Work::Commit(_)
            | Work::Flush(_)
            | Work::Size(_)
            | Work::Times(_)
            | Work::Grant(_) => None,
        }
    }
}

impl Reactor {
    /// Breaks the connections that others wait for in vain.
    pub(crate) fn hurry_transfers(&mut self) {
        let keeps_undo = self.ledger.as_ref().is_some_and(|l| l.undo.is_at_work());
        let is_crowded = self.is_crowded_by_batches();
        let is_awaited = keeps_undo || is_crowded || self.tasks.await_progress();
        if !is_awaited && !self.stalls.is_watching() {
            return;
        }
        let channels = &self.channels;
        self.stalls.seen.retain(|(endpoint, _), _| channels.get(*endpoint).is_some());
        let present = match is_awaited {
            true => self.oldest_transfers(keeps_undo, is_crowded),
            false => BTreeMap::new(),
        };
        for (endpoint, _) in self.stalls.note(&present, self.life.now()) {
            if let Some(channel) = self.channels.get(endpoint) {
                tracing::warn!(
                    from = %channel.peer,
                    "others wait for a transfer that does not end: the connection is broken"
                );
                self.give_up(endpoint);
            }
        }
    }

    /// All that a task has waited for is moved.
    pub(crate) fn note_transfers(&mut self, id: TaskId) {
        if self.stalls.is_watching()
            && let Some(task) = self.tasks.get(id)
            && let Some((direction, octets)) = task.work.moving()
        {
            self.stalls.note_moved((task.reply_to.endpoint, direction), octets);
        }
    }

    /// The oldest transfers of every connection.
    fn oldest_transfers(&self, keeps_undo: bool, is_crowded: bool) -> BTreeMap<Lane, Oldest> {
        let mut present = BTreeMap::new();
        let mut add = |key: Lane, begun, octets, file: Option<CachedFile>, is_in_the_way: bool| {
            let is_awaited = keeps_undo || is_in_the_way || self.tasks.is_awaited(file, key.0);
            let octets = u64::from(octets);
            let oldest = present.entry(key).or_insert(Oldest { begun, octets, is_awaited });
            if begun < oldest.begun {
                (oldest.begun, oldest.octets) = (begun, octets);
            }
            oldest.is_awaited |= is_awaited;
        };
        for (begun, task) in self.tasks.with_transfers() {
            let Some((direction, octets)) = task.work.moving() else { continue };
            let is_in_the_way = is_crowded && matches!(task.work, Work::SealedBatch(_));
            let lane = (task.reply_to.endpoint, direction);
            add(lane, begun, octets, task.work.file(), is_in_the_way);
        }
        for (_, lent) in self.loans.iter() {
            let pin = lent.loan.first_pin();
            let handle = pin.and_then(|pin| self.cache.pinned_file(pin));
            let file = handle.and_then(|handle| self.cache.find(&handle));
            add((lent.endpoint, Direction::Out), lent.number, lent.length, file, false);
        }
        present
    }
}
