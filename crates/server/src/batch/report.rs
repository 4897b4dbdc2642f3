//! Reports the results of batches in replies and notices, and ends the batches of ended sessions.
//!
//! Invariants:
//! - A synchronous batch gets one reply; if its connection ends first, no result is stored.
//! - A notice is sent only when its channel has a credit for it, so no notice is dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_sessions::Sessions;
use dafs_sessions::{AbortScope, BatchLoad, BatchReply, Notice, PieceOutcome};
use dafs_types::{Moment, SessionId, Status};
use dafs_wire::messages::Completion;

use super::{BatchSession, Batches};
use crate::channel::Channels;
use crate::reply_to::ReplyTo;

/// A synchronous batch whose requests are all complete.
pub(super) enum Complete {
    /// The completions are sent to the client as the reply.
    Told(ReplyTo, Vec<Completion>),
    /// The session has ended, so no reply is sent. A client that reconnects submits the batch
    /// again.
    Abandoned(ReplyTo),
}

impl Batches {
    /// Returns the session of a channel, and registers it with the scheduler if it is new.
    pub(super) fn session_of(
        &mut self,
        sessions: &Sessions,
        channels: &mut Channels,
        endpoint: EndpointId,
    ) -> Result<SessionId, Status> {
        let channel = channels.get(endpoint).ok_or(Status::BadSession)?;
        if let Some(session) = channel.batch_session {
            return Ok(session);
        }
        let (session, _) = sessions.ids(channel.id).ok_or(Status::BadSession)?;
        let back = back_of(sessions, channels, endpoint);
        self.scheduler.open_session(session, back.map(|(_, bytes)| bytes));
        let entry = BatchSession {
            operation: endpoint,
            back: back.map(|(endpoint, _)| endpoint),
            strands: 0,
            bytes: 0,
            waiting: VecDeque::new(),
            is_fetching: false,
            waiting_batches: VecDeque::new(),
            is_ending: false,
        };
        self.sessions.insert(session, entry);
        if let Some(channel) = channels.get_mut(endpoint) {
            channel.batch_session = Some(session);
        }
        Ok(session)
    }

    /// Removes and returns the next complete synchronous batch.
    pub(super) fn next_complete(&mut self) -> Option<Complete> {
        loop {
            let BatchReply { session, tag, completions } = self.scheduler.poll_reply()?;
            let Some(to) = self.unanswered.remove(&tag) else { continue };
            let is_ending = self.sessions.get(&session).is_none_or(|session| session.is_ending);
            return Some(match is_ending {
                true => Complete::Abandoned(to),
                false => Complete::Told(to, completions),
            });
        }
    }

    /// Removes and returns the completions for the next notice about asynchronous batches, with the
    /// channel that carries the notice. `None` if no channel with completions has a credit.
    pub(super) fn next_notice(
        &mut self,
        channels: &Channels,
        now: Moment,
    ) -> Option<(EndpointId, Arc<[Completion]>)> {
        loop {
            let Self { scheduler, sessions, .. } = self;
            let takes = |session: SessionId| {
                let back = sessions.get(&session).and_then(|session| session.back);
                let channel = back.and_then(|back| channels.get(back));
                let back = channel.and_then(|channel| channel.back.as_deref());
                back.is_some_and(|back| back.has_credit())
            };
            let notice = scheduler.poll_notice_for(now, takes)?;
            let Notice { session, completions, .. } = notice;
            let entry = self.sessions.get(&session);
            if let Some(back) = entry.and_then(|entry| entry.back) {
                return Some((back, Arc::from(completions)));
            }
        }
    }

    /// Records the new back-control channel of a session.
    pub(crate) fn note_back_channel(
        &mut self,
        sessions: &Sessions,
        channels: &Channels,
        operation: EndpointId,
        back: EndpointId,
    ) {
        let session = channels.get(operation).and_then(|channel| channel.batch_session);
        let Some(session) = session else { return };
        let bytes = back_of(sessions, channels, operation).map(|(_, bytes)| bytes);
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.back = Some(back);
        }
        self.scheduler.open_session(session, bytes);
        self.wake();
    }

    /// Drops the asynchronous batches of a session that has lost its back-control channel, because
    /// the client can no longer learn which of their bytes have arrived.
    pub(crate) fn lose_back_channel(
        &mut self,
        channels: &Channels,
        operation: EndpointId,
        back: EndpointId,
    ) {
        let session = channels.get(operation).and_then(|channel| channel.batch_session);
        let Some(session) = session else { return };
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        if entry.back == Some(back) {
            entry.back = None;
            self.scheduler.drop_asynchronous(session);
            self.scheduler.open_session(session, None);
            self.wake();
        }
    }

    /// Ends the batches of a session whose connection has ended. Strands (transfers) in progress
    /// finish, but their results are dropped. Returns the batches that were not accepted yet.
    pub(crate) fn end_session(&mut self, session: SessionId, now: Moment) -> Vec<ReplyTo> {
        let Some(entry) = self.sessions.get_mut(&session) else { return Vec::new() };
        entry.is_ending = true;
        entry.back = None;
        let waiting = std::mem::take(&mut entry.waiting);
        let waiting_batches = std::mem::take(&mut entry.waiting_batches);
        self.scheduler.open_session(session, None);
        self.scheduler.drop_asynchronous(session);
        let scope = AbortScope { session: Some(session), ..AbortScope::EVERYTHING };
        self.scheduler.abort(&scope, Status::Io, now);
        for (piece, _) in waiting {
            self.scheduler.piece_done(piece, PieceOutcome::Failed(Status::Io), now);
        }
        self.has_ending = true;
        self.wake();
        waiting_batches.into_iter().map(|(to, _)| to).collect()
    }

    /// Removes the entries of ended sessions that have no transfers in progress.
    pub(super) fn forget_ended_sessions(&mut self) {
        if !self.has_ending {
            return;
        }
        let Self { scheduler, sessions, has_ending, .. } = self;
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
}

/// Returns the back-control channel that belongs to an operation channel, and the largest request
/// in bytes that may be sent on it.
pub(super) fn back_of(
    sessions: &Sessions,
    channels: &Channels,
    operation: EndpointId,
) -> Option<(EndpointId, u32)> {
    let id = channels.get(operation)?.id;
    let endpoint = channels.endpoint_of(sessions.back_control(id)?)?;
    let back = channels.get(endpoint)?.back.as_deref()?;
    Some((endpoint, back.request_bytes_max()))
}
