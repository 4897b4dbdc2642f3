//! Accepts submitted batches, and advances the batches that are due.

use dafs_filer::{ClientKey, FileKey, IoKind};
use dafs_sessions::{BatchRequest, Submission, completions_in};
use dafs_store::StoreError;
use dafs_store::cache::{CachedFile, Span, Spans};
use dafs_types::{FileHandle, SessionId, ShareAccess, StateId, Status};
use dafs_wire::messages::{BatchRequest as WireRequest, BatchSubmit, Completions, Empty, HurryUp};
use dafs_wire::{Array, Response};

use super::report::Complete;
use super::sealed::SealedBatch;
use super::{Batch, Wanted};
use crate::data::Step;
use crate::moving::transfer::{Cut, Staging};
use crate::reactor::{Reactor, Shared};
use crate::reply_to::{ReplyTo, TaskId};
use crate::requests::handles;
use crate::session::back::BackRequest;
use crate::task::{Task, Wait, Work};

impl Reactor<'_> {
    /// Handles BATCH_SUBMIT. An error that concerns the whole batch is reported as the status of
    /// the reply. An error of a single request is reported in its completion.
    pub(crate) fn batch_submit(
        &mut self,
        answer: ReplyTo,
        request: &BatchSubmit<'_>,
    ) -> Result<(), Status> {
        let session = self.batch_session(answer)?;
        let client = self.party_of(answer)?.client;
        self.shared.filer.check_data_grace(client)?;
        let batch = Batch {
            requests: request
                .requests
                .iter()
                .map(|request| self.wanted_transfer(&request))
                .collect(),
            window_us: request.window_us,
            completion_count: request.completion_count,
            synchronous: request.synchronous,
        };
        let bytes = self.response_bytes_max(answer.endpoint);
        let room = completions_in(u32::try_from(bytes).unwrap_or(u32::MAX));
        if batch.synchronous && batch.requests.len() > room {
            return Err(Status::TooSmall);
        }
        if self.has_checksums(answer.endpoint) {
            self.submit_in_order(session, answer, batch)
        } else {
            self.submit_batch(answer, &batch)
        }
    }

    fn wanted_transfer(&self, request: &WireRequest<'_>) -> Wanted {
        let mut wanted = Wanted::of(request);
        handles::renew(&*self.shared.whole_store, &mut wanted.file);
        wanted
    }

    /// Passes a batch to the scheduler.
    pub(super) fn submit_batch(&mut self, answer: ReplyTo, batch: &Batch) -> Result<(), Status> {
        let session = self.batch_session(answer)?;
        let apply_rules = batch.requests.iter().map(|wanted| {
            let key = match wanted.refused {
                Some(status) => Err(status),
                None => self.batch_key(answer, wanted.state, &wanted.file, wanted.kind),
            };
            BatchRequest {
                request: wanted.name,
                file: key.unwrap_or(FileKey(u64::MAX)),
                handle: wanted.file,
                state: wanted.state,
                kind: wanted.kind,
                chunks: &wanted.chunks,
                buffers: &wanted.buffers,
                checksum: wanted.checksum,
                data: wanted.data.as_ref(),
                refused: key.err(),
            }
        });
        let requests: Vec<BatchRequest<'_>> = apply_rules.collect();
        for request in requests.iter().filter(|it| it.refused == Some(Status::Delay)) {
            self.search_later(&request.handle);
        }
        let tag = self.shared.batches.last_tag + 1;
        let submission = Submission {
            requests: &requests,
            window_us: batch.window_us,
            completion_count: batch.completion_count,
            synchronous: batch.synchronous,
            tag,
        };
        let submitted =
            self.shared.batches.scheduler.submit(session, &submission, self.shared.life.now());
        // The client may have to retry the batch after a completion, so completions must be
        // delivered soon.
        self.shared.batches.wake();
        submitted.map_err(dafs_sessions::SubmitError::status)?;
        self.shared.batches.last_tag = tag;
        if !batch.synchronous {
            // The reply is not stored: a client that does not receive it submits the batch again
            // (draft 5.2.3).
            let answer = self.abandon(answer);
            let nothing = Completions { completions: Array::default() };
            self.reply(answer, &Response::BatchSubmit(nothing));
            return Ok(());
        }
        // Without the reply the client cannot know that the bytes of its reads have arrived, so a
        // batch with reads has no stored reply and is submitted again.
        let only_writes = batch.requests.iter().all(|request| request.kind == IoKind::Write);
        let answer = if only_writes { answer } else { self.abandon(answer) };
        self.shared.batches.unanswered.insert(tag, answer);
        Ok(())
    }

    /// Accepts the batches of a session in the order of arrival. A batch that waits for its turn
    /// keeps using its credit.
    fn submit_in_order(
        &mut self,
        session: SessionId,
        answer: ReplyTo,
        batch: Batch,
    ) -> Result<(), Status> {
        let entry = self.shared.batches.sessions.get_mut(&session).ok_or(Status::BadSession)?;
        if entry.is_fetching {
            entry.waiting_batches.push_back((answer, batch));
            return Ok(());
        }
        self.submit_sealed(session, answer, batch)
    }

    /// Submits the batches that waited until an earlier batch of the session was accepted or
    /// refused.
    fn submit_waiting(&mut self, session: SessionId) {
        while let Some(entry) = self.shared.batches.sessions.get_mut(&session)
            && !entry.is_fetching
            && let Some((answer, batch)) = entry.waiting_batches.pop_front()
        {
            if let Err(status) = self.submit_sealed(session, answer, batch) {
                self.fail(answer, status);
            }
        }
    }

    /// Fetches the bytes that a batch writes. The batch is submitted when they are verified.
    fn submit_sealed(
        &mut self,
        session: SessionId,
        answer: ReplyTo,
        batch: Batch,
    ) -> Result<(), Status> {
        let bytes = batch.bytes_to_fetch()?;
        if bytes == 0 {
            return self.submit_batch(answer, &batch);
        }
        if !self.shared.batches.has_room_for(
            &self.shared.channels,
            &self.shared.tasks,
            answer,
            bytes,
        )? {
            return Err(Status::Delay);
        }
        let staging = Staging::of(&mut self.own.interface, vec![0; bytes].into())?;
        let id = self.shared.tasks.reserve();
        let mut sealed = self.shared.batches.begin_fetch(session, batch, staging, bytes);
        let region = sealed.region();
        let (mut start, mut transfers) = (0, (0, false));
        for buffers in sealed.buffers() {
            let length: u32 = buffers.iter().map(|buffer| buffer.length).sum();
            let spans = Spans::from_iter([Span { offset: start, length }]);
            start += u64::from(length);
            let cut = Cut::new(&spans, buffers, 0, length);
            let (left, failed) = self.fetch_all(id, answer.endpoint, cut, region);
            transfers = (transfers.0 + left, transfers.1 | failed);
        }
        (sealed.transfers_left, sealed.transfer_failed) = transfers;
        let waits = sealed.transfers_left > 0;
        let task = Task::new(answer, Work::SealedBatch(Box::new(sealed)));
        if waits {
            self.park(id, task, Wait::Transfers);
        } else {
            self.drive(id, task);
        }
        Ok(())
    }

    /// Continues a batch after the bytes that it writes were fetched, or after their checksums were
    /// computed.
    pub(crate) fn step_sealed_batch(
        &mut self,
        id: TaskId,
        answer: ReplyTo,
        sealed: &mut SealedBatch,
    ) -> Step {
        if !sealed.is_summed() {
            self.own.interface.deregister(sealed.region().key);
        }
        let has_ended =
            sealed.transfer_failed || self.shared.channels.get(answer.endpoint).is_none();
        let step = match sealed.take_summed() {
            _ if has_ended => Step::Broken,
            Some(Ok(summed)) => {
                self.shared.batches.judge_sums(sealed, summed);
                match self.submit_batch(answer, sealed.batch()) {
                    Ok(()) => Step::Silent,
                    Err(status) => Step::failed(status),
                }
            }
            Some(Err(status)) => Step::failed(status),
            None => {
                self.submit_sum(sealed.sum_job(id));
                return Step::Wait(Wait::Sum);
            }
        };
        let session = self.shared.batches.end_fetch(sealed);
        self.submit_waiting(session);
        step
    }

    /// Handles HURRY_UP, which moves a request of a batch ahead of all waiting requests.
    pub(crate) fn hurry_up(&mut self, answer: ReplyTo, request: &HurryUp) -> Result<(), Status> {
        let channel = self.shared.channels.get(answer.endpoint).ok_or(Status::BadSession)?;
        let session = channel.batch_session.ok_or(Status::BatchRequestNotFound)?;
        let hurried = self.shared.batches.scheduler.hurry_up(session, request.request);
        hurried.map_err(|_| Status::BatchRequestNotFound)?;
        self.shared.batches.wake();
        self.reply(answer, &Response::HurryUp(Empty));
        Ok(())
    }

    /// Returns the session of a channel, and registers it with the scheduler if it is new.
    fn batch_session(&mut self, answer: ReplyTo) -> Result<SessionId, Status> {
        let Shared { batches, sessions, channels, .. } = &mut *self.shared;
        batches.session_of(sessions, channels, answer.endpoint)
    }

    /// Returns the scheduler's key for the file of a request.
    fn batch_key(
        &mut self,
        answer: ReplyTo,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<FileKey, Status> {
        let client = self.party_of(answer)?.client;
        let key = if state == StateId::ANONYMOUS {
            if client == ClientKey::NONE {
                return Err(Status::NotAuthenticated);
            }
            if answer.is_acting {
                // Credentials of the stream cannot be used here, because they may have changed or
                // gone when the bytes are transferred.
                return Err(Status::NotSupp);
            }
            let who = self.identity_of(answer);
            let access = match kind {
                IoKind::Read => ShareAccess::Read,
                IoKind::Write => ShareAccess::Write,
            };
            self.check_fence(answer, handle)?;
            FileKey(who.store().open(&who, handle, access)?.key().0)
        } else {
            // The filer distinguishes state ids that are stale, old or invalid.
            self.shared.holdings.opened().key_of(state, handle)
        };
        self.shared.filer.check_io(client, state, key, kind, self.shared.life.now())?;
        Ok(key)
    }

    // ---- driving --------------------------------------------------------------------

    /// Executes all work that batches have now: starts, replies, notices and commits.
    #[inline]
    pub(crate) fn push_batches(&mut self) {
        while std::mem::take(&mut self.shared.batches.is_woken) {
            self.push_batches_once();
        }
    }

    #[inline(never)]
    fn push_batches_once(&mut self) {
        self.begin_stalled();
        self.begin_runs();
        while let Some((to, flush)) =
            self.shared.batches.begin_sync(&self.shared.tasks, &mut self.shared.cache)
        {
            self.start(Task::new(to, Work::Flush(flush)));
        }
        while let Some(complete) = self.shared.batches.next_complete() {
            match complete {
                Complete::Abandoned(to) => drop(self.abandon(to)),
                Complete::Told(to, completions) => {
                    let completions = Array::from(completions.as_slice());
                    self.reply(to, &Response::BatchSubmit(Completions { completions }));
                }
            }
        }
        let now = self.shared.life.now();
        while let Some((back, completions)) =
            self.shared.batches.next_notice(&self.shared.channels, now)
        {
            self.ask_client(back, BackRequest::BatchCompletion { completions });
        }
        self.shared.batches.forget_ended_sessions();
        // A batch request whose reply was sent may be a member of a chain. The next member may
        // start now.
        self.push_chains();
    }

    /// Starts batches whose start time has come.
    #[inline]
    pub(crate) fn pass_batch_time(&mut self) {
        if self.shared.batches.pause(self.shared.life.now()).is_some_and(|pause| pause.is_zero()) {
            self.shared.batches.wake();
            self.push_batches();
        }
    }

    fn begin_runs(&mut self) {
        while let Some((mut pieces, kind)) = self.shared.batches.next_run(self.shared.life.now()) {
            for piece in pieces.drain(..) {
                self.begin_piece(piece, kind);
            }
            self.shared.batches.keep_room(pieces);
        }
    }

    /// Starts pieces that waited for other pieces of their session to end.
    fn begin_stalled(&mut self) {
        for _ in 0..self.shared.batches.stalled.len() {
            let Some(session) = self.shared.batches.stalled.pop_front() else { return };
            while let Some((piece, kind)) = self.shared.batches.next_stalled(session) {
                self.begin_strand(session, piece, kind);
            }
            self.shared.batches.requeue_stalled(session);
        }
    }

    /// Ends a commit of the bytes that batches have written to a file.
    pub(crate) fn end_sync(&mut self, file: CachedFile, result: Result<(), StoreError>) {
        for id in self.shared.batches.end_sync(file) {
            let Some(answer) = self.shared.tasks.get(id).map(|task| task.reply_to) else {
                continue;
            };
            let by = self.party_of(answer).ok();
            let lost = self.files().take_loss(by, file);
            let result = result.and(lost.map_or(Ok(()), Err));
            let task = self.shared.tasks.get_mut(id);
            if let Some(Work::Strand(strand)) = task.map(|task| &mut task.work) {
                strand.note_stable(result);
                self.resume(id, None);
            }
        }
    }
}
