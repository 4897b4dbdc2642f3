//! Session events that wait to be delivered to listeners.
//!
//! Invariant: a listener is called or dropped only while no part of the client is borrowed, because
//! the listener, and every object that it owns, may use the client.

use crate::recovery::options::{Listener, SessionEvent};

/// The events and the dropped listeners that are pending.
#[derive(Default)]
pub(crate) struct PendingEvents {
    events: Vec<(Listener, SessionEvent)>,
    /// Listeners that were replaced and must be dropped.
    dropped_listeners: Vec<Listener>,
}

impl PendingEvents {
    /// Adds an event for a listener.
    pub(crate) fn add(&mut self, listener: Listener, event: SessionEvent) {
        self.events.push((listener, event));
    }

    /// Adds a replaced listener, to be dropped later.
    pub(crate) fn retire(&mut self, listener: Option<Listener>) {
        self.dropped_listeners.extend(listener);
    }

    /// Returns true if no event is pending.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Removes and returns all pending events and listeners. Use the result only while no part of
    /// the client is borrowed.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Returns the pending events in the order in which they occurred, and the listeners to drop.
    pub(crate) fn into_parts(self) -> (Vec<(Listener, SessionEvent)>, Vec<Listener>) {
        (self.events, self.dropped_listeners)
    }
}
