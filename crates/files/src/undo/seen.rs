//! The state of undo that a change has seen.

use dafs_journal::UndoId;

/// The undo data that existed at some time: all ids below a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoSeen(pub(super) u64);

impl UndoSeen {
    /// Returns true if this undo data existed then.
    pub(super) fn has(self, id: UndoId) -> bool {
        id.0 < self.0
    }
}
