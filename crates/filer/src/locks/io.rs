//! The questions that READ and WRITE ask.
//!
//! Invariant: these change nothing, and cost a comparison while nobody has a lock, a look-up
//! for a file without locks, and logarithmic time otherwise.

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
    /// Whether a read or write of `count` bytes may go on under a state id that is good for
    /// this client and file (draft 4.4.1.3, 6.5.28). Nearly free while nobody has a lock;
    /// otherwise it takes logarithmic time.
    ///
    /// # Errors
    /// LOCKED; STALE_STATEID for an open's access to a broken range.
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

    /// One hold that covers some of what is read or written and whose mode is against it.
    fn judge_io(&self, hold: &Hold, state: StateId, kind: IoKind) -> Result<(), Fault> {
        if hold.phase.is_broken() {
            let anonymous = state == StateId::ANONYMOUS;
            return Err(if anonymous { Fault::RangeLocked } else { Fault::StaleState });
        }
        if hold.phase.is_rolling_back() {
            return Err(Fault::RangeLocked);
        }
        let own = hold.state == state && state != StateId::ANONYMOUS;
        // What others write under an auto-recovery lock a rollback would undo with the rest.
        let undone = hold.attributes.auto_recovery && kind == IoKind::Write;
        if own || !(self.config.mandatory || undone) { Ok(()) } else { Err(Fault::RangeLocked) }
    }

    /// Shows the parts of a write that auto-recovery locks cover: what is there must be in
    /// the undo before the write begins. Ask after [`LockTable::check_io`] has agreed.
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

/// The bytes of a read or write; none if it has none.
fn io_range(offset: u64, count: u64) -> Option<ByteRange> {
    let last = offset.saturating_add(count.checked_sub(1)?);
    ByteRange::from_ends(offset, last)
}
