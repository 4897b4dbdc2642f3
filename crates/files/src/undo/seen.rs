//! Which undo a change has seen.

use dafs_journal::UndoId;

/// Undo that is kept at a moment: all below a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoSeen(pub(super) u64);

impl UndoSeen {
    /// Whether this undo was kept then.
    pub(super) fn has(self, id: UndoId) -> bool {
        id.0 < self.0
    }
}
