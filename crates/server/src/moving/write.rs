//! Executes WRITE and COMMIT: fetches bytes from the client's memory into space in the cache
//! ([`dafs_files::writing`]), and moves them from there to the disk.
//!
//! Invariant: bytes are written only into cache space whose token the write holds. The token is
//! returned to the cache whether or not the bytes arrived.

use dafs_dat::{EndpointId, Region};
use dafs_filer::IoKind;
use dafs_files::io::{IoFile, check_range};
use dafs_files::left::CommitTask;
use dafs_files::outcome::{Ended, NotDone, Now, Outcome};
use dafs_files::writing::{Room, Writing, copy_in, verifier_of};
use dafs_memory::Memory;
use dafs_ops::Written;
use dafs_store::cache::{FillJob, Prepared, Span, Spans, WriteToken};
use dafs_types::{Stability, Status};
use dafs_wire::messages::{Placement, WriteDirect, WriteInline};
use dafs_wire::{Checksum, Response};

use crate::data::{Step, take_buffers};
use crate::meter::Moved;
use crate::moving::hits::{Wanted, Way};
use crate::moving::transfer::{Cookie, Cut};
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::requests::answers::written_response;
use crate::task::{Buffers, FlushOf, FlushTask, Task, Wait, Work, WriteSource, WriteTask};

