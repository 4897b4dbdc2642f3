//! The parts of the reactor that operations work with, and what they ask of it.

use dafs_dat::ServingInterface;
use dafs_ops::LockSpan;

use crate::back::BackRequest;
use crate::direct_reads::DirectReads;
use crate::files::{Files, Notice};
use crate::reactor::Reactor;

impl Reactor {
    /// What operations work with.
    #[inline]
    pub(crate) fn files(&mut self) -> Files<'_> {
        self.files_and_givers().0
    }

    /// The same, and beside it what hands whole files over.
    #[inline]
    pub(crate) fn files_and_givers(
        &mut self,
    ) -> (Files<'_>, (&mut DirectReads, &mut ServingInterface)) {
        let files = Files {
            filer: &mut self.filer,
            cache: &mut self.cache,
            opened: &mut self.opened,
            delegations: &mut self.delegations,
            lock_waits: self.waiting.lock_waits(),
            ledger: &mut self.ledger,
            ends: &mut self.writes.ends,
            under_way: self.tasks.under_way(),
            notices: self.afterwards.notices(),
            boot: self.life.boot(),
            now: self.life.now(),
        };
        (files, (self.loans.files(), &mut self.interface))
    }

    /// Does what operations have asked for on the way.
    #[inline]
    pub(crate) fn act_on_notices(&mut self) {
        while let Some(notice) = self.afterwards.next_notice() {
            self.act_on_notice(notice);
        }
    }

    #[cold]
    fn act_on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::LockReady(waiter) => {
                let endpoint = waiter.fence().and_then(|fence| self.channels.endpoint_under(fence));
                let Some(endpoint) = endpoint else { return };
                let LockSpan { file, state, offset, length } = waiter.span();
                // Whoever does not hear of it asks again by itself.
                let _ = self.tell(endpoint, BackRequest::LockReady { file, state, offset, length });
            }
            Notice::Resume(task) => self.resume(task, None),
        }
    }
}
