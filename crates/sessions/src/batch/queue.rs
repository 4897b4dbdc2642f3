//! The queue of transfers, ordered by their priorities.
//!
//! Invariants:
//! - A transfer is in `places` from `add` until it has ended. While it is `Queued`, it is also in
//!   exactly one waiting set, the set for its priority; while it is `Parked`, it is also in
//!   `parked`.
//! - A transfer waits only for transfers of batches that were accepted earlier, so there are no
//!   cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use dafs_base::{Key, Slab};
use dafs_filer::{FileKey, IoKind};
use dafs_types::{CacheHint, Moment};
use dafs_wire::DirectBuffer;

use super::RequestKey;
use super::overlap::{OVERLAPS_MAX, OverlapIndex};

/// The number of consecutive runs of hurried transfers after which a run of other transfers is
/// chosen. This keeps a client that always sends HURRY_UP from starving clients that wait for their
/// window.
pub(super) const HURRIED_IN_A_ROW_MAX: u32 = 8;
/// The maximum number of transfers that are examined after the start of a run, to find transfers
/// that can join the run.
const GATHER_AFTER_MAX: usize = 1024;
/// The maximum number of transfers that are examined before the start of a run, each time that a
/// transfer has joined the run there.
const GATHER_BEFORE_MAX: usize = 16;

/// The priority of a transfer. Transfers with smaller values are started first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Priority {
    /// HURRY_UP was called for the transfer's request. The integer is the number of the call:
    /// earlier calls have smaller numbers.
    Hurried(u64),
    /// The window of the transfer's batch (the delay that its client accepts) has passed. Such
    /// transfers are ordered by file and offset.
    Due,
    /// The transfer may be delayed until this time.
    Held(Moment),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Queued,
    /// The transfer waits until the transfer with this key has ended.
    Parked(TransferKey),
    Running,
    Done,
}

/// The key of a transfer.
pub(super) type TransferKey = Key<Transfer>;

/// One transfer: a contiguous range of a file and a client buffer of the same length.
#[derive(Debug)]
pub(super) struct Transfer {
    pub request: RequestKey,
    /// The next transfer of the same request, which forms a linked list.
    pub next: TransferKey,
    pub file: FileKey,
    pub kind: IoKind,
    pub offset: u64,
    /// The offset of the transfer's first byte in the request's data.
    pub at: u32,
    pub buffer: DirectBuffer,
    pub hint: CacheHint,
    /// The position of the transfer's batch in the order in which batches were accepted.
    pub order: u64,
    pub priority: Priority,
    pub stage: Stage,
}

impl Transfer {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.length()
    }

    fn place(&self, index: TransferKey) -> Place {
        Place { file: self.file, offset: self.offset, index }
    }

    fn length(&self) -> u64 {
        u64::from(self.buffer.length)
    }

    fn range(&self) -> Range<u64> {
        self.offset..self.end()
    }

    /// Returns true if the transfer has not started.
    pub(super) fn waits(&self) -> bool {
        matches!(self.stage, Stage::Queued | Stage::Parked(_))
    }

    /// Returns true if the transfer overlaps a range of the file. `offset + length` may exceed 64
    /// bits.
    pub(super) fn touches(&self, offset: u64, length: u64) -> bool {
        self.offset < offset.saturating_add(length) && offset < self.end()
    }
}

/// The position of a transfer in a sweep. A sweep processes the files one after the other, each
/// from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    file: FileKey,
    offset: u64,
    index: TransferKey,
}

/// The number of transfers of one file that have not ended, and their greatest length.
#[derive(Debug, Default)]
struct FileLoad {
    count: u32,
    /// The length of the longest transfer that was added since the file last had no transfers.
    longest: u32,
}

/// The error that there are already [`OVERLAPS_MAX`] transfers near a new transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crowded {
    /// True if all of these transfers belong to the same batch as the new transfer.
    pub by_itself: bool,
}

