//! The wakeup of a driver thread by tasks, by callers, and by resources that callers drop.
//!
//! Invariant: a ring wakes the thread if it sleeps, and keeps the thread awake if it is about to
//! sleep.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;
use std::time::Duration;

use dafs_client::Client;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

/// A resource of the driver thread that a caller has dropped. The driver thread releases it.
pub(crate) enum Garbage {
    /// An open file, by its number.
    File(u64),
    /// A registered buffer, by its number.
    Buffer(u64),
    /// An upload that was neither completed nor aborted, by its number.
    Upload(u64),
}

/// The wakeup of one driver thread.
pub(crate) struct Bell {
    is_rung: AtomicBool,
    is_asleep: AtomicBool,
    descriptor: OwnedFd,
    garbage: Mutex<VecDeque<Garbage>>,
}

impl Bell {
    pub(crate) fn new() -> std::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            is_rung: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            descriptor: rustix::event::eventfd(0, flags)?,
            garbage: Mutex::default(),
        })
    }

    pub(crate) fn ring(&self) {
        self.is_rung.store(true, Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            // Ignore an error: the write fails only if the descriptor is readable already.
            let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes());
        }
    }

    /// Clears earlier rings. The thread must check all its sources of work afterwards.
    pub(crate) fn clear(&self) {
        self.is_rung.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_rung(&self) -> bool {
        self.is_rung.load(Ordering::SeqCst)
    }

    /// Queues a resource for release. Never blocks, so `drop` may call it. The queue cannot grow
    /// beyond the number of resources that callers hold.
    pub(crate) fn discard(&self, garbage: Garbage) {
        let is_urgent = !matches!(garbage, Garbage::Buffer(_));
        self.garbage.lock().unwrap_or_else(PoisonError::into_inner).push_back(garbage);
        if is_urgent {
            self.ring();
        }
    }

    pub(crate) fn take_garbage(&self) -> VecDeque<Garbage> {
        std::mem::take(&mut *self.garbage.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sleeps until the client has an event, the bell rings, or `limit` has passed.
    pub(crate) fn sleep(&self, client: &Client, limit: Option<Duration>) {
        self.is_asleep.store(true, Ordering::SeqCst);
        if !self.is_rung() && client.arm() {
            let limit = limit.map(|limit| Timespec {
                tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: limit.subsec_nanos().into(),
            });
            client.with_fd(|descriptor| {
                let mut descriptors = [
                    PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
                    PollFd::from_borrowed_fd(self.descriptor.as_fd(), PollFlags::IN),
                ];
                // Ignore the result: a signal ends the sleep early, and the thread then checks all
                // sources of work again.
                let _ = rustix::event::poll(&mut descriptors, limit.as_ref());
            });
        }
        self.is_asleep.store(false, Ordering::SeqCst);
        // Ignore an error: the read fails only if there was no ring.
        let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}
