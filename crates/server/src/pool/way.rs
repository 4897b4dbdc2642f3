//! Threads that copy much give way to the thread that all clients wait for.
//!
//! Invariant: nothing depends on what is said here but time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::sched_getcpu;

/// Where a pool's owner, the reactor, runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OwnerPlace(Arc<AtomicUsize>);

impl OwnerPlace {
    /// An owner that has said nothing yet.
    pub fn unknown() -> Self {
        Self(Arc::new(AtomicUsize::new(usize::MAX)))
    }

    /// Says that the owner runs on this thread's processor, for some time from now on.
    #[inline]
    pub fn note(&self) {
        self.0.store(sched_getcpu(), Ordering::Relaxed);
    }

    /// Lets the owner go on if it waits for this thread's processor. Not every kernel interrupts
    /// a thread in a system call, and none does before its slice is over: some milliseconds.
    pub fn give_way(&self) {
        if sched_getcpu() == self.0.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }
}
