//! I/O errors of the simulated disk.
//!
//! Invariant: a fault takes effect once.

use dafs_store::StoreError;
use dafs_types::{Entropy, Random};

/// The operations that a fault can hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOn {
    /// A `write_at` or `set_size` of a file.
    Write,
    /// A `sync` of a file or of the store.
    Sync,
    /// A call of the store that changes something: it creates, links, renames or removes an object,
    /// or sets its attributes.
    Name,
}

/// The part of an operation that is executed although the operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// Nothing was executed.
    Before,
    /// Everything was executed, but the caller gets an error.
    After,
    /// The integer is the executed part of the operation, in thousandths. A write stops in the
    /// middle. A sync of a file writes some of its blocks to the disk and forgets that the others
    /// are dirty, as Linux does: a later sync succeeds without writing them. An atomic operation
    /// does nothing, as with [`FaultEffect::Before`].
    Part(u16),
}

/// An I/O error to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of operation that the fault hits.
    pub on: FaultOn,
    /// The number of operations of that kind that succeed before the fault.
    pub skip: u64,
    /// The error that the caller gets.
    pub error: StoreError,
    /// The effect of the failed operation.
    pub effect: FaultEffect,
}

impl Fault {
    /// Draws a random fault that hits one of the next `within` operations of its kind.
    #[must_use]
    pub fn draw(random: &mut Random, within: usize) -> Self {
        let on = [FaultOn::Write, FaultOn::Sync, FaultOn::Name][random.below(3)];
        let error = [StoreError::Io, StoreError::NoSpace][random.below(2)];
        let skip = random.below(within) as u64;
        let effect = match random.below(3) {
            0 => FaultEffect::Before,
            1 => FaultEffect::After,
            _ => FaultEffect::Part((random.next_u64() % 1_000) as u16),
        };
        Self { on, skip, error, effect }
    }
}

/// Returns the part of an amount that is executed with [`FaultEffect::Part`].
pub(super) fn part_of(amount: usize, thousandths: u16) -> usize {
    amount * usize::from(thousandths.min(1_000)) / 1_000
}
