//! Requests that are set aside and executed from their start later. They wait for a name, the
//! journal, a delegation, or a search.
//!
//! Invariant: a waiting request has had no effect yet. A request that may change names or
//! attributes, and every OPEN and LOCK, waits as an operation and not as a message. So it does not
//! depend on the protocol, and can be given to any code that has the files.

use dafs_ops::Operation;

/// The encoded form of an operation, used for waiting requests and for the journal.
pub(crate) fn bytes_of(operation: &Operation<'_>) -> Box<[u8]> {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    bytes.into()
}

/// A request in the form in which it can be set aside.
#[derive(Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// An operation.
    Operation(&'a Operation<'a>),
    /// The message of a request that is not an operation.
    Message(&'a [u8]),
}

/// The stored form of a request that waits.
pub(crate) enum SetAside {
    /// An encoded operation.
    Operation(Box<[u8]>),
    /// The whole message.
    Message(Box<[u8]>),
}

impl Asked<'_> {
    /// Converts the request to its stored form.
    pub(crate) fn set_aside(self) -> SetAside {
        match self {
            Self::Operation(operation) => SetAside::Operation(bytes_of(operation)),
            Self::Message(message) => SetAside::Message(message.into()),
        }
    }
}
