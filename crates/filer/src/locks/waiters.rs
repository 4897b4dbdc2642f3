//! The queue of waiting requests.
//!
//! Invariants:
//! - Conflicting requests for a file are served in the order of their arrival, with one exception:
//!   a request passes an earlier request that is not ready if the owner of the earlier request
//!   waits, directly or through other owners, for the owner of the later request. Without this
//!   exception the order of the queue alone could make two requests wait for each other.
//! - No earlier request blocks a waiter that is ready.

use dafs_base::Key;
use dafs_types::{Moment, StateId};

use super::action::HoldKey;
use super::action::{Hold, LockAction, Phase};
use super::deadlocks::{Edges, Reach};
use super::owners::OwnerKey;
use super::pieces::Piece;
use super::range::ByteRange;
use super::request::{
    LockConflict, LockError, LockMode, LockOwner, LockReply, LockRequest, OwnerName, Wait, WaiterId,
};
use super::table::LockTable;
use super::watches::{LockWatch, Watch};
use crate::FileKey;

/// The key of a waiter.
pub(super) type WaiterKey = Key<Waiter>;

/// A waiting request in the queue of a file.
#[derive(Debug)]
pub(super) struct Waiter {
    pub id: WaiterId,
    pub file: FileKey,
    pub owner: OwnerKey,
    pub state: StateId,
    pub piece: Piece,
    /// The time at which the request loses its position, unless its client repeats it before.
    /// `None` if the server keeps the request parked.
    pub expires: Option<Moment>,
    /// True if the server was told that nothing blocks the request any more.
    pub ready: bool,
}

/// A lock or request that blocks another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocker {
    /// A conflicting lock.
    Hold(HoldKey),
    /// An earlier request.
    Waiter(WaiterKey),
}

impl LockTable {
    /// Breaks all breakable locks that conflict with a request (draft 4.4.1.5). Returns the first
    /// of these locks.
    pub(super) fn break_breakable(
        &mut self,
        file: FileKey,
        who: Option<OwnerKey>,
        range: ByteRange,
        mode: LockMode,
    ) -> Option<HoldKey> {
        let breakable = |hold: &Hold| hold.phase == Phase::Breakable && !hold.is_of(who);
        let found = self.holds_in(file, range, mode, breakable);
        for &number in &found {
            self.break_hold(number);
        }
        found.first().copied()
    }

    /// Returns the key of the waiting request if the owner already waits with exactly the same
    /// request.
    pub(super) fn waiting(&self, file: FileKey, who: OwnerKey, piece: &Piece) -> Option<WaiterKey> {
        let asked = |piece: &Piece| (piece.range, piece.mode, piece.attributes);
        let same = |&&number: &&WaiterKey| {
            let waiter = &self.waiters[number];
            waiter.file == file && asked(&waiter.piece) == asked(piece)
        };
        self.registry.owner(who).waiters.iter().find(same).copied()
    }

    /// Returns the lock or earlier request that blocks the request at this position of the queue;
    /// the position after the last means a new request. Broken locks are ignored, because a request
    /// gets LOCK_BROKEN instead of waiting for them.
    pub(super) fn blocker(
        &self,
        file: FileKey,
        who: Option<OwnerKey>,
        range: ByteRange,
        mode: LockMode,
        place: Option<WaiterKey>,
    ) -> Option<Blocker> {
        if let Some(number) = self.live_in_way(file, who, range, mode) {
            return Some(Blocker::Hold(number));
        }
        let in_order = |&number: &WaiterKey| {
            let Waiter { owner: earlier, ready, .. } = self.waiters[number];
            let waits_for = |who| self.reaches(earlier, who, Edges::All) != Reach::No;
            ready || !who.is_some_and(waits_for)
        };
        self.requests_before(file, who, range, mode, place).find(in_order).map(Blocker::Waiter)
    }

