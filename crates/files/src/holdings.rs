//! The state that the server keeps for clients in addition to the filer's opens and locks: open and
//! delegated files, reserved ends of files, and waiting lock requests.
//!
//! Invariants:
//! - A file is kept open while a client has it open or delegated.
//! - The tables contain only entries that belong to a client.

use crate::delegations::Delegations;
use crate::ends::FileEnds;
use crate::lock_waits::LockWaits;
use crate::opened::Opened;

/// The tables of the state that the server keeps for clients: open files, delegations, waiting lock
/// requests, and reserved ends of files.
#[derive(Default)]
pub struct Holdings {
    opened: Opened,
    delegations: Delegations,
    lock_waits: LockWaits,
    ends: FileEnds,
}

impl Holdings {
    /// Borrows the four tables separately: open files, delegations, waiting lock requests, and
    /// reserved ends of files.
    #[inline]
    pub fn parts(&mut self) -> (&mut Opened, &mut Delegations, &mut LockWaits, &mut FileEnds) {
        (&mut self.opened, &mut self.delegations, &mut self.lock_waits, &mut self.ends)
    }

    /// Returns the table of open files.
    #[inline]
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Returns the table of delegated files, for changes.
    pub fn delegations(&mut self) -> &mut Delegations {
        &mut self.delegations
    }

    /// Returns the table of waiting lock requests, for changes.
    pub fn lock_waits(&mut self) -> &mut LockWaits {
        &mut self.lock_waits
    }
}
