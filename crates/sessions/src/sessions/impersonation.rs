//! Requests that act for other users, with the registered credentials of a session's client (draft
//! 3.1.1.1.2, 6.2.8, 6.2.9).
//!
//! Invariant: a request that names credentials holds them from `admit` to `finish`.
//! `HotChannel::acting` counts such requests, so that requests with the session's own identity need
//! no further check.
//!
//! When a connection breaks, its requests release their credentials. A request that is still in
//! progress may finish with the identity with which it started, because no client gets its reply.

use dafs_filer::Principal;
use dafs_types::{ClientId, CredHandle, Credentials, SessionId, Status, StreamId};
use dafs_wire::messages::CredentialData;

use super::{Phase, Sessions};
use crate::{
    ChannelId, CredentialCounters, CredentialLookup, Registration, RequestClass, RequestHead,
};

impl Sessions {
    /// Makes the checks that depend on the client's identity. Reserves the registered credentials
    /// that the request names.
    #[cold]
    pub(super) fn check_identity(
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
                // Only a proof that expires can be renewed, and only one renewal at a time (draft
                // 3.1.1.1.1).
                RequestClass::Authenticate if session.expires.is_none() || cold.is_renewing => {
                    return Err(Status::IllegalState);
                }
                // An untrusted client must not register credentials (draft 3.1.1.1.2).
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

    /// Releases the credentials of a request that was replied to.
    #[cold]
    pub(super) fn end_acting(&mut self, channel: ChannelId, stream: StreamId) {
        let Some((hot, cold)) = self.live(channel) else { return };
        if let Some(place) = cold.acting.iter().position(|(other, _)| *other == stream) {
            let (_, held) = cold.acting.swap_remove(place);
            hot.acting -= 1;
            self.credentials.finish(held);
        }
    }

    /// Returns the identity that the request on a stream acts for. `None` if the request uses the
    /// session's own identity.
    #[must_use]
    pub fn acting_for(&self, channel: ChannelId, stream: StreamId) -> Option<&Credentials> {
        let held = self.cold(channel)?.acting.iter().find(|(other, _)| *other == stream);
        held.map(|(_, held)| self.credentials.credentials(held))
    }

    /// Returns the client that a session belongs to, even if the session has not authenticated.
    #[must_use]
    pub fn client_of_session(&self, session: SessionId) -> Option<ClientId> {
        let &index = self.by_id.get(&session)?;
        let cold = self.cold.get(index as usize)?.as_ref()?;
        Some(cold.session.as_ref()?.client_id)
    }

    /// Returns true if a channel's client is trusted.
    #[must_use]
    pub fn is_trusted(&self, channel: ChannelId) -> bool {
        let session = self.cold(channel).and_then(|cold| cold.session.as_ref());
        session.is_some_and(|session| session.trusted)
    }

    /// Returns the principal that a channel's client has authenticated as, or claims to be while it
    /// authenticates.
    #[must_use]
    pub fn principal(&self, channel: ChannelId) -> Option<&Principal> {
        let cold = self.cold(channel)?;
        let session = cold.session.as_ref().and_then(|session| session.principal.as_ref());
        session.or(cold.claim.as_ref())
    }

    /// Handles REGISTER_CRED on a channel.
    ///
    /// # Errors
    /// The errors of [`crate::CredentialTable::register`]; BAD_SESSION if the channel has no
    /// session.
    pub fn register_credentials(
        &mut self,
        channel: ChannelId,
        data: &CredentialData<'_>,
    ) -> Result<Registration, Status> {
        let (_, client) = self.ids(channel).ok_or(Status::BadSession)?;
        self.credentials.register(client, self.is_trusted(channel), data)
    }

    /// Reports the result of a lookup that [`Sessions::register_credentials`] has requested. It
    /// must be called even if the session has ended.
    ///
    /// # Errors
    /// The errors of [`crate::CredentialTable::looked_up`].
    pub fn credentials_looked_up(
        &mut self,
        lookup: CredentialLookup,
        found: Option<Credentials>,
    ) -> Result<CredHandle, Status> {
        self.credentials.looked_up(lookup, found)
    }

    /// Handles RELEASE_CRED on a channel.
    ///
    /// # Errors
    /// The errors of [`crate::CredentialTable::release`]; BAD_SESSION if the channel has no
    /// session.
    pub fn release_credentials(
        &mut self,
        channel: ChannelId,
        handle: CredHandle,
    ) -> Result<(), Status> {
        let (_, client) = self.ids(channel).ok_or(Status::BadSession)?;
        self.credentials.release(client, self.is_trusted(channel), handle)
    }

    /// Returns the present values of the counters of registered credentials.
    #[must_use]
    pub fn credential_counters(&self) -> CredentialCounters {
        self.credentials.counters()
    }
}
