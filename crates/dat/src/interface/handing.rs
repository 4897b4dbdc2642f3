//! Descriptors that one side of a connection sends to its peer on the same host, in addition to
//! messages.
//!
//! Invariant: a descriptor is sent before any message that is posted after it, so that a peer that
//! has received such a message finds the descriptor without waiting.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::Interface;
use crate::EndpointId;

impl<E> Interface<E> {
    /// Sends a duplicate of a descriptor to a client on this host. A later message must contain
    /// `name`, so that the client can take the descriptor. Returns false if the transport does not
    /// support this, or if the client has not received the previous descriptor.
    pub fn hand_over(&mut self, endpoint: EndpointId, name: u64, file: BorrowedFd<'_>) -> bool {
        self.lend(endpoint).is_some_and(|(connection, _)| connection.hand_over(name, file))
    }

    /// Returns the descriptor that a server has sent under `name` before a message that has
    /// arrived, or `None` if there is none, for example because this process had no free descriptor
    /// number.
    pub fn take_handed_over(&mut self, endpoint: EndpointId, name: u64) -> Option<OwnedFd> {
        let mut found = None;
        self.with(endpoint, |connection, context| {
            found = connection.take_handed_over(context, name)?;
            Ok(())
        });
        found
    }

    /// Returns true if there may be something to receive on a connection, including its end. For
    /// shared memory this reads only memory, so it does not detect an end that only the socket
    /// shows. For other transports it is always true.
    #[inline]
    #[must_use]
    pub fn has_arrived(&self, endpoint: EndpointId) -> bool {
        self.connection_of(endpoint).is_none_or(|connection| connection.has_arrived())
    }
}
