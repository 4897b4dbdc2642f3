//! Acting for others: registered credentials from a session's point of view (draft
//! 3.1.1.1.2, 6.2.8, 6.2.9).
//!
//! Invariant: a request that names credentials holds them from `admit` to `finish`, and
//! `HotChannel::acting` says how many do, so that requests of the session's own identity
//! look no further.
//!
//! Where a connection breaks, its requests hold nothing any more, though one may come to its
//! end as whom it began: nobody is left to be told of it.

use dafs_filer::Principal;
use dafs_types::{ClientId, CredHandle, Credentials, SessionId, Status, StreamId};
use dafs_wire::messages::CredentialData;

use super::{Phase, Sessions};
use crate::{
    ChannelId, CredentialCounters, CredentialLookup, Registration, RequestClass, RequestHead,
};

impl Sessions {
    /// Judges what hangs on who the client is.
    #[cold]
    pub(super) fn judge_identity(
        &mut self,
        channel: ChannelId,
        head: &RequestHead,
    ) -> Result<(), Status> {
        let Some((hot, cold)) = self.live(channel) else { return Err(Status::BadSession) };
        let is_authenticated = matches!(hot.phase, Phase::Authenticated | Phase::Lapsed);
        let session = cold.session.as_ref().filter(|_| is_authenticated);
        let trusted = session.is_some_and(|session| session.trusted);
        if let Some(session) = session {
            match head.class {
                // Only what expires is renewed, and once at a time (draft 3.1.1.1.1).
                RequestClass::Authenticate if session.expires.is_none() || cold.is_renewing => {
                    return Err(Status::IllegalState);
                }
                // An untrusted client shall not register credentials (draft 3.1.1.1.2).
                RequestClass::Credential if !trusted => return Err(Status::NotAuthorized),
                _ => {}
            }
        }
        if head.cred_handle == CredHandle(0) {
            return Ok(());
        }
        let client = session.filter(|_| trusted).map(|session| session.client_id);
        let held = self.credentials.acquire(client.ok_or(Status::NoCreds)?, head.cred_handle)?;
        if let Some((hot, cold)) = self.live(channel) {
            hot.acting += 1;
            cold.acting.push((head.stream, held));
        }
        Ok(())
    }

    /// A request is answered: it holds no credentials any more.
    #[cold]
    pub(super) fn end_acting(&mut self, channel: ChannelId, stream: StreamId) {
        let Some((hot, cold)) = self.live(channel) else { return };
        if let Some(place) = cold.acting.iter().position(|(other, _)| *other == stream) {
            let (_, held) = cold.acting.swap_remove(place);
            hot.acting -= 1;
            self.credentials.finish(held);
        }
    }

    /// Whom the request on a stream acts for, if it named credentials.
    #[must_use]
    pub fn acting_for(&self, channel: ChannelId, stream: StreamId) -> Option<&Credentials> {
        let held = self.cold(channel)?.acting.iter().find(|(other, _)| *other == stream);
        held.map(|(_, held)| self.credentials.credentials(held))
    }

    /// The client a session belongs to, authenticated or not.
    #[must_use]
    pub fn client_of_session(&self, session: SessionId) -> Option<ClientId> {
        let &index = self.by_id.get(&session)?;
        let cold = self.cold.get(index as usize)?.as_ref()?;
        Some(cold.session.as_ref()?.client_id)
    }

    /// Whether a channel's client is trusted.
    #[must_use]
    pub fn is_trusted(&self, channel: ChannelId) -> bool {
        let session = self.cold(channel).and_then(|cold| cold.session.as_ref());
        session.is_some_and(|session| session.trusted)
    }

    /// As whom a channel's client has authenticated, or says it does.
    #[must_use]
    pub fn principal(&self, channel: ChannelId) -> Option<&Principal> {
        let cold = self.cold(channel)?;
        let session = cold.session.as_ref().and_then(|session| session.principal.as_ref());
        session.or(cold.claim.as_ref())
    }

    /// REGISTER_CRED.
    ///
    /// # Errors
    /// As [`crate::CredentialTable::register`]; BAD_SESSION without a session.
    pub fn register_credentials(
        &mut self,
        channel: ChannelId,
        data: &CredentialData<'_>,
    ) -> Result<Registration, Status> {
        let (_, client) = self.ids(channel).ok_or(Status::BadSession)?;
        self.credentials.register(client, self.is_trusted(channel), data)
    }

    /// A lookup that [`Sessions::register_credentials`] asked for has come to an end, whatever
    /// has become of the session.
    ///
    /// # Errors
    /// As [`crate::CredentialTable::looked_up`].
    pub fn credentials_looked_up(
        &mut self,
        lookup: CredentialLookup,
        found: Option<Credentials>,
    ) -> Result<CredHandle, Status> {
        self.credentials.looked_up(lookup, found)
    }

    /// RELEASE_CRED.
    ///
    /// # Errors
    /// As [`crate::CredentialTable::release`]; BAD_SESSION without a session.
    pub fn release_credentials(
        &mut self,
        channel: ChannelId,
        handle: CredHandle,
    ) -> Result<(), Status> {
        let (_, client) = self.ids(channel).ok_or(Status::BadSession)?;
        self.credentials.release(client, self.is_trusted(channel), handle)
    }

    /// The numbers of registered credentials.
    #[must_use]
    pub fn credential_counters(&self) -> CredentialCounters {
        self.credentials.counters()
    }
}
