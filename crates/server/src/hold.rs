//! Access of a reactor to the state that all reactors share.
//!
//! Invariant: no reactor waits for a peer, a disk or a socket while it holds the shared state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::reactor::Shared;

/// Access to the shared state.
pub(crate) trait Hold {
    /// Runs `act` with the shared state.
    fn with<R>(&mut self, act: impl FnOnce(&mut Shared) -> R) -> R;
}

/// Access for the only reactor of a server, without a lock.
pub(crate) struct Alone<'s>(pub &'s mut Shared);

/// Access for one of several reactors, through a lock.
pub(crate) struct InTurns<'s>(pub &'s Lock);

/// The shared state of several reactors, and the lock that protects it.
///
/// A reactor that waits for the lock reads `is_held`, and tries to take the lock only when it is
/// free. Each attempt takes the cache line of the lock away from the holder. The shared state
/// has cache lines of its own, so that the holder does not lose part of it as well.
pub(crate) struct Lock {
    shared: Mutex<OwnLines>,
    is_held: AtomicBool,
}

/// The shared state, on cache lines of its own. Processors fetch lines in pairs.
#[repr(align(128))]
struct OwnLines(Shared);

impl Lock {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Mutex::new(OwnLines(shared)), is_held: AtomicBool::new(false) }
    }

    /// Returns the shared state when all reactors have ended.
    pub(crate) fn into_inner(self) -> Shared {
        self.shared.into_inner().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes all reactors, since the server ends.
    pub(crate) fn wake_all(&self) {
        // The lock may be poisoned by a panic. Only the wakers of the shared state are used here.
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.0.handoffs.wake_all();
    }

    #[inline]
    fn take(&self) -> MutexGuard<'_, OwnLines> {
        // A turn takes some microseconds, less than to sleep and be woken.
        for _ in 0..SPINS_MAX {
            if self.is_held.load(Ordering::Relaxed) {
                std::hint::spin_loop();
                continue;
            }
            match self.shared.try_lock() {
                Ok(shared) => return shared,
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
                Err(TryLockError::Poisoned(_)) => break,
            }
        }
        // The panic of another reactor left the shared state half changed, so this one must end
        // too.
        self.shared.lock().unwrap_or_else(|_| {
            std::panic::resume_unwind(Box::new("another reactor has panicked"));
        })
    }
}

impl Hold for Alone<'_> {
    #[inline]
    fn with<R>(&mut self, act: impl FnOnce(&mut Shared) -> R) -> R {
        act(self.0)
    }
}

impl Hold for InTurns<'_> {
    #[inline]
    fn with<R>(&mut self, act: impl FnOnce(&mut Shared) -> R) -> R {
        let mut shared = self.0.take();
        self.0.is_held.store(true, Ordering::Relaxed);
        let result = act(&mut shared.0);
        self.0.is_held.store(false, Ordering::Relaxed);
        result
    }
}

/// The number of looks at the lock before this thread sleeps. By then the holder is probably not
/// running.
const SPINS_MAX: u32 = 1000;
