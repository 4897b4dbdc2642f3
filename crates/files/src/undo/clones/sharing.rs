//! The steps of cloning a stretch by sharing blocks.

use std::ops::Range;
use std::sync::Arc;

use dafs_filer::locks::ByteRange;
use dafs_journal::undo::Cloned;
use dafs_journal::{UndoError, UndoId};
use dafs_store::cache::{CachedFile, CommitTicket, Listener};
use dafs_store::{File, StoreError};
use dafs_types::Stability;

use super::super::jobs::CloneFailure;
use super::super::{Blob, Extent, UndoTask};
use super::{Cloning, Stage};
use crate::{FileJob, Files};

impl Files<'_> {
    /// Returns the part of a gap in the undo data that must be saved by copying now. `None` if the
    /// change must wait until a stretch is cloned.
    pub(in crate::undo) fn clone_first(
        &mut self,
        cached: CachedFile,
        id: UndoId,
        extent: &Range<u64>,
        gap: Range<u64>,
    ) -> Option<Range<u64>> {
        let handle = self.cache.handle(cached);
        let Some(ledger) = &mut *self.ledger else { return Some(gap) };
        let undo = &mut ledger.undo;
        if let Some(Cloning { range, .. }) = undo.clones.of(id) {
            let is_before = gap.start < range.start;
            let meets = gap.start < range.end && range.start < gap.end;
            return match (meets, is_before) {
                (false, _) => Some(gap),
                (true, true) => Some(gap.start..range.start),
                (true, false) => None,
            };
        }
        let Some(file) = undo.file_of(&handle).filter(|_| undo.clones.may) else {
            return Some(gap);
        };
        if undo.clones.went.get(&file.file_system()) == Some(&false) {
            return Some(gap);
        }

        let Some(range) = undo.stretch(id, extent, &gap) else { return Some(gap) };
        self.cache.hold(cached);
        undo.clones.under_way.push(Cloning { id, cached, file, range, stage: Stage::Quiet });
        while self.step_cloning(id) {}
        // A change that must wait is resumed when the clone has finished.
        if self.end_clones(|other| other == id).is_empty() { None } else { Some(gap) }
    }

    /// Advances all clones as far as possible.
    pub(in crate::undo) fn push_clones(&mut self) {
        let Some(ledger) = &*self.ledger else { return };
        let under_way = ledger.undo.clones.under_way.iter();
        let ids: Vec<UndoId> = under_way.map(|cloning| cloning.id).collect();
        for id in ids {
            while self.step_cloning(id) {}
        }
        for id in self.end_clones(|_| true) {
            self.wake_undo(id);
        }
    }

    /// Removes the finished clones of the undo data that `is_meant` accepts. Returns the ids of
    /// this undo data.
    fn end_clones(&mut self, is_meant: impl Fn(UndoId) -> bool) -> Vec<UndoId> {
        let Some(ledger) = &mut *self.ledger else { return Vec::new() };
        let is_over =
            |cloning: &mut Cloning| matches!(cloning.stage, Stage::Over) && is_meant(cloning.id);
        let over: Vec<Cloning> = ledger.undo.clones.under_way.extract_if(.., is_over).collect();
        for cloning in &over {
            self.cache.close(cloning.cached);
        }
        over.into_iter().map(|cloning| cloning.id).collect()
    }

    fn cloning(&mut self, id: UndoId) -> Option<&mut Cloning> {
        let mut under_way = self.ledger.as_mut()?.undo.clones.under_way.iter_mut();
        under_way.find(|cloning| cloning.id == id)
    }

    /// Advances a clone by one step. Returns false if the clone must wait or is finished.
    fn step_cloning(&mut self, id: UndoId) -> bool {
        let Some(cloning) = self.cloning(id) else { return false };
        if matches!(cloning.stage, Stage::Sharing | Stage::Over) {
            return false;
        }
        // Other code may read the list during this step, but only this function advances the clone.
        let stage = std::mem::replace(&mut cloning.stage, Stage::Quiet);
        let (cached, file, range) = (cloning.cached, cloning.file.clone(), cloning.range.clone());
        let is_open = self.kept(id).is_some_and(|kept| matches!(kept.blob, Blob::Open(_)));
        let (next, goes_on) = if is_open {
            self.advance(id, cached, &file, &range, stage)
        } else {
            // The lock has ended, or changes are refused now.
            (Stage::Over, false)
        };
        if let Some(cloning) = self.cloning(id) {
            cloning.stage = next;
        }
        goes_on
    }

    fn advance(
        &mut self,
        id: UndoId,
        cached: CachedFile,
        file: &Arc<dyn File>,
        range: &Range<u64>,
        stage: Stage,
    ) -> (Stage, bool) {
        match stage {
            Stage::Quiet if self.has_older_change(cached, id, range) => (Stage::Quiet, false),
            Stage::Quiet => {
                let length = range.end - range.start;
                let (stability, listener) = (Stability::Unstable, Listener::Nobody);
                let ticket =
                    self.cache.commit_begin(cached, range.start, length, stability, listener);
                (Stage::Writing(ticket), true)
            }
            Stage::Writing(mut ticket) => match self.write_stretch(id, &mut ticket) {
                Some(true) => (self.share(id, file, range), false),
                Some(false) => (Stage::Over, false),
                None => (Stage::Writing(ticket), false),
            },
            Stage::Shared(cloned) => match self.save_cloned(id, &cloned) {
                Ok(()) => (Stage::Over, false),
                Err(UndoError::Wait) => {
                    self.push_undo_data(id);
                    (Stage::Shared(cloned), false)
                }
                Err(error) => {
                    tracing::warn!(?id, %error, "a clone cannot be recorded in the undo data");
                    self.copy_from_now_on(id);
                    (Stage::Over, false)
                }
            },
            Stage::Sharing | Stage::Over => (stage, false),
        }
    }

    /// Returns true if a change of the stretch is in progress that was checked before this undo
    /// data existed.
    fn has_older_change(&self, cached: CachedFile, id: UndoId, range: &Range<u64>) -> bool {
        let length = range.end - range.start;
        let Some(range) = ByteRange::new(range.start, length) else { return false };
        let extent = Extent { range, id };
        self.under_way.has_change(cached, range, |seen| !seen.has(extent.id))
    }

    /// Writes the dirty data of a stretch to the file. Returns true on success, and `None` if the
    /// write must wait.
    fn write_stretch(&mut self, id: UndoId, ticket: &mut CommitTicket) -> Option<bool> {
        if self.ledger.as_ref().is_some_and(|ledger| ledger.undo.clones_unwritten) {
            return Some(true);
        }
        let written = self.push_commit(ticket)?;
        let is_written = written.is_ok();
        if let Err(error) = written {
            self.note_lost_write(id, error);
        }
        Some(is_written)
    }

    /// Records the loss of an earlier write, which the next change of the file must report.
    fn note_lost_write(&mut self, id: UndoId, error: StoreError) {
        if let Some(kept) = self.kept(id) {
            kept.lost = Some(error);
        }
    }

    fn share(&mut self, id: UndoId, file: &Arc<dyn File>, range: &Range<u64>) -> Stage {
        let Some(ledger) = &*self.ledger else { return Stage::Over };
        let (storage, file) = (ledger.undo.storage.clone(), file.clone());
        let job = match self.kept(id).map(|kept| &kept.blob) {
            Some(Blob::Open(log)) => log.clone_job(range.clone()),
            _ => None,
        };
        let Some(job) = job else { return Stage::Over };
        self.submit(FileJob::Undo(UndoTask::Clone { id, storage, file, job }));
        Stage::Sharing
    }

    fn save_cloned(&mut self, id: UndoId, cloned: &Cloned) -> Result<(), UndoError> {
        let Some(kept) = self.kept(id) else { return Ok(()) };
        let Blob::Open(log) = &mut kept.blob else { return Ok(()) };
        let (number, range) = (log.save_cloned(cloned)?, cloned.range());
        let length = range.end - range.start;
        kept.fresh.push_back((number, range));
        if let Some(ledger) = &mut *self.ledger {
            ledger.undo.clones.bytes += length;
        }
        self.push_undo_data(id);
        Ok(())
    }

    fn copy_from_now_on(&mut self, id: UndoId) {
        if let Some(kept) = self.kept(id) {
            kept.may_clone = false;
        }
    }

    /// Handles the end of a job that shares blocks, whether it succeeded or failed.
    pub(in crate::undo) fn on_undo_cloned(
        &mut self,
        id: UndoId,
        result: Result<Cloned, CloneFailure>,
    ) {
        let Some(ledger) = &mut *self.ledger else { return };
        let last = ledger.last();
        let undo = &mut ledger.undo;
        let is_kept = undo.data.contains_key(&id);
        let mut under_way = undo.clones.under_way.iter_mut();
        let Some(cloning) = under_way.find(|cloning| cloning.id == id) else { return };
        let file = cloning.file.clone();
        cloning.stage = Stage::Over;
        match result {
            Ok(cloned) if !cloned.range().is_empty() => {
                cloning.stage = Stage::Shared(cloned);
                undo.note_clone(&*file, None);
            }
            // The job shared less than a whole block.
            Ok(_) => {}
            Err(failure) => {
                undo.note_clone(&*file, Some(&failure));
                self.copy_from_now_on(id);
            }
        }
        if !is_kept && let Some(ledger) = &mut *self.ledger {
            // The lock has ended in the meantime.
            ledger.undo.pending_removal.push_back((last, id));
        }
    }
}
