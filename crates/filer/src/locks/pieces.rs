//! The locks of a file, and the changes that an owner makes to its own locks (POSIX semantics
//! within one owner).
//!
//! Invariants:
//! - The pieces of one owner never overlap. Two adjacent pieces differ in mode, attributes or
//!   phase, or at least one of them was restored from stable storage.
//! - A lock is in the slab, in the tree of its mode, in the counts of its owner, client and file,
//!   and (unless it belongs to no owner) in its owner's pieces. It is either in all of these places
//!   or in none.
//!
//! Every change of an owner's pieces goes through [`LockTable::edit`], which compares the state
//! before and after the change. So records and undo data follow every split, join and replacement.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dafs_types::StateId;

use super::action::HoldKey;
use super::action::{Hold, LockAction, LockId, LockRecord, Phase};
use super::interval::IntervalTree;
use super::owners::OwnerKey;
use super::range::ByteRange;
use super::request::{LockAttributes, LockMode};
use super::table::LockTable;
use super::waiters::WaiterKey;
use crate::FileKey;

/// The locks of one file.
#[derive(Debug, Default)]
pub(super) struct FileLocks {
    pub shared: IntervalTree,
    pub exclusive: IntervalTree,
    /// The locks (pieces) of each owner, by first byte.
    pub own: BTreeMap<OwnerKey, BTreeMap<u64, HoldKey>>,
    /// The waiting requests, oldest first.
    pub queue: Vec<WaiterKey>,
    pub holds: u32,
    /// The number of broken shared locks. If locks are advisory, these are the only shared locks
    /// that block writes.
    pub shared_broken: u32,
    /// The number of locks with auto-recovery, whose changes may have to be undone.
    pub undoing: u32,
}

impl FileLocks {
    /// Calls `visit` with each lock that may conflict with this mode, including locks of the
    /// requesting owner.
    pub(super) fn search<B>(
        &self,
        range: ByteRange,
        mode: LockMode,
        visit: &mut impl FnMut(HoldKey) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.exclusive.search(range, visit)?;
        match mode {
            LockMode::Read => ControlFlow::Continue(()),
            LockMode::Write => self.shared.search(range, visit),
        }
    }
}

/// A range and a mode that an owner requests. If granted, the piece replaces the owner's locks in
/// the range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub range: ByteRange,
    pub mode: LockMode,
    pub attributes: LockAttributes,
}

impl Piece {
    /// Returns true if a lock can be joined with this piece.
    fn joins(&self, hold: &Hold) -> bool {
        hold.phase == Phase::Held
            && hold.mode == self.mode
            && hold.attributes == self.attributes
            && hold.range.widened().overlaps(self.range)
    }
}

impl LockTable {
    /// Returns the keys of the owner's pieces that overlap a range, ordered by first byte.
    pub(super) fn pieces(&self, file: FileKey, owner: OwnerKey, range: ByteRange) -> Vec<HoldKey> {
        let Some(own) = self.files.get(&file).and_then(|locks| locks.own.get(&owner)) else {
            return Vec::new();
        };
        let before_end = own.range(..=range.last()).rev().map(|(_, &hold)| hold);
        let mut found: Vec<HoldKey> =
            before_end.take_while(|&hold| self.holds[hold].range.last() >= range.first()).collect();
        found.reverse();
        found
    }

    /// Returns the number of locks by which a file's total rises if this piece is granted. It may
    /// be negative.
    pub(super) fn growth(&self, file: FileKey, owner: OwnerKey, piece: &Piece) -> i64 {
        let touched = self.pieces(file, owner, piece.range.widened());
        let growth_of = |&hold: &HoldKey| {
            let hold = &self.holds[hold];
            if piece.joins(hold) { -1 } else { remainders(hold.range, piece.range) - 1 }
        };
        let apart = |hold: &&HoldKey| {
            let hold = &self.holds[**hold];
            hold.range.overlaps(piece.range) || piece.joins(hold)
        };
        1 + touched.iter().filter(apart).map(growth_of).sum::<i64>()
    }

    /// Returns the number of locks by which a file's total rises if this range is unlocked. It may
    /// be negative.
    pub(super) fn growth_of_cut(&self, file: FileKey, owner: OwnerKey, range: ByteRange) -> i64 {
        let pieces = self.pieces(file, owner, range);
        pieces.iter().map(|&hold| remainders(self.holds[hold].range, range) - 1).sum()
    }

