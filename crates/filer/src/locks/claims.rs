//! Handles LOCK requests with REPAIR or RECLAIM.
//!
//! Invariant: only REPAIR gets a broken lock, and only RECLAIM by the owner gets a lock that has
//! survived a failure. REPAIR and RECLAIM ignore the queue and never wait.

use std::collections::BTreeSet;

use dafs_types::StateId;

use super::action::HoldKey;
use super::action::{Hold, LockAction};
use super::owners::OwnerKey;
use super::pieces::{Piece, remainders, subtract};
use super::range::ByteRange;
use super::request::{LockError, LockOwner, LockReply, LockRequest};
use super::table::LockTable;
use crate::FileKey;

impl LockTable {
    /// Handles REPAIR (draft 4.4.1.3), which takes over broken locks. The new lock has PERSIST even
    /// if the request does not ask for it, so that another failure cannot unlock data that is only
    /// half repaired.
    pub(super) fn repair(
        &mut self,
        owner: &LockOwner<'_>,
        who: Option<OwnerKey>,
        request: &LockRequest,
        piece: &Piece,
    ) -> Result<LockReply, LockError> {
        let file = request.file;
        if let Some(number) = self.break_breakable(file, who, piece.range, piece.mode) {
            return Ok(LockReply::Broken(self.conflict_of(number)));
        }
        let broken = self.broken_in(file, piece.range);
        let modes = broken.iter().map(|&number| self.holds[number].mode);
        if modes.max().is_none_or(|most| most > piece.mode) {
            return Err(LockError::NothingThere);
        }
        let under_way = |&&number: &&HoldKey| self.holds[number].phase.is_rolling_back();
        let other = self.live_in_way(file, who, piece.range, piece.mode);
        if let Some(number) = broken.iter().find(under_way).copied().or(other) {
            return Ok(LockReply::Denied(self.conflict_of(number)));
        }
        let mut piece = *piece;
        piece.attributes.persist = true;
        if let Some(who) = who {
            let mut pieces = self.pieces(file, who, piece.range).into_iter();
            if pieces.any(|own| !piece.attributes.include(self.holds[own].attributes)) {
                return Err(LockError::OptionsDiffer);
            }
        }
        let cuts = broken.iter().map(|&n| remainders(self.holds[n].range, piece.range) - 1);
        let own = who.map_or(1, |who| self.growth(file, who, &piece));
        self.check_limits(owner.name(), file, own + cuts.sum::<i64>())?;
        if let Some(waiter) = self.grant_deadlocks(who, file, &piece, None) {
            return Ok(LockReply::Deadlock(self.waiter_conflict(waiter)));
        }
        let entered = self.registry.enter(owner);
        self.set_state(file, entered, owner.state);
        self.take_over(&broken, file, entered, owner.state, &piece);
        self.wake_elsewhere(entered, file);
        self.counters.repaired += broken.len() as u64;
        Ok(LockReply::Granted)
    }

    /// Replaces broken locks with a lock of the repairing owner. The new record is written before
    /// the old records are removed. If a crash comes between, the restart finds both and uses the
    /// older records.
    fn take_over(
        &mut self,
        broken: &[HoldKey],
        file: FileKey,
        who: OwnerKey,
        state: StateId,
        piece: &Piece,
    ) {
        let (mut formers, mut left, mut gone) = (BTreeSet::new(), Vec::new(), Vec::new());
        for &number in broken {
            let hold = self.holds[number];
            formers.insert(hold.owner);
            match self.cut(number, piece.range) {
                [None, None] => gone.extend(hold.id),
                [before, behind] => left.extend([behind, before].into_iter().flatten()),
            }
        }
        self.place(file, who, state, piece);
        for number in left {
            self.rewrite(number);
        }
        for id in gone {
            self.push(LockAction::RemoveRecord(id));
        }
        for former in formers {
            self.registry.forget_if_idle(former);
        }
    }

    /// Handles RECLAIM (draft 4.4.1.6). A lock with options can be reclaimed as long as it exists,
    /// during and after the grace period. A plain lock can be reclaimed only during the grace
    /// period, because afterwards conflicting locks may have been granted.
    pub(super) fn reclaim(
        &mut self,
        owner: &LockOwner<'_>,
        who: Option<OwnerKey>,
        request: &LockRequest,
        piece: &Piece,
    ) -> Result<LockReply, LockError> {
        let file = request.file;
        if let Some(number) = self.broken_in_way(file, piece.range, piece.mode) {
            return Ok(LockReply::Broken(self.conflict_of(number)));
        }
        let kept = who.is_some_and(|who| self.has_kept(file, who, piece));
        if !kept && (piece.attributes.recorded() || !self.grace) {
            return Err(LockError::Lost);
        }
        if let Some(number) = self.live_in_way(file, who, piece.range, piece.mode) {
            return Ok(LockReply::Denied(self.conflict_of(number)));
        }
        self.grant(owner, who, request, piece, None)
    }

    /// Returns true if the owner's locks cover the whole range with exactly this mode and these
    /// attributes.
    fn has_kept(&self, file: FileKey, who: OwnerKey, piece: &Piece) -> bool {
        let same = |hold: &&Hold| hold.mode == piece.mode && hold.attributes == piece.attributes;
        let pieces = self.pieces(file, who, piece.range);
        let holds = pieces.iter().map(|&number| &self.holds[number]).filter(same);
        let kept: Vec<ByteRange> = holds.map(|hold| hold.range).collect();
        subtract(&[piece.range], &kept).is_empty()
    }
}