#[derive(Debug)]
pub(super) struct TransferQueue {
    pub transfers: Slab<Transfer>,
    files: BTreeMap<FileKey, FileLoad>,
    places: BTreeSet<Place>,
    overlaps: OverlapIndex,
    hurried: BTreeSet<(u64, Place)>,
    /// The due transfers of the current sweep over the files.
    sweep: BTreeSet<Place>,
    /// The due transfers of the next sweep over the files. A transfer that becomes due during a
    /// sweep waits for the next sweep, so that no range of a file is skipped forever.
    next_sweep: BTreeSet<Place>,
    held: BTreeSet<(Moment, Place)>,
    /// Pairs of transfers: the transfer that blocks, and the transfer that waits for it.
    parked: BTreeSet<(TransferKey, TransferKey)>,
    hurries: u64,
    hurried_in_a_row: u32,
    /// A buffer for the members of a run that is being merged.
    gathered: Vec<TransferKey>,
}

impl TransferQueue {
    /// Creates an empty queue.
    pub(super) fn new() -> Self {
        Self {
            transfers: Slab::default(),
            files: BTreeMap::new(),
            places: BTreeSet::new(),
            overlaps: OverlapIndex::default(),
            hurried: BTreeSet::new(),
            sweep: BTreeSet::new(),
            next_sweep: BTreeSet::new(),
            held: BTreeSet::new(),
            parked: BTreeSet::new(),
            hurries: 0,
            hurried_in_a_row: 0,
            gathered: Vec::new(),
        }
    }

    /// Adds a transfer and returns its key.
    ///
    /// # Errors
    /// [`Crowded`] if too many other transfers are near the new transfer. The error says whether
    /// all of these belong to the same batch.
    pub(super) fn add(&mut self, transfer: Transfer) -> Result<TransferKey, Crowded> {
        debug_assert!(transfer.buffer.length > 0 && transfer.stage == Stage::Queued);
        let near = self.overlaps.near(transfer.file, transfer.kind, transfer.range());
        let (mut all, mut own) = (0, 0);
        for other in near.take(2 * OVERLAPS_MAX) {
            all += 1;
            own += usize::from(self.transfers[other].order == transfer.order);
        }
        if all >= OVERLAPS_MAX {
            return Err(Crowded { by_itself: own >= OVERLAPS_MAX });
        }
        let load = self.files.entry(transfer.file).or_default();
        load.count += 1;
        load.longest = load.longest.max(transfer.buffer.length);
        let index = self.transfers.insert(transfer);
        let transfer = &self.transfers[index];
        self.places.insert(transfer.place(index));
        self.overlaps.insert(transfer.file, transfer.kind, transfer.range(), index);
        self.enqueue(index);
        Ok(index)
    }