    /// Changes an owner's pieces in a range, and queues the resulting actions for records and undo
    /// data.
    pub(super) fn edit(
        &mut self,
        file: FileKey,
        owner: OwnerKey,
        range: ByteRange,
        change: impl FnOnce(&mut Self),
    ) {
        let around = range.widened();
        let (records_before, undo_before) = self.promised(file, owner, around);
        change(self);
        let (records, undo) = self.promised(file, owner, around);
        // A record that grows is written before a record that shrinks. After a crash in between,
        // some bytes are in two records of one owner, but no byte is unrecorded.
        let grows = |record: &&LockRecord| {
            let old = records_before.iter().find(|old| old.id == record.id);
            old.is_none_or(|old| remainders(record.range, old.range) > 0)
        };
        let (grown, others): (Vec<_>, Vec<_>) = records.iter().partition(grows);
        for record in grown.into_iter().chain(others) {
            if !records_before.contains(record) {
                self.push(LockAction::WriteRecord(Box::new(record.clone())));
            }
        }
        for LockRecord { id, .. } in records_before {
            if !records.iter().any(|record| record.id == id) {
                self.push(LockAction::RemoveRecord(id));
            }
        }
        for range in subtract(&undo_before, &undo) {
            self.push(LockAction::DropUndo { file, range });
        }
        for range in subtract(&undo, &undo_before) {
            self.push(LockAction::KeepUndo { file, range });
        }
    }

    /// Returns the records of the owner's pieces in a range, and the ranges of these pieces that
    /// need undo data.
    fn promised(
        &self,
        file: FileKey,
        owner: OwnerKey,
        range: ByteRange,
    ) -> (Vec<LockRecord>, Vec<ByteRange>) {
        let pieces = self.pieces(file, owner, range);
        let records = pieces.iter().filter_map(|&hold| self.record(hold)).collect();
        let undone = |&&hold: &&HoldKey| self.holds[hold].attributes.auto_recovery;
        (records, pieces.iter().filter(undone).map(|&hold| self.holds[hold].range).collect())
    }

    /// Makes a piece a held lock of the owner, which replaces the owner's locks in its range.
    pub(super) fn place(&mut self, file: FileKey, owner: OwnerKey, state: StateId, piece: &Piece) {
        self.edit(file, owner, piece.range, |table| {
            let mut range = piece.range;
            let mut id: Option<LockId> = None;
            for number in table.pieces(file, owner, piece.range.widened()) {
                let hold = table.holds[number];
                if piece.joins(&hold) {
                    table.remove_hold(number);
                    range = range.hull(hold.range);
                } else if !hold.range.overlaps(piece.range)
                    || table.cut(number, piece.range) != [None, None]
                {
                    continue;
                }
                // The new piece covers the old piece completely, so it can reuse the old piece's
                // record.
                id = [id, hold.id].into_iter().flatten().min();
            }
            let (mode, attributes) = (piece.mode, piece.attributes);
            let id = attributes.recorded().then(|| id.unwrap_or_else(|| table.new_lock_id()));
            let phase = Phase::Held;
            table.add_hold(Hold { file, owner, state, range, mode, attributes, phase, id });
        });
    }

    /// Removes the owner's locks from a range.
    pub(super) fn carve(&mut self, file: FileKey, owner: OwnerKey, range: ByteRange) {
        self.edit(file, owner, range, |table| {
            for number in table.pieces(file, owner, range) {
                table.cut(number, range);
            }
        });
    }

    /// Removes a range from a lock. Returns the keys of the remaining parts before and after the
    /// range. The part before the range keeps the lock's record. If there is no such part, the part
    /// after the range keeps the record.
    pub(super) fn cut(&mut self, number: HoldKey, range: ByteRange) -> [Option<HoldKey>; 2] {
        let hold = self.remove_hold(number);
        let mut id = hold.id;
        [hold.range.left_of(range), hold.range.right_of(range)].map(|part| {
            let range = part?;
            let recorded = hold.attributes.recorded();
            let id = recorded.then(|| id.take().unwrap_or_else(|| self.new_lock_id()));
            Some(self.add_hold(Hold { range, id, ..hold }))
        })
    }

    /// Adds a lock to all indexes.
    pub(super) fn add_hold(&mut self, hold: Hold) -> HoldKey {
        let number = self.holds.insert(hold);
        let locks = self.files.entry(hold.file).or_default();
        match hold.mode {
            LockMode::Read => locks.shared.insert(hold.range, number),
            LockMode::Write => locks.exclusive.insert(hold.range, number),
        }
        locks.holds += 1;
        locks.shared_broken += u32::from(is_shared_broken(&hold));
        locks.undoing += u32::from(hold.attributes.auto_recovery);
        self.registry.charge(hold.owner, 1);
        if !hold.phase.is_orphan() {
            locks.own.entry(hold.owner).or_default().insert(hold.range.first(), number);
            self.registry.owner_mut(hold.owner).files.insert(hold.file);
        }
        number
    }

