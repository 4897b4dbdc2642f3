//! Changes of a range of a file other than writes: ALLOCATE, DEALLOCATE, CLONE and COPY. Also SEEK,
//! which searches for data or for a hole, and the list of a range's holes.
//!
//! Invariants:
//! - A task owns a reference to each of its files, and releases it once, when it ends.
//! - Dirty data is in the files before the work begins, because the file system does the work.
//! - Locks and fences are checked again before each part of a long copy.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dafs_filer::{IoKind, Party};
use dafs_ops::{Copied, CopyRange, Fault, FileRange, Seek, SeekFor, Sought};
use dafs_store::StoreError;
use dafs_store::cache::{
    COPY_BYTES_MAX, CachedFile, CommitTicket, Listener, RangeDone, RangeStep, RangeWork,
};
use dafs_types::{FileHandle, Stability, StateId, limits};

use crate::Files;
use crate::caller::Caller;
use crate::left::RemainingWork;
use crate::outcome::{Ended, Holes, NotDone, Now, Outcome};
use crate::under_way::Reach;
use crate::undo::seen::UndoSeen;

/// A file of a task, which the task keeps open.
#[derive(Clone, Copy, Debug)]
struct Part {
    file: CachedFile,
    handle: FileHandle,
    state: StateId,
    offset: u64,
}

/// The kind of work that a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Allocate,
    Deallocate,
    Clone,
    Copy,
    Seek(SeekFor),
    ListHoles,
}

/// The progress of a copy, for code that observes or cancels it while it continues.
#[derive(Debug, Default)]
pub struct CopyControl {
    done: AtomicU64,
    is_cancelled: AtomicBool,
}

impl CopyControl {
    /// Returns the number of bytes that were copied.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Ends the copy after the part that is in progress. Bytes that were copied stay.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}

/// Work on a range of a file in progress.
#[derive(Debug)]
pub struct RangeTask {
    kind: Kind,
    target: Part,
    source: Option<Part>,
    length: u64,
    /// The number of bytes that were copied.
    done: u64,
    undo_seen: UndoSeen,
    /// The commits that write dirty data of the source and of the target to the files.
    flushes: [Option<CommitTicket>; 2],
    /// The number of times that the target had dirty data again after its flush.
    flush_count: u32,
    /// The result of the job that has finished.
    result: Option<Result<u64, StoreError>>,
    /// The holes that the job has found.
    holes: Vec<Range<u64>>,
    /// The progress of a copy that continues after the reply to its request.
    control: Option<Arc<CopyControl>>,
}

impl RangeTask {
    fn new(kind: Kind, target: Part, length: u64, undo_seen: UndoSeen) -> Self {
        Self {
            kind,
            target,
            source: None,
            length,
            done: 0,
            undo_seen,
            flushes: [None, None],
            flush_count: 0,
            result: None,
            holes: Vec::new(),
            control: None,
        }
    }

    /// Returns the file that the task works on now.
    pub fn file(&self) -> CachedFile {
        match (&self.flushes[0], &self.source) {
            (Some(_), Some(source)) => source.file,
            _ => self.target.file,
        }
    }

    /// Returns the file that the task changes or searches.
    pub fn target(&self) -> CachedFile {
        self.target.file
    }

    /// Returns the files of the task.
    pub fn files(&self) -> [Option<CachedFile>; 2] {
        [Some(self.target.file), self.source.map(|source| source.file)]
    }

    /// Returns true if the task changes its file.
    pub fn changes_file(&self) -> bool {
        !matches!(self.kind, Kind::Seek(_) | Kind::ListHoles)
    }

    /// Returns the number of bytes that a copy will copy. `None` if the task is no copy.
    pub fn copy_length(&self) -> Option<u64> {
        (self.kind == Kind::Copy).then_some(self.length)
    }

    /// Makes a copy independent of its request: it can be observed and cancelled, and it ends if
    /// its user may no longer be served.
    pub fn detach(&mut self) -> Arc<CopyControl> {
        self.control.get_or_insert_default().clone()
    }

    /// Returns the state of undo data at the time when the request was checked.
    pub fn undo_seen(&self) -> UndoSeen {
        self.undo_seen
    }

    /// Returns the range of the next job: its offset and length.
    pub fn next_range(&self) -> (u64, u64) {
        let left = self.length - self.done;
        let length = if self.kind == Kind::Copy { left.min(COPY_BYTES_MAX) } else { left };
        (self.target.offset + self.done, length)
    }

    /// Returns the range of the file that the task may still change or read. `None` for a search,
    /// which reads no bytes.
    pub fn reach(&self) -> Option<Reach> {
        let (offset, left) = (self.target.offset + self.done, self.length - self.done);
        let range = dafs_filer::locks::ByteRange::new(offset, left.max(1));
        let changes = self.changes_file().then_some(self.undo_seen);
        let is_search = matches!(self.kind, Kind::Seek(_));
        (!is_search).then_some(Reach { file: self.target.file, range, changes })
    }

