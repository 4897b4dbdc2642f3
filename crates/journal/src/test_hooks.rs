//! Switches by which tests show that they would notice a defect.
//!
//! Invariant: outside of this crate's own tests no switch is ever on, and the compiler
//! leaves out what it guards.

/// A defect on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A group is reported durable without a sync.
    SkipGroupSync,
    /// A new segment's header is not synced before groups follow it.
    SkipHeaderSync,
    /// Undo data says that it shares blocks before that is durable.
    SkipCloneSync,
    /// What was saved is cloned once more, as it is now.
    CloneSaved,
    /// A new blob's name is not synced.
    SkipNamesSync,
    /// Recovery does not make durable what it found.
    SkipRecoverySync,
    /// Groups of another use of a segment, or of another place, are believed.
    TrustStale,
    /// Older segments are given free before the checkpoint is durable.
    RecycleEarly,
    /// A failed sync is tried again instead of poisoning.
    RetrySync,
}

#[cfg(not(test))]
pub(crate) const fn is_on(_mutation: Mutation) -> bool {
    false
}

#[cfg(test)]
pub(crate) use switches::{is_on, with};

#[cfg(test)]
mod switches {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        static ON: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    pub(crate) fn is_on(mutation: Mutation) -> bool {
        ON.get() == Some(mutation)
    }

    /// Runs something with a defect, or none.
    pub(crate) fn with<T>(mutation: Option<Mutation>, run: impl FnOnce() -> T) -> T {
        ON.set(mutation);
        let result = run();
        ON.set(None);
        result
    }
}
