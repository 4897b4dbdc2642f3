//! Defects on purpose in what is moved while other reactors have their turns.
//!
//! Invariant: without one nothing here is called.

use dafs_store::cache::Cache;

use super::{Hits, Hold, Late};
use crate::moving::transfer::Cookie;
use crate::reactor::Own;

impl Hits {
    /// What is to be read is held in the cache no longer.
    #[cold]
    pub(super) fn unpin_all(&mut self, cache: &mut Cache) {
        for hit in &mut self.kept {
            let Hold::Read { is_end, .. } = hit.hold else { continue };
            let hold = std::mem::replace(&mut hit.hold, Hold::Lent { is_end });
            if let Hold::Read { pin, .. } = hold {
                cache.unpin(pin);
            }
        }
    }
}

impl Own {
    /// Moves the bytes of writes that were answered before.
    #[cold]
    pub(super) fn move_late(&mut self) {
        let Self { hits, interface, .. } = self;
        for Late { over, local, remote } in hits.late.drain(..) {
            if !interface.rdma_read_now(over, &[local], remote) {
                // If it cannot be posted, the connection ends.
                let silent = Cookie::Silent.pack();
                let _ = interface.post_rdma_read(over, silent, &[local], remote);
            }
        }
    }
}