    /// Returns the range of the source that a copy may still read.
    pub fn source_reach(&self) -> Option<Reach> {
        let source = self.source?;
        let (offset, left) = (source.offset + self.done, self.length - self.done);
        let range = dafs_filer::locks::ByteRange::new(offset, left.max(1));
        Some(Reach { file: source.file, range, changes: None })
    }

    /// Returns the commit that must end before the work can continue.
    pub fn flush(&mut self) -> Option<&mut CommitTicket> {
        self.flushes.iter_mut().find_map(Option::as_mut)
    }

    /// Records that the commit that [`RangeTask::flush`] returns has ended.
    pub fn flushed(&mut self) {
        if let Some(flush) = self.flushes.iter_mut().find(|flush| flush.is_some()) {
            *flush = None;
        }
    }

    /// Stores the result of a job.
    pub fn note_result(&mut self, done: &mut RangeDone) {
        self.result = Some(done.result);
        self.holes = std::mem::take(&mut done.holes);
    }
}

impl Files<'_> {
    /// Reserves storage for a range of a file, which becomes longer if the range ends after its end
    /// (ALLOCATE).
    pub fn allocate(&mut self, by: &Caller, ask: &FileRange) -> Result<Now<Outcome>, NotDone> {
        let end = ask.offset.checked_add(ask.length).ok_or(Fault::TooBig)?;
        match () {
            () if ask.length == 0 => Err(Fault::Invalid.into()),
            () if end > limits::FILE_OFFSET_MAX => Err(Fault::TooBig.into()),
            () => self.change_range(by, ask, Kind::Allocate, ask.length),
        }
    }

    /// Frees the storage of a range of a file, which then reads as zeros (DEALLOCATE).
    pub fn deallocate(&mut self, by: &Caller, ask: &FileRange) -> Result<Now<Outcome>, NotDone> {
        if ask.length == 0 || ask.offset >= limits::FILE_OFFSET_MAX {
            return Err(Fault::Invalid.into());
        }
        let length = ask.length.min(limits::FILE_OFFSET_MAX - ask.offset);
        self.change_range(by, ask, Kind::Deallocate, length)
    }

    fn change_range(
        &mut self,
        by: &Caller,
        ask: &FileRange,
        kind: Kind,
        length: u64,
    ) -> Result<Now<Outcome>, NotDone> {
        self.check_fence(by, &ask.file)?;
        let reach = (ask.offset, length);
        let (file, undo_seen) = self.held_file(by, (ask.state, &ask.file), reach, IoKind::Write)?;
        let target = Part { file, handle: ask.file, state: ask.state, offset: ask.offset };
        let flush = (kind == Kind::Deallocate).then(|| self.flush_of(file, ask.offset, length));
        let task = RangeTask::new(kind, target, length, undo_seen);
        Ok(later(RangeTask { flushes: [None, flush], ..task }))
    }

    /// Searches a file for data or for a hole (SEEK). Fails with [`Fault::NoDevice`] if the offset
    /// is not before the end of the file, or if no data follows.
    pub fn seek(&mut self, by: &Caller, ask: &Seek) -> Result<Now<Outcome>, NotDone> {
        self.check_fence(by, &ask.file)?;
        if ask.offset > limits::FILE_OFFSET_MAX {
            return Err(Fault::NoDevice.into());
        }
        // A search reads no bytes, so locks do not stand in its way.
        let (file, undo_seen) =
            self.held_file(by, (ask.state, &ask.file), (ask.offset, 0), IoKind::Read)?;
        let target = Part { file, handle: ask.file, state: ask.state, offset: ask.offset };
        // Without this, the file system would report data that only the cache has as a hole.
        let flushes = [None, Some(self.flush_of(file, ask.offset, 0))];
        let task = RangeTask::new(Kind::Seek(ask.what), target, 0, undo_seen);
        Ok(later(RangeTask { flushes, ..task }))
    }

    /// Lists the holes of a range that a client wants to read. The caller reads the rest of the
    /// range, and checks each read by itself.
    pub fn list_holes(&mut self, by: &Caller, ask: &FileRange) -> Result<Now<Outcome>, NotDone> {
        self.check_fence(by, &ask.file)?;
        let reach = (ask.offset, ask.length);
        let (file, undo_seen) = self.held_file(by, (ask.state, &ask.file), reach, IoKind::Read)?;
        let left = self.cache.size(file).saturating_sub(ask.offset);
        let length = ask.length.min(left);
        let unwritten = self.cache.unwritten(file, (ask.offset, length));
        let has_all = |one: &Range<u64>| one.start <= ask.offset && ask.offset + length <= one.end;
        if length == 0 || unwritten.first().is_some_and(has_all) {
            let outcome = self.ranged(Kind::ListHoles, file, 0, Vec::new());
            self.cache.close(file);
            return Ok(Now::Done(outcome));
        }
        let target = Part { file, handle: ask.file, state: ask.state, offset: ask.offset };
        Ok(later(RangeTask::new(Kind::ListHoles, target, length, undo_seen)))
    }

