//! The response cache as a channel uses it (draft 5.2, 6.3).
//!
//! Invariant: a client can fetch the replies of its own sessions only, and only after no request of
//! the session runs any more.

use dafs_filer::Principal;
use dafs_types::{Moment, SessionId, Status, StreamId};

use super::{ColdChannel, Phase, Sessions};
use crate::replies::SessionRecord;
use crate::{ChannelEnd, ChannelId, KeptReply, KeptSession, ReplyQuery, RequestName};

impl Sessions {
    /// Begins to keep the replies of a session that has authenticated, if this was negotiated.
    pub(super) fn begin_kept(&mut self, channel: ChannelId) {
        let session = self.cold(channel).and_then(|cold| cold.session.as_ref());
        let Some(session) = session.filter(|session| session.granted.use_response_cache != 0)
        else {
            return;
        };
        let Some(principal) = session.principal.clone() else { return };
        let record = SessionRecord {
            id: session.id,
            client_name: session.client_name.clone(),
            principal,
            order: session.order,
        };
        self.hot[channel.index()].kept = self.kept.add(record, Some(channel));
    }

    /// Handles the loss of a session's connection.
    pub(super) fn end_kept(
        &mut self,
        kept: KeptSession,
        id: SessionId,
        end: ChannelEnd,
        now: Moment,
    ) {
        match end {
            ChannelEnd::Orderly => {
                if self.kept.forget(id) {
                    self.forgotten.push(id);
                }
            }
            ChannelEnd::Lost => {
                let expires = now.after(self.config.replies_kept);
                self.forgotten.extend(self.kept.lose(kept, expires));
            }
        }
    }

    /// Returns where the replies of a channel's session are kept.
    #[must_use]
    pub fn kept_session(&self, channel: ChannelId) -> KeptSession {
        match self.hot.get(channel.index()) {
            Some(hot) if hot.generation == channel.generation => hot.kept,
            _ => KeptSession::NONE,
        }
    }

    /// Returns the record of a session whose replies are kept.
    #[must_use]
    pub fn session_record(&self, kept: KeptSession) -> Option<&SessionRecord> {
        self.kept.record(kept)
    }

    /// Begins a request whose reply will be kept. Exactly one call of [`Sessions::keep_reply`] or
    /// [`Sessions::end_without_reply`] must follow.
    #[inline]
    pub fn begin_request(&mut self, kept: KeptSession, request: RequestName) {
        self.kept.begin(kept, request);
    }

    /// Returns the last request that began on a stream.
    #[must_use]
    pub fn request_begun(&self, kept: KeptSession, stream: StreamId) -> Option<RequestName> {
        self.kept.request(kept, stream)
    }

    /// Keeps a reply. Returns true if no request of the session runs any more and it has no
    /// connection: queries that found it busy may be retried.
    #[inline]
    pub fn keep_reply(
        &mut self,
        kept: KeptSession,
        stream: StreamId,
        status: Status,
        bytes: &[u8],
    ) -> bool {
        self.kept.keep(kept, stream, status, bytes)
    }

    /// Keeps the reply of a request that was never in flight here: it was executed and answered at
    /// once, or its reply was recorded before a restart.
    #[inline]
    pub fn keep_finished(
        &mut self,
        kept: KeptSession,
        request: RequestName,
        status: Status,
        bytes: &[u8],
    ) {
        self.kept.keep_finished(kept, request, status, bytes);
    }

    /// Ends a request that was not executed, so its reply is not kept. Returns like
    /// [`Sessions::keep_reply`].
    pub fn end_without_reply(&mut self, kept: KeptSession) -> bool {
        self.kept.end(kept)
    }

    /// Handles CHECK_RESPONSE and FETCH_RESPONSE: returns what happened to a request of an earlier
    /// session.
    ///
    /// # Errors
    /// UNKNOWN_SESSION for a session that is not this client's or is no longer kept; NOXID_MATCH if
    /// the request was not executed or can be repeated; BAD_SESSION for the caller's own session.
    pub fn query_reply(
        &self,
        channel: ChannelId,
        session: SessionId,
        request: RequestName,
    ) -> Result<ReplyQuery<'_>, Status> {
        self.own_session(channel, session)?;
        self.kept.query(session, request)
    }

    /// Handles DISCARD_RESPONSES.
    ///
    /// # Errors
    /// UNKNOWN_SESSION, as for [`Sessions::query_reply`].
    pub fn discard_replies(
        &mut self,
        channel: ChannelId,
        session: SessionId,
    ) -> Result<(), Status> {
        match self.own_session(channel, session) {
            // In its own present session the client has no request outstanding but this one.
            Err(Status::BadSession) => self.kept.clear(session),
            Err(status) => return Err(status),
            Ok(()) => {
                if self.kept.forget(session) {
                    self.forgotten.push(session);
                }
            }
        }
        Ok(())
    }

    /// Checks that a session is an earlier one of the channel's client.
    fn own_session(&self, channel: ChannelId, id: SessionId) -> Result<(), Status> {
        let (own, name, principal) = self.asker(channel).ok_or(Status::NotAuthenticated)?;
        if own == id {
            return Err(Status::BadSession);
        }
        let belongs = self.kept.belongs(id, name, principal);
        if belongs { Ok(()) } else { Err(Status::UnknownSession) }
    }

    fn asker(&self, channel: ChannelId) -> Option<(SessionId, &[u8], &Principal)> {
        let hot = self.hot.get(channel.index())?;
        let ColdChannel { session, .. } = self.cold(channel)?;
        let session = session.as_ref().filter(|_| hot.phase == Phase::Authenticated)?;
        Some((session.id, &session.client_name, session.principal.as_ref()?))
    }

    /// Returns the sessions that were forgotten since the last call, so that their stable records
    /// can be removed.
    pub fn take_forgotten(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.forgotten)
    }

    /// Returns each kept session with its replies, for stable storage.
    pub fn kept_records(
        &self,
    ) -> impl Iterator<Item = (&SessionRecord, impl Iterator<Item = KeptReply<'_>>)> {
        self.kept.records()
    }

    /// Restores a session that was recorded before a restart. It has no connection and is kept
    /// until its client has fetched its replies or its time is over.
    pub fn restore_session(&mut self, record: SessionRecord, now: Moment) -> KeptSession {
        let kept = self.kept.add(record, None);
        self.kept.lose(kept, now.after(self.config.replies_kept));
        kept
    }
}
