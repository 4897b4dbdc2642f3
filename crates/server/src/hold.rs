//! How a reactor gets at what all reactors share.
//!
//! Invariant: nobody waits for a peer, a disk or a socket while they have it.

use std::sync::{Mutex, TryLockError};

use crate::reactor::Shared;

/// A way to what all share.
pub(crate) trait Hold {
    /// Does something with it.
    fn with<R>(&mut self, act: impl FnOnce(&mut Shared) -> R) -> R;
}

/// The only reactor has it at all times.
pub(crate) struct Alone<'s>(pub &'s mut Shared);

/// Several take turns.
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
        // A turn takes some microseconds, and to sleep and be woken takes more.
        for _ in 0..SPINS_MAX {
            match self.0.try_lock() {
                Ok(mut shared) => return act(&mut shared),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
                Err(TryLockError::Poisoned(_)) => break,
            }
        }
        match self.0.lock() {
            Ok(mut shared) => act(&mut shared),
            // Whatever the other was about is half done: nothing can be promised any more.
            Err(_) => std::panic::resume_unwind(Box::new("another reactor has panicked")),
        }
    }
}

/// Looks at a lock before its owner must be taken for one that does not run.
const SPINS_MAX: u32 = 1000;
