//! Worker threads that copy much yield to the reactor, which all clients wait for.
//!
//! Invariant: correctness never depends on this.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::sched_getcpu;

/// The processor on which the reactor runs. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ReactorCpu(Arc<AtomicUsize>);

impl ReactorCpu {
    /// Creates a value that does not know the processor yet.
    pub(crate) fn unknown() -> Self {
        Self(Arc::new(AtomicUsize::new(usize::MAX)))
    }

    /// Notes that the reactor runs on this thread's processor.
    #[inline]
    pub(crate) fn note(&self) {
        self.0.store(sched_getcpu(), Ordering::Relaxed);
    }

    /// Yields if the reactor waits for this thread's processor. Not every kernel preempts a thread
    /// in a system call, and none does before its time slice of some milliseconds is over.
    pub(crate) fn yield_if_shared(&self) {
        if sched_getcpu() == self.0.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }
}
