//! Which process we are in.
//!
//! Invariant: the count of forks differs between a process and each of its ancestors, as far as
//! the C library makes them.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The client is the parent process's: its connections and the state of its threads have not come
/// along through `fork`. Connect anew in the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this was opened before fork(), by the parent process; connect anew in the child")]
pub struct Forked;

/// How many forks lie between the first process and the one that asks.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process something was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    /// This process.
    pub fn now() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: the handler is a function without arguments that adds to an atomic number,
            // which is safe at any point of a child's life.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    pub fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
