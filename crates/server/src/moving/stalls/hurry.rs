//! Finds connections to break because other requests have waited too long for their transfers.

use std::collections::BTreeMap;

use dafs_dat::EndpointId;
use dafs_store::cache::{Cache, CachedFile};
use dafs_types::Moment;

use super::{Direction, Lane, Oldest, Stalls};
use crate::moving::transfer::Loans;
use crate::reply_to::TaskId;
use crate::task::{Tasks, Work};

impl Work {
    /// Returns the direction of the task's transfers and their length in bytes. `None` if the task
    /// waits for no transfers.
    fn moving(&self) -> Option<(Direction, u32)> {
        match self {
            Work::Write(write) => {
                let writing = &write.writing;
                let bytes = writing.token.as_ref().map_or(writing.length, |token| token.length());
                Some((Direction::In, bytes))
            }
            Work::Fetch(fetch) => Some((Direction::In, fetch.length)),
            Work::SealedBatch(sealed) => Some((Direction::In, sealed.bytes())),
            Work::Strand(strand) if strand.is_read() => {
                Some((Direction::Batches, strand.bytes_moving()))
            }
            Work::Strand(strand) => Some((Direction::In, strand.bytes_moving())),
            Work::Read(_)
            | Work::Commit(_)
            | Work::Flush(_)
            | Work::Size(_)
            | Work::Range(_)
            | Work::Times(_)
            | Work::Grant(_) => None,
        }
    }
}

/// The transfers in progress, and the state that shows which requests wait for them.
pub(crate) struct Transfers<'r> {
    pub tasks: &'r Tasks,
    pub loans: &'r Loans,
    pub cache: &'r Cache,
    /// True if undo data is kept, so that a rollback may wait for all transfers.
    pub keeps_undo: bool,
    /// True if waiting batches need the memory of the transfers of other batches.
    pub is_crowded: bool,
}

impl Stalls {
    /// Returns the connections whose transfers other requests have waited for too long.
    pub(crate) fn late(&mut self, transfers: &Transfers<'_>, now: Moment) -> Vec<EndpointId> {
        let is_awaited = transfers.are_awaited();
        if !is_awaited && !self.is_watching() {
            return Vec::new();
        }
        let present = if is_awaited { transfers.oldest() } else { BTreeMap::new() };
        self.note(&present, now).into_iter().map(|(endpoint, _)| endpoint).collect()
    }

    /// Removes a connection that has ended.
    pub(crate) fn forget(&mut self, endpoint: EndpointId) {
        self.seen.retain(|(other, _), _| *other != endpoint);
    }

    /// Counts the bytes of a task, whose transfers are now complete, as moved.
    pub(crate) fn note_transfers(&mut self, tasks: &Tasks, id: TaskId) {
        if self.is_watching()
            && let Some(task) = tasks.get(id)
            && let Some((direction, bytes)) = task.work.moving()
        {
            self.note_moved((task.reply_to.endpoint, direction), bytes);
        }
    }
}

impl Transfers<'_> {
    fn are_awaited(&self) -> bool {
        self.keeps_undo || self.is_crowded || self.tasks.await_progress()
    }

    /// Returns the oldest transfer of each lane (a connection and a direction).
    fn oldest(&self) -> BTreeMap<Lane, Oldest> {
        let (keeps_undo, is_crowded) = (self.keeps_undo, self.is_crowded);
        let mut present = BTreeMap::new();
        let mut add = |key: Lane, begun, bytes, file: Option<CachedFile>, is_in_the_way: bool| {
            let is_awaited = keeps_undo || is_in_the_way || self.tasks.is_awaited(file, key.0);
            let bytes = u64::from(bytes);
            let oldest = present.entry(key).or_insert(Oldest { begun, bytes, is_awaited });
            if begun < oldest.begun {
                (oldest.begun, oldest.bytes) = (begun, bytes);
            }
            oldest.is_awaited |= is_awaited;
        };
        for (begun, task) in self.tasks.with_transfers() {
            let Some((direction, bytes)) = task.work.moving() else { continue };
            let is_in_the_way = is_crowded && matches!(task.work, Work::SealedBatch(_));
            let lane = (task.reply_to.endpoint, direction);
            add(lane, begun, bytes, task.work.file(), is_in_the_way);
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