    /// Removes a lock. The caller must handle its record, and must remove the entries of the file
    /// and of the owner if they have no other locks or waiters.
    pub(super) fn remove_hold(&mut self, number: HoldKey) -> Hold {
        let hold = self.holds.remove(number).expect("a hold is removed once");
        let locks = self.files.get_mut(&hold.file).expect("a hold's file is known");
        match hold.mode {
            LockMode::Read => locks.shared.remove(hold.range, number),
            LockMode::Write => locks.exclusive.remove(hold.range, number),
        }
        locks.holds -= 1;
        locks.shared_broken -= u32::from(is_shared_broken(&hold));
        locks.undoing -= u32::from(hold.attributes.auto_recovery);
        self.registry.charge(hold.owner, -1);
        if !hold.phase.is_orphan() {
            self.disown(&hold);
        }
        hold
    }

    /// Sets the phase of a lock. A lock whose new phase has no owner is removed from its owner's
    /// pieces.
    pub(super) fn set_phase(&mut self, number: HoldKey, phase: Phase) {
        let before = self.holds[number];
        debug_assert!(!before.phase.is_orphan() || phase.is_orphan());
        let hold = &mut self.holds[number];
        hold.phase = phase;
        if phase.is_orphan() {
            hold.state = StateId::ANONYMOUS;
        }
        let after = *hold;
        let locks = self.files.get_mut(&after.file).expect("a hold's file is known");
        locks.shared_broken -= u32::from(is_shared_broken(&before));
        locks.shared_broken += u32::from(is_shared_broken(&after));
        if phase.is_orphan() && !before.phase.is_orphan() {
            self.disown(&before);
        }
    }

    fn disown(&mut self, hold: &Hold) {
        let locks = self.files.get_mut(&hold.file).expect("a hold's file is known");
        let own = locks.own.get_mut(&hold.owner).expect("an owner has pieces");
        own.remove(&hold.range.first());
        if own.is_empty() {
            locks.own.remove(&hold.owner);
            self.registry.owner_mut(hold.owner).files.remove(&hold.file);
        }
    }

    /// Removes the entry of a file that has neither locks nor waiters.
    pub(super) fn forget_file_if_idle(&mut self, file: FileKey) {
        if self.files.get(&file).is_some_and(|locks| locks.holds == 0 && locks.queue.is_empty()) {
            self.files.remove(&file);
        }
    }

    pub(super) fn new_lock_id(&mut self) -> LockId {
        let id = LockId(self.next_lock);
        self.next_lock += 1;
        id
    }

    /// Returns the record of a lock, if it has one.
    pub(super) fn record(&self, number: HoldKey) -> Option<LockRecord> {
        let hold = &self.holds[number];
        let id = hold.id?;
        let owner = self.registry.owner(hold.owner);
        let client = self.registry.client_of(hold.owner);
        Some(LockRecord {
            id,
            file: hold.file,
            client: owner.client,
            client_name: client.name.clone(),
            principal: client.principal.clone(),
            verifier: client.verifier,
            owner: owner.name.clone(),
            range: hold.range,
            mode: hold.mode,
            attributes: hold.attributes,
            phase: hold.phase.on_record(),
        })
    }

    /// Queues a rewrite of a lock's record after its phase has changed.
    pub(super) fn rewrite(&mut self, number: HoldKey) {
        if let Some(record) = self.record(number) {
            self.push(LockAction::WriteRecord(Box::new(record)));
        }
    }
}

fn is_shared_broken(hold: &Hold) -> bool {
    hold.mode == LockMode::Read && hold.phase.is_broken()
}

/// Returns the number of pieces that remain of `whole` after `cut` is removed: 0, 1 or 2.
pub(super) fn remainders(whole: ByteRange, cut: ByteRange) -> i64 {
    i64::from(whole.left_of(cut).is_some()) + i64::from(whole.right_of(cut).is_some())
}

/// Returns the parts of `from` that are not in `less`. The ranges in `from` must not overlap.
pub(super) fn subtract(from: &[ByteRange], less: &[ByteRange]) -> Vec<ByteRange> {
    let mut left = from.to_vec();
    for &cut in less {
        let parts = |range: ByteRange| {
            let [a, b] = match range.overlaps(cut) {
                true => [range.left_of(cut), range.right_of(cut)],
                false => [Some(range), None],
            };
            a.into_iter().chain(b)
        };
        left = left.into_iter().flat_map(parts).collect();
    }
    left
}