    /// Makes a range of a file share the storage of a range of another file (CLONE).
    pub fn clone_range(&mut self, by: &Caller, ask: &CopyRange) -> Result<Now<Outcome>, NotDone> {
        self.between_files(by, ask, Kind::Clone)
    }

    /// Copies a range of a file to another file (COPY).
    pub fn copy_range(&mut self, by: &Caller, ask: &CopyRange) -> Result<Now<Outcome>, NotDone> {
        self.between_files(by, ask, Kind::Copy)
    }

    fn between_files(
        &mut self,
        by: &Caller,
        ask: &CopyRange,
        kind: Kind,
    ) -> Result<Now<Outcome>, NotDone> {
        self.check_fence(by, &ask.source)?;
        self.check_fence(by, &ask.file)?;
        let from = (ask.source_offset, ask.length);
        let (source, _) =
            self.held_file(by, (ask.source_state, &ask.source), from, IoKind::Read)?;
        let started = self.copy_into(by, ask, kind, source);
        if started.is_err() {
            self.cache.close(source);
        }
        started
    }

    fn copy_into(
        &mut self,
        by: &Caller,
        ask: &CopyRange,
        kind: Kind,
        source: CachedFile,
    ) -> Result<Now<Outcome>, NotDone> {
        let length = copy_length(ask, self.cache.size(source))?;
        let reach = (ask.offset, length);
        let (file, undo_seen) = self.held_file(by, (ask.state, &ask.file), reach, IoKind::Write)?;
        if file == source && ask.offset.abs_diff(ask.source_offset) < length {
            self.cache.close(file);
            return Err(Fault::Invalid.into());
        }
        if length == 0 {
            let outcome = self.ranged(kind, source, 0, Vec::new());
            self.cache.close(file);
            self.cache.close(source);
            return Ok(Now::Done(outcome));
        }
        // The whole rest of the source is written, so that the file system knows its size.
        let first = self.flush_of(source, ask.source_offset, 0);
        let second = self.flush_of(file, ask.offset, length);
        let (handle, state) = (ask.source, ask.source_state);
        let source = Part { file: source, handle, state, offset: ask.source_offset };
        let target = Part { file, handle: ask.file, state: ask.state, offset: ask.offset };
        let task = RangeTask::new(kind, target, length, undo_seen);
        let flushes = [Some(first), Some(second)];
        Ok(later(RangeTask { source: Some(source), flushes, ..task }))
    }

    /// Checks the access to a file like a read or write, and opens the file for the task.
    fn held_file(
        &mut self,
        by: &Caller,
        (state, handle): (StateId, &FileHandle),
        (offset, length): (u64, u64),
        kind: IoKind,
    ) -> Result<(CachedFile, UndoSeen), NotDone> {
        if length > 0 {
            self.check_locks(state, handle, (offset, length), kind)?;
        }
        match self.opened_file(by.party, state, handle, kind)? {
            Some(recent) => {
                let io = recent.opened(self.undo_seen());
                self.cache.hold(io.file);
                Ok((io.file, io.undo_seen))
            }
            None => {
                let io = self.unopened_file(by, state, handle, kind)?;
                Ok((io.file, io.undo_seen))
            }
        }
    }

    fn flush_of(&mut self, file: CachedFile, offset: u64, length: u64) -> CommitTicket {
        // Clients are told about a loss of data by requests for the data.
        self.cache.commit_begin(file, offset, length, Stability::Unstable, Listener::Nobody)
    }

    // ---- continuing -------------------------------------------------------------------

    /// Handles the result of the last job, if there is one, and checks whether the task may
    /// continue. Returns the outcome if the task has ended; its files are then closed.
    pub fn check_range_task(&mut self, by: Option<Party>, task: &mut RangeTask) -> Option<Outcome> {
        if let Some(result) = task.result.take() {
            match (task.kind, result) {
                (_, Err(error)) => return Some(self.end_range_task(task, Err(error.into()))),
                (Kind::Copy, Ok(count)) => {
                    task.done += count;
                    if let Some(control) = &task.control {
                        control.done.store(task.done, Ordering::Relaxed);
                    }
                    if count == 0 || task.done >= task.length {
                        return Some(self.end_range_task(task, Ok(task.done)));
                    }
                }
                (_, Ok(value)) => return Some(self.end_range_task(task, Ok(value))),
            }
        }
        if let Some(control) = &task.control {
            // The rules about clients may have changed since the request.
            let end = match (control.is_cancelled(), by) {
                (true, _) => Some(Ok(task.done)),
                (false, None) => Some(Err(Fault::WouldWait)),
                (false, Some(_)) => None,
            };
            if let Some(result) = end {
                return Some(self.end_range_task(task, result));
            }
        }
        let is_barred = task.files().into_iter().flatten().any(|file| self.is_barred(by, file));
        let may = if is_barred { Err(Fault::Fenced) } else { self.check_locks_again(task) };
        may.err().map(|fault| self.end_range_task(task, Err(fault)))
    }

