//! The destinations of results: completion groups, and tickets that one caller waits for.
//!
//! Invariant: an operation that was counted in a group completes in that group exactly once; an
//! operation with a ticket completes under its ticket exactly once.

use crate::error::Result;
use crate::groups::{Group, Groups};
use crate::operation::{Completion, OperationId, Transferred};
use crate::waiters::{Ticket, Waiters};

/// The ticket of the caller or future that waits for one transfer.
pub(crate) type TransferTicket = Ticket<Result<Transferred>>;

/// The ticket of the caller or future that waits for the reply to a request without bulk data.
pub(crate) type ReplyTicket = Ticket<Result<Vec<u8>>>;

/// The destination of a transfer's result.
#[derive(Clone, Copy)]
pub(crate) enum Destination {
    Group(Group),
    Waiter(TransferTicket),
}

/// The pending and the available results of all operations of a client.
pub(crate) struct ResultSinks {
    pub groups: Groups,
    /// The results of transfers that one caller or one future waits for.
    pub transfers: Waiters<Result<Transferred>>,
    /// The replies to requests without bulk data.
    pub replies: Waiters<Result<Vec<u8>>>,
    last_operation: u64,
}

impl ResultSinks {
    /// Creates the sinks with the default group and no tickets.
    pub(crate) fn new() -> Self {
        Self {
            groups: Groups::new(),
            transfers: Waiters::default(),
            replies: Waiters::default(),
            last_operation: 0,
        }
    }

    /// Returns the id of a new operation. Each id is larger than all earlier ones.
    #[inline]
    pub(crate) fn next_id(&mut self) -> OperationId {
        self.last_operation += 1;
        OperationId(self.last_operation)
    }

    /// Delivers the result of a transfer to its destination; `context` is the value that its caller
    /// passed.
    #[inline]
    pub(crate) fn end_transfer(
        &mut self,
        destination: Destination,
        operation: OperationId,
        context: u64,
        result: Result<Transferred>,
    ) {
        match destination {
            Destination::Group(group) => {
                self.groups.end(group, Completion { operation, context, result });
            }
            Destination::Waiter(ticket) => self.transfers.put(ticket, result),
        }
    }
}
