//! How a sleeping reactor is woken: by a descriptor, or by a call to whoever steps it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Wakes one reactor.
pub trait Waker: Send + Sync {
    /// Ends the reactor's sleep, or its next one. It must not block. It is called at most once for
    /// each time that the reactor may sleep ([`crate::Port::prepare_sleep`]).
    fn wake(&self);

    /// What the reactor waits for, if that is a descriptor.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes back the wake-ups that have come, and returns their number. A waker that needs no
    /// resetting says that it has taken all.
    fn take(&self) -> u64 {
        u64::MAX
    }
}

/// Wakes by an eventfd, which is readable from the wake-up on until it is taken.
#[derive(Debug)]
pub struct EventWaker(OwnedFd);

impl EventWaker {
    /// A new eventfd.
    ///
    /// # Errors
    /// The process or the system has no descriptor left.
    pub fn new() -> std::io::Result<Self> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        Ok(Self(rustix::event::eventfd(0, flags)?))
    }
}

impl Waker for EventWaker {
    fn wake(&self) {
        // A full counter means that a wake-up is pending anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }

    fn take(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.0, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            // None has come yet: whoever has to wake us is about to.
            Err(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_ups_are_counted_until_they_are_taken() {
        let waker = EventWaker::new().unwrap();
        assert_eq!(waker.take(), 0);
        waker.wake();
        waker.wake();
        assert_eq!((waker.take(), waker.take()), (2, 0));
    }
}
