//! Connects and accepts under way: their time, and how many may wait.
//!
//! Invariant: the queue is in the order of deadlines, since all have the same time.

use std::time::Instant;

use super::Interface;
use crate::{BreakReason, EndpointId};

impl<E> Interface<E> {
    /// Lets the one go that has come first of those who have not asked for anything yet: who
    /// opens connections and says nothing keeps nobody out.
    pub(super) fn make_room(&mut self) {
        let has_not_asked = |endpoint: &EndpointId| {
            self.connection_of(*endpoint).is_some_and(|connection| !connection.has_asked())
        };
        if let Some(idle) = self.unfinished.iter().copied().find(has_not_asked) {
            self.release(idle);
        }
    }

    pub(super) fn first_deadline(&self) -> Option<Instant> {
        let waiting = |endpoint: &EndpointId| self.connection_of(*endpoint)?.deadline();
        self.unfinished.iter().find_map(waiting)
    }

    /// Takes those off the front that wait for nothing any more. What waits behind one that
    /// does costs nothing until that one's time has come.
    pub(super) fn forget_finished(&mut self) {
        while let Some(front) = self.unfinished.front()
            && !self.is_unfinished(*front)
        {
            self.unfinished.pop_front();
        }
    }

    /// Whether a connect or an accept is under way. On a simulated network, which has a time
    /// of its own, there is no deadline to tell it by.
    pub(super) fn is_unfinished(&self, endpoint: EndpointId) -> bool {
        self.connection_of(endpoint).is_some_and(|connection| {
            connection.deadline().is_some()
                || (self.config.sim.is_some() && !connection.is_established())
        })
    }

    pub(super) fn expire(&mut self) {
        if self.unfinished.is_empty() {
            return;
        }
        let now = Instant::now();
        loop {
            self.forget_finished();
            let Some(front) = self.unfinished.front().copied() else { return };
            let deadline = self.connection_of(front).and_then(|c| c.deadline());
            if deadline.is_none_or(|deadline| now < deadline) {
                return;
            }
            let reason = BreakReason::Unreachable("timed out while connecting".into());
            self.break_endpoint(front, reason);
        }
    }
}
