//! Lets a worker thread that copies many bytes yield its processor to the reactor, because all
//! clients wait for the reactor.
//!
//! Invariant: correctness never depends on whether threads yield.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::sched_getcpu;

/// The number of the processor on which the reactor runs. Clones share the value.
#[derive(Clone, Debug)]
pub(crate) struct ReactorCpu(Arc<AtomicUsize>);

impl ReactorCpu {
    /// Creates the value for a reactor whose processor is not known yet.
    pub(crate) fn unknown() -> Self {
        Self(Arc::new(AtomicUsize::new(usize::MAX)))
    }

    /// Records that the reactor runs on the current thread's processor.
    #[inline]
    pub(crate) fn note(&self) {
        self.0.store(sched_getcpu(), Ordering::Relaxed);
    }

    /// Yields if the reactor runs on the current thread's processor. This is needed because not
    /// every kernel preempts a thread in a system call, and none does so before the thread's time
    /// slice of a few milliseconds is over.
    pub(crate) fn yield_if_shared(&self) {
        if sched_getcpu() == self.0.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }
}
