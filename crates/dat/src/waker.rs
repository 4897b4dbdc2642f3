//! Ends an interface's wait from another thread.
//!
//! Invariant: after [`Waker::wake`], the interface's present or next wait returns;
//! several wakes before it does count as one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes one interface. Cheap to clone and to send to other threads.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    woken: AtomicBool,
    event: OwnedFd,
}

impl Waker {
    pub(crate) fn new() -> std::io::Result<Self> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let event = rustix::event::eventfd(0, flags)?;
        Ok(Self(Arc::new(Shared { woken: AtomicBool::new(false), event })))
    }

    /// Ends the interface's wait, or the next one.
    pub fn wake(&self) {
        if !self.0.woken.swap(true, Ordering::AcqRel) {
            // A full counter means that a wake-up is pending anyway.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    #[inline]
    pub(crate) fn is_woken(&self) -> bool {
        self.0.woken.load(Ordering::Relaxed)
    }

    /// Takes the wake-up. True if there was one.
    pub(crate) fn take(&self) -> bool {
        self.0.woken.load(Ordering::Relaxed) && self.0.woken.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}
