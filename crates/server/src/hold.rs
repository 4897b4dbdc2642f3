//! Controls a reactor's access to the state that all reactors share.
//!
//! Invariant: no reactor waits for a peer, a disk or a socket while it holds the shared state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::reactor::Shared;

/// A way for a reactor to access the state that all reactors share.
pub(crate) trait Hold {
    /// Calls `act` with the shared state. No other reactor accesses the state during the call.
    fn with<R>(&mut self, act: impl FnOnce(&mut Shared) -> R) -> R;
}

/// Access without a lock, for a server with only one reactor.
pub(crate) struct Alone<'s>(pub &'s mut Shared);

/// Access through a lock, for one of several reactors.
pub(crate) struct InTurns<'s>(pub &'s Lock);

/// The shared state of several reactors and the lock that protects it.
///
/// A reactor that waits for the lock polls `is_held`, and tries to acquire the lock only when
/// `is_held` is false, because each attempt takes the lock's cache line away from the holder. The
/// shared state is on other cache lines than the lock, so that the polling does not slow down the
/// accesses of the reactor that holds the lock.
pub(crate) struct Lock {
    shared: Mutex<OwnLines>,
    is_held: AtomicBool,
}

/// The shared state on its own cache lines. The alignment is 128 bytes because processors fetch
/// lines in pairs.
#[repr(align(128))]
struct OwnLines(Shared);

impl Lock {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Mutex::new(OwnLines(shared)), is_held: AtomicBool::new(false) }
    }

    /// Returns the shared state. Called when all reactors have ended.
    pub(crate) fn into_inner(self) -> Shared {
        self.shared.into_inner().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes all reactors, so that they notice that the server ends.
    pub(crate) fn wake_all(&self) {
        // The lock may be poisoned by a panic. That is harmless here, because only the wakers are
        // used.
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.0.handoffs.wake_all();
    }

    #[inline]
    fn take(&self) -> MutexGuard<'_, OwnLines> {
        // A turn takes a few microseconds, which is less than it takes to sleep and be woken.
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
        // Another reactor has panicked and may have left the shared state half changed, so this
        // reactor must end too.
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

/// The number of times that a thread polls the lock before it sleeps. If the lock is still held
/// then, its holder is probably not running on a processor.
const SPINS_MAX: u32 = 1000;
