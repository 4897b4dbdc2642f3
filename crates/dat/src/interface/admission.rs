//! Admits inbound connections to an interface: from its own listeners, or from another interface of
//! the group.
//!
//! Invariant: a connection that another interface has accepted is treated as if a listener of
//! this interface had accepted it.

use std::time::Instant;

use super::{Interface, Listener};
use crate::connection::Connection;
use crate::group::STALL;
use crate::{Domain, EndpointId, ListenerId};

impl<E> Interface<E> {
    pub(super) fn accept_ready(&mut self, index: u32) {
        for _ in 0..ACCEPTS_PER_TURN {
            if self.must_pause(index) {
                return;
            }
            let id = ListenerId { owner: self.config.owner, index };
            let Some(Some(listener)) = self.listeners.get_mut(index as usize) else { return };
            let is_shared = listener.is_shared();
            let now = Instant::now();
            let deadline = now + self.config.connect_timeout;
            let Some(connection) = listener.accept(id, deadline) else { return };
            match is_shared {
                true => self.spread(connection, now),
                false => self.adopt(connection),
            }
        }
    }

    /// Gives a new connection to the member of the group that has the fewest connections.
    fn spread(&mut self, connection: Box<dyn Connection>, now: Instant) {
        let Some(member) = &self.member else { return self.adopt(connection) };
        match member.give(connection, now) {
            Some(own) => self.adopt(own),
            None => self.note_given(now),
        }
    }

    /// Records the time by which another member must take a connection that this interface gave it.
    /// On a simulated network, which has its own clock, the connect times out instead.
    fn note_given(&mut self, now: Instant) {
        if self.config.sim.is_none() {
            self.given_until.get_or_insert(now + STALL);
        }
    }

    /// Admits a connection that a listener of this interface has accepted.
    pub(crate) fn adopt(&mut self, connection: Box<dyn Connection>) {
        if self.let_in(connection) {
            self.count_added();
        }
    }

    /// Admits a connection if there is room for it or room can be made. Otherwise drops the
    /// connection, which closes it. Returns true if the connection was admitted.
    fn let_in(&mut self, connection: Box<dyn Connection>) -> bool {
        if self.live >= self.config.endpoints_max {
            self.make_room();
        }
        let endpoint = self.insert(connection, Domain::default());
        endpoint.is_ok_and(|endpoint| {
            self.start(endpoint);
            true
        })
    }

    /// Counts one more connection in the group.
    pub(super) fn count_added(&self) {
        if let Some(member) = &self.member {
            member.added();
        }
    }

    /// Counts one connection fewer in the group.
    pub(super) fn count_removed(&self) {
        if let Some(member) = &self.member {
            member.removed();
        }
    }

    /// Excludes a connection from the count by which the [group](crate::InterfaceConfig::group)
    /// balances connections. Call it for a connection that will carry little traffic.
    pub fn discount(&mut self, endpoint: EndpointId) {
        if let Some(slot) = self.slot_mut(endpoint)
            && std::mem::take(&mut slot.counted)
        {
            self.count_removed();
        }
    }

    /// Admits the connections that other interfaces have given to this one, if one of them has
    /// signalled that it gave any.
    #[inline]
    pub(super) fn take_given(&mut self) {
        if self.waker.take_call() {
            self.admit_given();
        }
    }

    #[cold]
    fn admit_given(&mut self) {
        let now = Instant::now();
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(given) = self.member.as_ref().and_then(|member| member.take(now)) else {
                return;
            };
            // The interface that gave the connection has already counted it for this one.
            if !self.let_in(given) {
                self.count_removed();
            }
        }
        // There may be more given connections, so check again in the next turn.
        self.waker.call();
    }

    /// Takes back connections that other members have not taken within the time limit.
    pub(super) fn take_back_given(&mut self, now: Instant) {
        let (Some(member), Some(until)) = (&self.member, self.given_until) else { return };
        if now < until {
            return;
        }
        let (back, again) = member.take_back(now);
        self.given_until = again;
        for connection in back {
            self.spread(connection, now);
        }
    }
}

impl Listener {
    /// Returns true if another interface of the group may get this listener's connections. An RDMA
    /// device creates connections for the listening interface only.
    fn is_shared(&self) -> bool {
        match self {
            Listener::Shm(_) | Listener::Tcp(_) | Listener::Sim(_) => true,
            Listener::Verbs(_) => false,
        }
    }
}

/// The limit for new connections admitted in one turn, so that established ones are served too.
const ACCEPTS_PER_TURN: usize = 16;
