//! The response cache, from a channel's point of view (draft 5.2, 6.3).
//!
//! Invariant: a client asks for the results of its own sessions alone, and is told of none
//! before the session it asks for has come to rest.

use dafs_filer::Principal;
use dafs_types::{Moment, SessionId, Status, StreamId};

use super::{ColdChannel, Phase, Sessions};
use crate::replies::SessionRecord;
use crate::{ChannelEnd, ChannelId, KeptReply, KeptSession, ReplyQuery, RequestName};

impl Sessions {
    /// A session has authenticated: from now on its results are kept, if that was agreed.
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

    /// The connection of a session is gone.
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

    /// Where the results of a channel's session are kept.
    #[must_use]
    pub fn kept_session(&self, channel: ChannelId) -> KeptSession {
        match self.hot.get(channel.index()) {
            Some(hot) if hot.generation == channel.generation => hot.kept,
            _ => KeptSession::NONE,
        }
    }

    /// The record of a session whose results are kept.
    #[must_use]
    pub fn session_record(&self, kept: KeptSession) -> Option<&SessionRecord> {
        self.kept.record(kept)
    }

    /// A request begins whose result will be kept; exactly one of [`Sessions::keep_reply`] and
    /// [`Sessions::end_unkept`] follows.
    #[inline]
    pub fn begin_request(&mut self, kept: KeptSession, request: RequestName) {
        self.kept.begin(kept, request);
    }

    /// The request that was begun last on a stream.
    #[must_use]
    pub fn request_begun(&self, kept: KeptSession, stream: StreamId) -> Option<RequestName> {
        self.kept.request(kept, stream)
    }

    /// Keeps a result. True if the session has come to rest without a connection: queries
    /// that found it busy may be tried again.
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

    /// Keeps the result of a request that was never under way: it was carried out and answered
    /// at once, or its result was written down before a restart.
    #[inline]
    pub fn keep_whole(
        &mut self,
        kept: KeptSession,
        request: RequestName,
        status: Status,
        bytes: &[u8],
    ) {
        self.kept.keep_whole(kept, request, status, bytes);
    }

    /// A request ends that was not carried out, and whose result says nothing but that. True
    /// as for [`Sessions::keep_reply`].
    pub fn end_unkept(&mut self, kept: KeptSession) -> bool {
        self.kept.end(kept)
    }

    /// CHECK_RESPONSE and FETCH_RESPONSE: what became of a request of an earlier session.
    ///
    /// # Errors
    /// UNKNOWN_SESSION for one that is not this client's, or kept no longer; NOXID_MATCH
    /// if the request was not carried out or can be done again; BAD_SESSION for the
    /// asker's own.
    pub fn query_reply(
        &self,
        channel: ChannelId,
        session: SessionId,
        request: RequestName,
    ) -> Result<ReplyQuery<'_>, Status> {
        self.own_session(channel, session)?;
        self.kept.query(session, request)
    }

    /// DISCARD_RESPONSES.
    ///
    /// # Errors
    /// UNKNOWN_SESSION, as [`Sessions::query_reply`].
    pub fn discard_replies(
        &mut self,
        channel: ChannelId,
        session: SessionId,
    ) -> Result<(), Status> {
        match self.own_session(channel, session) {
            // Of its own present session a client has no answer outstanding but this one.
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

    /// Whether a session is an earlier one of the channel's client.
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

    /// Sessions that were forgotten since the last call, for whoever writes them down.
    pub fn take_forgotten(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.forgotten)
    }

    /// Everything kept, to be written down: each session with its results.
    pub fn kept_records(
        &self,
    ) -> impl Iterator<Item = (&SessionRecord, impl Iterator<Item = KeptReply<'_>>)> {
        self.kept.records()
    }

    /// Puts a session back that was written down before a restart; it has no connection and
    /// is kept until its client has asked, or the time for it is over.
    pub fn restore_session(&mut self, record: SessionRecord, now: Moment) -> KeptSession {
        let kept = self.kept.add(record, None);
        self.kept.lose(kept, now.after(self.config.replies_kept));
        kept
    }
}
