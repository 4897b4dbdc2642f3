//! Ends an interface's wait from another thread.
//!
//! Invariants: after [`Waker::wake`], the present or the next wait of the interface returns.
//! Several wakes before that count as one. Waking an interface that is awake makes no system call.

mod nap;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use self::nap::{Cause, Nap};

/// A handle that wakes one interface. It is cheap to clone and may be sent to other threads.
///
/// Waking an interface that is awake costs one atomic operation. Waking never blocks, so the caller
/// may hold a lock.
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

    /// Ends the interface's present wait, or its next one.
    pub fn wake(&self) {
        self.ring(Cause::Woken);
    }

    /// Makes the interface check for connections that other interfaces have given to it. Does not
    /// end a wait.
    pub(crate) fn call(&self) {
        self.ring(Cause::Called);
    }

    fn ring(&self, cause: Cause) {
        if self.0.nap.ring(cause) {
            // A full counter means that a wake-up is already pending.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    /// Returns true if the interface was woken or called and has not cleared the signal yet.
    #[inline]
    pub(crate) fn is_rung(&self) -> bool {
        self.0.nap.is_rung()
    }

    #[inline]
    pub(crate) fn is_woken(&self) -> bool {
        self.0.nap.has(Cause::Woken)
    }

    /// Clears the wake-up. Returns true if there was one.
    pub(crate) fn take(&self) -> bool {
        self.0.nap.take(Cause::Woken)
    }

    /// Clears the call. Returns true if there was one.
    #[inline]
    pub(crate) fn take_call(&self) -> bool {
        self.0.nap.take(Cause::Called)
    }

    /// Announces that the interface is about to wait for descriptors. Returns false if the
    /// interface must not wait, because it was woken or called.
    pub(crate) fn lie_down(&self) -> bool {
        self.0.nap.lie_down()
    }

    /// Announces that the interface no longer waits for descriptors.
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

    /// Returns the number of times that the descriptor was written to.
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
