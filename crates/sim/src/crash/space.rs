//! The checker of names in a world where servers crash.
//!
//! It has two models. The first model follows from all replies: a name that a read has returned
//! exists. The second model follows only from the replies that report a change as successful,
//! because only such changes must survive a crash. A change whose effect a read has returned before
//! the change's own reply may be lost by a power failure.
//!
//! Invariant: after a power failure the first model is set to the second model.

use crate::names::Names;
use crate::operation::{Answer, NameOperation, OperationNumber};

/// The two models of names.
pub(super) struct Space {
    seen: Names,
    durable: Names,
}

impl Space {
    pub(super) fn new() -> Self {
        Self { seen: Names::new(), durable: Names::new() }
    }

    pub(super) fn begin(&mut self, number: OperationNumber, operation: &NameOperation) {
        self.seen.begin(number, operation.clone());
        if operation.changes() {
            self.durable.begin(number, operation.clone());
        }
    }

    pub(super) fn end(
        &mut self,
        number: OperationNumber,
        operation: &NameOperation,
        answer: &Answer,
    ) -> Result<(), String> {
        self.seen.end(number, answer)?;
        if !operation.changes() {
            return Ok(());
        }
        match answer {
            Answer::Status(_) => self.durable.end_without_trace(number),
            _ => self.durable.end(number, answer),
        }
    }

    /// Ends an operation whose reply shows nothing about the current state, because it is a read
    /// from before a crash or a failed change.
    pub(super) fn end_blindly(
        &mut self,
        number: OperationNumber,
        operation: &NameOperation,
    ) -> Result<(), String> {
        self.seen.end_without_trace(number)?;
        if operation.changes() { self.durable.end_without_trace(number) } else { Ok(()) }
    }

    /// Records that an operation was not executed.
    pub(super) fn cancel(
        &mut self,
        number: OperationNumber,
        operation: &NameOperation,
    ) -> Result<(), String> {
        self.seen.cancel(number)?;
        if operation.changes() { self.durable.cancel(number) } else { Ok(()) }
    }

    /// Records that an operation can no longer be executed, and that it is unknown whether it was.
    pub(super) fn settle(
        &mut self,
        number: OperationNumber,
        operation: &NameOperation,
    ) -> Result<(), String> {
        self.seen.settle(number)?;
        if operation.changes() { self.durable.settle(number) } else { Ok(()) }
    }

    /// Handles a power failure: each change in flight may survive or not.
    pub(super) fn lose_power(&mut self) {
        self.seen = self.durable.clone();
    }

    /// Returns the number of changes in flight.
    pub(super) fn changes_under_way(&self) -> usize {
        self.durable.changes_under_way()
    }
}
