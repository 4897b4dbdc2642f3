//! APPEND: all or nothing, at the end of the file, one at a time per file.
//!
//! Invariant: the end of a file is taken ([`crate::files::ends`]) from the moment an append has its
//! place there until its bytes are in the cache, so no two appends share a place.

use dafs_filer::IoKind;
use dafs_store::cache::CachedFile;
use dafs_types::{Stability, Status, limits};
use dafs_wire::messages::{AppendDirect, AppendInline};

use crate::files::io::IoFile;
use crate::files::writing::Writing;
use crate::outcome::NotDone;
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::{Buffers, Task, Work, WriteSource, WriteTask};

impl Reactor {
    pub(crate) fn append_inline(
        &mut self,
        answer: ReplyTo,
        request: &AppendInline<'_>,
    ) -> Result<(), NotDone> {
        let octets = request.data.octets().ok_or(Status::Inval)?;
        let length = u32::try_from(octets.len()).map_err(|_| Status::WriteTooBig)?;
        self.files().check_end_locks(request.state, &request.file)?;
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
        self.files().check_end_locks(request.state, &request.file)?;
        let io = self.io_file(answer, request.state, &request.file, IoKind::Write)?;
        let buffers = Buffers::One(request.buffer);
        let source = self.direct_source(answer, buffers, request.length, request.checksum);
        Ok(self.start_append(answer, io, request.length, request.stability, source)?)
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
        let task = WriteTask::new(Writing::append(io, length, stability), source);
        self.start(Task::new(answer, Work::Write(task)));
        Ok(())
    }

    /// Has the place written down, if the append's outcome will be. True if it waits for that.
    pub(crate) fn intends(&mut self, id: TaskId, answer: ReplyTo, task: &mut WriteTask) -> bool {
        if !answer.logged || task.writing.has_intent {
            return false;
        }
        task.writing.has_intent = true;
        let asked = self.files().intended_append(&task.writing);
        self.intend_append(id, answer, asked, task.writing.offset);
        true
    }

    /// Lets the next append of a file in.
    pub(crate) fn leave_end(&mut self, file: CachedFile) {
        let progress = self.files().leave_end(file);
        self.on_progress(progress);
    }
}
