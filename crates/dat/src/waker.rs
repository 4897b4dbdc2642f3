//! Ends an interface's wait from another thread.
//!
//! Invariant: after [`Waker::wake`], the interface's present or next wait returns;
//! several wakes before it does count as one. No system call is made to wake an interface that
//! is awake.

mod nap;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use self::nap::{Cause, Nap};

/// Wakes one interface. Cheap to clone and to send to other threads.
///
/// To wake an interface that is awake costs one atomic operation. It may be done under a lock.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    nap: Nap,
    event: OwnedFd,
}

impl Waker {
    pub(crate) fn new() -> std::io::Result<Self> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let event = rustix::event::eventfd(0, flags)?;
        Ok(Self(Arc::new(Shared { nap: Nap::new(), event })))
    }

    /// Ends the interface's wait, or the next one.
    pub fn wake(&self) {
        self.ring(Cause::Woken);
    }

    /// Has the interface look at what other interfaces have given it. That ends no wait.
    pub(crate) fn call(&self) {
        self.ring(Cause::Called);
    }

    fn ring(&self, cause: Cause) {
        if self.0.nap.ring(cause) {
            // A full counter means that a wake-up is pending anyway.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    /// Whether the interface was woken or called, and has not taken that yet.
    #[inline]
    pub(crate) fn is_rung(&self) -> bool {
        self.0.nap.is_rung()
    }

    #[inline]
    pub(crate) fn is_woken(&self) -> bool {
        self.0.nap.has(Cause::Woken)
    }

    /// Takes the wake-up. True if there was one.
    pub(crate) fn take(&self) -> bool {
        self.0.nap.take(Cause::Woken)
    }

    /// Takes the call. True if there was one.
    #[inline]
    pub(crate) fn take_call(&self) -> bool {
        self.0.nap.take(Cause::Called)
    }

    /// The interface is about to wait for descriptors. False if it must not: it was woken or
    /// called.
    pub(crate) fn lie_down(&self) -> bool {
        self.0.nap.lie_down()
    }

    /// The interface waits for descriptors no more.
    pub(crate) fn get_up(&self) {
        self.0.nap.get_up();
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times that the descriptor was written to.
    fn writes(waker: &Waker) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(waker.fd(), &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    #[test]
    fn whoever_is_awake_is_woken_without_a_system_call() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.call();
        assert!(waker.is_woken() && !waker.lie_down(), "it must not sleep");
        assert!(waker.take() && !waker.take());
        assert!(!waker.lie_down(), "it is called still");
        assert!(waker.take_call() && !waker.take_call());
        assert_eq!(writes(&waker), 0);
        assert!(waker.lie_down());
        waker.call();
        waker.wake();
        waker.wake();
        assert_eq!(writes(&waker), 1, "the first of them wakes it");
        waker.get_up();
        assert!(waker.take_call() && waker.take());
        waker.wake();
        assert_eq!(writes(&waker), 0);
    }
}
