//! Requests that are set aside, to be carried out from their start later: they wait for a name, for
//! the journal, for a delegation, or for a search.
//!
//! Invariant: what waits has had no effect yet. A request that may change names or attributes, and
//! every OPEN and LOCK, waits as the operation that it asks for, and no message of it is kept. So
//! it can wait for any protocol, and be handed to whoever has the files.

use dafs_ops::Operation;

/// An operation as it is kept while it waits, and as it is written down.
pub(crate) fn bytes_of(operation: &Operation<'_>) -> Box<[u8]> {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    bytes.into()
}

/// What a request asks for, in the form in which it can be set aside.
#[derive(Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// An operation.
    Operation(&'a Operation<'a>),
    /// Its message, of one that is none.
    Message(&'a [u8]),
}

/// What is kept of a request that waits.
pub(crate) enum SetAside {
    /// An operation, as it encodes itself.
    Operation(Box<[u8]>),
    /// The message.
    Message(Box<[u8]>),
}

impl Asked<'_> {
    /// What is to be kept of it.
    pub fn set_aside(self) -> SetAside {
        match self {
            Self::Operation(operation) => SetAside::Operation(bytes_of(operation)),
            Self::Message(message) => SetAside::Message(message.into()),
        }
    }
}