impl Reactor<'_> {
    pub(crate) fn write_direct(
        &mut self,
        answer: ReplyTo,
        request: &WriteDirect<'_>,
    ) -> Result<(), NotDone> {
        check_range(request.offset, request.length)?;
        let buffers = take_buffers(&request.buffers, request.length)?;
        self.fetch_ahead();
        let reach = (request.offset, u64::from(request.length));
        self.check_locks(request.state, &request.file, reach, IoKind::Write)?;
        let io = self.io_file(answer, request.state, &request.file, IoKind::Write)?;
        self.fetch_ahead();
        let (offset, length, stability) = (request.offset, request.length, request.stability);
        if let (Buffers::One(buffer), Stability::Unstable, 1..) = (&buffers, stability, length)
            && !self.keeps_undo()
            && !self.has_checksums(answer.endpoint)
        {
            let (buffer, way) = (*buffer, Way::Write);
            self.want(Wanted { answer, io, offset, length, buffer, way });
            return Ok(());
        }
        let source = self.direct_source(answer, buffers, length, request.checksum);
        let answer = self.keep_begun(answer);
        let writing = Writing::new(io, offset, length, stability);
        self.start(Task::new(answer, Work::Write(WriteTask::new(writing, source))));
        Ok(())
    }

    /// Returns the source of a direct write's bytes.
    pub(crate) fn direct_source(
        &self,
        answer: ReplyTo,
        buffers: Buffers,
        length: u32,
        expected: Checksum,
    ) -> WriteSource {
        if length > 0 && self.has_checksums(answer.endpoint) {
            WriteSource::Sealed { buffers, expected, staging: None }
        } else {
            WriteSource::Direct(buffers)
        }
    }

    pub(crate) fn write_inline(
        &mut self,
        answer: ReplyTo,
        request: &WriteInline<'_>,
    ) -> Result<(), NotDone> {
        let bytes = request.data.bytes().ok_or(Status::Inval)?;
        let length = u32::try_from(bytes.len()).map_err(|_| Status::WriteTooBig)?;
        check_range(request.offset, length)?;
        self.check_placement(answer, request.placement)?;
        let reach = (request.offset, u64::from(length));
        self.check_locks(request.state, &request.file, reach, IoKind::Write)?;
        let io = self.io_file(answer, request.state, &request.file, IoKind::Write)?;
        let writing = Writing::new(io, request.offset, length, request.stability);
        if length == 0 || self.keeps_undo() {
            // An empty write needs no cache space and changes nothing. Other writes may have to
            // wait.
            let task = WriteTask::new(writing, WriteSource::Bytes(bytes.into()));
            self.start(Task::new(answer, Work::Write(task)));
            return Ok(());
        }
        let (mut spans, mut jobs) = (Spans::new(), Vec::new());
        let found =
            self.shared.cache.prepare_write(io.file, request.offset, length, &mut spans, &mut jobs);
        match found {
            // The usual case: the cache has space for all bytes, and the reply can be sent
            // immediately.
            Prepared::Ready(token)
                if token.length() == length && request.stability == Stability::Unstable =>
            {
                self.copy_in(bytes, &spans);
                let progress = self.shared.cache.write_done(token, self.shared.life.now());
                self.on_progress(progress);
                self.give_back(io.file, io.borrowed);
                let response = self.write_response(length);
                self.reply_moved(answer, &response);
            }
            found => {
                let task = WriteTask::new(writing, WriteSource::Bytes(bytes.into()));
                self.start_write_with(answer, task, (found, jobs), &mut spans);
            }
        }
        Ok(())
    }

    /// Executes a write of a guest. Returns the outcome if the write is complete, which is usual
    /// for an unstable write. Otherwise calls `start`, which returns the destination for the
    /// outcome.
    pub(crate) fn write_for_guest(
        &mut self,
        io: IoFile,
        offset: u64,
        bytes: &[u8],
        stability: Stability,
        start: impl FnOnce() -> ReplyTo,
    ) -> Option<Outcome> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let writing = Writing::new(io, offset, length, stability);
        if length == 0 || self.keeps_undo() {
            let task = WriteTask::new(writing, WriteSource::Bytes(bytes.into()));
            self.start(Task::new(start(), Work::Write(task)));
            return None;
        }
        let (mut spans, mut jobs) = (Spans::new(), Vec::new());
        let found = self.shared.cache.prepare_write(io.file, offset, length, &mut spans, &mut jobs);
        match found {
            Prepared::Ready(token)
                if token.length() == length && stability == Stability::Unstable =>
            {
                self.copy_in(bytes, &spans);
                let progress = self.shared.cache.write_done(token, self.shared.life.now());
                self.on_progress(progress);
                self.give_back(io.file, io.borrowed);
                let written = self.files().written(length, stability);
                Some(Outcome::done(Ended::Written(written)))
            }
            found => {
                let task = WriteTask::new(writing, WriteSource::Bytes(bytes.into()));
                self.start_write_with(start(), task, (found, jobs), &mut spans);
                None
            }
        }
    }

    /// Starts a write. `prepared` is the cache's reply to the request for space for all of the
    /// write's bytes.
    pub(crate) fn start_write_with(
        &mut self,
        answer: ReplyTo,
        mut task: WriteTask,
        found: (Prepared, Vec<FillJob>),
        spans: &mut Spans,
    ) {
        let id = self.shared.tasks.reserve();
        let (by, part) = (self.party_of(answer).ok(), task.writing.part());
        let room = self.files().room_found(by, part, found, spans);
        let step = self.use_room(id, answer, &mut task, room, spans);
        let task = Task::new(answer, Work::Write(task));
        let next = match step {
            Some(step) => self.conclude(id, task, step),
            None => Some(task),
        };
        if let Some(task) = next {
            self.drive(id, task);
        }
    }

    fn check_placement(&self, answer: ReplyTo, placement: Placement) -> Result<(), Status> {
        let Placement::Padded { header_bytes } = placement else { return Ok(()) };
        let channel = self.shared.channels.get(answer.endpoint).ok_or(Status::BadSession)?;
        let negotiated = self.shared.sessions.negotiated(channel.id).ok_or(Status::BadSession)?;
        if negotiated.inline_write_header_size == header_bytes {
            Ok(())
        } else {
            Err(Status::Inval)
        }
    }

    pub(crate) fn step_write(&mut self, id: TaskId, answer: ReplyTo, task: &mut WriteTask) -> Step {
        // The transfers into the cache space are complete.
        if let Some(step) = self.end_room(answer, task) {
            return step;
        }
        if self.is_write_barred(answer, task) {
            return self.refuse_write(answer, task, Status::Access);
        }
        if let Some(step) = self.unseal(id, answer, task) {
            return step;
        }
        if task.writing.is_append && !task.writing.has_place {
            let file = task.writing.file;
            if !self.files().claim_end(&mut task.writing) {
                return Step::Wait(Wait::File(file));
            }
        }
        if task.writing.is_append && self.intends(id, answer, task) {
            return Step::Wait(Wait::Journal);
        }
        let by = self.party_of(answer).ok();
        while task.writing.done < task.writing.length {
            let part = task.writing.part();
            let reach = (part.place, u64::from(part.left));
            match self.pass_undo(id, part.file, reach, task.writing.undo_seen) {
                Ok(None) => {}
                Ok(Some(wait)) => return Step::Wait(wait),
                Err(status) => return self.refuse_write(answer, task, status),
            }
            let mut spans = Spans::new();
            let room = self.files().room(by, part, &mut spans);
            if let Some(step) = self.use_room(id, answer, task, room, &spans) {
                return step;
            }
        }
        self.finish_write(answer, task)
    }

    /// Continues a write after the cache has replied to its request for space. Returns a step if
    /// the write must wait or has ended.
    fn use_room(
        &mut self,
        id: TaskId,
        answer: ReplyTo,
        task: &mut WriteTask,
        room: Room,
        spans: &Spans,
    ) -> Option<Step> {
        let token = match room {
            Room::Ready(token) => token,
            Room::Needs(need) => return self.meet(need).map(Step::Wait),
            Room::Failed(error) => return Some(self.refuse_write(answer, task, error.into())),
        };
        let from = task.writing.done as usize;
        match &task.source {
            WriteSource::Bytes(bytes) => {
                let to = from + token.length() as usize;
                self.copy_in(&bytes[from..to], spans);
                task.writing.token = Some(token);
            }
            WriteSource::Good(memory) => {
                self.copy_in_from(memory, from, spans);
                task.writing.token = Some(token);
            }
            // A checksummed write gets cache space only after its bytes are verified.
            WriteSource::Direct(_) | WriteSource::Sealed { .. } | WriteSource::Fetched { .. } => {
                if !self.fetch_into(id, answer, task, token, spans) {
                    return Some(Step::Wait(Wait::Transfers));
                }
            }
        }
        self.end_room(answer, task)
    }

    /// Ends a write that failed.
    pub(crate) fn refuse_write(
        &mut self,
        answer: ReplyTo,
        task: &WriteTask,
        status: Status,
    ) -> Step {
        self.end_write(answer, task);
        Step::failed(status)
    }

    /// Ends a write whose bytes could not be fetched because the connection is closing.
    pub(crate) fn refuse_broken(&mut self, answer: ReplyTo, task: &WriteTask) -> Step {
        self.end_write(answer, task);
        Step::Broken
    }

    /// Adds the filled cache space to the file. Returns a step if the write has ended.
    fn end_room(&mut self, answer: ReplyTo, task: &mut WriteTask) -> Option<Step> {
        let token = task.writing.token.take()?;
        let has_arrived = !task.transfer_failed;
        if has_arrived {
            task.writing.done += token.length();
        }
        let progress = self.files().filled(token, has_arrived);
        self.on_progress(progress);
        if has_arrived { None } else { Some(self.refuse_broken(answer, task)) }
    }

    /// Ends a write whose bytes are all in the cache: sends the reply, or first makes the bytes
    /// stable.
    fn finish_write(&mut self, answer: ReplyTo, task: &mut WriteTask) -> Step {
        if task.writing.is_append {
            // The results of APPEND do not contain the length, so it is counted here.
            let moved = Moved::Written(task.writing.length);
            self.note_moved(answer.endpoint, answer.reading, moved);
        }
        let by = self.party_of(answer).ok();
        let now = self.files().finish_write(by, &mut task.writing);
        self.release(answer, task);
        if let Now::Done(_) = now {
            self.give_back(task.writing.file, task.writing.borrowed);
        }
        now.into()
    }

    /// Fetches the client's bytes into the cache space. Returns true if no transfer is in progress,
    /// because the bytes have arrived or the connection is closing.
    pub(crate) fn fetch_into(
        &mut self,
        id: TaskId,
        answer: ReplyTo,
        task: &mut WriteTask,
        token: WriteToken,
        spans: &Spans,
    ) -> bool {
        let WriteSource::Direct(buffers) = &task.source else { return true };
        let cut = Cut::new(spans, buffers.as_slice(), task.writing.done, token.length());
        (task.transfers_left, task.transfer_failed) =
            self.fetch_all(id, answer.endpoint, cut, self.own.arena);
        task.writing.token = Some(token);
        task.transfers_left == 0
    }

    /// Fetches the bytes that `cut` describes into a memory region of the server, for a task.
    /// Returns the number of transfers that the task waits for, and whether posting a transfer has
    /// failed, which breaks the connection.
    pub(crate) fn fetch_all(
        &mut self,
        id: TaskId,
        endpoint: EndpointId,
        mut cut: Cut<'_>,
        region: Region,
    ) -> (u32, bool) {
        let mut left = 0;
        let endpoint = self.reads_over(endpoint);
        while let Some((local, remote)) = cut.next(&region) {
            if self.own.may_move(remote.length)
                && self.own.interface.rdma_read_now(endpoint, &local, remote)
            {
                continue;
            }
            let word = Cookie::Task(id).pack();
            if self.own.interface.post_rdma_read(endpoint, word, &local, remote).is_err() {
                self.give_up(endpoint);
                return (left, true);
            }
            left += 1;
        }
        (left, false)
    }

    pub(crate) fn copy_in(&self, bytes: &[u8], spans: &[Span]) {
        copy_in(self.shared.cache.arena(), bytes, spans);
    }

    /// Copies bytes from other memory, starting at the offset `from`, into the cache space.
    fn copy_in_from(&self, memory: &Memory, mut from: usize, spans: &[Span]) {
        for span in spans {
            let offset = usize::try_from(span.offset).unwrap_or(usize::MAX);
            let length = span.length as usize;
            Memory::copy(memory, from, self.shared.cache.arena(), offset, length);
            from += length;
        }
    }

    /// Returns the reply to an unstable write of `length` bytes.
    #[inline]
    pub(crate) fn write_response(&self, length: u32) -> Response<'static> {
        let verifier = verifier_of(self.shared.life.boot(), &self.shared.cache);
        written_response(&Written { length, committed: Stability::Unstable, verifier })
    }

    /// Gives up the write's reservation of the end of its file, if it has one.
    fn release(&mut self, answer: ReplyTo, task: &WriteTask) {
        if task.writing.has_place {
            self.leave_end(task.writing.file);
        }
        self.release_sealed(answer, task);
    }

    /// Ends a write: releases all its resources except its cache space.
    pub(crate) fn end_write(&mut self, answer: ReplyTo, task: &WriteTask) {
        self.release(answer, task);
        self.give_back(task.writing.file, task.writing.borrowed);
    }

    pub(crate) fn step_commit(&mut self, answer: ReplyTo, task: &mut CommitTask) -> Step {
        let Some(result) = self.push_commit(&mut task.ticket) else {
            return Step::Wait(Wait::File(task.file));
        };
        let by = self.party_of(answer).ok();
        let (now, moved) = self.files().finish_commit(by, task, result);
        if let Some(progress) = moved {
            self.on_progress(progress);
        }
        now.into()
    }

    pub(crate) fn step_flush(&mut self, answer: ReplyTo, task: &mut FlushTask) -> Step {
        let Some(result) = self.push_commit(&mut task.ticket) else {
            return Step::Wait(Wait::File(task.file));
        };
        match task.whose {
            FlushOf::Batches => {
                self.end_sync(task.file, result);
                Step::Silent
            }
            FlushOf::HandOver(request) => {
                self.finish_hand_over(answer, &request, task.file, result)
            }
        }
    }
}