    /// Returns the earlier requests of other owners that this request conflicts with.
    pub(super) fn requests_before(
        &self,
        file: FileKey,
        who: Option<OwnerKey>,
        range: ByteRange,
        mode: LockMode,
        place: Option<WaiterKey>,
    ) -> impl Iterator<Item = WaiterKey> {
        let queue = self.files.get(&file).map_or(&[][..], |locks| &locks.queue);
        let earlier = queue.iter().copied().take_while(move |&number| Some(number) != place);
        earlier.filter(move |&number| {
            let Waiter { owner, piece, .. } = &self.waiters[number];
            Some(*owner) != who && piece.range.overlaps(range) && piece.mode.conflicts(mode)
        })
    }

    /// Adds a request to the queue. A request that is already in the queue keeps its position.
    pub(super) fn enqueue(
        &mut self,
        owner: &LockOwner<'_>,
        request: &LockRequest,
        piece: &Piece,
        waiting: Option<WaiterKey>,
        conflict: LockConflict,
        now: Moment,
    ) -> Result<LockReply, LockError> {
        let file = request.file;
        let (id, expires) = match request.wait {
            Wait::No => return Ok(LockReply::Denied(conflict)),
            Wait::Poll(id) => (id, Some(now.after(self.config.waiter_silence_max))),
            Wait::Parked(id) => (id, None),
        };
        if self.waiter_ids.get(&id).is_some_and(|&number| Some(number) != waiting) {
            return Err(LockError::Contradiction);
        }
        if let Some(who) = self.registry.find(owner.name()) {
            match self.wait_deadlocks(file, who, piece) {
                Reach::No => {}
                Reach::Yes => {
                    self.leave_queue(waiting);
                    return Ok(LockReply::Deadlock(conflict));
                }
                Reach::Unknown => return Err(LockError::Resource),
            }
        }
        let number = match waiting {
            Some(number) => number,
            None => self.append_waiter(owner, file, piece, id)?,
        };
        let waiter = &mut self.waiters[number];
        (waiter.expires, waiter.ready, waiter.state) = (expires, false, owner.state);
        let old = std::mem::replace(&mut waiter.id, id);
        self.waiter_ids.remove(&old);
        self.waiter_ids.insert(id, number);
        if waiting.is_none() {
            let who = self.waiters[number].owner;
            self.wake_elsewhere(who, file);
        }
        Ok(LockReply::Waiting { position: self.position(number), conflict })
    }

    fn append_waiter(
        &mut self,
        owner: &LockOwner<'_>,
        file: FileKey,
        piece: &Piece,
        id: WaiterId,
    ) -> Result<WaiterKey, LockError> {
        let who = self.registry.find(owner.name());
        let of_owner = who.map_or(0, |who| self.registry.owner(who).waiters.len());
        let of_file = self.files.get(&file).map_or(0, |locks| locks.queue.len());
        if self.waiters.len() >= self.config.waiters_max as usize
            || of_file >= self.config.waiters_per_file_max as usize
            || of_owner >= self.config.waiters_per_owner_max as usize
        {
            return Err(LockError::Resource);
        }
        let who = self.registry.enter(owner);
        let number = self.waiters.insert(Waiter {
            id,
            file,
            owner: who,
            state: owner.state,
            piece: *piece,
            expires: None,
            ready: false,
        });
        self.registry.owner_mut(who).waiters.push(number);
        self.files.entry(file).or_default().queue.push(number);
        self.queued.insert(file);
        Ok(number)
    }

    /// Returns the number of requests before this one in its file's queue.
    pub(super) fn position(&self, number: WaiterKey) -> u32 {
        let queue = &self.files[&self.waiters[number].file].queue;
        queue.iter().take_while(|&&other| other != number).count() as u32
    }

