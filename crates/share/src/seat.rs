//! Parking and waking of threads that wait for a shared client.
//!
//! Invariant: after a wakeup, a thread checks its condition before it sleeps again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The parking place of one thread, also used as its waker.
#[derive(Debug)]
pub(crate) struct Seat {
    /// `None` for a thread whose thread-local values are gone, as in destructors at the end of a
    /// process: it cannot be woken and polls instead.
    thread: Option<Thread>,
    is_called: AtomicBool,
}

/// A thread that waits.
#[derive(Clone)]
pub(crate) struct Waiting {
    pub seat: Arc<Seat>,
    /// True if it must check its condition after every event, not only when its waker is called.
    pub hears_all: bool,
}

thread_local! {
    static SEAT: Arc<Seat> = Arc::new(Seat::of(Some(std::thread::current())));
    static HERE: u8 = const { 0 };
}

/// Returns a number that no other running thread has.
pub(crate) fn this_thread() -> usize {
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

impl Seat {
    fn of(thread: Option<Thread>) -> Self {
        Self { thread, is_called: AtomicBool::new(false) }
    }

    /// Returns this thread's parking place.
    pub fn own() -> Arc<Self> {
        SEAT.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Self::of(None)))
    }

    /// Returns true if there was a wakeup since the last call.
    pub fn take_call(&self) -> bool {
        self.is_called.swap(false, Ordering::Acquire)
    }

    pub fn is_called(&self) -> bool {
        self.is_called.load(Ordering::Acquire)
    }

    /// Sleeps until a wakeup or the deadline. Only for the thread that owns this.
    pub fn sleep(&self, until: Option<Instant>) {
        while !self.take_call() {
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(left) if left.is_zero() => return,
                _ if self.thread.is_none() => std::thread::sleep(LOOKS),
                Some(left) => std::thread::park_timeout(left),
                None => std::thread::park(),
            }
        }
    }

    pub fn call(&self) {
        self.is_called.store(true, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}

/// How often a thread that cannot be woken checks.
const LOOKS: Duration = Duration::from_millis(1);

impl Wake for Seat {
    fn wake(self: Arc<Self>) {
        self.call();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.call();
    }
}
