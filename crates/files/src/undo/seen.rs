//! The state of undo data at the time when a change was checked.

use dafs_journal::UndoId;

/// The undo data that existed at some time: all undo data with ids below a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoSeen(pub(super) u64);

impl UndoSeen {
    /// Returns true if the undo data `id` existed when this snapshot was taken.
    pub(super) fn has(self, id: UndoId) -> bool {
        id.0 < self.0
    }
}
