//! READ, WRITE, COMMIT, CACHE_HINT: between the cache and the client's memory.
//!
//! Invariant: bytes are posted from pinned pieces only, and written into spans whose
//! token is held; whatever happens to the connection, pins and tokens come back.

use dafs_dat::{LocalSegment, RemoteSegment, Signal, Stag};
use dafs_filer::IoKind;
use dafs_store::StoreError;
use dafs_store::cache::{
    CachedFile, CommitStep, FillJob, Pieces, Planned, Prepared, Read, Span, Spans,
};
use dafs_types::{FileHandle, ShareAccess, Stability, StateId, Status, limits};
use dafs_wire::messages::{
    CacheHintRequest, Commit, CommitResult, Empty, InlineData, Placement, ReadDirect,
    ReadDirectResult, ReadInline, ReadInlineResult, WriteDirect, WriteInline, WriteResult,
};
use dafs_wire::{Checksum, DirectBuffer, DirectBuffers, DirectChecksum, Response};

use crate::channel::RecentFile;
use crate::jobs::Job;
use crate::reactor::Reactor;
use crate::task::{
    Answer, Buffers, CommitReply, CommitTask, ReadTarget, ReadTask, Task, TaskId, Wait,
    WriteSource, WriteTask,
};
use crate::transfer::{Cookie, Loan};

/// How far a task got.
pub(crate) enum Step {
    /// It has been answered.
    Done,
    /// It goes on later.
    Wait(Wait),
    /// It becomes another task.
    Become(Task),
}

/// The file a request names, and whether it was opened for this request alone.
#[derive(Clone, Copy)]
pub(crate) struct IoFile {
    pub file: CachedFile,
    pub borrowed: bool,
}

impl Reactor {
    // ---- requests -------------------------------------------------------------------

    #[inline]
    pub(crate) fn read_direct(
        &mut self,
        answer: Answer,
        request: &ReadDirect<'_>,
    ) -> Result<(), Status> {
        check_range(request.offset, request.length)?;
        let buffers = take_buffers(&request.buffers, request.length)?;
        let io = self.io_file(answer, request.state, &request.file, IoKind::Read)?;
        self.start_read(
            answer,
            ReadTask {
                file: io.file,
                offset: request.offset,
                length: request.length,
                done: 0,
                hint: request.hint,
                target: ReadTarget::Direct(buffers),
                borrowed: io.borrowed,
            },
        );
        Ok(())
    }

    pub(crate) fn read_inline(
        &mut self,
        answer: Answer,
        request: &ReadInline,
    ) -> Result<(), Status> {
        check_range(request.offset, request.length)?;
        let room = self.response_bytes_max(answer.endpoint).saturating_sub(INLINE_READ_HEAD);
        if request.length as usize > room {
            return Err(Status::TooSmall);
        }
        let io = self.io_file(answer, request.state, &request.file, IoKind::Read)?;
        self.start_read(
            answer,
            ReadTask {
                file: io.file,
                offset: request.offset,
                length: request.length,
                done: 0,
                hint: request.hint,
                target: ReadTarget::Inline,
                borrowed: io.borrowed,
            },
        );
        Ok(())
    }

    pub(crate) fn write_direct(
        &mut self,
        answer: Answer,
        request: &WriteDirect<'_>,
    ) -> Result<(), Status> {
        check_range(request.offset, request.length)?;
        let buffers = take_buffers(&request.buffers, request.length)?;
        let io = self.io_file(answer, request.state, &request.file, IoKind::Write)?;
        let checksum = self.has_checksums(answer.endpoint).then_some(request.checksum);
        self.start(Task::Write(
            answer,
            WriteTask {
                file: io.file,
                offset: request.offset,
                length: request.length,
                done: 0,
                stability: request.stability,
                source: WriteSource::Direct(buffers, checksum),
                token: None,
                transfers_left: 0,
                transfer_failed: false,
                is_append: false,
                has_place: false,
                borrowed: io.borrowed,
            },
        ));
        Ok(())
    }

