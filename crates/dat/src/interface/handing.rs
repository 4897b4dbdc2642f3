//! Descriptors that one side of a connection within a host hands the other, beside messages.
//!
//! Invariant: a descriptor is on its way before any message that is posted after it, so whoever
//! has such a message finds it without waiting.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::Interface;
use crate::EndpointId;

impl<E> Interface<E> {
    /// Hands a client of this host a descriptor by a name that a message tells it afterwards. It
    /// is a duplicate that is sent. False if the transport cannot do that, or the client has not
    /// taken what it was sent before.
    pub fn hand_over(&mut self, endpoint: EndpointId, name: u64, file: BorrowedFd<'_>) -> bool {
        self.lend(endpoint).is_some_and(|(connection, _)| connection.hand_over(name, file))
    }

    /// The descriptor that a server has handed over by this name, before a message that has come.
    /// `None` if there is none: this process may have had no room for it.
    pub fn take_handed_over(&mut self, endpoint: EndpointId, name: u64) -> Option<OwnedFd> {
        let mut found = None;
        self.with(endpoint, |connection, context| {
            found = connection.take_handed_over(context, name)?;
            Ok(())
        });
        found
    }

    /// Whether there is something to be taken in for a connection, be it its end. Of one over
    /// shared memory a look at memory tells, which misses an end that only its socket shows; all
    /// others may have something at any time.
    #[inline]
    #[must_use]
    pub fn has_arrived(&self, endpoint: EndpointId) -> bool {
        self.connection_of(endpoint).is_none_or(|connection| connection.has_arrived())
    }
}
