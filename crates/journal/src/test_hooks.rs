//! Switches that introduce defects, so that tests can show that they detect the defects.
//!
//! Invariant: outside this crate's own tests no switch is ever on, and the compiler removes the
//! code that the switches guard.

/// A defect that a test introduces deliberately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A group is reported as durable without a sync.
    SkipGroupSync,
    /// A new segment's header is not synced before groups follow it.
    SkipHeaderSync,
    /// The undo data records that blocks are shared before the shared blocks are durable.
    SkipCloneSync,
    /// Bytes that were saved already are cloned again, with their present contents.
    CloneSaved,
    /// The name of a new blob is not synced.
    SkipNamesSync,
    /// Recovery does not make durable the data that it has found.
    SkipRecoverySync,
    /// Groups of another use of a segment, or of another position, are accepted.
    TrustStale,
    /// Old segments are freed before the checkpoint is durable.
    RecycleEarly,
    /// After a failed sync, the sync is repeated and the log continues.
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

    /// Calls `run` with this defect, or with no defect.
    pub(crate) fn with<T>(mutation: Option<Mutation>, run: impl FnOnce() -> T) -> T {
        ON.set(mutation);
        let result = run();
        ON.set(None);
        result
    }
}
