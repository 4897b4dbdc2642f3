//! The operations on the response cache for a channel (draft 5.2, 6.3).
//!
//! Invariant: a client can fetch the replies only of its own sessions, and only when no request of
//! the session is in progress.

use dafs_filer::Principal;
use dafs_types::{Moment, SessionId, Status, StreamId};

use super::{ColdChannel, Phase, Sessions};
use crate::replies::SessionRecord;
use crate::{ChannelEnd, ChannelId, KeptReply, KeptSession, ReplyQuery, RequestName};

impl Sessions {
    /// Starts to store the replies of a session that has just authenticated, if the client has
    /// negotiated a response cache.
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

    /// Handles the loss of a session's connection, for the session's stored replies.
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

    /// Returns the key of the stored replies of a channel's session, or [`KeptSession::NONE`].
    #[must_use]
    pub fn kept_session(&self, channel: ChannelId) -> KeptSession {
        match self.hot.get(channel.index()) {
            Some(hot) if hot.generation == channel.generation => hot.kept,
            _ => KeptSession::NONE,
        }
    }

    /// Returns the record of a session whose replies are stored. `None` for [`KeptSession::NONE`].
    #[must_use]
    pub fn session_record(&self, kept: KeptSession) -> Option<&SessionRecord> {
        self.kept.record(kept)
    }

    /// Starts a request whose reply will be stored. Exactly one call of [`Sessions::keep_reply`] or
    /// [`Sessions::end_without_reply`] must follow.
    #[inline]
    pub fn begin_request(&mut self, kept: KeptSession, request: RequestName) {
        self.kept.begin(kept, request);
    }

    /// Returns the newest request that was started on a stream. `None` if there is none.
    #[must_use]
    pub fn request_begun(&self, kept: KeptSession, stream: StreamId) -> Option<RequestName> {
        self.kept.request(kept, stream)
    }

    /// Stores the reply of a request. Returns true if the session has no connection and no further
    /// request in progress, so that queries that were told to wait can be retried.
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

    /// Stores the reply of a request that was not started here, because it was executed in one
    /// step, or because its reply was recorded before a restart.
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

    /// Ends a request that was not executed, so that no reply is stored. Returns true in the same
    /// cases as [`Sessions::keep_reply`].
    pub fn end_without_reply(&mut self, kept: KeptSession) -> bool {
        self.kept.end(kept)
    }

    /// Handles CHECK_RESPONSE and FETCH_RESPONSE: returns the result of a request of an earlier
    /// session.
    ///
    /// # Errors
    /// UNKNOWN_SESSION for a session that does not belong to the client or is no longer kept;
    /// NOXID_MATCH if the request was not executed or can be repeated; BAD_SESSION for the caller's
    /// own session.
    pub fn query_reply(
        &self,
        channel: ChannelId,
        session: SessionId,
        request: RequestName,
    ) -> Result<ReplyQuery<'_>, Status> {
        self.own_session(channel, session)?;
        self.kept.query(session, request)
    }

    /// Handles DISCARD_RESPONSES, which removes the stored replies of a session.
    ///
    /// # Errors
    /// UNKNOWN_SESSION, as for [`Sessions::query_reply`].
    pub fn discard_replies(
        &mut self,
        channel: ChannelId,
        session: SessionId,
    ) -> Result<(), Status> {
        match self.own_session(channel, session) {
            // This is the client's present session, in which it has no other request outstanding.
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

    /// Checks that a session is an earlier session of the channel's client.
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

    /// Removes and returns the ids of the sessions whose replies were removed since the last call,
    /// so that their stable records can be removed.
    pub fn take_forgotten(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.forgotten)
    }

    /// Returns the sessions that store replies, each with its replies, as records for stable
    /// storage.
    pub fn kept_records(
        &self,
    ) -> impl Iterator<Item = (&SessionRecord, impl Iterator<Item = KeptReply<'_>>)> {
        self.kept.records()
    }

    /// Restores a session that was recorded before a restart. It has no connection, and is kept
    /// until its client has fetched the replies or its time limit has passed.
    pub fn restore_session(&mut self, record: SessionRecord, now: Moment) -> KeptSession {
        let kept = self.kept.add(record, None);
        self.kept.lose(kept, now.after(self.config.replies_kept));
        kept
    }
}
