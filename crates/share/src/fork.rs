//! Detects that a process was forked.
//!
//! Invariant: the fork count of a process differs from that of each of its ancestors, provided that
//! the C library performs every fork.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The error for a client that belongs to the parent process: its connections and the state of its
/// threads do not survive `fork`. The child must connect again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this was opened before fork(), by the parent process; connect again in the child")]
pub struct Forked;

/// The number of forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Identifies the process in which an object was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    /// Returns the generation of the current process.
    pub(crate) fn now() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: the handler takes no arguments and only adds to an atomic number, which is
            // allowed at any time in the child.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    pub(crate) fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