    pub(crate) fn write_inline(
        &mut self,
        answer: Answer,
        request: &WriteInline<'_>,
    ) -> Result<(), Status> {
        let octets = request.data.octets().ok_or(Status::Inval)?;
        let length = u32::try_from(octets.len()).map_err(|_| Status::WriteTooBig)?;
        check_range(request.offset, length)?;
        self.check_placement(answer, request.placement)?;
        let io = self.io_file(answer, request.state, &request.file, IoKind::Write)?;
        if !io.borrowed && request.stability == Stability::Unstable {
            // The usual case: room is there, and the answer can go out at once.
            let (mut spans, mut jobs) = (Spans::new(), Vec::new());
            let ready =
                self.cache.prepare_write(io.file, request.offset, length, &mut spans, &mut jobs);
            match ready {
                Prepared::Ready(token) if token.length() == length => {
                    self.copy_in(octets, &spans);
                    let progress = self.cache.write_done(token, self.now);
                    self.on_progress(progress);
                    self.reply_written(answer, length, Stability::Unstable);
                    return Ok(());
                }
                Prepared::Ready(token) => {
                    let progress = self.cache.write_abort(token, self.now);
                    self.on_progress(progress);
                }
                Prepared::Fill => self.run_fills(jobs),
                Prepared::Failed(error) => return Err(error.into()),
                Prepared::Wait | Prepared::Pressure => {}
            }
        }
        self.start(Task::Write(
            answer,
            WriteTask {
                file: io.file,
                offset: request.offset,
                length,
                done: 0,
                stability: request.stability,
                source: WriteSource::Inline(octets.into()),
                token: None,
                transfers_left: 0,
                transfer_failed: false,
                is_append: false,
                has_place: false,
                borrowed: io.borrowed,
            },
        ));
        Ok(())
    }

    pub(crate) fn commit(&mut self, answer: Answer, request: &Commit) -> Result<(), Status> {
        let Some(file) = self.cache.find(&request.file) else {
            // Nothing of it is in the cache; what was written before is the kernel's.
            let who = self.who(answer);
            let io = self.borrow_file(&who, &request.file, ShareAccess::Write)?;
            return self.commit_file(answer, request, io.file, true);
        };
        let who = self.who(answer);
        self.store.access(&who, &request.file, dafs_types::AccessMask::READ)?;
        self.commit_file(answer, request, file, false)
    }

    fn commit_file(
        &mut self,
        answer: Answer,
        request: &Commit,
        file: CachedFile,
        borrowed: bool,
    ) -> Result<(), Status> {
        let length = u64::from(request.length);
        let ticket = self.cache.commit_begin(file, request.offset, length, Stability::FileSync);
        let reply = CommitReply::Commit;
        self.start(Task::Commit(answer, CommitTask { ticket, file, reply, borrowed }));
        Ok(())
    }

