//! Who waits for whom, and deadlocks.
//!
//! Invariant: no owner waits, by hard edges, for itself.
//!
//! "A waits for B" holds between owners: *hard* if a lock of B is in A's way, *soft* if
//! only an earlier request of B is. A circle with a soft edge is undone by the exception
//! that `waiters` makes. A circle of hard edges is a deadlock: the request that would
//! close it, by waiting or by being granted, is refused, so that no such circle ever
//! stands. (From which it follows that nobody waits for ever. If a request is ready, it
//! is served or gives up. If none is, go from any waiter along hard edges as long as
//! there are some, and along a soft edge that holds where there are none. The way cannot
//! come back to itself: a circle of hard edges there is none, and the soft edges of a
//! circle do not hold. So it ends at somebody who does not wait, and whose lock will
//! end.)

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use dafs_types::ClientId;

use super::action::Hold;
use super::own::Piece;
use super::owners::OwnerKey;
use super::table::LockTable;
use super::waiters::Waiter;
use super::waiters::WaiterKey;
use crate::FileKey;

/// Which edges a search follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edges {
    Hard,
    All,
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Yes,
    No,
    /// It was given up at its bound.
    Unknown,
}

impl LockTable {
    /// Shows the owners that a waiter waits for, and `None` for a lock of its own or of
    /// nobody, until told to stop.
    fn awaited<B>(
        &self,
        waiter: WaiterKey,
        edges: Edges,
        visit: &mut impl FnMut(Option<OwnerKey>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Waiter { file, owner, piece, .. } = &self.waiters[waiter];
        let Some(locks) = self.files.get(file) else { return ControlFlow::Continue(()) };
        locks.search(piece.range, piece.mode, &mut |number| {
            let hold = &self.holds[number];
            let other = !hold.phase.is_orphan() && hold.owner != *owner;
            visit(other.then_some(hold.owner))
        })?;
        if edges == Edges::All {
            let Piece { range, mode, .. } = *piece;
            for number in self.requests_before(*file, Some(*owner), range, mode, Some(waiter)) {
                visit(Some(self.waiters[number].owner))?;
            }
        }
        ControlFlow::Continue(())
    }

    /// The owners that a waiter waits for, each once, holders of locks first.
    pub(super) fn awaited_owners(&self, waiter: WaiterKey) -> Vec<(ClientId, &[u8])> {
        let mut owners = Vec::new();
        let flow = self.awaited(waiter, Edges::All, &mut |owner| {
            let owner = owner.map(|owner| self.registry.owner(owner));
            let name = owner.map(|owner| (owner.client, &*owner.name));
            owners.extend(name.filter(|name| !owners.contains(name)));
            ControlFlow::<()>::Continue(())
        });
        debug_assert!(flow.is_continue());
        owners
    }

    /// Whether one owner waits for another, directly or through others.
    pub(super) fn reaches(&self, from: OwnerKey, to: OwnerKey, edges: Edges) -> Reach {
        if from == to { Reach::Yes } else { self.search_from(from, to, edges) }
    }

    /// A depth-first search that begins with the waits of `from`.
    pub(super) fn search_from(&self, from: OwnerKey, to: OwnerKey, edges: Edges) -> Reach {
        let mut budget = self.config.deadlock_steps_max;
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(owner) = open.pop() {
            for &waiter in &self.registry.owner(owner).waiters {
                let flow = self.awaited(waiter, edges, &mut |next| {
                    if next == Some(to) {
                        return ControlFlow::Break(Reach::Yes);
                    }
                    if budget == 0 {
                        return ControlFlow::Break(Reach::Unknown);
                    }
                    budget -= 1;
                    open.extend(next.filter(|&next| seen.insert(next)));
                    ControlFlow::Continue(())
                });
                if let ControlFlow::Break(reach) = flow {
                    return reach;
                }
            }
        }
        Reach::No
    }

    /// A waiter that would wait for `who` if it got the piece, while `who` already waits for
    /// it: granting would close a circle of hard edges. A search given up counts as one.
    pub(super) fn grant_deadlocks(
        &self,
        who: Option<OwnerKey>,
        file: FileKey,
        piece: &Piece,
        waiting: Option<WaiterKey>,
    ) -> Option<WaiterKey> {
        let who = who?;
        let waits_elsewhere = |&number: &WaiterKey| Some(number) != waiting;
        if !self.registry.owner(who).waiters.iter().any(waits_elsewhere) {
            return None;
        }
        let mut others = self.requests_before(file, Some(who), piece.range, piece.mode, None);
        others.find(|&n| self.reaches(who, self.waiters[n].owner, Edges::Hard) != Reach::No)
    }

    /// Whether an owner that waited for this piece would wait for itself, by hard edges.
    pub(super) fn wait_deadlocks(&self, file: FileKey, who: OwnerKey, piece: &Piece) -> Reach {
        let others = |hold: &Hold| !hold.is_of(Some(who)) && !hold.phase.is_orphan();
        let holders = self.holds_in(file, piece.range, piece.mode, others);
        let holders: BTreeSet<OwnerKey> = holders.iter().map(|&n| self.holds[n].owner).collect();
        let mut reach = holders.iter().map(|&holder| self.reaches(holder, who, Edges::Hard));
        reach.find(|&reach| reach != Reach::No).unwrap_or(Reach::No)
    }
}