    fn check_locks_again(&self, task: &RangeTask) -> Result<(), Fault> {
        let (offset, length) = task.next_range();
        if length == 0 {
            return Ok(());
        }
        if let Some(source) = &task.source {
            let reach = (source.offset + task.done, length);
            self.check_locks(source.state, &source.handle, reach, IoKind::Read)?;
        }
        let target = &task.target;
        let kind = if task.changes_file() { IoKind::Write } else { IoKind::Read };
        self.check_locks(target.state, &target.handle, (offset, length), kind)
    }

    /// Returns the next job of a task whose flushes have ended, or the reason why there is none
    /// yet.
    ///
    /// # Errors
    /// An error if the task cannot continue. The caller must end it.
    pub fn range_job(&mut self, task: &mut RangeTask) -> Result<RangeStep, Fault> {
        let (offset, length) = task.next_range();
        let work = match (task.kind, &task.source) {
            (Kind::Allocate, _) => RangeWork::Allocate,
            (Kind::Deallocate, _) => RangeWork::Deallocate,
            (Kind::Seek(what), _) => RangeWork::Seek(what),
            (Kind::ListHoles, _) => RangeWork::ListHoles,
            (Kind::Clone | Kind::Copy, None) => return Err(Fault::Broken),
            (kind @ (Kind::Clone | Kind::Copy), Some(part)) => {
                let source = self.cache.open_file(part.file).ok_or(Fault::Stale)?;
                let offset = part.offset + task.done;
                match kind {
                    Kind::Clone => RangeWork::Clone { source, offset },
                    _ => RangeWork::Copy { source, offset },
                }
            }
        };
        let step = self.cache.work_on_range(task.target.file, work, (offset, length));
        if let RangeStep::Dirty = step {
            task.flush_count += 1;
            if task.flush_count > FLUSH_COUNT_MAX {
                return Err(Fault::Busy);
            }
            task.flushes[1] = Some(self.flush_of(task.target.file, offset, length));
        }
        Ok(step)
    }

    /// Ends a task and closes its files. A copy that has copied some bytes succeeds in part.
    pub fn end_range_task(&mut self, task: &RangeTask, result: Result<u64, Fault>) -> Outcome {
        let file = task.target.file;
        let outcome = match result {
            Ok(value) => self.ranged(task.kind, file, value, task.holes.clone()),
            Err(_) if task.done > 0 => self.ranged(task.kind, file, task.done, Vec::new()),
            Err(fault) => Outcome::failed(fault),
        };
        for file in task.files().into_iter().flatten() {
            self.cache.close(file);
        }
        outcome
    }

    fn ranged(&self, kind: Kind, file: CachedFile, value: u64, holes: Vec<Range<u64>>) -> Outcome {
        Outcome::done(match kind {
            Kind::Allocate | Kind::Deallocate | Kind::Clone => Ended::Ranged,
            Kind::Copy => {
                let (committed, verifier) = (Stability::Unstable, self.verifier());
                Ended::Copied(Copied { length: value, committed, verifier })
            }
            Kind::Seek(_) => {
                let is_end = value >= self.cache.size(file);
                Ended::Sought(Sought { offset: value, is_end })
            }
            Kind::ListHoles => Ended::Listed(Holes { holes, size: self.cache.size(file) }),
        })
    }
}

fn later(task: RangeTask) -> Now<Outcome> {
    Now::later(RemainingWork::Range(Box::new(task)))
}

/// Returns the number of bytes to copy from a source of this size.
fn copy_length(ask: &CopyRange, size: u64) -> Result<u64, Fault> {
    let left = size.checked_sub(ask.source_offset).ok_or(Fault::Invalid)?;
    let length = if ask.length == 0 { left } else { ask.length };
    if length > left {
        return Err(Fault::Invalid);
    }
    match ask.offset.checked_add(length) {
        Some(end) if end <= limits::FILE_OFFSET_MAX => Ok(length),
        _ => Err(Fault::TooBig),
    }
}

/// The maximum number of times that a task writes dirty data of its range to the file. A client
/// that writes to the range all the time must not keep the task busy for ever.
const FLUSH_COUNT_MAX: u32 = 8;
