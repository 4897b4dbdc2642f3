//! The state of undo data at the time when a change was checked.

use dafs_journal::UndoId;

/// The undo data that existed at some time: all undo data with ids below a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoSeen(pub(super) u64);

impl UndoSeen {
    /// Returns true if this undo data existed at that time.
    pub(super) fn has(self, id: UndoId) -> bool {
        id.0 < self.0
    }
}
