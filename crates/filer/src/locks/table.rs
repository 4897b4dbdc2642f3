//! The lock table, which handles LOCK, LOCKT, LOCKU and ABORT.
//!
//! Invariants:
//! - Two locks overlap only if both belong to one owner or both are shared.
//! - After every call, each waiter was reported as ready, or is blocked by a lock or an earlier
//!   request of another owner.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dafs_base::Slab;
use dafs_types::{Moment, StateId};

use super::action::HoldKey;
use super::action::{Hold, LockAction, Phase, RollbackId, Then};
use super::config::{AutoRecovery, LockConfig};
use super::owners::OwnerKey;
use super::owners::Registry;
use super::pieces::{FileLocks, Piece, remainders};
use super::range::ByteRange;
use super::report::LockCounters;
use super::request::{
    Claim, LockConflict, LockError, LockMode, LockOwner, LockReply, LockRequest, LockTestReply,
    OwnerName, WaiterId,
};
use super::waiters::Waiter;
use super::waiters::WaiterKey;
use super::watches::Watches;
use crate::FileKey;

/// All byte-range locks of a server.
///
/// After every call that takes `&mut self`, the server must call [`LockTable::poll_action`] until
/// it returns `None`, and execute the actions before it replies to the request.
#[derive(Debug)]
pub struct LockTable {
    pub(super) config: LockConfig,
    pub(super) grace: bool,
    pub(super) holds: Slab<Hold>,
    pub(super) files: BTreeMap<FileKey, FileLocks>,
    pub(super) registry: Registry,
    pub(super) waiters: Slab<Waiter>,
    pub(super) waiter_ids: BTreeMap<WaiterId, WaiterKey>,
    /// The files that have a queue of waiters.
    pub(super) queued: BTreeSet<FileKey>,
    /// The files whose queues must be checked again, because a request for another file has closed
    /// a cycle of owners that wait for each other.
    pub(super) recheck: BTreeSet<FileKey>,
    pub(super) watches: Watches,
    pub(super) rollbacks: BTreeMap<RollbackId, HoldKey>,
    pub(super) next_lock: u64,
    pub(super) next_rollback: u64,
    pub(super) actions: VecDeque<LockAction>,
    pub(super) counters: LockCounters,
}

impl LockTable {
    /// Creates an empty table that is not in a grace period.
    #[must_use]
    pub fn new(config: LockConfig) -> Self {
        Self {
            config,
            grace: false,
            holds: Slab::default(),
            files: BTreeMap::new(),
            registry: Registry::default(),
            waiters: Slab::default(),
            waiter_ids: BTreeMap::new(),
            queued: BTreeSet::new(),
            recheck: BTreeSet::new(),
            watches: Watches::default(),
            rollbacks: BTreeMap::new(),
            next_lock: 1,
            next_rollback: 1,
            actions: VecDeque::new(),
            counters: LockCounters::default(),
        }
    }

    /// Removes and returns the next action; see [`LockAction`].
    pub fn poll_action(&mut self) -> Option<LockAction> {
        self.actions.pop_front()
    }

    pub(super) fn push(&mut self, action: LockAction) {
        self.actions.push_back(action);
    }

