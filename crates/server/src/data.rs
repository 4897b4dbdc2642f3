//! What reads and writes share: which file, which state, parking and resuming.
//!
//! Invariant: bytes are posted from pinned pieces only, and written into spans whose
//! token is held; whatever happens to the connection, pins and tokens come back.

use dafs_filer::{IoKind, Touch};
use dafs_store::StoreError;
use dafs_store::cache::{CachedFile, FillJob};
use dafs_types::{AccessMask, FileHandle, ShareAccess, StateId, Status, limits};
use dafs_wire::messages::{CacheHintRequest, Empty};
use dafs_wire::{DirectBuffers, Response};

use crate::channel::RecentFile;
use crate::credentials::Asker;
use crate::jobs::Job;
use crate::reactor::Reactor;
use crate::task::{Answer, Buffers, Task, TaskId, Wait};
use crate::undo::UndoSeen;

/// How far a task got.
pub(crate) enum Step {
    /// It has been answered.
    Done,
    /// It goes on later.
    Wait(Wait),
    /// It becomes another task.
    Become(Box<Task>),
}

/// The file a request names, and whether it was opened for this request alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoFile {
    pub file: CachedFile,
    pub borrowed: bool,
    /// Undo that was kept when it was let in. What comes later is for others' changes.
    pub undo_seen: UndoSeen,
}

impl Reactor {
    pub(crate) fn cache_hint(
        &mut self,
        answer: Answer,
        request: &CacheHintRequest,
    ) -> Result<(), Status> {
        self.check_use(answer, &request.file)?;
        if let Some(file) = self.cache.find(&request.file) {
            let mut jobs = Vec::new();
            let length = u64::from(request.length);
            let (pattern, hint) = (request.pattern, request.hint);
            self.cache.hint(file, request.offset, length, pattern, hint, &mut jobs);
            self.submit_fills(jobs);
        }
        self.reply(answer, &Response::CacheHint(Empty));
        Ok(())
    }

    /// Whether a file's data is any business of the asker's: they may read or write it, or own it,
    /// or have it open since they might. A handle alone, which says where the file is, does not
    /// let anybody have the server sync it, fetch it or drop it.
    pub(crate) fn check_use(&mut self, answer: Answer, handle: &FileHandle) -> Result<(), Status> {
        let who = self.who(answer);
        let rights = AccessMask::READ | AccessMask::MODIFY;
        if who.store().access(&who, handle, rights)? != AccessMask::default() {
            return Ok(());
        }
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let is_open = self.open_files.get(handle).is_some_and(|(file, _)| {
            self.filer.is_open_by(channel, dafs_filer::FileKey(file.key().0))
        });
        let is_own =
            || who.store().attributes(&who, handle).is_ok_and(|found| found.uid == who.uid());
        if is_open || is_own() { Ok(()) } else { Err(Status::Access) }
    }

    // ---- which file -----------------------------------------------------------------

