//! The wait-for graph and deadlock detection.
//!
//! Invariant: no owner waits for itself along hard edges.
//!
//! The nodes of the graph are owners. An edge from A to B means that A waits for B. The edge is
//! *hard* if a lock of B blocks A, and *soft* if only an earlier request of B blocks A. A cycle
//! with a soft edge is broken by the exception in the order of the queue (module `waiters`). A
//! cycle of hard edges is a deadlock. A request that would close such a cycle, by waiting or by
//! being granted, is refused, so that no such cycle ever exists.
//!
//! It follows that no request waits forever. A ready request is served or given up. Suppose that no
//! request is ready. Start at any waiter, and follow a hard edge from each owner that has one;
//! from the other owners follow a soft edge that is in effect. This path cannot return to an
//! earlier owner, because there is no cycle of hard edges, and the soft edges of a cycle are not in
//! effect. So the path ends at an owner that does not wait, and whose lock will end.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use dafs_types::ClientId;

use super::action::Hold;
use super::owners::OwnerKey;
use super::pieces::Piece;
use super::table::LockTable;
use super::waiters::Waiter;
use super::waiters::WaiterKey;
use crate::FileKey;

/// The edges of the wait-for graph that a search follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edges {
    Hard,
    All,
}

/// The result of a search in the wait-for graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Yes,
    No,
    /// The search was given up, because it had visited the maximum number of locks and requests.
    Unknown,
}

impl LockTable {
    /// Calls `visit` with each owner that a waiter waits for, until `visit` breaks. Calls it with
    /// `None` for a lock that belongs to the waiter's own owner or to no owner.
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

    /// Returns the owners that a waiter waits for, each owner once. Owners that hold locks come
    /// before owners that only wait.
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

    /// Checks whether one owner waits for another owner, directly or through other owners.
    pub(super) fn reaches(&self, from: OwnerKey, to: OwnerKey, edges: Edges) -> Reach {
        if from == to { Reach::Yes } else { self.search_from(from, to, edges) }
    }

    /// Searches depth-first for `to`, starting with the owners that `from` waits for.
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

    /// Returns a waiter that shows that granting the piece to `who` would close a cycle of hard
    /// edges: its owner would then wait for `who`, and `who` already waits for its owner. A search
    /// that was given up counts as a cycle.
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

    /// Checks whether an owner would wait for itself along hard edges if it waited for this piece.
    pub(super) fn wait_deadlocks(&self, file: FileKey, who: OwnerKey, piece: &Piece) -> Reach {
        let others = |hold: &Hold| !hold.is_of(Some(who)) && !hold.phase.is_orphan();
        let holders = self.holds_in(file, piece.range, piece.mode, others);
        let holders: BTreeSet<OwnerKey> = holders.iter().map(|&n| self.holds[n].owner).collect();
        let mut reach = holders.iter().map(|&holder| self.reaches(holder, who, Edges::Hard));
        reach.find(|&reach| reach != Reach::No).unwrap_or(Reach::No)
    }
}
