//! What clients hold of files beside the filer's opens and locks: open and delegated files, owned
//! ends, and waiting lock requests.
//!
//! Invariants:
//! - A file that a client has open or delegated is kept open.
//! - Nothing is kept here that no client holds.

use crate::delegations::Delegations;
use crate::ends::FileEnds;
use crate::lock_waits::LockWaits;
use crate::opened::Opened;

/// The tables of what clients hold.
#[derive(Default)]
pub struct Holdings {
    opened: Opened,
    delegations: Delegations,
    lock_waits: LockWaits,
    ends: FileEnds,
}

impl Holdings {
    /// The parts that operations work with: open files, delegations, waiting lock requests, and
    /// owned ends.
    #[inline]
    pub fn parts(&mut self) -> (&mut Opened, &mut Delegations, &mut LockWaits, &mut FileEnds) {
        (&mut self.opened, &mut self.delegations, &mut self.lock_waits, &mut self.ends)
    }

    /// The open files, by state id.
    #[inline]
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// The files with a delegation.
    pub fn delegations(&mut self) -> &mut Delegations {
        &mut self.delegations
    }

    /// The waiting lock requests.
    pub fn lock_waits(&mut self) -> &mut LockWaits {
        &mut self.lock_waits
    }
}
