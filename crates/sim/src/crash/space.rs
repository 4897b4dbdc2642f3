//! The judge of names where servers crash.
//!
//! Two judges look on. One believes every answer: what a look has shown is there. The other
//! believes only what a crash must leave, which is what successful changes were answered
//! for: a change that was looked at before its own answer may be lost with the power.
//!
//! Invariant: after a power loss the first judge knows what the second knew.

use crate::names::Names;
use crate::operation::{Answer, NameOperation, OperationNumber};

/// See the [module](self).
pub(super) struct Space {
    seen: Names,
    durable: Names,
}

impl Space {
    pub fn new() -> Self {
        Self { seen: Names::new(), durable: Names::new() }
    }

    pub fn begin(&mut self, number: OperationNumber, operation: &NameOperation) {
        self.seen.begin(number, operation.clone());
        if operation.changes() {
            self.durable.begin(number, operation.clone());
        }
    }

    pub fn end(
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

    /// An answer that says nothing of how things are now: a look from before a crash, or a
    /// failure of a change.
    pub fn end_blindly(
        &mut self,
        number: OperationNumber,
        operation: &NameOperation,
    ) -> Result<(), String> {
        self.seen.end_without_trace(number)?;
        if operation.changes() { self.durable.end_without_trace(number) } else { Ok(()) }
    }

    /// It has not taken place.
    pub fn cancel(
        &mut self,
        number: OperationNumber,
        operation: &NameOperation,
    ) -> Result<(), String> {
        self.seen.cancel(number)?;
        if operation.changes() { self.durable.cancel(number) } else { Ok(()) }
    }

    /// It can no longer take place; whether it did, nobody will be told.
    pub fn settle(
        &mut self,
        number: OperationNumber,
        operation: &NameOperation,
    ) -> Result<(), String> {
        self.seen.settle(number)?;
        if operation.changes() { self.durable.settle(number) } else { Ok(()) }
    }

    /// The power has failed: of changes under way anything may be left.
    pub fn lose_power(&mut self) {
        self.seen = self.durable.clone();
    }

    /// Changes under way.
    pub fn changes_under_way(&self) -> usize {
        self.durable.changes_under_way()
    }
}
