//! What listeners are to be told of their sessions.
//!
//! Invariant: a listener is called, and goes, when nothing of the client is borrowed: it may use
//! the client, and so may what it holds.

use crate::recovery::options::{Listener, SessionEvent};

/// News that wait to be told.
#[derive(Default)]
pub(crate) struct News {
    events: Vec<(Listener, SessionEvent)>,
    /// Listeners that hear no more.
    retired: Vec<Listener>,
}

impl News {
    /// A listener is to be told of an event.
    pub fn add(&mut self, listener: Listener, event: SessionEvent) {
        self.events.push((listener, event));
    }

    /// A listener hears no more.
    pub fn retire(&mut self, listener: Option<Listener>) {
        self.retired.extend(listener);
    }

    /// Whether there is nothing to tell.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Everything there is; what is returned may be used when nothing is borrowed.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// The events, in order, and the listeners that go.
    pub fn into_parts(self) -> (Vec<(Listener, SessionEvent)>, Vec<Listener>) {
        (self.events, self.retired)
    }
}