    pub(crate) fn cache_hint(
        &mut self,
        answer: Answer,
        request: &CacheHintRequest,
    ) -> Result<(), Status> {
        let who = self.who(answer);
        self.store.access(&who, &request.file, dafs_types::AccessMask::READ)?;
        if let Some(file) = self.cache.find(&request.file) {
            let mut jobs = Vec::new();
            let length = u64::from(request.length);
            let (pattern, hint) = (request.pattern, request.hint);
            self.cache.hint(file, request.offset, length, pattern, hint, &mut jobs);
            for job in jobs {
                self.pool.submit(Job::Fill(job));
            }
        }
        self.reply(answer, &Response::CacheHint(Empty));
        Ok(())
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
            self.filer.check_io(id, state, dafs_filer::FileKey(recent.key.0), kind)?;
            return Ok(IoFile { file: recent.file, borrowed: false });
        }
        if state == StateId::ANONYMOUS {
            return self.anonymous_file(answer, handle, kind);
        }
        let record = self.opens.get(&state);
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
        Ok(IoFile { file: recent.file, borrowed: false })
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
        let file = self.store.open(&who, handle, access)?;
        let key = dafs_filer::FileKey(file.key().0);
        self.filer.check_io(id, StateId::ANONYMOUS, key, kind)?;
        let version = file.version()?;
        let file = self.cache.open(file, version)?;
        Ok(IoFile { file, borrowed: true })
    }

    /// Opens a file for one request.
    pub(crate) fn borrow_file(
        &mut self,
        who: &dafs_types::Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<IoFile, Status> {
        let file = self.store.open(who, handle, access)?;
        let version = file.version()?;
        let file = self.cache.open(file, version)?;
        Ok(IoFile { file, borrowed: true })
    }

    pub(crate) fn give_back(&mut self, file: CachedFile, borrowed: bool) {
        if borrowed {
            self.cache.close(file);
        }
    }

    fn check_placement(&self, answer: Answer, placement: Placement) -> Result<(), Status> {
        let Placement::Padded { header_bytes } = placement else { return Ok(()) };
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?;
        let negotiated = self.filer.negotiated(channel.id).ok_or(Status::BadSession)?;
        if negotiated.inline_write_header_size == header_bytes {
            Ok(())
        } else {
            Err(Status::Inval)
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
        match (error, task) {
            (Some(error), Task::Read(answer, task)) => {
                self.give_back(task.file, task.borrowed);
                self.tasks.forget(id);
                self.fail(answer, error.into());
            }
            (Some(error), Task::Write(answer, task)) if task.token.is_none() => {
                self.end_write(&task);
                self.tasks.forget(id);
                self.fail(answer, error.into());
            }
            (Some(error), Task::Size(answer, task)) if task.started => {
                self.tasks.forget(id);
                self.finish_size(answer, task, Err(error));
            }
            (_, task) => self.drive(id, task),
        }
    }

    fn drive(&mut self, id: TaskId, mut task: Task) {
        loop {
            let (step, rest) = match task {
                Task::Read(answer, mut read) => {
                    (self.step_read(answer, &mut read), Task::Read(answer, read))
                }
                Task::Write(answer, mut write) => {
                    (self.step_write(id, answer, &mut write), Task::Write(answer, write))
                }
                Task::Commit(answer, mut commit) => {
                    (self.step_commit(answer, &mut commit), Task::Commit(answer, commit))
                }
                Task::Size(answer, mut size) => {
                    (self.step_size(answer, &mut size), Task::Size(answer, size))
                }
                Task::Fetch(answer, mut fetch) => {
                    (self.step_fetch(answer, &mut fetch), Task::Fetch(answer, fetch))
                }
            };
            match step {
                Step::Done => return self.tasks.forget(id),
                Step::Wait(wait) => return self.tasks.park(id, rest, wait),
                Step::Become(next) => task = next,
            }
        }
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
            _ => return,
        };
        if left == 0 {
            self.resume(id, None);
        }
    }

    // ---- reads ----------------------------------------------------------------------

    /// Reads what is cached at once; only a miss makes a task of it.
    #[inline]
    fn start_read(&mut self, answer: Answer, mut read: ReadTask) {
        match self.step_read(answer, &mut read) {
            Step::Done => {}
            Step::Wait(wait) => {
                let id = self.tasks.reserve();
                self.tasks.park(id, Task::Read(answer, read), wait);
            }
            Step::Become(task) => self.start(task),
        }
    }

    #[inline]
    fn step_read(&mut self, answer: Answer, task: &mut ReadTask) -> Step {
        let mut pieces = Pieces::new();
        loop {
            let at = task.offset + u64::from(task.done);
            match self.cache.read(task.file, at, task.length - task.done, &mut pieces) {
                Read::Hit { length, is_end, wants_more } => {
                    if wants_more {
                        self.read_ahead(task.file);
                    }
                    task.done += length;
                    if task.done == task.length || is_end {
                        return self.finish_read(answer, task, &mut pieces, is_end);
                    }
                    if matches!(task.target, ReadTarget::Direct(_)) {
                        self.place(answer, task, length, &mut pieces);
                    } else if length == 0 {
                        // More pieces than an answer gathers: such a read is too scattered
                        // to be inline, and small enough to be short.
                        return self.finish_read(answer, task, &mut pieces, false);
                    }
                }
                Read::Miss => {
                    if let Some(wait) = self.fill(task, at) {
                        // An inline answer starts over; what it found is let go.
                        if matches!(task.target, ReadTarget::Inline) {
                            task.done = 0;
                        }
                        self.unpin_all(&mut pieces);
                        return Step::Wait(wait);
                    }
                }
            }
        }
    }

    /// Plans what a miss needs. `None` if it is there now.
    fn fill(&mut self, task: &ReadTask, at: u64) -> Option<Wait> {
        let mut jobs = Vec::new();
        let left = task.length - task.done;
        match self.cache.plan_fill(task.file, at, left, task.hint, &mut jobs) {
            Planned::Ready => None,
            Planned::Wait => Some(Wait::File(task.file)),
            Planned::Pressure => {
                self.flush_due();
                Some(Wait::Room)
            }
            Planned::Jobs => {
                let quick = self.now >= self.slow_until && total_bytes_are_small(&jobs);
                if !quick {
                    for job in jobs {
                        self.pool.submit(Job::Fill(job));
                    }
                    return Some(Wait::File(task.file));
                }
                self.run_fills(jobs);
                None
            }
        }
    }

    /// Runs fills in place; a failure shows when the read is tried again.
    fn run_fills(&mut self, jobs: Vec<FillJob>) {
        for job in jobs {
            self.run_or_submit(Job::Fill(job));
        }
    }

    fn read_ahead(&mut self, file: CachedFile) {
        let mut jobs = Vec::new();
        self.cache.plan_ahead(file, &mut jobs);
        for job in jobs {
            self.pool.submit(Job::Fill(job));
        }
    }

    #[inline]
    fn finish_read(
        &mut self,
        answer: Answer,
        task: &ReadTask,
        pieces: &mut Pieces,
        is_end: bool,
    ) -> Step {
        match &task.target {
            ReadTarget::Direct(_) => {
                let checksum = if self.has_checksums(answer.endpoint) {
                    self.checksum_of_read(task)
                } else {
                    Checksum::NONE
                };
                let here: u32 = pieces.iter().map(|piece| piece.length).sum();
                self.place(answer, task, here, pieces);
                let result = ReadDirectResult { end_of_file: is_end, length: task.done, checksum };
                self.reply(answer, &Response::ReadDirect(result));
            }
            ReadTarget::Inline => {
                let segments: arrayvec::ArrayVec<
                    LocalSegment,
                    { dafs_store::cache::PIECE_COUNT_MAX },
                > = pieces.iter().map(|p| self.arena.local(p.offset, p.length)).collect();
                let length: u32 = pieces.iter().map(|piece| piece.length).sum();
                let cookie =
                    Loan::of(pieces).map_or(Cookie::Silent, |loan| self.loans.insert(loan));
                let data = InlineData::Follows { length };
                let result = ReadInlineResult { end_of_file: is_end, data };
                let response = Response::ReadInline(result);
                self.reply_with_data(answer, &response, &segments, cookie);
            }
        }
        self.give_back(task.file, task.borrowed);
        Step::Done
    }

    /// Posts RDMA writes of the pieces, which are the last `length` octets done so far,
    /// into the client's buffers.
    #[inline]
    fn place(&mut self, answer: Answer, task: &ReadTask, length: u32, pieces: &mut Pieces) {
        let ReadTarget::Direct(buffers) = &task.target else { return };
        if length == 0 {
            return;
        }
        let start = task.done - length;
        let spans: arrayvec::ArrayVec<Span, { dafs_store::cache::PIECE_COUNT_MAX }> =
            pieces.iter().map(|p| Span { offset: p.offset, length: p.length }).collect();
        let cookie = Loan::of(pieces).map_or(Cookie::Silent, |loan| self.loans.insert(loan));
        let mut cut = Cut::new(&spans, buffers.as_slice(), start, length);
        let mut posted = true;
        while let Some((local, remote)) = cut.next(&self.arena) {
            let (signal, word) = if cut.is_empty() {
                (Signal::Always, cookie.pack())
            } else {
                (Signal::OnError, Cookie::Silent.pack())
            };
            posted = self
                .interface
                .post_rdma_write(answer.endpoint, word, &local, remote, signal)
                .is_ok();
            if !posted {
                break;
            }
        }
        if !posted {
            self.give_up(answer.endpoint);
            self.on_loan_done(cookie);
        }
    }

    /// The checksum over a whole direct read, from the cache.
    fn checksum_of_read(&mut self, task: &ReadTask) -> Checksum {
        let mut sums = DirectChecksum::new();
        let mut done = 0;
        while done < task.done {
            let mut pieces = Pieces::new();
            let at = task.offset + u64::from(done);
            let Read::Hit { length, .. } =
                self.cache.read(task.file, at, task.done - done, &mut pieces)
            else {
                break;
            };
            for piece in &pieces {
                let offset = usize::try_from(piece.offset).unwrap_or(usize::MAX);
                sums.update(&self.cache.arena().to_vec(offset, piece.length as usize));
            }
            self.unpin_all(&mut pieces);
            if length == 0 {
                break;
            }
            done += length;
        }
        sums.finish()
    }

    fn unpin_all(&mut self, pieces: &mut Pieces) {
        for piece in pieces.drain(..) {
            self.cache.unpin(piece.pin);
        }
    }

    // ---- writes ---------------------------------------------------------------------

    fn step_write(&mut self, id: TaskId, answer: Answer, task: &mut WriteTask) -> Step {
        if let Some(token) = task.token.take() {
            // The transfers into this room have ended.
            let failed = task.transfer_failed || !self.is_intact(task, &token_spans(task));
            let length = token.length();
            let progress = if failed {
                self.cache.write_abort(token, self.now)
            } else {
                self.cache.write_done(token, self.now)
            };
            self.on_progress(progress);
            if failed {
                self.end_write(task);
                let broken = task.transfer_failed;
                self.fail(answer, if broken { Status::Io } else { Status::Chksum });
                return Step::Done;
            }
            task.done += length;
        }
        if task.is_append && !task.has_place {
            match self.claim_end(task) {
                Ok(()) => {}
                Err(step) => return step,
            }
        }
        while task.done < task.length {
            let at = task.offset + u64::from(task.done);
            let left = task.length - task.done;
            let (mut spans, mut jobs) = (Spans::new(), Vec::new());
            match self.cache.prepare_write(task.file, at, left, &mut spans, &mut jobs) {
                Prepared::Ready(token) => match &task.source {
                    WriteSource::Inline(bytes) => {
                        let from = task.done as usize;
                        let to = from + token.length() as usize;
                        self.copy_in(&bytes[from..to], &spans);
                        task.done += token.length();
                        let progress = self.cache.write_done(token, self.now);
                        self.on_progress(progress);
                    }
                    WriteSource::Direct(..) => {
                        return self.fetch_into(id, answer, task, token, &spans);
                    }
                },
                Prepared::Fill => {
                    let file = task.file;
                    if self.now < self.slow_until || !total_bytes_are_small(&jobs) {
                        jobs.into_iter().for_each(|job| self.pool.submit(Job::Fill(job)));
                        return Step::Wait(Wait::File(file));
                    }
                    self.run_fills(jobs);
                }
                Prepared::Wait => return Step::Wait(Wait::File(task.file)),
                Prepared::Pressure => {
                    self.flush_due();
                    return Step::Wait(Wait::Room);
                }
                Prepared::Failed(error) => {
                    self.end_write(task);
                    self.fail(answer, error.into());
                    return Step::Done;
                }
            }
        }
        self.finish_write(answer, task)
    }

    /// All bytes are in the cache: answer, or make them stable first.
    fn finish_write(&mut self, answer: Answer, task: &mut WriteTask) -> Step {
        if task.stability == Stability::Unstable {
            self.end_write(task);
            self.reply_written(answer, task.length, Stability::Unstable);
            return Step::Done;
        }
        let (file, stability) = (task.file, task.stability);
        let length = u64::from(task.length);
        let ticket = self.cache.commit_begin(file, task.offset, length, stability);
        let reply = if task.is_append {
            CommitReply::Append { offset: task.offset, stability }
        } else {
            CommitReply::Write { length: task.length, stability }
        };
        self.release_end(task);
        let borrowed = task.borrowed;
        Step::Become(Task::Commit(answer, CommitTask { ticket, file, reply, borrowed }))
    }

    /// Posts RDMA reads of the client's buffers into the room.
    fn fetch_into(
        &mut self,
        id: TaskId,
        answer: Answer,
        task: &mut WriteTask,
        token: dafs_store::cache::WriteToken,
        spans: &Spans,
    ) -> Step {
        let WriteSource::Direct(buffers, _) = &task.source else { return Step::Done };
        let buffers = buffers.clone();
        let mut cut = Cut::new(spans, buffers.as_slice(), task.done, token.length());
        let mut posted = 0;
        let mut failed = false;
        while let Some((local, remote)) = cut.next(&self.arena) {
            let word = Cookie::Task(id).pack();
            if self.interface.post_rdma_read(answer.endpoint, word, &local, remote).is_err() {
                failed = true;
                break;
            }
            posted += 1;
        }
        task.token = Some(token);
        task.transfers_left = posted;
        task.transfer_failed = failed;
        if failed {
            self.give_up(answer.endpoint);
            if posted == 0 {
                return self.step_write(id, answer, task);
            }
        }
        Step::Wait(Wait::Transfers)
    }

    /// Whether what was fetched is what the client's checksum says. Checked for the
    /// usual write that takes one room; a longer one is covered by the transport.
    fn is_intact(&mut self, task: &WriteTask, _spans: &Spans) -> bool {
        let WriteSource::Direct(_, Some(expected)) = &task.source else { return true };
        if task.done != 0 {
            return true;
        }
        let (mut spans, mut jobs) = (Spans::new(), Vec::new());
        let prepared =
            self.cache.prepare_write(task.file, task.offset, task.length, &mut spans, &mut jobs);
        let Prepared::Ready(token) = prepared else { return true };
        let mut sums = DirectChecksum::new();
        for span in &spans {
            let offset = usize::try_from(span.offset).unwrap_or(usize::MAX);
            sums.update(&self.cache.arena().to_vec(offset, span.length as usize));
        }
        let whole = token.length() == task.length;
        let progress = self.cache.write_abort(token, self.now);
        self.on_progress(progress);
        !whole || sums.finish() == *expected
    }

    fn copy_in(&self, bytes: &[u8], spans: &[Span]) {
        let mut from = 0;
        for span in spans {
            let offset = usize::try_from(span.offset).unwrap_or(usize::MAX);
            let to = from + span.length as usize;
            self.cache.arena().write(offset, &bytes[from..to]);
            from = to;
        }
    }

    fn reply_written(&mut self, answer: Answer, length: u32, committed: Stability) {
        let verifier = self.write_verifier();
        let result = WriteResult { length, committed, verifier };
        // Inline and direct writes have the same results.
        self.reply(answer, &Response::WriteInline(result));
    }

    /// Whatever a write held besides its room.
    pub(crate) fn end_write(&mut self, task: &WriteTask) {
        self.release_end(task);
        self.give_back(task.file, task.borrowed);
    }

    // ---- commits --------------------------------------------------------------------

    fn step_commit(&mut self, answer: Answer, task: &mut CommitTask) -> Step {
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
                CommitStep::Done(result) => {
                    self.finish_commit(answer, task, result);
                    return Step::Done;
                }
            }
        }
    }

    fn finish_commit(&mut self, answer: Answer, task: &CommitTask, result: Result<(), StoreError>) {
        let verifier = self.write_verifier();
        if let CommitReply::Close { unlinked } = task.reply {
            return self.finish_close(answer, task.file, unlinked, result);
        }
        self.give_back(task.file, task.borrowed);
        match (result, task.reply) {
            (Err(error), _) => self.fail(answer, error.into()),
            (Ok(()), CommitReply::Commit) => {
                self.reply(answer, &Response::Commit(CommitResult { verifier }));
            }
            (Ok(()), CommitReply::Write { length, stability }) => {
                self.reply_written(answer, length, stability);
            }
            (Ok(()), CommitReply::Append { offset, stability }) => {
                self.reply_appended(answer, offset, stability);
            }
            (Ok(()), CommitReply::Close { .. }) => {}
        }
    }
}

