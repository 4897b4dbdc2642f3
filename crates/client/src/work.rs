//! What a session has to do, with all that is needed to ask for it again.
//!
//! Invariant: whoever holds a piece of work ends it, or hands it on; none is dropped.

use std::time::Duration;

use crate::batch::table::Part;
use crate::chain::work::{Member, SharedChain};
use crate::ends::ReplyTicket;
use crate::operation::OperationId;
use crate::recovery::delay::Delay;
use crate::recovery::question::Question;
use crate::transfer::Transfer;

/// What a stream waits for.
pub(crate) enum Pending {
    Call(QueuedCall),
    Transfer(Transfer),
    Member(Member),
    /// Asked by whoever recovers the session.
    Rescue(Question),
    /// An answer nobody waits for.
    Silent,
}

/// A request without bulk data, encoded.
pub(crate) struct QueuedCall {
    pub id: OperationId,
    /// `None` if nobody waits for the answer.
    pub ticket: Option<ReplyTicket>,
    /// Requests of a batch, which the answer is about.
    pub part: Option<Part>,
    pub message: Vec<u8>,
    /// The server has put it off.
    pub delay: Option<Box<Delay>>,
}

/// What is to be done, with all that is needed to ask for it.
pub(crate) enum Work {
    Call(QueuedCall),
    Transfer(Transfer),
    /// Part of a chain that was cut off.
    Member(Member),
    /// What is left of a chain.
    Chain(SharedChain),
}

impl Pending {
    /// What is left of it when the session ends; nothing that nobody waits for.
    pub fn into_work(self) -> Option<Work> {
        match self {
            Self::Call(call) => Some(Work::Call(call)),
            Self::Transfer(transfer) => Some(Work::Transfer(transfer)),
            Self::Member(member) => Some(Work::Chain(member.chain)),
            Self::Rescue(_) | Self::Silent => None,
        }
    }
}

impl QueuedCall {
    /// An encoded request whose answer nobody waits for.
    pub fn new(id: OperationId, message: Vec<u8>) -> Self {
        Self { id, ticket: None, part: None, message, delay: None }
    }
}

impl Work {
    /// In this order the requests were made.
    pub fn id(&self) -> OperationId {
        match self {
            Self::Call(call) => call.id,
            Self::Transfer(transfer) => transfer.id,
            Self::Member(member) => member.chain.borrow().id,
            Self::Chain(chain) => chain.borrow().id,
        }
    }
}

/// A request that waits to be asked anew.
pub(crate) struct Delayed {
    pub due: Duration,
    pub work: Work,
}
