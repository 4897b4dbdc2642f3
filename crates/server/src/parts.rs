//! The parts of the reactor that operations work with, and what they ask of it.

use crate::files::{Files, Notice};
use crate::reactor::Reactor;

impl Reactor {
    /// What operations work with.
    #[inline]
    pub(crate) fn files(&mut self) -> Files<'_> {
        Files {
            filer: &mut self.filer,
            cache: &mut self.cache,
            opened: &mut self.opened,
            delegations: &mut self.delegations,
            lock_waits: &mut self.lock_waits,
            ledger: &mut self.ledger,
            ends: &mut self.writes.ends,
            under_way: self.tasks.under_way(),
            notices: self.afterwards.notices(),
            boot: self.boot,
            now: self.life.now(),
        }
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
            Notice::LockReady(waiter) => self.tell_waiter(&waiter),
            Notice::Resume(task) => self.resume(task, None),
        }
    }
}