    /// Removes a waiter from its queue. The caller must call `settle` for the file, and must remove
    /// the entry of an owner that has no other locks or waiters.
    pub(super) fn leave_queue(&mut self, waiting: Option<WaiterKey>) {
        let Some(number) = waiting else { return };
        let waiter = self.waiters.remove(number).expect("a waiter leaves once");
        self.waiter_ids.remove(&waiter.id);
        self.registry.owner_mut(waiter.owner).waiters.retain(|&other| other != number);
        let locks = self.files.get_mut(&waiter.file).expect("a waiter's file is known");
        locks.queue.retain(|&other| other != number);
        if locks.queue.is_empty() {
            self.queued.remove(&waiter.file);
        }
    }

    /// Removes a waiter and queues `action` for the server. Also removes the entry of the waiter's
    /// owner if the owner has no other locks or waiters.
    pub(super) fn dismiss(&mut self, number: WaiterKey, action: LockAction) {
        let owner = self.waiters[number].owner;
        self.leave_queue(Some(number));
        self.registry.forget_if_idle(owner);
        self.push(action);
    }

    /// Reports that the server has cancelled a waiting request. Returns false if the request was
    /// not waiting any more.
    pub fn cancel(&mut self, waiter: WaiterId, now: Moment) -> bool {
        let Some(&number) = self.waiter_ids.get(&waiter) else { return false };
        let Waiter { file, owner, .. } = self.waiters[number];
        self.leave_queue(Some(number));
        self.registry.forget_if_idle(owner);
        self.settle(file, now);
        true
    }

    /// Removes the waiting requests that their clients have not repeated in time, and the watches
    /// whose time is over. Must be called when the time that [`LockTable::next_expiry`] returned
    /// has passed.
    pub fn on_tick(&mut self, now: Moment) {
        self.expire_waiters(None, now);
        self.expire_watches(now);
    }

