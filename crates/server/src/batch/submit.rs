//! Batches as they come, and what is due of them.

use std::collections::VecDeque;

use dafs_filer::{
    BatchRequest, ClientKey, DeviceLoad, FileKey, IoKind, Submission, completions_in,
};
use dafs_types::{FileHandle, SessionId, ShareAccess, StateId, Status};
use dafs_wire::messages::{BatchRequest as WireRequest, BatchSubmit, Completions, Empty, HurryUp};
use dafs_wire::{Array, Response};

use super::{Batch, BatchSession, IN_FLIGHT_MAX, Wanted};
use crate::handles;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;

impl Reactor {
    /// BATCH_SUBMIT. Only what is wrong with the batch as a whole is answered here: what is
    /// wrong with one request goes into its completion.
    pub(crate) fn batch_submit(
        &mut self,
        answer: ReplyTo,
        request: &BatchSubmit<'_>,
    ) -> Result<(), Status> {
        let session = self.batch_session(answer)?;
        let client = self.party_of(answer)?.client;
        self.filer.may_move(client)?;
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
        handles::renew(&*self.whole_store, &mut wanted.file);
        wanted
    }

    /// Gives a batch to the scheduler.
    pub(super) fn submit_batch(&mut self, answer: ReplyTo, batch: &Batch) -> Result<(), Status> {
        let session = self.batch_session(answer)?;
        let judged = batch.requests.iter().map(|wanted| {
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
                octets: wanted.octets.as_ref(),
                refused: key.err(),
            }
        });
        let requests: Vec<BatchRequest<'_>> = judged.collect();
        for request in requests.iter().filter(|it| it.refused == Some(Status::Delay)) {
            self.search_later(&request.handle);
        }
        let tag = self.batches.last_tag + 1;
        let submission = Submission {
            requests: &requests,
            window_us: batch.window_us,
            completion_count: batch.completion_count,
            synchronous: batch.synchronous,
            tag,
        };
        let submitted = self.batches.scheduler.submit(session, &submission, self.life.now());
        // Also one that is told to wait for a completion is to have it soon.
        self.batches.wake();
        submitted.map_err(dafs_filer::SubmitError::status)?;
        self.batches.last_tag = tag;
        if !batch.synchronous {
            // It is asked anew where nobody knows how it ended (draft 5.2.3).
            let answer = self.abandon(answer);
            let nothing = Completions { completions: Array::default() };
            self.reply(answer, &Response::BatchSubmit(nothing));
            return Ok(());
        }
        // What a client has read is known to have arrived only with the answer.
        let only_writes = batch.requests.iter().all(|request| request.kind == IoKind::Write);
        let answer = if only_writes { answer } else { self.abandon(answer) };
        self.batches.unanswered.insert(tag, answer);
        Ok(())
    }

    /// HURRY_UP.
    pub(crate) fn hurry_up(&mut self, answer: ReplyTo, request: &HurryUp) -> Result<(), Status> {
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?;
        let session = channel.batch_session.ok_or(Status::BatchRequestNotFound)?;
        let hurried = self.batches.scheduler.hurry_up(session, request.request);
        hurried.map_err(|_| Status::BatchRequestNotFound)?;
        self.batches.wake();
        self.reply(answer, &Response::HurryUp(Empty));
        Ok(())
    }

    /// The session of a channel, known to the scheduler from now on.
    fn batch_session(&mut self, answer: ReplyTo) -> Result<SessionId, Status> {
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?;
        if let Some(session) = channel.batch_session {
            return Ok(session);
        }
        let (session, _) = self.filer.ids(channel.id).ok_or(Status::BadSession)?;
        let back = self.back_of(answer.endpoint);
        self.batches.scheduler.open_session(session, back.map(|(_, bytes)| bytes));
        self.batches.sessions.insert(
            session,
            BatchSession {
                operation: answer.endpoint,
                back: back.map(|(endpoint, _)| endpoint),
                strands: 0,
                bytes: 0,
                waiting: VecDeque::new(),
                is_fetching: false,
                behind: VecDeque::new(),
                is_ending: false,
            },
        );
        if let Some(channel) = self.channels.get_mut(answer.endpoint) {
            channel.batch_session = Some(session);
        }
        Ok(session)
    }

    /// What the scheduler calls the file of a request.
    fn batch_key(
        &mut self,
        answer: ReplyTo,
        state: StateId,
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<FileKey, Status> {
        let client = self.party_of(answer)?.client;
        let key = if state == StateId::ANONYMOUS {
            if client == ClientKey::NOBODY {
                return Err(Status::NotAuthenticated);
            }
            if answer.is_acting {
                // When the data moves, credentials of a stream may be others, or none.
                return Err(Status::NotSupp);
            }
            let who = self.who(answer);
            let access = match kind {
                IoKind::Read => ShareAccess::Read,
                IoKind::Write => ShareAccess::Write,
            };
            self.pass_file(answer, handle)?;
            FileKey(who.store().open(&who, handle, access)?.key().0)
        } else {
            // The filer tells stale, old and plainly wrong state ids apart.
            self.opened.key_of(state, handle)
        };
        self.filer.check_io(client, state, key, kind, self.life.now())?;
        Ok(key)
    }

    // ---- driving --------------------------------------------------------------------

    /// Does what batches have to do now.
    #[inline]
    pub(crate) fn push_batches(&mut self) {
        while std::mem::take(&mut self.batches.is_woken) {
            self.push_batches_once();
        }
    }

    #[inline(never)]
    fn push_batches_once(&mut self) {
        self.begin_stalled();
        self.begin_runs();
        self.begin_syncs();
        self.answer_batches();
        self.notify_batches();
        self.forget_ended_sessions();
        // What was answered may be a member.
        self.push_chains();
    }

    /// Batches that time alone has something to do for.
    #[inline]
    pub(crate) fn pass_batch_time(&mut self) {
        if self.batches.pause(self.life.now()).is_some_and(|pause| pause.is_zero()) {
            self.batches.wake();
            self.push_batches();
        }
    }

    fn begin_runs(&mut self) {
        loop {
            let batches = &mut self.batches;
            if batches.turn_bytes == 0 {
                batches.has_more = true;
                return;
            }
            let device = DeviceLoad { in_flight: batches.in_flight, in_flight_max: IN_FLIGHT_MAX };
            let Some(run) = batches.scheduler.poll_run(self.life.now(), device) else { return };
            batches.turn_bytes = batches.turn_bytes.saturating_sub(u64::from(run.length));
            let kind = run.kind;
            let mut pieces = std::mem::take(&mut batches.pieces);
            batches.scheduler.take_apart(run, &mut pieces);
            for piece in pieces.drain(..) {
                self.begin_piece(piece, kind);
            }
            self.batches.pieces = pieces;
        }
    }

    /// Begins what waited for others of its session.
    fn begin_stalled(&mut self) {
        for _ in 0..self.batches.stalled.len() {
            let Some(session) = self.batches.stalled.pop_front() else { return };
            while let Some(entry) = self.batches.sessions.get_mut(&session)
                && !entry.is_full()
                && let Some((piece, kind)) = entry.waiting.pop_front()
            {
                self.begin_strand(session, piece, kind);
            }
            let waits = |entry: &BatchSession| !entry.waiting.is_empty();
            if self.batches.sessions.get(&session).is_some_and(waits) {
                self.batches.stalled.push_back(session);
            }
        }
    }
}
