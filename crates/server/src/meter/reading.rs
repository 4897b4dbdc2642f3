//! The part of the statistics that each request carries with it.

/// A request's row in the statistics and, if it is timed, its start time, packed in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading(pub(super) u64);
