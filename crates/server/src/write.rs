//! WRITE and COMMIT: from the client's memory into the cache, and on to the disk.
//!
//! Invariant: bytes go into spans whose token is held, and the token comes back to
//! the cache whether they arrived or not.

use dafs_dat::{EndpointId, Region};
use dafs_filer::IoKind;
use dafs_memory::Memory;
use dafs_ops::{Appended, Committed, Written};
use dafs_store::StoreError;
use dafs_store::cache::{CommitStep, FillJob, Prepared, Span, Spans, WriteToken};
use dafs_types::{Stability, Status};
use dafs_wire::messages::{Placement, WriteDirect, WriteInline};
use dafs_wire::{Checksum, Response};

use crate::answers::written_response;
use crate::data::{IoFile, Step, check_range, take_buffers};
use crate::hits::{Wanted, Way};
use crate::jobs::Job;
use crate::meter::Moved;
use crate::outcome::{Ended, NotDone};
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::{Buffers, CommitReply, CommitTask, Task, Wait, Work, WriteSource, WriteTask};
use crate::transfer::{Cookie, Cut};
use crate::undo::UndoGate;

impl Reactor {
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
        let work = Work::Write(write_task(io, offset, length, stability, source));
        self.start(Task::new(answer, work));
        Ok(())
    }

    /// Where the octets of a direct write come from.
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
        let octets = request.data.octets().ok_or(Status::Inval)?;
        let length = u32::try_from(octets.len()).map_err(|_| Status::WriteTooBig)?;
        check_range(request.offset, length)?;
        self.check_placement(answer, request.placement)?;
        let reach = (request.offset, u64::from(length));
        self.check_locks(request.state, &request.file, reach, IoKind::Write)?;
        let io = self.io_file(answer, request.state, &request.file, IoKind::Write)?;
        let task = |source| write_task(io, request.offset, length, request.stability, source);
        if length == 0 || self.keeps_undo() {
            // Needs no room, and changes nothing; or may have to wait.
            let work = Work::Write(task(WriteSource::Octets(octets.into())));
            self.start(Task::new(answer, work));
            return Ok(());
        }
        let (mut spans, mut jobs) = (Spans::new(), Vec::new());
        let found =
            self.cache.prepare_write(io.file, request.offset, length, &mut spans, &mut jobs);
        match found {
            // The usual case: room is there, and the answer can go out at once.
            Prepared::Ready(token)
                if token.length() == length && request.stability == Stability::Unstable =>
            {
                self.copy_in(octets, &spans);
                let progress = self.cache.write_done(token, self.life.now());
                self.on_progress(progress);
                self.give_back(io.file, io.borrowed);
                let response = self.write_response(length, Stability::Unstable);
                self.reply_moved(answer, &response);
            }
            found => {
                let task = task(WriteSource::Octets(octets.into()));
                self.start_write_with(answer, task, found, &spans, jobs);
            }
        }
        Ok(())
    }

    /// Starts a write with what the cache said when it was asked for all of its room.
    pub(crate) fn start_write_with(
        &mut self,
        answer: ReplyTo,
        mut task: WriteTask,
        found: Prepared,
        spans: &Spans,
        jobs: Vec<FillJob>,
    ) {
        let id = self.tasks.reserve();
        let step = self.use_room(id, answer, &mut task, found, spans, jobs);
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
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?;
        let negotiated = self.filer.negotiated(channel.id).ok_or(Status::BadSession)?;
        if negotiated.inline_write_header_size == header_bytes {
            Ok(())
        } else {
            Err(Status::Inval)
        }
    }

    pub(crate) fn step_write(&mut self, id: TaskId, answer: ReplyTo, task: &mut WriteTask) -> Step {
        // The transfers into a room have ended.
        if let Some(step) = self.end_room(answer, task) {
            return step;
        }
        if self.is_write_barred(answer, task) {
            return self.refuse_write(answer, task, Status::Access);
        }
        if let Some(step) = self.unseal(id, answer, task) {
            return step;
        }
        if task.is_append && !task.has_place {
            match self.claim_end(task) {
                Ok(()) => {}
                Err(step) => return step,
            }
        }
        if task.is_append && self.intends(id, answer, task) {
            return Step::Wait(Wait::Journal);
        }
        while task.done < task.length {
            let at = task.offset + u64::from(task.done);
            let left = task.length - task.done;
            match self.undo_gate(id, task.file, (at, u64::from(left)), task.undo_seen) {
                UndoGate::Open => {}
                UndoGate::Shut(wait) => return Step::Wait(wait),
                UndoGate::Refused(status) => return self.refuse_write(answer, task, status),
            }
            let (mut spans, mut jobs) = (Spans::new(), Vec::new());
            let found = self.cache.prepare_write(task.file, at, left, &mut spans, &mut jobs);
            if let Some(step) = self.use_room(id, answer, task, found, &spans, jobs) {
                return step;
            }
        }
        self.finish_write(answer, task)
    }

    /// Goes on with what the cache said when it was asked for room. A step if the write does
    /// not go on at once.
    pub(crate) fn use_room(
        &mut self,
        id: TaskId,
        answer: ReplyTo,
        task: &mut WriteTask,
        found: Prepared,
        spans: &Spans,
        jobs: Vec<FillJob>,
    ) -> Option<Step> {
        match found {
            Prepared::Ready(token) => match &task.source {
                WriteSource::Octets(bytes) => {
                    let from = task.done as usize;
                    let to = from + token.length() as usize;
                    self.copy_in(&bytes[from..to], spans);
                    task.done += token.length();
                    let progress = self.cache.write_done(token, self.life.now());
                    self.on_progress(progress);
                    None
                }
                WriteSource::Good(memory) => {
                    let (memory, from) = (memory.clone(), task.done as usize);
                    self.copy_in_from(&memory, from, spans);
                    task.done += token.length();
                    let progress = self.cache.write_done(token, self.life.now());
                    self.on_progress(progress);
                    None
                }
                // Before they are looked at they are given no room.
                WriteSource::Direct(_)
                | WriteSource::Sealed { .. }
                | WriteSource::Fetched { .. } => {
                    if !self.fetch_into(id, answer, task, token, spans) {
                        return Some(Step::Wait(Wait::Transfers));
                    }
                    self.end_room(answer, task)
                }
            },
            Prepared::Fill => self.fill_or_wait(task.file, jobs).map(Step::Wait),
            Prepared::Wait => Some(Step::Wait(Wait::File(task.file))),
            Prepared::Pressure => {
                self.flush_due();
                Some(Step::Wait(Wait::Room))
            }
            Prepared::Lost(_) => {
                let (at, left) = (task.offset + u64::from(task.done), task.length - task.done);
                let (mut spans, mut jobs, place) =
                    (Spans::new(), Vec::new(), (task.file, at, left));
                let found = self.prepare_beside_loss(answer.endpoint, place, &mut spans, &mut jobs);
                self.use_room(id, answer, task, found, &spans, jobs)
            }
            Prepared::Failed(error) => Some(self.refuse_write(answer, task, error.into())),
        }
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

    /// Ends a write whose octets could not be had: the connection is at its end.
    pub(crate) fn refuse_broken(&mut self, answer: ReplyTo, task: &WriteTask) -> Step {
        self.end_write(answer, task);
        Step::Broken
    }

    /// Gives the room that was filled to the file. A step if the write ends with it.
    fn end_room(&mut self, answer: ReplyTo, task: &mut WriteTask) -> Option<Step> {
        let token = task.token.take()?;
        if task.transfer_failed {
            let progress = self.cache.write_abort(token, self.life.now());
            self.on_progress(progress);
            return Some(self.refuse_broken(answer, task));
        }
        task.done += token.length();
        let progress = self.cache.write_done(token, self.life.now());
        self.on_progress(progress);
        None
    }

    /// All bytes are in the cache: answer, or make them stable first.
    fn finish_write(&mut self, answer: ReplyTo, task: &mut WriteTask) -> Step {
        if task.is_append {
            // Its results do not say how much it was.
            self.note_moved(answer.endpoint, answer.reading, Moved::Written(task.length));
        }
        if task.stability == Stability::Unstable {
            self.end_write(answer, task);
            return Step::done(Ended::Written(self.written(task.length, Stability::Unstable)));
        }
        let (file, stability) = (task.file, task.stability);
        let length = u64::from(task.length);
        let listener = self.listener_at(answer.endpoint, file);
        let ticket = self.cache.commit_begin(file, task.offset, length, stability, listener);
        let reply = if task.is_append {
            let has_place = std::mem::take(&mut task.has_place) && task.has_intent;
            if !has_place {
                self.release_place(task.file);
            }
            CommitReply::Append { offset: task.offset, stability, has_place }
        } else {
            CommitReply::Write { length: task.length, stability }
        };
        self.release(answer, task);
        let borrowed = task.borrowed;
        let commit = CommitTask { ticket, file, reply, borrowed };
        Step::Become(Box::new(Work::Commit(commit)))
    }

    /// Has the client's bytes come into the room. True if they are there, or never will be.
    pub(crate) fn fetch_into(
        &mut self,
        id: TaskId,
        answer: ReplyTo,
        task: &mut WriteTask,
        token: WriteToken,
        spans: &Spans,
    ) -> bool {
        let WriteSource::Direct(buffers) = &task.source else { return true };
        let cut = Cut::new(spans, buffers.as_slice(), task.done, token.length());
        (task.transfers_left, task.transfer_failed) =
            self.fetch_all(id, answer.endpoint, cut, self.arena);
        task.token = Some(token);
        task.transfers_left == 0
    }

    /// Has what is cut come into a region of ours for a task. How many transfers it waits for,
    /// and whether one could not be posted: then the connection goes.
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
            if self.interface.rdma_read_now(endpoint, &local, remote) {
                continue;
            }
            let word = Cookie::Task(id).pack();
            if self.interface.post_rdma_read(endpoint, word, &local, remote).is_err() {
                self.give_up(endpoint);
                return (left, true);
            }
            left += 1;
        }
        (left, false)
    }

    pub(crate) fn copy_in(&self, bytes: &[u8], spans: &[Span]) {
        let mut from = 0;
        for span in spans {
            let offset = usize::try_from(span.offset).unwrap_or(usize::MAX);
            let to = from + span.length as usize;
            self.cache.arena().write(offset, &bytes[from..to]);
            from = to;
        }
    }

    /// The same out of other memory, from an offset there.
    fn copy_in_from(&self, memory: &Memory, mut from: usize, spans: &[Span]) {
        for span in spans {
            let offset = usize::try_from(span.offset).unwrap_or(usize::MAX);
            let length = span.length as usize;
            Memory::copy(memory, from, self.cache.arena(), offset, length);
            from += length;
        }
    }

    /// What a write has done.
    #[inline]
    pub(crate) fn written(&self, length: u32, committed: Stability) -> Written {
        Written { length, committed, verifier: self.write_verifier() }
    }

    /// What a write answers.
    #[inline]
    pub(crate) fn write_response(&self, length: u32, committed: Stability) -> Response<'static> {
        written_response(&self.written(length, committed))
    }

    /// Whatever a write kept others from besides its room.
    fn release(&mut self, answer: ReplyTo, task: &WriteTask) {
        self.release_end(task);
        self.release_sealed(answer, task);
    }

    /// Whatever a write held besides its room.
    pub(crate) fn end_write(&mut self, answer: ReplyTo, task: &WriteTask) {
        self.release(answer, task);
        self.give_back(task.file, task.borrowed);
    }

    pub(crate) fn step_commit(&mut self, answer: ReplyTo, task: &mut CommitTask) -> Step {
        loop {
            match self.cache.commit_step(&mut task.ticket) {
                CommitStep::Flush(job) => {
                    if !self.run_or_submit(Job::Flush(job)) {
                        return Step::Wait(Wait::File(task.file));
                    }
                }
                CommitStep::Sync(job) => {
                    if !self.run_or_submit(Job::Sync(job)) {
                        return Step::Wait(Wait::File(task.file));
                    }
                }
                CommitStep::Wait => return Step::Wait(Wait::File(task.file)),
                CommitStep::Done(result) => return self.finish_commit(answer, task, result),
            }
        }
    }

    fn finish_commit(
        &mut self,
        answer: ReplyTo,
        task: &CommitTask,
        result: Result<(), StoreError>,
    ) -> Step {
        match task.reply {
            CommitReply::Close { after } => {
                return Step::Done(self.files().finish_close(task.file, after, result));
            }
            CommitReply::Batches => {
                self.end_sync(task.file, result);
                return Step::Silent;
            }
            CommitReply::HandOver(request) => {
                return self.finish_hand_over(answer, &request, task.file, result);
            }
            CommitReply::Append { .. }
            | CommitReply::Commit
            | CommitReply::Write { .. }
            | CommitReply::Ending(_) => {}
        }
        if result.is_err() {
            self.note_heard(answer.endpoint, task.file);
        }
        if let CommitReply::Append { has_place: true, .. } = task.reply {
            self.release_place(task.file);
        }
        self.give_back(task.file, task.borrowed);
        if let Err(error) = result {
            return Step::failed(error);
        }
        match task.reply {
            CommitReply::Write { length, stability } => {
                Step::done(Ended::Written(self.written(length, stability)))
            }
            CommitReply::Append { offset, stability: committed, .. } => {
                let verifier = self.write_verifier();
                Step::done(Ended::Appended(Appended { offset, committed, verifier }))
            }
            CommitReply::Ending(ending) => {
                let channel = self.channels.get(answer.endpoint).map(|channel| channel.id);
                let Some(channel) = channel else { return Step::failed(Status::BadSession) };
                self.files().end_now(channel, &ending).map_or_else(Step::failed, Step::from)
            }
            CommitReply::Commit
            | CommitReply::Close { .. }
            | CommitReply::Batches
            | CommitReply::HandOver(_) => {
                Step::done(Ended::Committed(Committed { verifier: self.write_verifier() }))
            }
        }
    }
}

/// A write that is not an append, and has not begun.
pub(crate) fn write_task(
    io: IoFile,
    offset: u64,
    length: u32,
    stability: Stability,
    source: WriteSource,
) -> WriteTask {
    WriteTask {
        file: io.file,
        offset,
        length,
        done: 0,
        stability,
        source,
        token: None,
        sealed_bytes: 0,
        transfers_left: 0,
        transfer_failed: false,
        is_append: false,
        has_place: false,
        has_intent: false,
        borrowed: io.borrowed,
        undo_seen: io.undo_seen,
    }
}