    /// The cached file of a READ or WRITE, checked against its state.
    #[inline]
    pub(crate) fn io_file(
        &mut self,
        answer: Answer,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, Status> {
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?;
        let id = channel.id;
        if let Some(recent) = channel.recent(state, handle) {
            let (key, file) = (dafs_filer::FileKey(recent.key.0), recent.file);
            self.filer.check_io(id, state, key, kind)?;
            return Ok(IoFile { file, borrowed: false, undo_seen: self.undo_seen() });
        }
        if state == StateId::ANONYMOUS {
            return self.anonymous_file(answer, handle, kind);
        }
        let record = self.opens.get(&state);
        if record.is_none() && self.filer.is_of_delegation(state) {
            return self.delegated_file(answer, state, handle, kind);
        }
        let key = match record {
            Some(record) if record.handle == *handle => record.key,
            // The filer tells stale, old and plainly wrong state ids apart.
            _ => dafs_store::FileKey(u64::MAX),
        };
        self.filer.check_io(id, state, dafs_filer::FileKey(key.0), kind)?;
        let record = record.ok_or(Status::BadStateId)?;
        let recent = RecentFile { state, handle: *handle, key, file: record.file };
        if let Some(channel) = self.channels.get_mut(answer.endpoint) {
            channel.remember(recent);
        }
        Ok(IoFile { file: recent.file, borrowed: false, undo_seen: self.undo_seen() })
    }

    /// Whether locks of others let a read or write through. Nearly free while there are none.
    #[inline]
    pub(crate) fn check_locks(
        &self,
        state: StateId,
        handle: &FileHandle,
        (offset, length): (u64, u64),
        kind: IoKind,
    ) -> Result<(), Status> {
        if self.filer.has_no_locks() {
            return Ok(());
        }
        self.check_locks_of(state, handle, (offset, length), kind)
    }

    #[cold]
    fn check_locks_of(
        &self,
        state: StateId,
        handle: &FileHandle,
        (offset, length): (u64, u64),
        kind: IoKind,
    ) -> Result<(), Status> {
        let key = match self.open_files.get(handle) {
            Some((file, _)) => dafs_filer::FileKey(file.key().0),
            // Locks outlive opens only on record, and those keep their file.
            None => match self.ledger.as_ref().and_then(|ledger| ledger.locked_file(handle)) {
                Some(key) => key,
                None => return Ok(()),
            },
        };
        self.filer.check_locks(key, state, offset, length, kind)
    }

    /// I/O without an open: permission is checked now, deny modes of others too.
    fn anonymous_file(
        &mut self,
        answer: Answer,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, Status> {
        let who = self.who(answer);
        let access = match kind {
            IoKind::Read => ShareAccess::Read,
            IoKind::Write => ShareAccess::Write,
        };
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let file = who.store().open(&who, handle, access)?;
        let key = dafs_filer::FileKey(file.key().0);
        self.filer.check_io(id, StateId::ANONYMOUS, key, kind)?;
        let touch = match kind {
            IoKind::Read => Touch::Read,
            IoKind::Write => Touch::Write,
        };
        self.touch(answer, handle, touch)?;
        let version = file.version()?;
        let file = self.cache.open(file, version)?;
        Ok(IoFile { file, borrowed: true, undo_seen: self.undo_seen() })
    }

    /// Opens a file for one request.
    pub(crate) fn borrow_file(
        &mut self,
        who: &Asker,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<IoFile, Status> {
        let file = who.store().open(who, handle, access)?;
        let version = file.version()?;
        let file = self.cache.open(file, version)?;
        Ok(IoFile { file, borrowed: true, undo_seen: self.undo_seen() })
    }

    pub(crate) fn give_back(&mut self, file: CachedFile, borrowed: bool) {
        if borrowed {
            self.cache.close(file);
        }
    }

    // ---- tasks ----------------------------------------------------------------------

    /// Steps a new task; parks it if it must wait.
    pub(crate) fn start(&mut self, task: Task) {
        let id = self.tasks.reserve();
        self.drive(id, task);
    }

    /// Steps a parked task again. With `error` a job it may have waited for failed.
    pub(crate) fn resume(&mut self, id: TaskId, error: Option<StoreError>) {
        let Some(task) = self.tasks.take(id) else { return };
        let held = task.file();
        self.go_on(id, task, error);
        if let Some(file) = held {
            self.cache.close(file);
        }
    }

    /// Parks a task. Its file is held meanwhile: the open it came through may be closed,
    /// or go with its session.
    pub(crate) fn park(&mut self, id: TaskId, mut task: Task, wait: Wait) {
        self.meter.wait(&mut task.answer_mut().reading);
        if let Some(file) = task.file() {
            self.cache.hold(file);
        }
        self.tasks.park(id, task, wait);
    }

    fn go_on(&mut self, id: TaskId, task: Task, error: Option<StoreError>) {
        match (error, task) {
            (Some(error), Task::Read(answer, task)) => {
                self.give_back(task.file, task.borrowed);
                self.end_task(id);
                self.fail(answer, error.into());
            }
            (Some(error), Task::Write(answer, task)) if task.token.is_none() => {
                self.end_write(answer, &task);
                self.end_task(id);
                self.fail(answer, error.into());
            }
            (Some(error), Task::Strand(_, mut strand)) if strand.token.is_none() => {
                self.fail_strand(&mut strand, error);
                self.end_task(id);
            }
            (Some(error), Task::Size(answer, task)) if task.started => {
                self.end_task(id);
                self.finish_size(answer, task, Err(error));
            }
            (_, task) => self.drive(id, task),
        }
    }

    pub(crate) fn drive(&mut self, id: TaskId, mut task: Task) {
        loop {
            // In place: a task is a few cache lines, not to be moved for every step.
            let step = match &mut task {
                Task::Read(answer, read) => self.step_read(*answer, read),
                Task::Write(answer, write) => self.step_write(id, *answer, write),
                Task::Commit(answer, commit) => self.step_commit(*answer, commit),
                Task::Size(answer, size) => self.step_size(id, *answer, size),
                Task::Times(answer, times) => self.step_times(*answer, times),
                Task::Fetch(answer, fetch) => self.step_fetch(*answer, fetch),
                Task::Grant(answer, grant) => self.step_grant(*answer, grant),
                Task::Strand(answer, strand) => self.step_strand(id, *answer, strand),
                Task::SealedBatch(answer, sealed) => self.step_sealed_batch(id, *answer, sealed),
            };
            match self.conclude(id, task, step) {
                Some(next) => task = next,
                None => return,
            }
        }
    }

    /// Does what a step came to. What the task became, if it goes on.
    pub(crate) fn conclude(&mut self, id: TaskId, task: Task, step: Step) -> Option<Task> {
        match step {
            Step::Done => self.end_task(id),
            Step::Wait(wait) => self.park(id, task, wait),
            Step::Become(next) => return Some(*next),
        }
        None
    }

    /// Gives the name of a task back that has ended.
    #[inline]
    fn end_task(&mut self, id: TaskId) {
        self.tasks.forget(id);
        self.filer.leave_fence(crate::fencing::operation_of_task(id));
    }

    /// Part of a task's own transfer ended.
    pub(crate) fn on_transfer_done(&mut self, id: TaskId, failed: bool) {
        let left = match self.tasks.get_mut(id) {
            Some(Task::Write(_, write)) => {
                write.transfers_left -= 1;
                write.transfer_failed |= failed;
                write.transfers_left
            }
            Some(Task::Fetch(_, fetch)) => {
                fetch.transfers_left -= 1;
                fetch.failed |= failed;
                fetch.transfers_left
            }
            Some(Task::Strand(_, strand)) => {
                strand.transfers_left -= 1;
                strand.transfer_failed |= failed;
                strand.transfers_left
            }
            Some(Task::SealedBatch(_, sealed)) => {
                sealed.transfers_left -= 1;
                sealed.transfer_failed |= failed;
                sealed.transfers_left
            }
            _ => return,
        };
        if left == 0 {
            self.resume(id, None);
        }
    }

    /// Runs fills in place if they are likely to be quick. Else what to wait for.
    pub(crate) fn fill_or_wait(&mut self, file: CachedFile, jobs: Vec<FillJob>) -> Option<Wait> {
        if self.now < self.slow_until || jobs.len() > FILLS_IN_PLACE_MAX {
            self.submit_fills(jobs);
            return Some(Wait::File(file));
        }
        self.run_fills(jobs);
        None
    }

    /// Has others do fills.
    pub(crate) fn submit_fills(&mut self, jobs: Vec<FillJob>) {
        for job in jobs {
            self.pool.submit(Job::Fill(job));
        }
    }

    /// Runs fills in place; a failure shows when the read is tried again.
    pub(crate) fn run_fills(&mut self, jobs: Vec<FillJob>) {
        for job in jobs {
            self.run_or_submit(Job::Fill(job));
        }
    }
}

#[inline]
pub(crate) fn check_range(offset: u64, length: u32) -> Result<(), Status> {
    if length > limits::TRANSFER_BYTES_MAX {
        return Err(Status::Inval);
    }
    match offset.checked_add(u64::from(length)) {
        Some(end) if end <= limits::FILE_OFFSET_MAX => Ok(()),
        _ => Err(Status::FBig),
    }
}

#[inline]
pub(crate) fn take_buffers(buffers: &DirectBuffers<'_>, length: u32) -> Result<Buffers, Status> {
    match buffers.len() {
        1 => {
            let buffer = buffers.get(0).ok_or(Status::Inval)?;
            if buffer.length < length { Err(Status::TooSmall) } else { Ok(Buffers::One(buffer)) }
        }
        0 if length == 0 => Ok(Buffers::Many(Box::default())),
        _ if buffers.total_bytes() < u64::from(length) => Err(Status::TooSmall),
        _ => Ok(Buffers::Many(buffers.iter().collect())),
    }
}

/// Fills few enough to be done by the reactor itself when the page cache has them.
const FILLS_IN_PLACE_MAX: usize = 4;
