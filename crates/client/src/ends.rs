//! Where operations end: completion groups, and results that one caller waits for.
//!
//! Invariant: an operation that was counted in a group ends there, once; one with a ticket ends
//! under its ticket, once.

use crate::error::Result;
use crate::groups::{Group, Groups};
use crate::operation::{Completion, OperationId, Transferred};
use crate::waiters::{Ticket, Waiters};

/// Waits for the end of a transfer.
pub(crate) type TransferTicket = Ticket<Result<Transferred>>;

/// Waits for the answer to a request without bulk data.
pub(crate) type ReplyTicket = Ticket<Result<Vec<u8>>>;

/// Where the end of a transfer is looked for.
#[derive(Clone, Copy)]
pub(crate) enum Destination {
    Group(Group),
    Waiter(TransferTicket),
}

/// All ends of a client that somebody looks for.
pub(crate) struct Ends {
    pub groups: Groups,
    /// Transfers that one caller or one future waits for.
    pub transfers: Waiters<Result<Transferred>>,
    /// Answers to requests without bulk data.
    pub replies: Waiters<Result<Vec<u8>>>,
    last_operation: u64,
}

impl Ends {
    /// The default group, and nobody who waits.
    pub fn new() -> Self {
        Self {
            groups: Groups::new(),
            transfers: Waiters::default(),
            replies: Waiters::default(),
            last_operation: 0,
        }
    }

    /// Names an operation. A later one has a higher number.
    #[inline]
    pub fn next_id(&mut self) -> OperationId {
        self.last_operation += 1;
        OperationId(self.last_operation)
    }

    /// A transfer has ended; `context` is its caller's own word.
    #[inline]
    pub fn end_transfer(
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
