//! Injected defects in transfers that run while other reactors take turns.
//!
//! Invariant: this code runs only with an injected defect.

use dafs_store::cache::Cache;

use super::{Hits, Hold, Late};
use crate::moving::transfer::Cookie;
use crate::reactor::Own;

impl Hits {
    /// Unpins the cache blocks of all pending reads, because a test injects that defect.
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
    /// Moves the bytes of the writes whose replies were sent too early, because a test injects that
    /// defect.
    #[cold]
    pub(super) fn move_late(&mut self) {
        let Self { hits, interface, .. } = self;
        for Late { over, local, remote } in hits.late.drain(..) {
            if !interface.rdma_read_now(over, &[local], remote) {
                // The post fails only if the connection is closing.
                let silent = Cookie::Silent.pack();
                let _ = interface.post_rdma_read(over, silent, &[local], remote);
            }
        }
    }
}