    /// Returns true if there are no locks, so that reads and writes need no check.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// Handles LOCK (draft 6.5.18). The caller must have checked the grace period, unless the
    /// request is a reclaim. After every result except [`LockReply::Waiting`], the request no
    /// longer waits.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn lock(
        &mut self,
        owner: &LockOwner<'_>,
        request: &LockRequest,
        now: Moment,
    ) -> Result<LockReply, LockError> {
        self.expire_waiters(Some(request.file), now);
        let answer = self.decide(owner, request, now);
        self.counters.count(request.claim, &answer);
        if answer.is_err() && request.claim == Claim::New {
            // After an error the request no longer waits, so it must not block other requests for
            // the range.
            self.give_up_place(owner.name(), request);
        }
        if let Some(number) = self.registry.find(owner.name()) {
            self.registry.forget_if_idle(number);
        }
        self.settle(request.file, now);
        let elsewhere = std::mem::take(&mut self.recheck);
        self.settle_all(elsewhere, now);
        answer
    }

    fn give_up_place(&mut self, owner: OwnerName<'_>, request: &LockRequest) {
        let range = ByteRange::new(request.offset, request.length);
        let (Some(who), Some(range)) = (self.registry.find(owner), range) else { return };
        let LockRequest { mode, attributes, .. } = *request;
        let waiting = self.waiting(request.file, who, &Piece { range, mode, attributes });
        self.leave_queue(waiting);
    }

    fn decide(
        &mut self,
        owner: &LockOwner<'_>,
        request: &LockRequest,
        now: Moment,
    ) -> Result<LockReply, LockError> {
        let range = ByteRange::new(request.offset, request.length).ok_or(LockError::Range)?;
        self.check_options(request, range)?;
        let who = self.registry.find(owner.name());
        if let Some(who) = who {
            self.check_own(request, who, range)?;
        }
        let LockRequest { mode, attributes, .. } = *request;
        let piece = Piece { range, mode, attributes };
        match request.claim {
            Claim::New => self.lock_new(owner, who, request, &piece, now),
            Claim::Reclaim => self.reclaim(owner, who, request, &piece),
            Claim::Repair => self.repair(owner, who, request, &piece),
        }
    }

    /// Checks that the server supports the options of a request. A shared lock with AUTORECOVERY is
    /// refused: it permits no changes, and a rollback would change data under the shared locks of
    /// other owners.
    fn check_options(&self, request: &LockRequest, range: ByteRange) -> Result<(), LockError> {
        let wanted = request.attributes;
        let undo_served = match self.config.auto_recovery {
            AutoRecovery::None => false,
            AutoRecovery::WholeFile => range == ByteRange::WHOLE,
            AutoRecovery::Ranges => true,
        };
        let undo_fits = undo_served && request.mode == LockMode::Write;
        let persist = wanted.persist || request.claim == Claim::Repair;
        if (persist && !self.config.persistent) || (wanted.auto_recovery && !undo_fits) {
            return Err(LockError::NotSupported);
        }
        Ok(())
    }

    /// Checks a request against the locks that its owner already has. The request may add an option
    /// to these locks, but not remove one, because that would silently weaken the protection of the
    /// data.
    fn check_own(
        &self,
        request: &LockRequest,
        who: OwnerKey,
        range: ByteRange,
    ) -> Result<(), LockError> {
        for number in self.pieces(request.file, who, range) {
            let hold = &self.holds[number];
            if hold.phase.is_rolling_back() {
                return Err(LockError::RollingBack);
            }
            if !request.attributes.include(hold.attributes) && request.claim != Claim::Repair {
                return Err(LockError::OptionsDiffer);
            }
        }
        Ok(())
    }

    fn lock_new(
        &mut self,
        owner: &LockOwner<'_>,
        who: Option<OwnerKey>,
        request: &LockRequest,
        piece: &Piece,
        now: Moment,
    ) -> Result<LockReply, LockError> {
        let file = request.file;
        self.break_breakable(file, who, piece.range, piece.mode);
        let waiting = who.and_then(|who| self.waiting(file, who, piece));
        if let Some(number) = self.broken_in_way(file, piece.range, piece.mode) {
            let conflict = self.conflict_of(number);
            self.leave_queue(waiting);
            return Ok(LockReply::Broken(conflict));
        }
        let Some(blocker) = self.blocker(file, who, piece.range, piece.mode, waiting) else {
            return self.grant(owner, who, request, piece, waiting);
        };
        let conflict = self.blocker_conflict(blocker);
        match request.wait.id() {
            None => {
                self.leave_queue(waiting);
                Ok(LockReply::Denied(conflict))
            }
            Some(_) => self.enqueue(owner, request, piece, waiting, conflict, now),
        }
    }

    /// Grants a lock, unless the grant would make an owner wait for itself.
    pub(super) fn grant(
        &mut self,
        owner: &LockOwner<'_>,
        who: Option<OwnerKey>,
        request: &LockRequest,
        piece: &Piece,
        waiting: Option<WaiterKey>,
    ) -> Result<LockReply, LockError> {
        let file = request.file;
        let growth = who.map_or(1, |who| self.growth(file, who, piece));
        self.check_limits(owner.name(), file, growth)?;
        if let Some(waiter) = self.grant_deadlocks(who, file, piece, waiting) {
            self.leave_queue(waiting);
            return Ok(LockReply::Deadlock(self.waiter_conflict(waiter)));
        }
        let who = self.registry.enter(owner);
        self.leave_queue(waiting);
        self.set_state(file, who, owner.state);
        self.place(file, who, owner.state, piece);
        self.wake_elsewhere(who, file);
        Ok(LockReply::Granted)
    }

    /// Handles LOCKT (draft 6.5.19). A test breaks no lock: a breakable lock is reported as held.
    ///
    /// # Errors
    /// [`LockError::Range`] if the range is invalid.
    pub fn test(
        &self,
        owner: OwnerName<'_>,
        file: FileKey,
        offset: u64,
        length: u64,
        mode: LockMode,
    ) -> Result<LockTestReply, LockError> {
        let range = ByteRange::new(offset, length).ok_or(LockError::Range)?;
        let who = self.registry.find(owner);
        if let Some(number) = self.broken_in_way(file, range, mode) {
            return Ok(LockTestReply::Broken(self.conflict_of(number)));
        }
        let held = self.live_in_way(file, who, range, mode);
        Ok(held.map_or(LockTestReply::Free, |n| LockTestReply::Denied(self.conflict_of(n))))
    }

    /// Returns true if an owner holds a lock in a file.
    #[must_use]
    pub fn holds_any(&self, owner: OwnerName<'_>, file: FileKey) -> bool {
        let who = self.registry.find(owner);
        who.is_some_and(|who| !self.pieces(file, who, ByteRange::WHOLE).is_empty())
    }

    /// Handles LOCKU (draft 6.5.20): ends the owner's locks in a range, whatever their mode.
    /// Changes under auto-recovery locks become final. The call succeeds even if there are no locks
    /// in the range.
    ///
    /// # Errors
    /// [`LockError::Range`]; [`LockError::RollingBack`]; [`LockError::SubRange`];
    /// [`LockError::Resource`] if splitting a lock in two would exceed a limit.
    pub fn unlock(
        &mut self,
        owner: OwnerName<'_>,
        file: FileKey,
        offset: u64,
        length: u64,
        now: Moment,
    ) -> Result<(), LockError> {
        let range = ByteRange::new(offset, length).ok_or(LockError::Range)?;
        let Some(who) = self.registry.find(owner) else { return Ok(()) };
        let pieces = self.pieces(file, who, range);
        if pieces.iter().any(|&number| self.holds[number].phase.is_rolling_back()) {
            return Err(LockError::RollingBack);
        }
        self.check_undo_whole(&pieces, range)?;
        self.check_limits(owner, file, self.growth_of_cut(file, who, range))?;
        self.carve(file, who, range);
        self.registry.forget_if_idle(who);
        self.settle(file, now);
        Ok(())
    }

    /// Handles LOCK of kind ABORT (draft 4.4.1.4): rolls back the changes that the owner made under
    /// its auto-recovery locks in a range. When the returned rollbacks are done, the locks are
    /// still held, without undo data, and the server replies to the request.
    ///
    /// # Errors
    /// [`LockError::NothingThere`] if the owner has no such lock; [`LockError::Lost`] if one of the
    /// locks was not reclaimed yet; the errors of [`LockTable::unlock`].
    pub fn abort(
        &mut self,
        owner: OwnerName<'_>,
        file: FileKey,
        offset: u64,
        length: u64,
    ) -> Result<Vec<RollbackId>, LockError> {
        let range = ByteRange::new(offset, length).ok_or(LockError::Range)?;
        let who = self.registry.find(owner).ok_or(LockError::NothingThere)?;
        let mut pieces = self.pieces(file, who, range);
        pieces.retain(|&number| self.holds[number].attributes.auto_recovery);
        if pieces.is_empty() {
            return Err(LockError::NothingThere);
        }
        for &number in &pieces {
            match self.holds[number].phase {
                Phase::Held => {}
                Phase::RollingBack { .. } => return Err(LockError::RollingBack),
                Phase::Survived | Phase::Breakable | Phase::Broken => return Err(LockError::Lost),
            }
        }
        self.check_undo_whole(&pieces, range)?;
        let growth = pieces.iter().map(|&n| remainders(self.holds[n].range, range)).sum();
        self.check_limits(owner, file, growth)?;
        self.edit(file, who, range, |table| {
            for number in pieces {
                let hold = table.holds[number];
                let middle = hold.range.intersection(range).expect("the piece overlaps");
                let [left, right] = table.cut(number, range);
                let fresh = left.is_some() || right.is_some();
                let id = if fresh { Some(table.new_lock_id()) } else { hold.id };
                table.add_hold(Hold { range: middle, id, ..hold });
            }
        });
        let mut inside = self.pieces(file, who, range);
        inside.retain(|&number| self.holds[number].attributes.auto_recovery);
        Ok(inside.into_iter().map(|n| self.begin_rollback(n, Then::Held)).collect())
    }

    /// Checks that no auto-recovery lock would be split, if the server keeps undo data only for
    /// whole files.
    fn check_undo_whole(&self, pieces: &[HoldKey], range: ByteRange) -> Result<(), LockError> {
        let parted = |&number: &HoldKey| {
            let hold = &self.holds[number];
            hold.attributes.auto_recovery && remainders(hold.range, range) > 0
        };
        match self.config.auto_recovery {
            AutoRecovery::WholeFile if pieces.iter().any(parted) => Err(LockError::SubRange),
            AutoRecovery::WholeFile | AutoRecovery::Ranges | AutoRecovery::None => Ok(()),
        }
    }

    /// Checks that the limits allow an owner this many more locks.
    pub(super) fn check_limits(
        &self,
        owner: OwnerName<'_>,
        file: FileKey,
        growth: i64,
    ) -> Result<(), LockError> {
        if growth <= 0 {
            return Ok(());
        }
        let of_owner = self.registry.find(owner).map_or(0, |who| self.registry.owner(who).holds);
        let of_client = self.registry.client(owner.client).map_or(0, |client| client.holds);
        let of_file = self.files.get(&file).map_or(0, |locks| locks.holds);
        let limits = [
            (of_owner, self.config.locks_per_owner_max),
            (of_client, self.config.locks_per_client_max),
            (of_file, self.config.locks_per_file_max),
            (self.holds.len() as u32, self.config.locks_max),
        ];
        let exceeded = |&(held, most): &(u32, u32)| i64::from(held) + growth > i64::from(most);
        if limits.iter().any(exceeded) { Err(LockError::Resource) } else { Ok(()) }
    }

    /// Records the owner's present open of a file in the owner's locks of the file. Locks that the
    /// owner has not reclaimed yet are not changed.
    pub(super) fn set_state(&mut self, file: FileKey, who: OwnerKey, state: StateId) {
        for number in self.pieces(file, who, ByteRange::WHOLE) {
            let hold = &mut self.holds[number];
            if hold.state != StateId::ANONYMOUS {
                hold.state = state;
            }
        }
    }

    pub(super) fn conflict_of(&self, number: HoldKey) -> LockConflict {
        let hold = &self.holds[number];
        let owner = self.registry.owner(hold.owner);
        LockConflict {
            client: owner.client,
            owner: owner.name.clone(),
            range: hold.range,
            mode: hold.mode,
        }
    }
}
