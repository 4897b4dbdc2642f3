//! What a request bears of what is counted and timed of it.

/// What a request bears of this: its row, and, if it is timed, when it began, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading(pub(super) u64);
