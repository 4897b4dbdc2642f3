//! Checks that at most one client at a time holds a lock.
//!
//! Invariant: a client enters after the server has granted the lock, and leaves before it asks the
//! server to release the lock. So two clients that are inside at the same time both hold the lock.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

use super::{expect, has_failed};

/// The client that holds one of the locks that all clients take.
#[derive(Debug)]
pub(super) struct Exclusion(AtomicU32);

/// The client that holds the lock of the counter.
pub(super) static COUNTER_LOCK: Exclusion = Exclusion(AtomicU32::new(NOBODY));
/// The client that holds the lock of the ledger.
pub(super) static LEDGER_LOCK: Exclusion = Exclusion(AtomicU32::new(NOBODY));

impl Exclusion {
    /// Notes that a client was granted the lock. Fails if another client holds the lock.
    pub(super) fn enter(&self, client: u32) -> Result<()> {
        let held = self.0.compare_exchange(NOBODY, client, Ordering::AcqRel, Ordering::Acquire);
        match held {
            // A client that has found a violation does not leave.
            Err(_) if has_failed() => Ok(()),
            Err(other) => expect(false, || {
                format!("client {client} was granted a lock that client {other} holds")
            }),
            Ok(_) => Ok(()),
        }
    }

    /// Notes that the client will release the lock.
    pub(super) fn leave(&self) {
        self.0.store(NOBODY, Ordering::Release);
    }
}

/// Stands for no client.
const NOBODY: u32 = u32::MAX;
