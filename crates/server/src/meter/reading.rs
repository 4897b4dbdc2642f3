//! The word of statistics that each request carries while it is served.

/// The index of a request's row in the statistics and, if the request is timed, its start time,
/// packed into one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading(pub(super) u64);
