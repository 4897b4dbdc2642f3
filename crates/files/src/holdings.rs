//! What clients hold of files, besides what the machine of opens and locks knows of it: files that
//! are open or delegated, ends that are taken, and who waits for locks.
//!
//! Invariant: a file that is open or delegated is kept open; whatever is held by nobody is not
//! here.

use crate::delegations::Delegations;
use crate::ends::Ends;
use crate::lock_waits::LockWaits;
use crate::opened::Opened;

/// All of it.
#[derive(Default)]
pub struct Holdings {
    opened: Opened,
    delegations: Delegations,
    lock_waits: LockWaits,
    ends: Ends,
}

impl Holdings {
    /// What state ids stand for, what is delegated, who waits for locks, and ends that are taken:
    /// the parts that operations work with.
    #[inline]
    pub fn parts(&mut self) -> (&mut Opened, &mut Delegations, &mut LockWaits, &mut Ends) {
        (&mut self.opened, &mut self.delegations, &mut self.lock_waits, &mut self.ends)
    }

    /// What state ids stand for.
    #[inline]
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// What is delegated.
    pub fn delegations(&mut self) -> &mut Delegations {
        &mut self.delegations
    }

    /// Who waits for locks.
    pub fn lock_waits(&mut self) -> &mut LockWaits {
        &mut self.lock_waits
    }
}
