//! A snapshot of the undo data that exists when a change is checked.

use dafs_journal::UndoId;

/// A snapshot of the undo data that existed at some time. It stands for all undo data whose ids are
/// less than this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoSeen(pub(super) u64);

impl UndoSeen {
    /// Returns true if the undo data `id` existed when this snapshot was taken.
    pub(super) fn has(self, id: UndoId) -> bool {
        id.0 < self.0
    }
}
