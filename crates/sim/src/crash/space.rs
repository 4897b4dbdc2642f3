//! The checker of names in a world where servers crash.
//!
//! It has two models. The first model believes every reply: a name that a read has returned exists.
//! The second model believes only successful replies to changes, because only those changes must
//! survive a crash. If a read returned a change before the reply to that change, a power failure
//! may lose it.
//!
//! Invariant: after a power failure the first model is equal to the second one.

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

    /// Ends an operation whose reply shows nothing about the current state: a read from before a
    /// crash, or a failed change.
    pub(super) fn end_blindly(
        &mut self,
        number: OperationNumber,
        operation: &NameOperation,
    ) -> Result<(), String> {
        self.seen.end_without_trace(number)?;
        if operation.changes() { self.durable.end_without_trace(number) } else { Ok(()) }
    }

    /// Notes that an operation was not executed.
    pub(super) fn cancel(
        &mut self,
        number: OperationNumber,
        operation: &NameOperation,
    ) -> Result<(), String> {
        self.seen.cancel(number)?;
        if operation.changes() { self.durable.cancel(number) } else { Ok(()) }
    }

    /// Notes that an operation can no longer be executed, and that it is unknown whether it was.
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
