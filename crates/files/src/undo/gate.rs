//! The gate, which every change of a file passes before it is made: the bytes that the change will
//! overwrite are saved first.
//!
//! Invariant: the gate is open for a range only when all undo data of the range is durable, or when
//! the range is beyond the old end of the file.

use std::ops::Range;

use dafs_filer::FileKey;
use dafs_filer::locks::ByteRange;
use dafs_journal::{RecordNumber, UndoError, UndoId};
use dafs_store::cache::{CachedFile, Pieces};
use dafs_types::{CacheHint, Entropy, FileHandle, Status};

use super::seen::UndoSeen;
use super::{Blob, Extent, UndoGate, UndoTask, UndoTaskDone, offsets};
use crate::ledger::{Ledger, StateRecord};
use crate::needs::Need;
use crate::reading::{Found, Look, Reading};
use crate::under_way::TaskId;
use crate::{FileJob, Files, Notice};

impl Files<'_> {
    /// Starts to keep undo data for a range. Returns the number of the journal record that says so,
    /// or 0 if nothing is recorded.
    pub fn keep_undo(&mut self, key: FileKey, range: ByteRange) -> RecordNumber {
        let Some((handle, file)) = self.locked_file_of(key) else { return RecordNumber(0) };
        let Some(ledger) = &mut *self.ledger else { return RecordNumber(0) };
        let id = ledger.undo.keep(key, handle, &file, range);
        ledger.append(&StateRecord::UndoKept { id, handle, range })
    }

    /// Stops keeping undo data for a range, so that changes in the range become final. Returns the
    /// number of the journal record that says so, or 0 without a journal.
    pub fn drop_undo(&mut self, key: FileKey, range: ByteRange) -> RecordNumber {
        let Some(ledger) = &mut *self.ledger else { return RecordNumber(0) };
        let Some(handle) = ledger.undo.handle_of(key) else { return RecordNumber(0) };
        let after = ledger.append(&StateRecord::UndoDropped { handle, range });
        let woken = ledger.undo.drop_range(key, range, after);
        self.notices.extend(woken.into_iter().map(Notice::Resume));
        after
    }

    /// Returns true if undo data is kept for any range of a file.
    pub fn keeps_undo_of(&self, handle: &FileHandle) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.undo.has_file(handle))
    }

    /// Returns the current state of undo data, so that a caller can find out later whether it has
    /// changed.
    #[inline]
    pub fn undo_seen(&self) -> UndoSeen {
        undo_seen(self.ledger)
    }

    // ---- the gate --------------------------------------------------------------------

    /// Checks whether a task may change a range of a file, and saves the bytes that the change
    /// overwrites.
    #[inline]
    pub fn undo_gate(
        &mut self,
        task: TaskId,
        file: CachedFile,
        reach: (u64, u64),
        seen: UndoSeen,
    ) -> UndoGate {
        match keeps_undo(self.ledger) {
            true => self.pass_undo(task, file, reach, seen),
            false => UndoGate::Open,
        }
    }

    #[cold]
    fn pass_undo(
        &mut self,
        task: TaskId,
        file: CachedFile,
        (offset, length): (u64, u64),
        seen: UndoSeen,
    ) -> UndoGate {
        let Some(range) = ByteRange::new(offset, length) else { return UndoGate::Open };
        let handle = self.cache.handle(file);
        let Some(ledger) = &*self.ledger else { return UndoGate::Open };
        let undo = &ledger.undo;
        let found = undo.files.values().find(|file| file.handle == handle);
        let extents = found.map_or_else(Vec::new, |found| undo.extents_in(found, range));
        // A rollback does not cover changes that were checked before the lock was taken.
        for Extent { range: kept, id } in extents.into_iter().filter(|extent| seen.has(extent.id)) {
            let Some(part) = kept.intersection(range) else { continue };
            let gate = self.pass_extent(task, file, (id, offsets(kept)), offsets(part));
            if !matches!(gate, UndoGate::Open) {
                return gate;
            }
        }
        UndoGate::Open
    }

    fn pass_extent(
        &mut self,
        task: TaskId,
        file: CachedFile,
        (id, extent): (UndoId, Range<u64>),
        range: Range<u64>,
    ) -> UndoGate {
        if let Some(gate) = self.open_undo(task, file, id) {
            return gate;
        }
        while let Some(gap) = self.gap_in(id, &range) {
            let to_copy = self.clone_first(file, id, &extent, gap);
            if let Some(error) = self.kept(id).and_then(|kept| kept.lost.take()) {
                return UndoGate::Refused(error.into());
            }
            let Some(gap) = to_copy else { return self.wait_for_undo(task, id) };
            let length = u32::try_from(gap.end - gap.start).unwrap_or(u32::MAX).min(PIECE_BYTES);
            let bytes = match self.bytes_now(file, gap.start, length) {
                Ok(bytes) => bytes,
                Err(need) => return UndoGate::Needs(need),
            };
            match self.save_undo(id, gap.start, &bytes) {
                Ok(()) => {}
                Err(UndoError::Wait) => return self.wait_for_undo(task, id),
                Err(error) => return refused(&error),
            }
        }
        let Some(kept) = self.kept(id) else { return UndoGate::Open };
        let is_fresh = |fresh: &Range<u64>| fresh.start < range.end && range.start < fresh.end;
        if kept.fresh.iter().any(|(_, fresh)| is_fresh(fresh)) {
            return self.wait_for_undo(task, id);
        }
        kept.note_change(range);
        UndoGate::Open
    }

    pub(super) fn kept(&mut self, id: UndoId) -> Option<&mut super::Kept> {
        self.ledger.as_mut()?.undo.data.get_mut(&id)
    }

    /// Starts to open undo data for a task. Returns `None` if the undo data is already open.
    fn open_undo(&mut self, task: TaskId, file: CachedFile, id: UndoId) -> Option<UndoGate> {
        let size = self.cache.size(file);
        let ledger = self.ledger.as_mut()?;
        let kept = ledger.undo.data.get_mut(&id)?;
        let (storage, config) = (ledger.undo.storage.clone(), ledger.undo.config.clone());
        let job = match kept.blob {
            Blob::Open(_) => return None,
            Blob::Failed => return Some(UndoGate::Refused(Status::Io)),
            Blob::Busy => None,
            Blob::Absent => {
                let stream = ledger.undo.seeds.next_u64();
                Some(UndoTask::Create { storage, id, config, stream, size })
            }
            Blob::Closed => Some(UndoTask::Resume { storage, id, config }),
        };
        kept.waiters.push(task);
        if let Some(job) = job {
            kept.blob = Blob::Busy;
            self.submit(FileJob::Undo(job));
        }
        Some(UndoGate::Shut)
    }

    /// Returns the first part of a range that is not saved in the undo data. `None` if the whole
    /// range is saved.
    fn gap_in(&mut self, id: UndoId, range: &Range<u64>) -> Option<Range<u64>> {
        let forgets = self.ledger.as_ref().is_some_and(|ledger| ledger.undo.forgets_block);
        let ledger = self.ledger.as_mut()?;
        let Blob::Open(log) = &ledger.undo.data.get(&id)?.blob else { return None };
        let mut gaps = log.missing(range.clone());
        if !forgets {
            return gaps.next();
        }
        let forgotten = &mut ledger.undo.forgotten;
        if forgotten.is_none() {
            *forgotten = gaps.next().map(|gap| (id, gap));
        }
        let is_forgotten = |gap: &Range<u64>| {
            forgotten.as_ref().is_some_and(|(of, what)| *of == id && what.contains(&gap.start))
        };
        gaps.find(|gap| !is_forgotten(gap))
    }

    /// Returns the present content of a range of a file, with zeros after the file's end.
    fn bytes_now(&mut self, file: CachedFile, offset: u64, length: u32) -> Result<Vec<u8>, Need> {
        let mut bytes: Vec<u8> = Vec::with_capacity(length as usize);
        let (hint, borrowed) = (CacheHint::default(), false);
        let mut reading = Reading { file, offset, length, done: 0, hint, borrowed };
        while reading.left() > 0 {
            let (mut pieces, mut ahead) = (Pieces::new(), Vec::new());
            let found = self.look(&reading, &mut pieces, &mut ahead);
            ahead.into_iter().for_each(|job| self.submit(FileJob::Fill(job)));
            match found {
                Look::Hit(Found { length: 0, is_end: true }) => {
                    bytes.resize(length as usize, 0);
                    return Ok(bytes);
                }
                Look::Hit(found) => {
                    reading.done += found.length;
                    for piece in pieces {
                        let from = usize::try_from(piece.offset).unwrap_or(usize::MAX);
                        bytes.extend(self.cache.arena().to_vec(from, piece.length as usize));
                        self.cache.unpin(piece.pin);
                    }
                }
                Look::Needs(need) => return Err(need),
            }
        }
        Ok(bytes)
    }

    fn save_undo(&mut self, id: UndoId, offset: u64, bytes: &[u8]) -> Result<(), UndoError> {
        let Some(kept) = self.kept(id) else { return Ok(()) };
        let Blob::Open(log) = &mut kept.blob else { return Ok(()) };
        let number = log.save(offset, bytes)?;
        kept.fresh.push_back((number, offset..offset + bytes.len() as u64));
        Ok(())
    }

    /// Makes a task wait until more of the undo data is durable.
    fn wait_for_undo(&mut self, task: TaskId, id: UndoId) -> UndoGate {
        if let Some(kept) = self.kept(id) {
            kept.waiters.push(task);
        }
        self.push_undo_data(id);
        UndoGate::Shut
    }

    /// Starts to make saved pieces durable, unless a group of pieces is already being written.
    pub(super) fn push_undo_data(&mut self, id: UndoId) {
        let job = match self.kept(id).map(|kept| &mut kept.blob) {
            Some(Blob::Open(log)) => log.take_job(),
            _ => None,
        };
        if let Some(job) = job {
            self.submit(FileJob::Undo(UndoTask::Save { id, job }));
        }
    }

    // ---- results of jobs -------------------------------------------------------------

    /// Handles the result of a job about undo data.
    pub fn on_undo_done(&mut self, done: UndoTaskDone) {
        match done {
            UndoTaskDone::Opened { id, result } => self.on_undo_opened(id, result),
            UndoTaskDone::Saved { id, done } => self.on_undo_saved(id, done),
            UndoTaskDone::Read { rollback, result } => self.on_undo_read(rollback, result),
            UndoTaskDone::Cloned { id, result } => self.on_undo_cloned(id, result),
            UndoTaskDone::Removed { id, result } => {
                if let Err(error) = result {
                    tracing::warn!(?id, %error, "unused undo data stays until the next start");
                }
            }
        }
    }

    fn on_undo_opened(
        &mut self,
        id: UndoId,
        result: Result<Box<dafs_journal::UndoLog>, UndoError>,
    ) {
        let Some(kept) = self.kept(id) else {
            // The lock has ended in the meantime.
            if let Some(ledger) = &mut *self.ledger {
                let last = ledger.last();
                ledger.undo.pending_removal.push_back((last, id));
            }
            return;
        };
        kept.blob = match result {
            Ok(log) => Blob::Open(log),
            Err(error) => {
                tracing::error!(?id, %error, "undo data cannot be written; changes are refused");
                Blob::Failed
            }
        };
        self.wake_undo(id);
    }

    fn on_undo_saved(&mut self, id: UndoId, done: dafs_journal::undo::UndoDone) {
        let Some(kept) = self.kept(id) else { return };
        let Blob::Open(log) = &mut kept.blob else { return };
        match log.on_done(done) {
            Ok(durable) => {
                while kept.fresh.front().is_some_and(|(number, _)| *number <= durable) {
                    kept.fresh.pop_front();
                }
            }
            Err(error) => {
                tracing::error!(?id, %error, "undo data cannot be written; changes are refused");
                kept.blob = Blob::Failed;
            }
        }
        self.push_undo_data(id);
        self.wake_undo(id);
    }

    pub(super) fn wake_undo(&mut self, id: UndoId) {
        let waiters = self.kept(id).map(|kept| std::mem::take(&mut kept.waiters));
        let waiters = waiters.unwrap_or_default().into_iter();
        self.notices.extend(waiters.map(Notice::Resume));
    }

    /// Removes the undo data of locks that have ended, if the records of their ends are durable.
    /// `durable` is the number of the last durable record.
    pub fn remove_undo(&mut self, durable: RecordNumber) {
        while let Some(ledger) = &mut *self.ledger
            && let Some(id) = ledger.undo.next_doomed(durable)
        {
            let storage = ledger.undo.storage.clone();
            self.submit(FileJob::Undo(UndoTask::Remove { storage, id }));
        }
    }
}

/// Returns true if undo data must be kept for any file.
#[inline]
pub fn keeps_undo(ledger: &Option<Ledger>) -> bool {
    ledger.as_ref().is_some_and(|ledger| !ledger.undo.is_idle())
}

/// Returns the current state of undo data, so that a caller can find out later whether it has
/// changed.
#[inline]
pub fn undo_seen(ledger: &Option<Ledger>) -> UndoSeen {
    UndoSeen(ledger.as_ref().map_or(0, |ledger| ledger.undo.next))
}

fn refused(error: &UndoError) -> UndoGate {
    tracing::warn!(%error, "a change under an auto-recovery lock is refused");
    UndoGate::Refused(match error {
        UndoError::Full { .. } | UndoError::TooScattered { .. } => Status::NoSpc,
        UndoError::Storage { .. }
        | UndoError::Poisoned { .. }
        | UndoError::Wait
        | UndoError::TooLong { .. }
        | UndoError::Unfinished { .. }
        | UndoError::Corrupt { .. }
        | UndoError::Version { .. }
        | UndoError::Config { .. } => Status::Io,
    })
}

/// The maximum number of bytes saved in one piece. A piece of this size, with its header, fits into
/// one group.
const PIECE_BYTES: u32 = 1 << 20;
