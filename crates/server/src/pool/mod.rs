//! The threads that do what may block, and what is done by them.
//!
//! Invariant: whatever is given to a thread comes back to the reactor once.

pub(crate) mod crowd;
pub(crate) mod jobs;
pub(crate) mod queue;
pub(crate) mod way;