    /// Returns the time at which the next waiting request loses its position unless its client
    /// repeats it. `None` if no client polls.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Moment> {
        self.waiters.iter().filter_map(|(_, waiter)| waiter.expires).min()
    }

    /// Removes the waiting requests that their clients have not repeated in time, in one file or in
    /// all files.
    pub(super) fn expire_waiters(&mut self, file: Option<FileKey>, now: Moment) {
        let files: Vec<FileKey> = match file {
            Some(file) => self.queued.get(&file).copied().into_iter().collect(),
            None => self.queued.iter().copied().collect(),
        };
        for file in files {
            let due = |&number: &WaiterKey| {
                self.waiters[number].expires.is_some_and(|expires| expires <= now)
            };
            let silent: Vec<WaiterKey> =
                self.files[&file].queue.iter().copied().filter(due).collect();
            for &number in &silent {
                let waiter = self.waiters[number].id;
                self.dismiss(number, LockAction::WaiterGone { waiter });
                self.counters.waiters_expired += 1;
            }
            if !silent.is_empty() {
                self.settle(file, now);
            }
        }
    }

    /// Updates the queue after a change of a file's locks or queue: reports the waiting requests
    /// that are ready and the watches that nothing stands against, removes requests that would wait
    /// for broken locks, and removes the file's entry if the file has no locks or waiting requests
    /// left.
    pub(super) fn settle(&mut self, file: FileKey, now: Moment) {
        while self.queued.contains(&file) && self.settle_once(file, now) {}
        self.settle_watches(file);
        self.forget_file_if_idle(file);
    }

    /// Checks every waiting request for a file once. Returns true if a request was removed, which
    /// may unblock requests that were already checked.
    fn settle_once(&mut self, file: FileKey, now: Moment) -> bool {
        let queue = self.files[&file].queue.clone();
        for number in queue {
            let Waiter { owner, id, piece: Piece { range, mode, .. }, .. } = self.waiters[number];
            self.break_breakable(file, Some(owner), range, mode);
            if let Some(broken) = self.broken_in_way(file, range, mode) {
                let conflict = self.conflict_of(broken);
                self.dismiss(number, LockAction::WaiterBroken { waiter: id, conflict });
                return true;
            }
            let ready = self.blocker(file, Some(owner), range, mode, Some(number)).is_none();
            let was_ready = std::mem::replace(&mut self.waiters[number].ready, ready);
            if ready && !was_ready {
                self.pass_by(number);
                // The allowed silence starts again when the waiter becomes ready, because an
                // earlier poll could not have succeeded.
                let until = now.after(self.config.waiter_silence_max);
                let expires = &mut self.waiters[number].expires;
                *expires = expires.map(|expires| expires.max(until));
                self.push(LockAction::Ready { waiter: id, file });
            }
        }
        false
    }

    /// Makes the table report [`LockAction::Free`] when nothing stands against a lock any more. The
    /// lock must just have been denied. Returns false if there are too many watches; the owner must
    /// then ask for the lock from time to time.
    pub fn watch(&mut self, owner: OwnerName<'_>, request: &LockRequest, of: LockWatch) -> bool {
        let Some(range) = ByteRange::new(request.offset, request.length) else { return false };
        let (client, owner, mode) = (owner.client, owner.owner.into(), request.mode);
        self.watches.add(request.file, Watch { client, owner, range, mode, of })
    }

    /// Ends the watches of a file that nothing stands against any more, and reports them.
    fn settle_watches(&mut self, file: FileKey) {
        let free = self.watches.places(file, |watch| {
            let owner = OwnerName { client: watch.client, owner: &watch.owner };
            let who = self.registry.find(owner);
            self.blocker(file, who, watch.range, watch.mode, None).is_none()
        });
        for watch in self.watches.remove(file, &free) {
            let Watch { client, owner, of: LockWatch { handle, word, .. }, .. } = watch;
            self.push(LockAction::Free { client, owner, handle, word });
        }
    }

    /// Ends the watches whose time is over.
    fn expire_watches(&mut self, now: Moment) {
        for file in self.watches.files() {
            let late = self.watches.places(file, |watch| watch.of.until <= now);
            self.watches.remove(file, &late);
        }
    }

    /// Moves a ready request ahead of the requests that it has passed. Then the request stays ready
    /// even if the cycle because of which it passed them disappears before the client repeats the
    /// request.
    fn pass_by(&mut self, number: WaiterKey) {
        let Waiter { file, owner, piece: Piece { range, mode, .. }, .. } = self.waiters[number];
        let first = self.requests_before(file, Some(owner), range, mode, Some(number)).next();
        let Some(first) = first else { return };
        let queue = &mut self.files.get_mut(&file).expect("a waiter's file is known").queue;
        queue.retain(|&other| other != number);
        let place =
            queue.iter().position(|&other| other == first).expect("the waiter is in this queue");
        queue.insert(place, number);
    }

    /// Marks other files for a check, because an owner has started to wait for more locks, or other
    /// owners have started to wait for this owner. If this has closed a cycle with a soft edge, a
    /// request for one of these files may now pass another request.
    pub(super) fn wake_elsewhere(&mut self, who: OwnerKey, file: FileKey) {
        let waits = !self.registry.owner(who).waiters.is_empty();
        if waits && self.search_from(who, who, Edges::All) != Reach::No {
            self.recheck.extend(self.queued.iter().copied().filter(|&other| other != file));
        }
    }

    /// Describes a waiting request that blocks another request.
    pub(super) fn waiter_conflict(&self, number: WaiterKey) -> LockConflict {
        let Waiter { owner, piece, .. } = &self.waiters[number];
        let owner = self.registry.owner(*owner);
        LockConflict {
            client: owner.client,
            owner: owner.name.clone(),
            range: piece.range,
            mode: piece.mode,
        }
    }

    /// Describes a lock or request that blocks another request, for the reply.
    pub(super) fn blocker_conflict(&self, blocker: Blocker) -> LockConflict {
        match blocker {
            Blocker::Hold(number) => self.conflict_of(number),
            Blocker::Waiter(number) => self.waiter_conflict(number),
        }
    }
}