/// Cuts file ranges in the arena and buffers of the client into transfers that are
/// contiguous on the client's side.
struct Cut<'a> {
    spans: &'a [Span],
    span_done: u32,
    buffers: &'a [DirectBuffer],
    buffer_done: u32,
    left: u32,
}

impl<'a> Cut<'a> {
    /// `start` octets of the buffers are done already.
    fn new(spans: &'a [Span], buffers: &'a [DirectBuffer], start: u32, length: u32) -> Self {
        let (mut buffers, mut skip) = (buffers, start);
        while let Some(first) = buffers.first()
            && skip >= first.length
        {
            skip -= first.length;
            buffers = &buffers[1..];
        }
        Self { spans, span_done: 0, buffers, buffer_done: skip, left: length }
    }

    fn is_empty(&self) -> bool {
        self.left == 0
    }

    #[inline]
    fn next(
        &mut self,
        arena: &dafs_dat::Region,
    ) -> Option<(
        arrayvec::ArrayVec<LocalSegment, { dafs_store::cache::PIECE_COUNT_MAX }>,
        RemoteSegment,
    )> {
        let buffer = self.buffers.first().filter(|_| self.left > 0)?;
        let length = (buffer.length - self.buffer_done).min(self.left);
        let remote = RemoteSegment {
            stag: Stag(buffer.context.0),
            address: buffer.target.0.wrapping_add(u64::from(self.buffer_done)),
            length,
        };
        let mut local = arrayvec::ArrayVec::new();
        let mut missing = length;
        while missing > 0 {
            let span = self.spans.first()?;
            let take = (span.length - self.span_done).min(missing);
            local.push(arena.local(span.offset + u64::from(self.span_done), take));
            missing -= take;
            self.span_done += take;
            if self.span_done == span.length {
                self.spans = &self.spans[1..];
                self.span_done = 0;
            }
        }
        self.left -= length;
        self.buffer_done += length;
        if self.buffer_done == buffer.length {
            self.buffers = &self.buffers[1..];
            self.buffer_done = 0;
        }
        Some((local, remote))
    }
}

/// The room of a write is named by its token alone.
fn token_spans(_task: &WriteTask) -> Spans {
    Spans::new()
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

/// Whether fills are few enough to be done by the reactor itself when the page cache
/// has them.
fn total_bytes_are_small(jobs: &[FillJob]) -> bool {
    jobs.len() <= FILLS_IN_PLACE_MAX
}

/// Header and fixed section of READ_INLINE's results.
const INLINE_READ_HEAD: usize = 48;
const FILLS_IN_PLACE_MAX: usize = 4;
