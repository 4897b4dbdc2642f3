//! Where threads wait for each other.
//!
//! Invariant: a seat that was called is never slept on before it has been looked at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A thread's own place to wait: its wakers call it.
#[derive(Debug)]
pub(crate) struct Seat {
    /// `None` of a thread that has lost its locals, as destructors at the process's end find it:
    /// it cannot be woken, and looks by itself.
    thread: Option<Thread>,
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
    static SEAT: Arc<Seat> = Arc::new(Seat::of(Some(std::thread::current())));
    static HERE: u8 = const { 0 };
}

/// A number that no other living thread has.
pub(crate) fn this_thread() -> usize {
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

impl Seat {
    fn of(thread: Option<Thread>) -> Self {
        Self { thread, is_called: AtomicBool::new(false) }
    }

    /// This thread's.
    pub fn own() -> Arc<Self> {
        SEAT.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Self::of(None)))
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

/// How often a thread looks that cannot be woken.
const LOOKS: Duration = Duration::from_millis(1);

impl Wake for Seat {
    fn wake(self: Arc<Self>) {
        self.call();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.call();
    }
}
