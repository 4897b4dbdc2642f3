//! Requests that are set aside and executed again from the start later. They wait for a name, the
//! journal, the return of a delegation, or a search.
//!
//! Invariant: a request that is set aside has had no effect yet. A request that may change names or
//! attributes, and every OPEN and LOCK, is set aside as an operation and not as a message, so that
//! its execution does not depend on the protocol.

use dafs_ops::Operation;

/// Encodes an operation for the journal or for a request that is set aside.
pub(crate) fn bytes_of(operation: &Operation<'_>) -> Box<[u8]> {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    bytes.into()
}

/// A request, borrowed, in a form that can be set aside.
#[derive(Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// A decoded operation.
    Operation(&'a Operation<'a>),
    /// The message of a request that is not an operation.
    Message(&'a [u8]),
}

/// A request that is set aside, in the form in which it is executed again later.
pub(crate) enum SetAside {
    /// The encoded operation.
    Operation(Box<[u8]>),
    /// The whole message of a request that is not an operation.
    Message(Box<[u8]>),
    /// The call of a guest, which the code of the guest's protocol has kept. It continues with what
    /// the holder of a delegation reports.
    Guest,
}

impl Asked<'_> {
    /// Converts the request to the form that is stored.
    pub(crate) fn set_aside(self) -> SetAside {
        match self {
            Self::Operation(operation) => SetAside::Operation(bytes_of(operation)),
            Self::Message(message) => SetAside::Message(message.into()),
        }
    }
}
