//! What becomes of batches: answers, notices, and the end of those who would have them.
//!
//! Invariant: a synchronous batch is answered once, or its connection is gone and nothing is kept
//! of it; a notice goes out when its channel has a credit for it, so that none is ever dropped.

use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::{AbortScope, BatchLoad, BatchReply, ChannelId, Notice, PieceOutcome};
use dafs_types::{SessionId, Status};
use dafs_wire::messages::Completions;
use dafs_wire::{Array, Response};

use super::Batches;
use crate::back::BackRequest;
use crate::reactor::Reactor;

impl Reactor {
    /// Answers synchronous batches that are complete.
    pub(super) fn answer_batches(&mut self) {
        while let Some(reply) = self.batches.scheduler.poll_reply() {
            let BatchReply { session, tag, completions } = reply;
            let Some(answer) = self.batches.unanswered.remove(&tag) else { continue };
            let is_ending =
                self.batches.sessions.get(&session).is_none_or(|session| session.is_ending);
            if is_ending {
                // It ended with its session: whoever comes back asks for it anew.
                self.abandon(answer);
                continue;
            }
            let completions = Array::from(completions.as_slice());
            self.reply(answer, &Response::BatchSubmit(Completions { completions }));
        }
    }

    /// Tells of what is complete, where there are credits for it.
    pub(super) fn notify_batches(&mut self) {
        loop {
            let Self { batches: Batches { scheduler, sessions, .. }, channels, life, .. } = self;
            let takes = |session: SessionId| {
                let back = sessions.get(&session).and_then(|session| session.back);
                let channel = back.and_then(|back| channels.get(back));
                let back = channel.and_then(|channel| channel.back.as_deref());
                back.is_some_and(|back| back.has_credit())
            };
            let Some(notice) = scheduler.poll_notice_for(life.now(), takes) else { return };
            let Notice { session, completions, .. } = notice;
            let entry = self.batches.sessions.get(&session);
            if let Some(back) = entry.and_then(|entry| entry.back) {
                let completions = Arc::from(completions);
                self.ask_client(back, BackRequest::BatchCompletion { completions });
            }
        }
    }

    /// A session has got a back-control channel.
    pub(crate) fn note_back_channel(&mut self, operation: EndpointId, back: EndpointId) {
        let session = self.channels.get(operation).and_then(|channel| channel.batch_session);
        let Some(session) = session else { return };
        let bytes = self.back_of(operation).map(|(_, bytes)| bytes);
        if let Some(entry) = self.batches.sessions.get_mut(&session) {
            entry.back = Some(back);
        }
        self.batches.scheduler.open_session(session, bytes);
        self.batches.wake();
    }

    /// The back-control channel of a session is gone: its asynchronous batches go with it, for
    /// nobody could tell any more which of their octets have arrived.
    pub(crate) fn lose_back_channel(&mut self, operation: EndpointId, back: EndpointId) {
        let session = self.channels.get(operation).and_then(|channel| channel.batch_session);
        let Some(session) = session else { return };
        let Some(entry) = self.batches.sessions.get_mut(&session) else { return };
        if entry.back == Some(back) {
            entry.back = None;
            self.batches.scheduler.drop_asynchronous(session);
            self.batches.scheduler.open_session(session, None);
            self.batches.wake();
        }
    }

    /// The connection of a session is gone. What is under way comes to its end alone.
    pub(crate) fn end_batches(&mut self, session: SessionId) {
        let Some(entry) = self.batches.sessions.get_mut(&session) else { return };
        entry.is_ending = true;
        entry.back = None;
        let waiting = std::mem::take(&mut entry.waiting);
        for (answer, _) in std::mem::take(&mut entry.behind) {
            self.abandon(answer);
        }
        let batches = &mut self.batches;
        batches.scheduler.open_session(session, None);
        batches.scheduler.drop_asynchronous(session);
        let scope = AbortScope { session: Some(session), ..AbortScope::EVERYTHING };
        batches.scheduler.abort(&scope, Status::Io, self.life.now());
        for (piece, _) in waiting {
            batches.scheduler.piece_done(piece, PieceOutcome::Failed(Status::Io), self.life.now());
        }
        batches.has_ending = true;
        batches.wake();
    }

    /// Forgets sessions of which nothing is left.
    pub(super) fn forget_ended_sessions(&mut self) {
        if !self.batches.has_ending {
            return;
        }
        let Batches { scheduler, sessions, has_ending, .. } = &mut self.batches;
        *has_ending = false;
        sessions.retain(|id, session| {
            if !session.is_ending {
                return true;
            }
            let is_over =
                session.strands == 0 && scheduler.session_load(*id) == BatchLoad::default();
            if is_over {
                scheduler.close_session(*id);
            }
            *has_ending |= !is_over;
            !is_over
        });
    }

    /// The back-control channel beside an operation channel, and the longest request it takes.
    pub(super) fn back_of(&self, operation: EndpointId) -> Option<(EndpointId, u32)> {
        let id: ChannelId = self.channels.get(operation)?.id;
        let endpoint = self.channels.endpoint_of(self.filer.back_control(id)?)?;
        let back = self.channels.get(endpoint)?.back.as_deref()?;
        Some((endpoint, back.request_bytes_max()))
    }
}