    /// Returns the time at which the next delayed transfer becomes due. `None` if no transfer is
    /// delayed.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.held.first().map(|&(due, _)| due)
    }

    /// Makes those delayed transfers due whose time has come.
    pub(super) fn promote(&mut self, now: Moment) {
        while let Some(&(due, place)) = self.held.first() {
            if due > now {
                break;
            }
            self.raise_priority(place.index, Priority::Due);
        }
    }

    /// Moves the transfers of a request, and the transfers that block them, ahead of all other
    /// transfers. `first` is the request's first transfer.
    pub(super) fn hurry(&mut self, first: TransferKey) {
        self.hurries += 1;
        let mut index = first;
        while index != Key::NULL {
            self.raise_priority(index, Priority::Hurried(self.hurries));
            index = self.transfers[index].next;
        }
    }

    /// Raises the priority of a transfer and of the transfers that it waits for.
    fn raise_priority(&mut self, mut index: TransferKey, priority: Priority) {
        loop {
            let transfer = &self.transfers[index];
            if priority >= transfer.priority {
                return;
            }
            match transfer.stage {
                Stage::Queued => {
                    self.dequeue(index);
                    self.transfers[index].priority = priority;
                    self.enqueue(index);
                    return;
                }
                Stage::Parked(blocker) => {
                    self.transfers[index].priority = priority;
                    index = blocker;
                }
                Stage::Running | Stage::Done => return,
            }
        }
    }

    fn enqueue(&mut self, index: TransferKey) {
        let place = self.transfers[index].place(index);
        let is_new = match self.transfers[index].priority {
            Priority::Hurried(order) => self.hurried.insert((order, place)),
            Priority::Due => self.next_sweep.insert(place),
            Priority::Held(due) => self.held.insert((due, place)),
        };
        debug_assert!(is_new);
    }

    fn dequeue(&mut self, index: TransferKey) {
        let place = self.transfers[index].place(index);
        let was_there = match self.transfers[index].priority {
            Priority::Hurried(order) => self.hurried.remove(&(order, place)),
            Priority::Due => self.sweep.remove(&place) || self.next_sweep.remove(&place),
            Priority::Held(due) => self.held.remove(&(due, place)),
        };
        debug_assert!(was_there);
    }

    /// Chooses the next run and marks its members as running; [`Self::members`] then returns them.
    /// If `early` is true, transfers that are not due may be chosen. Returns false if there is no
    /// run to start.
    pub(super) fn next_run(&mut self, early: bool, bytes_max: u32, pieces_max: u32) -> bool {
        let Some(leader) = self.next_leader(early) else { return false };
        let is_hurried = matches!(self.transfers[leader].priority, Priority::Hurried(_));
        self.hurried_in_a_row =
            if is_hurried { self.hurried_in_a_row.saturating_add(1) } else { 0 };
        let mut members = std::mem::take(&mut self.gathered);
        members.clear();
        self.gather(leader, bytes_max, pieces_max as usize, &mut members);
        for &index in &members {
            self.dequeue(index);
            self.transfers[index].stage = Stage::Running;
        }
        self.gathered = members;
        true
    }

    /// Returns the members of the most recently chosen run, ordered by offset.
    pub(super) fn members(&self) -> &[TransferKey] {
        &self.gathered
    }

    /// Returns the most urgent transfer that is not blocked. A blocked transfer is parked, and
    /// passes its priority on to the transfer that blocks it.
    fn next_leader(&mut self, early: bool) -> Option<TransferKey> {
        loop {
            let index = self.most_urgent(early)?;
            let Some(blocker) = self.blocker(index) else { return Some(index) };
            self.dequeue(index);
            self.transfers[index].stage = Stage::Parked(blocker);
            self.parked.insert((blocker, index));
            self.raise_priority(blocker, self.transfers[index].priority);
        }
    }

    fn most_urgent(&mut self, early: bool) -> Option<TransferKey> {
        if self.sweep.is_empty() {
            std::mem::swap(&mut self.sweep, &mut self.next_sweep);
        }
        let hurried = self.hurried.first().map(|&(_, place)| place.index);
        let due = self.sweep.first().map(|place| place.index);
        match (hurried, due) {
            (Some(hurried), None) => Some(hurried),
            (Some(hurried), Some(_)) if self.hurried_in_a_row < HURRIED_IN_A_ROW_MAX => {
                Some(hurried)
            }
            (_, Some(due)) => Some(due),
            (None, None) if early => self.held.first().map(|&(_, place)| place.index),
            (None, None) => None,
        }
    }

    /// Returns the transfer that this transfer must wait for: a transfer of an earlier batch that
    /// overlaps it, if at least one of the two is a write. If there are several, returns the most
    /// recently accepted. `None` if there is none.
    fn blocker(&self, index: TransferKey) -> Option<TransferKey> {
        let transfer = &self.transfers[index];
        let near = self.overlaps.near(transfer.file, transfer.kind, transfer.range());
        near.filter(|&other| {
            let other = &self.transfers[other];
            other.order < transfer.order && other.touches(transfer.offset, transfer.length())
        })
        .max_by_key(|&other| self.transfers[other].order)
    }

    /// Collects the transfers next to the leader in the file, on both sides, that can join its run.
    /// Only hurried transfers can join a hurried leader. All transfers can join any other leader,
    /// whether or not they are due.
    fn gather(
        &self,
        leader: TransferKey,
        bytes_max: u32,
        pieces_max: usize,
        members: &mut Vec<TransferKey>,
    ) {
        let first = &self.transfers[leader];
        let (mut start, mut end) = (first.offset, first.end());
        let fits = |start: u64, end: u64| end - start <= u64::from(bytes_max);
        let file = first.file;
        members.push(leader);
        // An adjacent transfer before the run ends where the run starts, so it starts at most the
        // longest transfer's length before the run.
        let longest = u64::from(self.files[&file].longest);
        while members.len() < pieces_max {
            let from = Place { file, offset: start.saturating_sub(longest), index: Key::MIN };
            let to = Place { file, offset: start, index: Key::MIN };
            let before = self.places.range(from..to).rev().take(GATHER_BEFORE_MAX).find(|place| {
                let other = &self.transfers[place.index];
                other.end() == start && fits(other.offset, end) && self.may_join(first, place.index)
            });
            let Some(place) = before else { break };
            members.push(place.index);
            start = place.offset;
        }
        members.reverse();
        let from = Place { file, offset: first.offset, index: Key::MIN };
        let to = Place { file, offset: u64::MAX, index: Key::MAX };
        for place in self.places.range(from..=to).take(GATHER_AFTER_MAX) {
            if place.offset > end || members.len() >= pieces_max {
                break;
            }
            let other = &self.transfers[place.index];
            // Reads of the same bytes share a run. A write must start where the previous write
            // ends.
            let lies_well = first.kind == IoKind::Read || place.offset == end;
            if place.index == leader || !lies_well || !fits(start, other.end().max(end)) {
                continue;
            }
            if self.may_join(first, place.index) {
                members.push(place.index);
                end = end.max(other.end());
            }
        }
    }

    fn may_join(&self, leader: &Transfer, index: TransferKey) -> bool {
        let other = &self.transfers[index];
        let as_urgent = match leader.priority {
            Priority::Hurried(_) => matches!(other.priority, Priority::Hurried(_)),
            Priority::Due | Priority::Held(_) => true,
        };
        other.stage == Stage::Queued
            && other.kind == leader.kind
            && as_urgent
            && self.blocker(index).is_none()
    }

    /// Ends a transfer that was executed, has failed, or was dropped before it started. Transfers
    /// that waited for this transfer are checked again. Its slot stays in use until `free` is
    /// called.
    pub(super) fn end(&mut self, index: TransferKey) {
        match self.transfers[index].stage {
            Stage::Queued => self.dequeue(index),
            Stage::Parked(blocker) => {
                self.parked.remove(&(blocker, index));
            }
            Stage::Running => {}
            Stage::Done => return debug_assert!(false, "a transfer ends once"),
        }
        let transfer = &mut self.transfers[index];
        transfer.stage = Stage::Done;
        let file = transfer.file;
        let transfer = &self.transfers[index];
        self.places.remove(&transfer.place(index));
        self.overlaps.remove(file, transfer.kind, transfer.range(), index);
        let load = self.files.get_mut(&file).expect("a file with transfers has a load");
        load.count -= 1;
        if load.count == 0 {
            self.files.remove(&file);
            self.overlaps.forget(file);
        }
        while let Some(&(blocker, waiter)) = self.parked.range((index, Key::MIN)..).next() {
            if blocker != index {
                break;
            }
            self.parked.remove(&(blocker, waiter));
            self.transfers[waiter].stage = Stage::Queued;
            self.enqueue(waiter);
        }
    }

    /// Frees the slots of a request's transfers, all of which must have ended.
    pub(super) fn free(&mut self, first: TransferKey) {
        let mut index = first;
        while index != Key::NULL {
            let transfer = self.transfers.remove(index).expect("a request has its transfers");
            debug_assert_eq!(transfer.stage, Stage::Done);
            index = transfer.next;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
            && self.files.is_empty()
            && self.overlaps.is_empty()
            && self.hurried.is_empty()
            && self.sweep.is_empty()
            && self.next_sweep.is_empty()
            && self.held.is_empty()
            && self.parked.is_empty()
    }
}
