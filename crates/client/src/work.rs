//! The pending operations of a session, with all data that is needed to send them again.
//!
//! Invariant: code that holds an operation ends it or passes it on, and never drops it silently.

use std::time::Duration;

use crate::batch::table::Part;
use crate::chain::work::{Member, SharedChain};
use crate::operation::OperationId;
use crate::recovery::delay::Delay;
use crate::recovery::question::Question;
use crate::result_sinks::ReplyTicket;
use crate::transfer::Transfer;

/// The operation that waits for the reply on a stream.
pub(crate) enum Pending {
    Call(QueuedCall),
    Transfer(Transfer),
    Member(Member),
    /// A request that a recovering session sends.
    Recovery(Question),
    /// A request whose reply is ignored.
    Ignored,
}

/// An encoded request without bulk data.
pub(crate) struct QueuedCall {
    pub id: OperationId,
    /// The ticket for the reply; `None` if the reply is ignored.
    pub ticket: Option<ReplyTicket>,
    /// The requests of a batch that this message contains.
    pub part: Option<Part>,
    pub message: Vec<u8>,
    /// Set if the server has delayed the request.
    pub delay: Option<Box<Delay>>,
}

/// An operation, with all data that is needed to send it.
pub(crate) enum Work {
    Call(QueuedCall),
    Transfer(Transfer),
    /// A member of an interrupted chain.
    Member(Member),
    /// The unfinished members of a chain.
    Chain(SharedChain),
}

impl Pending {
    /// Returns the operation that must be ended with the session; `None` if no caller waits for it.
    pub(crate) fn into_work(self) -> Option<Work> {
        match self {
            Self::Call(call) => Some(Work::Call(call)),
            Self::Transfer(transfer) => Some(Work::Transfer(transfer)),
            Self::Member(member) => Some(Work::Chain(member.chain)),
            Self::Recovery(_) | Self::Ignored => None,
        }
    }
}

impl QueuedCall {
    /// Creates a call from an encoded request whose reply is ignored.
    pub(crate) fn new(id: OperationId, message: Vec<u8>) -> Self {
        Self { id, ticket: None, part: None, message, delay: None }
    }
}

impl Work {
    /// Returns the operation's id; ids increase in the order of submission.
    pub(crate) fn id(&self) -> OperationId {
        match self {
            Self::Call(call) => call.id,
            Self::Transfer(transfer) => transfer.id,
            Self::Member(member) => member.chain.borrow().id,
            Self::Chain(chain) => chain.borrow().id,
        }
    }
}

/// A request that waits to be sent again.
pub(crate) struct Delayed {
    pub due: Duration,
    pub work: Work,
}
