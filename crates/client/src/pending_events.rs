//! Session events that wait to be delivered to listeners.
//!
//! Invariant: a listener is called or dropped only while nothing of the client is borrowed, since
//! it, and whatever it owns, may use the client.

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

    /// Adds a listener that must be dropped.
    pub(crate) fn retire(&mut self, listener: Option<Listener>) {
        self.dropped_listeners.extend(listener);
    }

    /// Returns true if no event is pending.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Takes everything that is pending. Use the result only while nothing is borrowed.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Returns the events in order, and the listeners to drop.
    pub(crate) fn into_parts(self) -> (Vec<(Listener, SessionEvent)>, Vec<Listener>) {
        (self.events, self.dropped_listeners)
    }
}
