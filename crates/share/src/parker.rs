//! Parking and waking of threads that wait for a shared client.
//!
//! Invariant: after a wakeup, a thread checks its condition before it sleeps again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The data for parking one thread, which is also the thread's waker.
#[derive(Debug)]
pub(crate) struct Parker {
    /// The thread to unpark; `None` if its thread-local values no longer exist, as in destructors
    /// at the end of a process. Such a thread cannot be woken and polls instead.
    thread: Option<Thread>,
    is_woken: AtomicBool,
}

/// An entry for a thread that waits.
#[derive(Clone)]
pub(crate) struct Waiting {
    pub parker: Arc<Parker>,
    /// True if the thread must check its condition after every event, not only when its waker is
    /// called.
    pub checks_every_event: bool,
}

thread_local! {
    static PARKER: Arc<Parker> = Arc::new(Parker::of(Some(std::thread::current())));
    static HERE: u8 = const { 0 };
}

/// Returns a number that no other running thread has.
pub(crate) fn this_thread() -> usize {
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

impl Parker {
    fn of(thread: Option<Thread>) -> Self {
        Self { thread, is_woken: AtomicBool::new(false) }
    }

    /// Returns the parker of this thread.
    pub(crate) fn own() -> Arc<Self> {
        PARKER.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Self::of(None)))
    }

    /// Returns true if there was a wakeup since the last call.
    pub(crate) fn take_wakeup(&self) -> bool {
        self.is_woken.swap(false, Ordering::Acquire)
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::Acquire)
    }

    /// Sleeps until a wakeup or the deadline. Only the thread that owns this parker may call it.
    pub(crate) fn sleep(&self, until: Option<Instant>) {
        while !self.take_wakeup() {
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(left) if left.is_zero() => return,
                _ if self.thread.is_none() => std::thread::sleep(POLL_PERIOD),
                Some(left) => std::thread::park_timeout(left),
                None => std::thread::park(),
            }
        }
    }

    pub(crate) fn unpark(&self) {
        self.is_woken.store(true, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}

/// The interval at which a thread that cannot be woken checks its condition.
const POLL_PERIOD: Duration = Duration::from_millis(1);

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.unpark();
    }
}
