//! The steps of a rollback: start, write back, restore the end, sync.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dafs_filer::locks::{LockMode, RollbackId};
use dafs_journal::UndoError;
use dafs_store::StoreError;
use dafs_store::cache::{CachedFile, Listener, Prepared, Progress, SizeStep, Spans};
use dafs_types::{Credentials, ShareAccess, Stability};

use super::super::batch::{Batch, Changed, Source};
use super::super::{Blob, Extent, UndoTask, offsets};
use super::{PUT_BYTES_MAX, RETRY_PERIOD, Rollback, Stage, StepResult, WriteBack};
use crate::writing::copy_in;
use crate::{FileJob, Files, Notice};

impl Files<'_> {
    /// Advances all rollbacks and clones as far as possible. Returns true if a rollback waits for
    /// cache space.
    #[cold]
    pub fn push_undo(&mut self) -> bool {
        self.push_clones();
        self.push_rollbacks()
    }

    fn push_rollbacks(&mut self) -> bool {
        let Some(ledger) = &mut *self.ledger else { return false };
        let mut under_way = std::mem::take(&mut ledger.undo.rollbacks);
        let mut wants_room = false;
        for rollback in &mut under_way {
            wants_room |= self.push_rollback(rollback);
        }
        let Some(ledger) = &mut *self.ledger else { return false };
        // Other rollbacks may have started during this loop.
        under_way.append(&mut ledger.undo.rollbacks);
        under_way.retain(|rollback| !matches!(rollback.stage, Stage::Over));
        ledger.undo.rollbacks = under_way;
        wants_room
    }

    /// Advances one rollback. Returns true if the rollback waits for cache space.
    fn push_rollback(&mut self, rollback: &mut Rollback) -> bool {
        loop {
            let turn = match &mut rollback.stage {
                Stage::Quiet => self.begin_rollback(rollback),
                Stage::Writing(_) => self.write_range(rollback),
                Stage::Next => self.read_next_extent(rollback),
                Stage::Reading | Stage::Over => return false,
                Stage::WriteBack(_) => self.put_back(rollback),
                Stage::RestoringEnd { .. } => self.restore_end(rollback),
                Stage::Syncing(_) => self.sync_rollback(rollback),
                Stage::Again(at) if *at <= self.now => {
                    rollback.stage = Stage::Quiet;
                    StepResult::On
                }
                Stage::Again(_) => StepResult::Wait,
            };
            match turn {
                StepResult::On => {}
                StepResult::Wait => return false,
                StepResult::WaitForRoom => return true,
                StepResult::Failed(error) => {
                    let (id, again) = (rollback.id, RETRY_PERIOD);
                    tracing::error!(
                        ?id, %error,
                        "changes under a lock cannot be rolled back; the range stays \
                         locked, and the rollback is tried again in {again:?}"
                    );
                    self.release_rolled_back(rollback);
                    rollback.stage = Stage::Again(self.now.after(again));
                    return false;
                }
            }
        }
    }

    /// Waits until earlier changes have ended, then keeps the file in use in the cache.
    fn begin_rollback(&mut self, rollback: &mut Rollback) -> StepResult {
        let Some(ledger) = &*self.ledger else { return StepResult::Wait };
        let Some(undone) = ledger.undo.files.get(&rollback.key) else {
            return self.finish_rollback(rollback);
        };
        let handle = undone.handle;
        let extents = ledger.undo.extents_in(undone, rollback.range);
        let is_cloning = |extent: &Extent| ledger.undo.clones.is_cloning(extent.id);
        if extents.iter().any(is_cloning) {
            return StepResult::Wait;
        }
        let is_busy = |extent: &Extent| match ledger.undo.data.get(&extent.id).map(|k| &k.blob) {
            Some(Blob::Open(log)) => log.durable() < log.last_saved(),
            Some(Blob::Busy) => true,
            Some(Blob::Absent | Blob::Closed | Blob::Failed) | None => false,
        };
        let busy: Vec<_> = extents.iter().filter(|extent| is_busy(extent)).copied().collect();
        if !busy.is_empty() {
            // An earlier attempt to save the pieces may have failed before its job was started.
            for extent in busy {
                self.push_undo_data(extent.id);
            }
            return StepResult::Wait;
        }
        // The cache may contain a file that no client has open, to which the cache cannot write.
        let is_open = self.opened.file(&handle).is_some();
        let file = match self.cache.find(&handle).filter(|_| is_open) {
            Some(file) => {
                self.cache.hold(file);
                file
            }
            None => match self.open_for_rollback(&handle) {
                Ok(file) => file,
                Err(StoreError::Stale | StoreError::NotFound) => {
                    return self.finish_rollback(rollback);
                }
                Err(error) => return StepResult::Failed(error.to_string()),
            },
        };
        if self.under_way.has_conflicting(file, rollback.range, LockMode::Read) {
            self.cache.close(file);
            return StepResult::Wait;
        }
        rollback.file = Some(file);
        let is_known = extents.iter().all(|extent| self.knows_changes(extent));
        rollback.left = extents;
        rollback.stage = Stage::Next;
        if !is_known {
            let range = offsets(rollback.range);
            let length = range.end - range.start;
            let (stability, listener) = (Stability::Unstable, Listener::Nobody);
            let ticket = self.cache.commit_begin(file, range.start, length, stability, listener);
            rollback.stage = Stage::Writing(ticket);
        }
        StepResult::On
    }

    /// Returns true if the server knows which parts of an extent (a range with undo data) have
    /// changed.
    fn knows_changes(&mut self, extent: &Extent) -> bool {
        self.kept(extent.id).is_none_or(|kept| kept.changed.is_some())
    }

    /// Writes the dirty data of the range to the file.
    fn write_range(&mut self, rollback: &mut Rollback) -> StepResult {
        let Stage::Writing(ticket) = &mut rollback.stage else { return StepResult::Wait };
        match self.push_commit(ticket) {
            None => StepResult::Wait,
            Some(Ok(())) => {
                rollback.stage = Stage::Next;
                StepResult::On
            }
            Some(Err(error)) => StepResult::Failed(error.to_string()),
        }
    }

    fn open_for_rollback(
        &mut self,
        handle: &dafs_types::FileHandle,
    ) -> Result<CachedFile, StoreError> {
        let access = ShareAccess::Both;
        let Some(ledger) = &*self.ledger else { return Err(StoreError::Stale) };
        let file = ledger.undo.store.open(&Credentials::superuser(), handle, access)?;
        let version = file.version()?;
        self.cache.open(file, version)
    }

    fn read_next_extent(&mut self, rollback: &mut Rollback) -> StepResult {
        let Some(file) = rollback.file else { return StepResult::Wait };
        let Some(Extent { id, .. }) = rollback.left.last().copied() else {
            let (stability, listener) = (Stability::FileSync, Listener::Nobody);
            let ticket = self.cache.commit_begin(file, 0, 0, stability, listener);
            rollback.stage = Stage::Syncing(ticket);
            return StepResult::On;
        };
        match self.source_of(rollback, id) {
            Some(source) => self.read_undo(rollback, Box::new(source)),
            None => {
                rollback.left.pop();
                StepResult::On
            }
        }
    }

    /// Returns the source from which the undo data with this id is read. `None` if no undo data can
    /// have been saved.
    fn source_of(&self, rollback: &Rollback, id: dafs_journal::UndoId) -> Option<Source> {
        let undo = &self.ledger.as_ref()?.undo;
        let kept = undo.data.get(&id).filter(|kept| kept.blob.may_hold_pieces())?;
        let changed = match &kept.changed {
            Some(changed) => Changed::Within(changed.clone()),
            None => Changed::Unknown(undo.files.get(&rollback.key)?.open.clone()),
        };
        Some(Source::new(undo.storage.clone(), id, offsets(rollback.range), changed))
    }

    fn read_undo(&mut self, rollback: &mut Rollback, source: Box<Source>) -> StepResult {
        let rollback_id = rollback.id;
        rollback.stage = Stage::Reading;
        self.submit(FileJob::Undo(UndoTask::Read { rollback: rollback_id, source }));
        StepResult::Wait
    }

    /// Handles a batch that was read, or the failure of the read.
    pub(in crate::undo) fn on_undo_read(
        &mut self,
        id: RollbackId,
        result: Result<Option<Batch>, UndoError>,
    ) {
        let Some(ledger) = &mut *self.ledger else { return };
        let mut under_way = ledger.undo.rollbacks.iter_mut();
        let Some(rollback) = under_way.find(|rollback| rollback.id == id) else { return };
        match result {
            Ok(Some(Batch { pieces, more, size })) => {
                let putting = WriteBack { pieces: pieces.into(), done: 0, more, size };
                rollback.stage = Stage::WriteBack(putting);
            }
            Ok(None) => {
                rollback.left.pop();
                rollback.stage = Stage::Next;
            }
            Err(error) => {
                tracing::error!(?id, %error, "undo data cannot be read; the rollback is repeated");
                rollback.stage = Stage::Again(self.now.after(RETRY_PERIOD));
                let file = rollback.file.take();
                if let Some(file) = file {
                    self.cache.close(file);
                }
            }
        }
    }

    /// Writes pieces back until the cache has no space.
    fn put_back(&mut self, rollback: &mut Rollback) -> StepResult {
        let Rollback { file: Some(file), left, stage, range, .. } = rollback else {
            return StepResult::Wait;
        };
        let (Stage::WriteBack(putting), Some(extent)) = (stage, left.last().copied()) else {
            return StepResult::Wait;
        };
        let Some(part) = extent.range.intersection(*range).map(offsets) else {
            return StepResult::Wait;
        };
        while let Some((offset, bytes)) = putting.pieces.front() {
            // Parts of a piece outside the extent belong to other locks.
            let from = part.start.saturating_sub(*offset).min(bytes.len() as u64) as usize;
            let to = part.end.saturating_sub(*offset).min(bytes.len() as u64) as usize;
            let at = from.max(putting.done);
            if at >= to {
                putting.pieces.pop_front();
                putting.done = 0;
                continue;
            }
            match self.put_bytes(*file, offset + at as u64, &bytes[at..to]) {
                Ok(put) => putting.done = at + put,
                Err(turn) => return turn,
            }
        }
        let (more, size) = (putting.more.take(), putting.size);
        match more {
            Some(more) => self.read_undo(rollback, more),
            None => {
                rollback.stage = Stage::RestoringEnd { size, clear_from: size };
                StepResult::On
            }
        }
    }

    /// Writes as many of the bytes as the cache has space for now. Returns the number of bytes
    /// written.
    fn put_bytes(&mut self, file: CachedFile, at: u64, bytes: &[u8]) -> Result<usize, StepResult> {
        let length = u32::try_from(bytes.len()).unwrap_or(PUT_BYTES_MAX).min(PUT_BYTES_MAX);
        let (mut spans, mut jobs) = (Spans::new(), Vec::new());
        match self.cache.prepare_write_anyhow(file, at, length, &mut spans, &mut jobs) {
            Prepared::Ready(token) => {
                let put = token.length() as usize;
                copy_in(self.cache.arena(), &bytes[..put], &spans);
                let progress = self.filled(token, true);
                self.notices.push_back(Notice::Moved(progress));
                Ok(put)
            }
            Prepared::Fill => {
                jobs.into_iter().for_each(|job| self.submit(FileJob::Fill(job)));
                Err(StepResult::Wait)
            }
            Prepared::Wait => Err(StepResult::Wait),
            Prepared::Pressure => Err(StepResult::WaitForRoom),
            Prepared::Lost(error) | Prepared::Failed(error) => {
                Err(StepResult::Failed(error.to_string()))
            }
        }
    }

    /// Restores the end of the file: truncates or clears what was added. Bytes outside the range
    /// are not changed.
    fn restore_end(&mut self, rollback: &mut Rollback) -> StepResult {
        let Rollback { file: Some(file), left, stage, range, .. } = rollback else {
            return StepResult::Wait;
        };
        let (Stage::RestoringEnd { size, clear_from }, Some(extent)) = (stage, left.last()) else {
            return StepResult::Wait;
        };
        let Some(part) = extent.range.intersection(*range).map(offsets) else {
            return StepResult::Wait;
        };
        let (before, now) = (*size, self.cache.size(*file));
        let is_longer = now > before && now > part.start;
        if is_longer && now <= part.end {
            match self.cache.set_size(*file, before.max(part.start)) {
                SizeStep::Wait => return StepResult::Wait,
                SizeStep::Job(job) => {
                    // The truncation changes only metadata, so it is executed here.
                    let failed = job.failed(StoreError::Fault);
                    let done = catch_unwind(AssertUnwindSafe(|| job.run())).unwrap_or(failed);
                    let progress = self.cache.on_sized(done);
                    self.notices.push_back(Notice::Moved(Progress { error: None, ..progress }));
                    if let Some(error) = progress.error {
                        return StepResult::Failed(error.to_string());
                    }
                }
            }
        } else if is_longer {
            let at = (*clear_from).max(part.start);
            if at < part.end {
                let length = (part.end - at).min(u64::from(PUT_BYTES_MAX)) as usize;
                return match self.put_bytes(*file, at, &vec![0; length]) {
                    Ok(put) => {
                        *clear_from = at + put as u64;
                        StepResult::On
                    }
                    Err(turn) => turn,
                };
            }
        }
        rollback.left.pop();
        rollback.stage = Stage::Next;
        StepResult::On
    }

    fn sync_rollback(&mut self, rollback: &mut Rollback) -> StepResult {
        let Stage::Syncing(ticket) = &mut rollback.stage else { return StepResult::Wait };
        match self.push_commit(ticket) {
            None => StepResult::Wait,
            Some(Ok(())) => self.finish_rollback(rollback),
            Some(Err(error)) => StepResult::Failed(error.to_string()),
        }
    }

    fn release_rolled_back(&mut self, rollback: &mut Rollback) {
        if let Some(file) = rollback.file.take() {
            self.cache.close(file);
        }
    }

    /// Ends a rollback after the old content of the file is on stable storage.
    fn finish_rollback(&mut self, rollback: &mut Rollback) -> StepResult {
        self.release_rolled_back(rollback);
        rollback.stage = Stage::Over;
        tracing::info!(id = ?rollback.id, "changes under a lock were rolled back");
        self.filer.rollback_done(rollback.id, self.now);
        let after = self.act_on_locks();
        self.notices.push_back(Notice::RolledBack { id: rollback.id, after });
        StepResult::Wait
    }
}
