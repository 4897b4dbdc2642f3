//! The worker threads for work that may block, and their jobs.
//!
//! Invariant: every job that is given to a thread comes back to the reactor once.

pub(crate) mod jobs;
pub(crate) mod load_hint;
pub(crate) mod queue;
pub(crate) mod reactor_cpu;
