//! APPEND: all or nothing, at the end of the file, one at a time per file.
//!
//! Invariant: a file is in `appending` from the moment an append takes its place at
//! the end until its bytes are in the cache, so no two appends share a place.

use dafs_filer::IoKind;
use dafs_ops::Append;
use dafs_store::cache::{CachedFile, Progress};
use dafs_types::{CacheHint, FileHandle, Stability, StateId, Status, limits};
use dafs_wire::messages::{AppendDirect, AppendInline};

use crate::data::{IoFile, Step, check_range};
use crate::outcome::NotDone;
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::{Buffers, Task, Wait, Work, WriteSource, WriteTask};
use crate::write::write_task;

impl Reactor {
    pub(crate) fn append_inline(
        &mut self,
        answer: ReplyTo,
        request: &AppendInline<'_>,
    ) -> Result<(), NotDone> {
        let octets = request.data.octets().ok_or(Status::Inval)?;
        let length = u32::try_from(octets.len()).map_err(|_| Status::WriteTooBig)?;
        self.check_end_locks(request.state, &request.file)?;
        let io = self.io_file(answer, request.state, &request.file, IoKind::Write)?;
        let source = WriteSource::Octets(octets.into());
        Ok(self.start_append(answer, io, length, request.stability, source)?)
    }

    pub(crate) fn append_direct(
        &mut self,
        answer: ReplyTo,
        request: &AppendDirect,
    ) -> Result<(), NotDone> {
        if request.buffer.length < request.length {
            return Err(Status::TooSmall.into());
        }
        self.check_end_locks(request.state, &request.file)?;
        let io = self.io_file(answer, request.state, &request.file, IoKind::Write)?;
        let buffers = Buffers::One(request.buffer);
        let source = self.direct_source(answer, buffers, request.length, request.checksum);
        Ok(self.start_append(answer, io, request.length, request.stability, source)?)
    }

    /// An append may end up anywhere behind the present end.
    fn check_end_locks(&mut self, state: StateId, handle: &FileHandle) -> Result<(), Status> {
        let end = self.cache.find(handle).map_or(0, |file| self.cache.size(file));
        self.check_locks(state, handle, (end, limits::FILE_OFFSET_MAX - end), IoKind::Write)
    }

    fn start_append(
        &mut self,
        answer: ReplyTo,
        io: IoFile,
        length: u32,
        stability: Stability,
        source: WriteSource,
    ) -> Result<(), Status> {
        if length > limits::APPEND_BYTES_MAX {
            self.give_back(io.file, io.borrowed);
            return Err(Status::WriteTooBig);
        }
        let task = write_task(io, 0, length, stability, source);
        self.start(Task::new(answer, Work::Write(WriteTask { is_append: true, ..task })));
        Ok(())
    }

    /// Takes the place at the end of the file, or waits for whoever has it.
    pub(crate) fn claim_end(&mut self, task: &mut WriteTask) -> Result<(), Step> {
        if !self.writes.take_end(task.file) {
            return Err(Step::Wait(Wait::File(task.file)));
        }
        task.offset = self.cache.size(task.file);
        if check_range(task.offset, task.length).is_err() {
            // Answered as a write that cannot be prepared would be.
            task.offset = limits::FILE_OFFSET_MAX - u64::from(task.length);
        }
        task.has_place = true;
        Ok(())
    }

    /// Has the place written down, if the append's outcome will be. True if it waits for that.
    pub(crate) fn intends(&mut self, id: TaskId, answer: ReplyTo, task: &mut WriteTask) -> bool {
        if !answer.logged || task.has_intent {
            return false;
        }
        task.has_intent = true;
        // By the time it is asked what became of it, there is no state to speak of.
        let asked = Append {
            file: self.cache.handle(task.file),
            state: StateId::ANONYMOUS,
            length: task.length,
            stability: task.stability,
            hint: CacheHint(0),
        };
        self.intend_append(id, answer, asked, task.offset);
        true
    }

    /// Lets the next append in.
    pub(crate) fn release_end(&mut self, task: &WriteTask) {
        if task.has_place {
            self.release_place(task.file);
        }
    }

    pub(crate) fn release_place(&mut self, file: CachedFile) {
        self.writes.leave_end(file);
        self.on_progress(Progress { file, error: None });
    }
}
