//! Searches for conflicting locks.
//!
//! Invariant: the functions here change no state.

use std::ops::ControlFlow;

use super::action::Hold;
use super::action::HoldKey;
use super::owners::OwnerKey;
use super::range::ByteRange;
use super::request::LockMode;
use super::table::LockTable;
use crate::FileKey;

impl LockTable {
    /// Returns the first conflicting lock that `which` accepts.
    fn in_way(
        &self,
        file: FileKey,
        range: ByteRange,
        mode: LockMode,
        which: impl Fn(&Hold) -> bool,
    ) -> Option<HoldKey> {
        let locks = self.files.get(&file)?;
        let flow = locks.search(range, mode, &mut |number| match which(&self.holds[number]) {
            true => ControlFlow::Break(number),
            false => ControlFlow::Continue(()),
        });
        flow.break_value()
    }

    /// Returns the first conflicting lock that is not broken.
    pub(super) fn live_in_way(
        &self,
        file: FileKey,
        who: Option<OwnerKey>,
        range: ByteRange,
        mode: LockMode,
    ) -> Option<HoldKey> {
        self.in_way(file, range, mode, |hold| !hold.is_of(who) && !hold.phase.is_broken())
    }

    /// Returns the first broken lock that conflicts. A broken lock conflicts with the requests of
    /// all owners, including its former owner.
    pub(super) fn broken_in_way(
        &self,
        file: FileKey,
        range: ByteRange,
        mode: LockMode,
    ) -> Option<HoldKey> {
        self.in_way(file, range, mode, |hold| hold.phase.is_broken())
    }

    /// Returns all broken locks that overlap a range.
    pub(super) fn broken_in(&self, file: FileKey, range: ByteRange) -> Vec<HoldKey> {
        self.holds_in(file, range, LockMode::Write, |hold| hold.phase.is_broken())
    }

    /// Returns all locks in a conflicting mode that overlap a range and that `which` accepts.
    pub(super) fn holds_in(
        &self,
        file: FileKey,
        range: ByteRange,
        mode: LockMode,
        which: impl Fn(&Hold) -> bool,
    ) -> Vec<HoldKey> {
        let mut found = Vec::new();
        let Some(locks) = self.files.get(&file) else { return found };
        let flow = locks.search(range, mode, &mut |number| {
            if which(&self.holds[number]) {
                found.push(number);
            }
            ControlFlow::<()>::Continue(())
        });
        debug_assert!(flow.is_continue());
        found
    }
}
