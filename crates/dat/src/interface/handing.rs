//! Descriptors that one side of a connection within a host sends to the other, next to messages.
//!
//! Invariant: a descriptor is sent before any message that is posted after it, so a peer that has
//! received such a message finds the descriptor without waiting.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::Interface;
use crate::EndpointId;

impl<E> Interface<E> {
    /// Sends a duplicate of a descriptor to a client on this host, under a name that a later
    /// message tells the client. Returns false if the transport cannot do that, or if the client
    /// has not received the descriptor sent before.
    pub fn hand_over(&mut self, endpoint: EndpointId, name: u64, file: BorrowedFd<'_>) -> bool {
        self.lend(endpoint).is_some_and(|(connection, _)| connection.hand_over(name, file))
    }

    /// Returns the descriptor that a server has sent under `name` before a message that has
    /// arrived. Returns `None` if there is none: this process may have had no free descriptor.
    pub fn take_handed_over(&mut self, endpoint: EndpointId, name: u64) -> Option<OwnedFd> {
        let mut found = None;
        self.with(endpoint, |connection, context| {
            found = connection.take_handed_over(context, name)?;
            Ok(())
        });
        found
    }

    /// True if there may be something to receive on a connection, including its end. For shared
    /// memory this only looks at memory and so misses an end that only the socket shows. It is
    /// always true for other transports.
    #[inline]
    #[must_use]
    pub fn has_arrived(&self, endpoint: EndpointId) -> bool {
        self.connection_of(endpoint).is_none_or(|connection| connection.has_arrived())
    }
}
