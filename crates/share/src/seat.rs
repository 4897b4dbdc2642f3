//! Where threads wait for each other.
//!
//! Invariant: a seat that was called is never slept on before it has been looked at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::Thread;
use std::time::Instant;

/// A thread's own place to wait: its wakers call it.
#[derive(Debug)]
pub(crate) struct Seat {
    thread: Thread,
    is_called: AtomicBool,
}

/// Somebody who waits.
#[derive(Clone)]
pub(crate) struct Waiting {
    pub seat: Arc<Seat>,
    /// It wants to look whenever anything has come, and not only when its waker is called.
    pub hears_all: bool,
}

thread_local! {
    static SEAT: Arc<Seat> = Arc::new(Seat {
        thread: std::thread::current(),
        is_called: AtomicBool::new(false),
    });
    static HERE: u8 = const { 0 };
}

/// A number that no other living thread has.
pub(crate) fn this_thread() -> usize {
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

impl Seat {
    /// This thread's.
    pub fn own() -> Arc<Self> {
        SEAT.with(Arc::clone)
    }

    /// Whether somebody has called since it was last asked.
    pub fn take_call(&self) -> bool {
        self.is_called.swap(false, Ordering::Acquire)
    }

    pub fn is_called(&self) -> bool {
        self.is_called.load(Ordering::Acquire)
    }

    /// Sleeps until somebody calls, or the time has come. On the owner's thread alone.
    pub fn sleep(&self, until: Option<Instant>) {
        while !self.take_call() {
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(left) if left.is_zero() => return,
                Some(left) => std::thread::park_timeout(left),
                None => std::thread::park(),
            }
        }
    }

    pub fn call(&self) {
        self.is_called.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Wake for Seat {
    fn wake(self: Arc<Self>) {
        self.call();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.call();
    }
}
