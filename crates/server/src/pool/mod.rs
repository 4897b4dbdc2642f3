//! The worker threads for work that may block, and their jobs.
//!
//! Invariant: the result of every job given to a thread is returned to the reactor once.

pub(crate) mod jobs;
pub(crate) mod load_hint;
pub(crate) mod queue;
pub(crate) mod reactor_cpu;
