//! Access of a reactor to the state that all reactors share.
//!
//! Invariant: no reactor waits for a peer, a disk or a socket while it holds the shared state.

use std::sync::{Mutex, TryLockError};

use crate::reactor::Shared;

/// Access to the shared state.
pub(crate) trait Hold {
    /// Runs `act` with the shared state.
    fn with<R>(&mut self, act: impl FnOnce(&mut Shared) -> R) -> R;
}

/// Access for the only reactor of a server, without a lock.
pub(crate) struct Alone<'s>(pub &'s mut Shared);

/// Access for one of several reactors, through a lock.
pub(crate) struct InTurns<'s>(pub &'s Mutex<Shared>);

impl Hold for Alone<'_> {
    #[inline]
    fn with<R>(&mut self, act: impl FnOnce(&mut Shared) -> R) -> R {
        act(self.0)
    }
}

impl Hold for InTurns<'_> {
    #[inline]
    fn with<R>(&mut self, act: impl FnOnce(&mut Shared) -> R) -> R {
        // A turn takes some microseconds, less than to sleep and be woken.
        for _ in 0..SPINS_MAX {
            match self.0.try_lock() {
                Ok(mut shared) => return act(&mut shared),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
                Err(TryLockError::Poisoned(_)) => break,
            }
        }
        match self.0.lock() {
            Ok(mut shared) => act(&mut shared),
            // The panic of the other reactor left the shared state half changed, so this one
            // must end too.
            Err(_) => std::panic::resume_unwind(Box::new("another reactor has panicked")),
        }
    }
}

/// The number of attempts to take the lock before this thread sleeps. By then the holder is
/// probably not running.
const SPINS_MAX: u32 = 1000;
