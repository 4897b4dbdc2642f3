//! Saving by sharing blocks: the first change in a stretch has all that is not saved of the
//! stretch cloned at once, so that later ones find it saved.
//!
//! A stretch is cloned when nothing can change it any more that is not let in by the
//! [gate](super::gate): changes that were let in before the lock was taken have ended, and
//! changes under the lock wait. What the cache has of it and the file has not is written to
//! the file first, for it is the file whose blocks are shared. Neighbours go on: what they
//! change is not of this stretch, or was saved before.
//!
//! Where it cannot be done what is overwritten is copied, as if there were no clones.
//!
//! Invariant: while a stretch is being cloned the gate is shut for it.

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

/// A stretch that is being cloned.
pub(super) struct Cloning {
    id: UndoId,
    /// Held in the cache.
    cached: CachedFile,
    file: Arc<dyn File>,
    range: Range<u64>,
    stage: Stage,
}

enum Stage {
    /// Until older changes have ended.
    Quiet,
    /// What the cache has of it goes to the file.
    Writing(CommitTicket),
    /// A job shares the blocks.
    Sharing,
    /// To be written down.
    Shared(Cloned),
    Over,
}

/// What is known of sharing blocks.
pub(super) struct Clones {
    /// Whether the place of undo data has reflinks at all.
    may: bool,
    /// Whether it went, by file system.
    went: BTreeMap<u64, bool>,
    under_way: Vec<Cloning>,
    /// Bytes cloned so far.
    pub bytes: u64,
}

impl Clones {
    pub fn new(may: bool) -> Self {
        Self { may, went: BTreeMap::new(), under_way: Vec::new(), bytes: 0 }
    }

    fn of(&self, id: UndoId) -> Option<&Cloning> {
        self.under_way.iter().find(|cloning| cloning.id == id)
    }

    /// Whether a stretch of undo data is being cloned.
    pub fn is_cloning(&self, id: UndoId) -> bool {
        self.of(id).is_some()
    }

    /// Whether a job has the undo data.
    pub fn is_sharing(&self, id: UndoId) -> bool {
        self.of(id).is_some_and(|cloning| matches!(cloning.stage, Stage::Sharing))
    }

    pub fn count(&self) -> usize {
        self.under_way.len()
    }
}

impl Undo {
    /// What is to be cloned when a change meets a gap in what is saved of an extent; `None` to
    /// have the gap copied.
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

    /// Notes what came of sharing blocks on a file system, and says so the first time.
    fn note_clone(&mut self, file: &dyn File, failure: Option<&CloneFailure>) {
        let went = &mut self.clones.went;
        let place = file.place().unwrap_or_default();
        match failure {
            None => {
                if went.insert(file.file_system(), true).is_none() {
                    tracing::info!(%place, "undo data shares blocks with files here");
                }
            }
            Some(failure) => {
                let cause: &dyn std::error::Error = failure;
                if !failure.is_for_good() {
                    tracing::warn!(%place, cause, "undo data of this lock is copied");
                } else if went.insert(file.file_system(), false) != Some(false) {
                    tracing::info!(
                        %place, cause,
                        "undo data of files of this file system is copied; with the state \
                         directory on the same file system, and one that has reflinks, it would \
                         share their blocks"
                    );
                }
            }
        }
    }
}
