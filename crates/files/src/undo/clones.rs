//! Saves undo data by sharing blocks. The first change in a stretch of a file clones the whole
//! stretch, except parts that are already saved, so that later changes need not save anything.
//!
//! A stretch is cloned only while no change can reach it without passing the [gate](super::gate):
//! changes from before the lock have ended, and changes under the lock wait. Dirty data of the
//! stretch is first written to the file, because the file's blocks are shared, not the cache's.
//! Changes of other stretches, and of parts that are already saved, continue.
//!
//! Where blocks cannot be shared, overwritten data is copied instead.
//!
//! Invariant: while a stretch is being cloned, the gate is closed for it.

mod sharing;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use dafs_journal::UndoId;
use dafs_journal::undo::Cloned;
use dafs_store::File;
use dafs_store::cache::{CachedFile, CommitTicket};
use dafs_types::FileHandle;

use super::jobs::CloneFailure;
use super::{Blob, Undo};

/// A stretch of a file that is being cloned.
pub(super) struct Cloning {
    id: UndoId,
    /// The cache's id of the file, which stays in use in the cache.
    cached: CachedFile,
    file: Arc<dyn File>,
    range: Range<u64>,
    stage: Stage,
}

enum Stage {
    /// Waits until changes from before the lock have ended.
    Quiet,
    /// Writes the dirty data of the stretch to the file.
    Writing(CommitTicket),
    /// A job is sharing the blocks.
    Sharing,
    /// The blocks are shared; the record of the clone must be written.
    Shared(Cloned),
    Over,
}

/// The state of all cloning.
pub(super) struct Clones {
    /// True if the storage for undo data supports sharing blocks (reflinks).
    may: bool,
    /// For each file system on which sharing blocks was tried, true if it has worked, false if it
    /// has failed.
    went: BTreeMap<u64, bool>,
    under_way: Vec<Cloning>,
    /// The number of bytes that were cloned since the start.
    pub bytes: u64,
}

impl Clones {
    pub(super) fn new(may: bool) -> Self {
        Self { may, went: BTreeMap::new(), under_way: Vec::new(), bytes: 0 }
    }

    fn of(&self, id: UndoId) -> Option<&Cloning> {
        self.under_way.iter().find(|cloning| cloning.id == id)
    }

    /// Returns true if a stretch for this undo data is being cloned.
    pub(super) fn is_cloning(&self, id: UndoId) -> bool {
        self.of(id).is_some()
    }

    /// Returns true if a job is sharing blocks with this undo data.
    pub(super) fn is_sharing(&self, id: UndoId) -> bool {
        self.of(id).is_some_and(|cloning| matches!(cloning.stage, Stage::Sharing))
    }

    pub(super) fn count(&self) -> usize {
        self.under_way.len()
    }
}

impl Undo {
    /// Returns the stretch to clone when a change finds that a part of an extent (`gap`) is not
    /// saved. `None` if the gap must be saved by copying.
    fn stretch(&mut self, id: UndoId, extent: &Range<u64>, gap: &Range<u64>) -> Option<Range<u64>> {
        let (least, most) = (self.config.clone_bytes_min, self.config.clone_bytes_max);
        let kept = self.data.get_mut(&id)?;
        let is_tried = kept.tried.within(gap.start..gap.start + 1).next().is_some();
        let Blob::Open(log) = &kept.blob else { return None };
        if is_tried || !kept.may_clone || !log.may_clone() {
            return None;
        }
        let window = gap.start - gap.start % most;
        let within = extent.start.max(window)..extent.end.min(window.saturating_add(most));
        let stretch = log.missing(within).find(|missing| missing.contains(&gap.start))?;
        kept.tried.insert(stretch.clone());
        (stretch.end - stretch.start >= least).then_some(stretch)
    }

    fn file_of(&self, handle: &FileHandle) -> Option<Arc<dyn File>> {
        let file = self.files.values().find(|file| file.handle == *handle)?;
        Some(file.open.clone())
    }

    /// Records whether sharing blocks works on a file system. Logs this when it becomes known.
    fn note_clone(&mut self, file: &dyn File, failure: Option<&CloneFailure>) {
        let went = &mut self.clones.went;
        let place = file.place().unwrap_or_default();
        match failure {
            None => {
                if went.insert(file.file_system(), true).is_none() {
                    tracing::info!(%place, "undo data shares blocks on this file system");
                }
            }
            Some(failure) => {
                let cause: &dyn std::error::Error = failure;
                if !failure.is_for_good() {
                    tracing::warn!(%place, cause, "undo data is copied, not shared, for this lock");
                } else if went.insert(file.file_system(), false) != Some(false) {
                    tracing::info!(
                        %place, cause,
                        "undo data of files of this file system is copied; to share blocks \
                         instead, put the state directory on the same file system, if that \
                         supports reflinks"
                    );
                }
            }
        }
    }
}
