//! Checks READ and WRITE against locks.
//!
//! Invariant: the functions here change no state. They cost one comparison while there are no
//! locks, one lookup for a file without locks, and logarithmic time otherwise.

use std::ops::ControlFlow;

use dafs_ops::Fault;
use dafs_types::StateId;

use super::action::Hold;
use super::action::HoldKey;
use super::range::ByteRange;
use super::request::LockMode;
use super::table::LockTable;
use crate::{FileKey, IoKind};

impl LockTable {
    /// Checks whether locks allow a read or write of `count` bytes under a state id that is valid
    /// for this client and file (draft 4.4.1.3, 6.5.28). The check costs one comparison while there
    /// are no locks, and logarithmic time otherwise.
    ///
    /// # Errors
    /// LOCKED if a lock conflicts; STALE_STATEID for an access to a broken range with the state id
    /// of an open.
    #[inline]
    pub fn check_io(
        &self,
        file: FileKey,
        state: StateId,
        offset: u64,
        count: u64,
        kind: IoKind,
    ) -> Result<(), Fault> {
        if self.is_empty() {
            return Ok(());
        }
        self.check_io_of_file(file, state, offset, count, kind)
    }

    fn check_io_of_file(
        &self,
        file: FileKey,
        state: StateId,
        offset: u64,
        count: u64,
        kind: IoKind,
    ) -> Result<(), Fault> {
        let (Some(locks), Some(range)) = (self.files.get(&file), io_range(offset, count)) else {
            return Ok(());
        };
        let mut judge = |number: HoldKey| match self.judge_io(&self.holds[number], state, kind) {
            Ok(()) => ControlFlow::Continue(()),
            Err(status) => ControlFlow::Break(status),
        };
        let shared_matter = self.config.mandatory || locks.shared_broken > 0;
        let mode = match kind {
            IoKind::Write if shared_matter => LockMode::Write,
            IoKind::Read | IoKind::Write => LockMode::Read,
        };
        match locks.search(range, mode, &mut judge) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(status) => Err(status),
        }
    }

    /// Checks an access against one lock, which overlaps the accessed range and has a conflicting
    /// mode.
    fn judge_io(&self, hold: &Hold, state: StateId, kind: IoKind) -> Result<(), Fault> {
        if hold.attributes.advisory {
            return Ok(());
        }
        if hold.phase.is_broken() {
            let anonymous = state == StateId::ANONYMOUS;
            return Err(if anonymous { Fault::RangeLocked } else { Fault::StaleState });
        }
        if hold.phase.is_rolling_back() {
            return Err(Fault::RangeLocked);
        }
        let own = hold.state == state && state != StateId::ANONYMOUS;
        // A rollback would also undo what other owners write under an auto-recovery lock.
        let undone = hold.attributes.auto_recovery && kind == IoKind::Write;
        if own || !(self.config.mandatory || undone) { Ok(()) } else { Err(Fault::RangeLocked) }
    }

    /// Calls `visit` with each part of a write's range that is covered by an auto-recovery lock.
    /// The old content of these parts must be saved as undo data before the write starts. The
    /// server must call this only after [`LockTable::check_io`] has allowed the write.
    #[inline]
    pub fn undo_ranges(
        &self,
        file: FileKey,
        offset: u64,
        count: u64,
        mut show: impl FnMut(ByteRange),
    ) {
        if self.is_empty() {
            return;
        }
        let Some(locks) = self.files.get(&file).filter(|locks| locks.undoing > 0) else { return };
        let Some(range) = io_range(offset, count) else { return };
        let flow = locks.exclusive.search(range, &mut |number| {
            let hold = &self.holds[number];
            let covered = hold.range.intersection(range).filter(|_| hold.attributes.auto_recovery);
            if let Some(covered) = covered {
                show(covered);
            }
            ControlFlow::<()>::Continue(())
        });
        debug_assert!(flow.is_continue());
    }
}

/// Returns the range of a read or write. `None` if `count` is 0.
fn io_range(offset: u64, count: u64) -> Option<ByteRange> {
    let last = offset.saturating_add(count.checked_sub(1)?);
    ByteRange::from_ends(offset, last)
}
