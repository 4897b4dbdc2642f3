//! What a disk does wrong by itself.
//!
//! Invariant: a fault strikes once.

use dafs_store::StoreError;
use dafs_types::{Entropy, Random};

/// Which operations a fault may strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOn {
    /// `write_at` and `set_size` of a file.
    Write,
    /// `sync` of a file or of the store.
    Sync,
    /// What makes, names, unnames or describes objects: the calls of the store that change
    /// something.
    Name,
}

/// How far an operation comes that a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// Nothing was done.
    Before,
    /// All was done; the asker is told otherwise.
    After,
    /// So many thousandths were done. A write stops in the middle. A sync of a file brings
    /// some of its blocks to the disk and forgets that the others are dirty, as Linux does:
    /// a later sync is content without them. For an operation that is atomic, as
    /// [`FaultEffect::Before`].
    Part(u16),
}

/// An error to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What it strikes.
    pub on: FaultOn,
    /// Operations of that sort that go well before.
    pub skip: u64,
    /// What the asker is told.
    pub error: StoreError,
    /// What was done.
    pub effect: FaultEffect,
}

impl Fault {
    /// Any fault, within the next so many operations of its sort.
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

/// How much of an amount a [`FaultEffect::Part`] does.
pub(super) fn part_of(amount: usize, thousandths: u16) -> usize {
    amount * usize::from(thousandths.min(1_000)) / 1_000
}
