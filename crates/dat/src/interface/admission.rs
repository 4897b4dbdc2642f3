//! How connections get in: accepted here, or by another interface of the group.
//!
//! Invariant: a connection that another interface has accepted goes on here as if a listener of
//! this one had accepted it.

use std::time::Instant;

use super::{Interface, Listener};
use crate::connection::Connection;
use crate::group::STALL;
use crate::{Domain, EndpointId, ListenerId};

impl<E> Interface<E> {
    pub(super) fn accept_ready(&mut self, index: u32) {
        for _ in 0..ACCEPTS_PER_TURN {
            if self.must_rest(index) {
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

    /// Gives a new connection to whoever of the group has the fewest.
    fn spread(&mut self, connection: Box<dyn Connection>, now: Instant) {
        let Some(member) = &self.member else { return self.adopt(connection) };
        match member.give(connection, now) {
            Some(own) => self.adopt(own),
            None => self.note_given(now),
        }
    }

    /// Somebody has something of ours, and is to take it in time. On a simulated network, which
    /// has a time of its own, connects have their end there.
    fn note_given(&mut self, now: Instant) {
        if self.config.sim.is_none() {
            self.given_until.get_or_insert(now + STALL);
        }
    }

    /// Lets in what a listener of this interface has accepted.
    pub(crate) fn adopt(&mut self, connection: Box<dyn Connection>) {
        if self.let_in(connection) {
            self.count_added();
        }
    }

    /// Lets a connection in, if there is room or can be made. Otherwise it is dropped, which
    /// closes it.
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

    /// The group is to know of one endpoint more.
    pub(super) fn count_added(&self) {
        if let Some(member) = &self.member {
            member.added();
        }
    }

    /// The group is to know of one less.
    pub(super) fn count_removed(&self) {
        if let Some(member) = &self.member {
            member.removed();
        }
    }

    /// Has the [group](crate::InterfaceConfig::group) count a connection no more when it looks who
    /// has the fewest: little will come over it.
    pub fn discount(&mut self, endpoint: EndpointId) {
        if let Some(slot) = self.slot_mut(endpoint)
            && std::mem::take(&mut slot.counted)
        {
            self.count_removed();
        }
    }

    /// Takes in what other interfaces have given this one, if they have said so.
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
            // It is counted since it was given.
            if !self.let_in(given) {
                self.count_removed();
            }
        }
        // There may be more.
        self.waker.call();
    }

    /// Takes back what others have left where it is for too long.
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
    /// Whether what it accepts may be another interface's. A device has made a connection for the
    /// interface that listens.
    fn is_shared(&self) -> bool {
        match self {
            Listener::Shm(_) | Listener::Tcp(_) | Listener::Sim(_) => true,
            Listener::Verbs(_) => false,
        }
    }
}

/// New connections taken in one turn, so that established ones are served too.
const ACCEPTS_PER_TURN: usize = 16;
