//! When and why the server ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ledger::LedgerError;

/// Whether the server is to end, and why if not because it was asked to.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    is_asked: Arc<AtomicBool>,
    fatal: Option<LedgerError>,
}

impl Ending {
    /// What whoever wants the server to end sets.
    pub fn switch(&self) -> Arc<AtomicBool> {
        self.is_asked.clone()
    }

    /// Whether it is to end.
    pub fn is_due(&self) -> bool {
        self.is_asked.load(Ordering::Acquire)
    }

    /// Nothing can be promised any more.
    pub fn fail(&mut self, error: LedgerError) {
        self.fatal = Some(error);
        self.is_asked.store(true, Ordering::Release);
    }

    /// Why it had to end.
    pub fn take_reason(&mut self) -> Option<LedgerError> {
        self.fatal.take()
    }
}
