//! Connecting and authentication (draft 3.1.1, 6.2.1, 6.2.2).
//!
//! Invariants:
//! - No message of a peer that has not authenticated changes the state of any client.
//! - A client's restart takes effect with the first request after its principal is proven, because
//!   only a client that is alive sends requests.

use dafs_filer::{
    BeginOutcome, ClientKey, EnterError, EnteringClient, FenceId, Filer, NFS4_NAME_PREFIX,
    NLM_NAME_PREFIX, Party, Principal,
};
use dafs_types::{
    AuthType, ClientId, Credentials, Entropy, Moment, SessionId, Status, Verifier, limits,
};

use super::{ColdChannel, Phase, Session, Sessions};
use crate::negotiate::{first_credits, negotiate};
use crate::{
    AuthDecision, AuthRequest, Authenticated, ChannelDescription, ChannelId, CloseReason,
    ConnectArguments, ConnectRefusal, ConnectResults, Negotiated, PROTOCOL_VERSION, PeerIdentity,
    Verified,
};

/// The number of random numbers drawn for one id. If all are unsuitable, the entropy source is
/// considered broken.
const DRAWS_MAX: u32 = 4;

impl Sessions {
    /// Handles CLIENT_CONNECT, or the connect part of CLIENT_CONNECT_AUTH.
    ///
    /// # Errors
    /// ILLEGAL_PROT for another protocol version; ILLEGAL_STATE for a second connect; INVAL for
    /// names that are empty or too long; RESOURCE if `entropy` returns repeated values.
    pub fn connect(
        &mut self,
        filer: &mut Filer,
        channel: ChannelId,
        arguments: &ConnectArguments<'_>,
        entropy: &mut dyn Entropy,
    ) -> Result<ConnectResults, ConnectRefusal> {
        self.try_connect(filer, channel, arguments, entropy).map_err(|status| {
            self.counters.connects_refused += 1;
            // The draft lets the server suggest only the next lower version (draft 6.1.3).
            let is_lower = PROTOCOL_VERSION <= arguments.protocol_version;
            let protocol_version = if is_lower { PROTOCOL_VERSION } else { 0 };
            ConnectRefusal { status, protocol_version }
        })
    }

    fn try_connect(
        &mut self,
        filer: &mut Filer,
        channel: ChannelId,
        arguments: &ConnectArguments<'_>,
        entropy: &mut dyn Entropy,
    ) -> Result<ConnectResults, Status> {
        let (hot, _) = self.live(channel).ok_or(Status::IllegalState)?;
        if hot.phase != Phase::Opened {
            return Err(Status::IllegalState);
        }
        if arguments.protocol_version != PROTOCOL_VERSION {
            return Err(Status::IllegalProt);
        }
        let name_length = 1..=limits::OWNER_BYTES_MAX;
        if !name_length.contains(&arguments.client_id_string.len()) {
            return Err(Status::Inval);
        }
        let fence_id = FenceId::new(arguments.fence_id)?;
        let session_id = draw(entropy, |id| !self.by_id.contains_key(&SessionId(id)))?;
        let (client_id, expects_record) = self.choose_client_id(filer, arguments, entropy)?;
        let hot = &mut self.hot[channel.index()];
        let (credits, desired) = first_credits(&self.config, &arguments.wanted);
        let credits = hot.window.begin(credits, desired, &mut self.budget);
        hot.phase = Phase::Connected;
        let mut granted = negotiate(&self.config, &arguments.wanted, credits);
        if let Some(agreed) = self.credentials.agreed(client_id) {
            // The number that the client's first session negotiated applies (draft 6.2.1).
            granted.max_credentials = agreed;
        }
        self.by_id.insert(SessionId(session_id), channel.index);
        if let Some(cold) = &mut self.cold[channel.index()] {
            cold.session = Some(Session {
                id: SessionId(session_id),
                client_id,
                granted,
                fence: filer.add_identity(fence_id),
                client_name: arguments.client_id_string.into(),
                client_verifier: arguments.client_verifier,
                order: arguments.order,
                expects_record,
                principal: None,
                trusted: false,
                expires: None,
                back_control: None,
                rdma_read: None,
            });
        }
        Ok(ConnectResults { session_id: SessionId(session_id), client_id, granted })
    }

    /// Returns the client id for the reply to the connect request. The flag is true if the filer
    /// has a record with this id (draft 3.1.1.3, cases A to C). No record is created before
    /// authentication.
    fn choose_client_id(
        &self,
        filer: &Filer,
        arguments: &ConnectArguments<'_>,
        entropy: &mut dyn Entropy,
    ) -> Result<(ClientId, bool), Status> {
        let (name, verifier) = (arguments.client_id_string, arguments.client_verifier);
        if let Some(id) = filer.id_of_incarnation(name, verifier) {
            return Ok((id, true));
        }
        // Two sessions of one client may be authenticating at the same time. They get the same id.
        let pending = self.pending_sessions().find(|s| s.is_for(name, verifier));
        if let Some(session) = pending
            && !session.expects_record
        {
            return Ok((session.client_id, false));
        }
        let fresh = |id| {
            let id = ClientId(id);
            !filer.has_client_id(id) && !self.pending_sessions().any(|s| s.client_id == id)
        };
        Ok((ClientId(draw(entropy, fresh)?), false))
    }

    /// Iterates over the sessions that have not authenticated.
    fn pending_sessions(&self) -> impl Iterator<Item = &Session> {
        let pending = |cold: &&ColdChannel| cold.credentials.is_none();
        self.cold.iter().flatten().filter(pending).filter_map(|cold| cold.session.as_ref())
    }

    /// Undoes [`Sessions::connect`] after the authentication part of CLIENT_CONNECT_AUTH has
    /// failed. The channel may connect again.
    pub fn connect_failed(&mut self, filer: &mut Filer, channel: ChannelId) {
        if self.live(channel).is_none() {
            return;
        }
        let hot = &mut self.hot[channel.index()];
        if !matches!(hot.phase, Phase::Connected | Phase::Verifying) {
            return;
        }
        hot.phase = Phase::Opened;
        hot.window.begin(1, 0, &mut self.budget);
        let cold = self.cold[channel.index()].as_mut();
        if let Some(session) = cold.and_then(|cold| cold.session.take()) {
            self.by_id.remove(&session.id);
            filer.remove_identity(session.fence);
        }
    }

    /// Handles the first step of CLIENT_AUTH; [`Sessions::finish_auth`] is the second step.
    pub fn begin_auth(&mut self, channel: ChannelId, request: AuthRequest<'_>) -> AuthDecision {
        let decision = self.decide_auth(channel, request);
        if matches!(decision, AuthDecision::Reject(_)) {
            self.counters.authentications_refused += 1;
        }
        decision
    }

    fn decide_auth(&mut self, channel: ChannelId, request: AuthRequest<'_>) -> AuthDecision {
        let proof = match self.cold(channel) {
            Some(cold) => self.determine_proof(&cold.peer, request),
            None => Err(Status::IllegalState),
        };
        let Some((hot, cold)) = self.live(channel) else {
            return AuthDecision::Reject(Status::IllegalState);
        };
        let awaited = std::mem::take(&mut cold.awaits_token);
        let is_next = matches!(request, AuthRequest::Gss { is_first: false });
        let Some(session) = &mut cold.session else {
            return AuthDecision::Reject(Status::IllegalState);
        };
        let is_renewal = matches!(hot.phase, Phase::Authenticated | Phase::Lapsed)
            && session.expires.is_some()
            && !cold.is_renewing;
        if hot.phase != Phase::Connected && !is_renewal || is_next && !awaited {
            return AuthDecision::Reject(Status::IllegalState);
        }
        let (principal, decision) = match proof {
            Ok(proof) => proof,
            Err(status) => return AuthDecision::Reject(status),
        };
        if is_renewal {
            if decision != AuthDecision::VerifyToken {
                // A proof that expires came from a token, so it can only be renewed with a token.
                return AuthDecision::Reject(Status::NotAuthorized);
            }
            cold.is_renewing = true;
        } else {
            session.principal = principal;
            hot.phase = Phase::Verifying;
        }
        decision
    }

    /// Returns the principal that a peer claims to be, and the next step of the authentication.
    pub(super) fn determine_proof(
        &self,
        peer: &PeerIdentity,
        request: AuthRequest<'_>,
    ) -> Result<(Option<Principal>, AuthDecision), Status> {
        match (request, peer, &self.config.authentication.anonymous) {
            (AuthRequest::None | AuthRequest::Default, PeerIdentity::Local(who), _) => {
                Ok((Some(Principal::LocalUser(who.uid())), AuthDecision::Accept(who.clone())))
            }
            (AuthRequest::None | AuthRequest::Default, PeerIdentity::Remote, Some(who)) => {
                Ok((Some(Principal::Anonymous), AuthDecision::Accept(who.clone())))
            }
            (AuthRequest::Text { user }, _, _) if self.config.authentication.text => {
                if user.is_empty() || user.len() > limits::OWNER_BYTES_MAX {
                    return Err(Status::Inval);
                }
                Ok((Some(Principal::User(user.into())), AuthDecision::VerifyPassword))
            }
            (AuthRequest::Gss { .. }, _, _) if self.config.authentication.gss => {
                Ok((None, AuthDecision::VerifyToken))
            }
            (AuthRequest::None | AuthRequest::Default, PeerIdentity::Remote, None)
            | (AuthRequest::Text { .. } | AuthRequest::Gss { .. }, _, _) => Err(Status::NotSupp),
        }
    }

    /// Records that the mechanism needs another token. The channel returns to its previous phase,
    /// in which it may send the token in an authentication request with CONTINUE.
    pub fn await_token(&mut self, channel: ChannelId) {
        let Some((hot, cold)) = self.live(channel) else { return };
        cold.awaits_token = true;
        cold.is_renewing = false;
        if hot.phase == Phase::Verifying {
            let is_binding = cold.binding.take().is_some();
            hot.phase = if is_binding { Phase::Opened } else { Phase::Connected };
        }
    }

    /// Finishes CLIENT_AUTH. `verified` is the result of the server's check, or the status with
    /// which the check failed (usually NOT_AUTHORIZED).
    ///
    /// A session that renews its proof continues with the credentials and the expiry of the new
    /// proof. If the renewal fails, the session keeps the credentials and the expiry of the old
    /// proof.
    ///
    /// # Errors
    /// The status for the reply: the status in `verified`; CLID_INUSE if the client's name belongs
    /// to another principal; NOT_AUTHORIZED if the session belongs to another principal;
    /// STALE_CLIENTID if the client's earlier state was lost after CONNECT; ILLEGAL_STATE without
    /// [`Sessions::begin_auth`].
    pub fn finish_auth(
        &mut self,
        filer: &mut Filer,
        channel: ChannelId,
        verified: Result<Verified, Status>,
        now: Moment,
    ) -> Result<Authenticated, Status> {
        let (hot, cold) = self.live(channel).ok_or(Status::IllegalState)?;
        hot.last_heard = now;
        let outcome = if std::mem::take(&mut cold.is_renewing) {
            verified.and_then(|verified| self.renew(channel, verified))
        } else if hot.phase == Phase::Verifying {
            verified.and_then(|verified| self.admit_client(filer, channel, verified))
        } else {
            return Err(Status::IllegalState);
        };
        if let Err(status) = &outcome {
            self.authentication_failed(channel, *status);
        }
        outcome
    }

    /// Accepts the first proof of identity in a session, and assigns the session to its client.
    fn admit_client(
        &mut self,
        filer: &mut Filer,
        channel: ChannelId,
        verified: Verified,
    ) -> Result<Authenticated, Status> {
        let credits_max = self.config.credits.session_max;
        let (_, cold) = self.live(channel).ok_or(Status::IllegalState)?;
        let session = cold.session.as_mut().ok_or(Status::IllegalState)?;
        if verified.principal.is_some() {
            session.principal = verified.principal;
        }
        let principal = session.principal.clone();
        if principal.is_some_and(|principal| !self.may_have_session(&principal)) {
            return Err(Status::Resource);
        }
        let client = self.assign_to_client(filer, channel)?;
        let session = self.cold(channel).and_then(|cold| cold.session.as_ref());
        let wanted = session.map(|session| (session.client_id, session.granted.max_credentials));
        let agreed = match wanted {
            Some((id, wanted)) if verified.trusted => self.credentials.join(id, wanted),
            // An untrusted client cannot register credentials, whatever was negotiated before.
            Some(_) | None => 0,
        };
        let has_begun = filer.has_begun(client);
        let (hot, cold) = self.live(channel).ok_or(Status::IllegalState)?;
        hot.phase = if has_begun { Phase::Authenticated } else { Phase::Proven };
        hot.client = client;
        hot.window.may_grow_to(credits_max);
        cold.credentials = Some(verified.who);
        if let Some(session) = &mut cold.session {
            session.trusted = verified.trusted;
            session.expires = verified.expires;
            session.granted.max_credentials = agreed;
        }
        self.set_client_weight(channel);
        self.settle_share(channel);
        self.authenticated_count += 1;
        self.begin_kept(channel);
        Ok(Authenticated { trusted: verified.trusted })
    }

    /// Renews the proof of identity of a session. The principal must stay the same (draft
    /// 3.1.1.1.1).
    fn renew(&mut self, channel: ChannelId, verified: Verified) -> Result<Authenticated, Status> {
        let (hot, cold) = self.live(channel).ok_or(Status::IllegalState)?;
        let session = cold.session.as_mut().ok_or(Status::IllegalState)?;
        if verified.principal.is_none() || session.principal != verified.principal {
            return Err(Status::NotAuthorized);
        }
        if hot.phase == Phase::Lapsed {
            hot.phase = Phase::Authenticated;
        }
        // The trust granted with the first proof is an upper bound: a renewal can remove it, but
        // not add it.
        session.trusted &= verified.trusted;
        session.expires = verified.expires;
        cold.credentials = Some(verified.who);
        cold.authentication_failures = 0;
        Ok(Authenticated { trusted: session.trusted })
    }

    /// Sets the credit weight of a session's client.
    fn set_client_weight(&mut self, channel: ChannelId) {
        let session = self.cold(channel).and_then(|cold| cold.session.as_ref());
        let weight =
            session.and_then(|session| self.config.credits.weights.get(&session.client_name));
        let weight = weight.copied().unwrap_or_default();
        self.hot[channel.index()].window.set_weight(weight, &mut self.budget);
    }

    /// Records a failed authentication. The channel may try again, up to
    /// [`crate::AuthPolicy::attempts_max`] failures.
    pub(super) fn authentication_failed(&mut self, channel: ChannelId, status: Status) {
        self.counters.authentications_refused += 1;
        let attempts_max = self.config.authentication.attempts_max;
        if let Some((hot, cold)) = self.live(channel) {
            if hot.phase == Phase::Verifying {
                let is_binding = cold.binding.take().is_some();
                hot.phase = if is_binding { Phase::Opened } else { Phase::Connected };
            }
            if status == Status::Delay {
                // The proof was not checked, because the queue of checks was full.
                return;
            }
            cold.authentication_failures += 1;
            if cold.authentication_failures >= attempts_max {
                hot.phase = Phase::Condemned;
                cold.close_reason = Some(CloseReason::AuthenticationFailed);
            }
        }
    }

    /// Assigns a session, whose principal has been proven, to its client (draft 3.1.1.3).
    fn assign_to_client(
        &mut self,
        filer: &mut Filer,
        channel: ChannelId,
    ) -> Result<ClientKey, Status> {
        let cold = self.cold(channel).ok_or(Status::IllegalState)?;
        let session = cold.session.as_ref().ok_or(Status::IllegalState)?;
        let is_foreign = |prefix: &[u8]| session.client_name.starts_with(prefix);
        if is_foreign(NFS4_NAME_PREFIX) || is_foreign(NLM_NAME_PREFIX) {
            return Err(Status::ClidInUse);
        }
        let id = session.client_id;
        let entering = EnteringClient {
            id,
            name: &session.client_name,
            verifier: session.client_verifier,
            principal: session.principal.as_ref().ok_or(Status::IllegalState)?,
            holder: cold.holder,
            expects_record: session.expects_record,
            ends_reclaims_itself: false,
        };
        let entered = filer.client_enter(&entering).map_err(|refused| match refused {
            EnterError::NameTaken => Status::ClidInUse,
            EnterError::StateLost => Status::StaleClientId,
        })?;
        // All other sessions that were given this client id rely on the record from now on.
        for other in self.cold.iter_mut().flatten().filter_map(|cold| cold.session.as_mut()) {
            other.expects_record |= other.client_id == id;
        }
        Ok(entered)
    }

    /// Begins a client's incarnation, unless another session of the client has already begun it,
    /// and ends the previous incarnation. Must be called at the first request of an authenticated
    /// session, or when the session has existed for so long that its client must be alive. If the
    /// filer refuses the incarnation, condemns the client's channels and returns false.
    #[cold]
    pub(super) fn begin_incarnation(
        &mut self,
        filer: &mut Filer,
        channel: ChannelId,
        now: Moment,
    ) -> bool {
        let Some((hot, _)) = self.live(channel) else { return false };
        let client = hot.client;
        hot.phase = Phase::Authenticated;
        let BeginOutcome { before, is_refused } = filer.client_begin(client, now);
        let ended = before.into_iter().chain(is_refused.then_some(client));
        ended.for_each(|client| self.condemn_sessions(client));
        self.forget_ended(filer);
        !is_refused
    }

    /// Condemns the channels of a client: they refuse all further requests, and the server must
    /// close them.
    fn condemn_sessions(&mut self, client: ClientKey) {
        for (index, hot) in self.hot.iter_mut().enumerate() {
            if hot.client == client {
                hot.client = ClientKey::NONE;
                hot.phase = Phase::Condemned;
                let generation = hot.generation;
                self.condemned.push(ChannelId { index: index as u32, generation });
            }
        }
    }

    /// Removes and returns the channels of incarnations that have ended since the last call. The
    /// server must close them. [`Filer::take_released`] returns the opens that were held in these
    /// incarnations.
    pub fn take_condemned(&mut self) -> Vec<ChannelId> {
        std::mem::take(&mut self.condemned)
    }

    /// Sets whether clients may authenticate by password from now on.
    pub fn set_offers_passwords(&mut self, is_offered: bool) {
        self.config.authentication.text = is_offered;
    }

    /// Returns the authentication types that a channel may use, for the results of SECINFO.
    #[must_use]
    pub fn auth_types(&self, channel: ChannelId) -> Vec<AuthType> {
        let Some(cold) = self.cold(channel) else { return Vec::new() };
        let is_local = matches!(cold.peer, PeerIdentity::Local(_));
        let without_proof = is_local || self.config.authentication.anonymous.is_some();
        let mut types = Vec::new();
        if without_proof {
            types.extend([AuthType::None, AuthType::Default]);
        }
        if self.config.authentication.text {
            types.push(AuthType::Text);
        }
        if self.config.authentication.gss {
            types.push(AuthType::Gss);
        }
        types
    }

    /// Iterates over the operation channels of a client's sessions.
    pub fn of_client(&self, client: ClientId) -> impl Iterator<Item = ChannelId> + '_ {
        self.hot.iter().zip(&self.cold).enumerate().filter_map(move |(index, (hot, cold))| {
            let session = cold.as_ref()?.session.as_ref()?;
            let of_client = hot.client != ClientKey::NONE && session.client_id == client;
            let is_open = matches!(hot.phase, Phase::Authenticated | Phase::Lapsed);
            let id = ChannelId { index: index as u32, generation: hot.generation };
            (of_client && is_open).then_some(id)
        })
    }

    /// Returns the caller of a channel's requests. The `client` of the caller is
    /// [`ClientKey::NONE`] unless the channel is authenticated.
    #[must_use]
    pub fn party_of(&self, channel: ChannelId) -> Party {
        let Some(cold) = self.cold(channel) else { return Party::default() };
        let hot = &self.hot[channel.index()];
        let is_client = hot.phase == Phase::Authenticated;
        let client = if is_client { hot.client } else { ClientKey::NONE };
        Party { client, fence: cold.session.as_ref().map(|session| session.fence) }
    }

    /// Returns the credentials with which requests of this channel are executed. `None` before
    /// authentication.
    #[must_use]
    pub fn credentials(&self, channel: ChannelId) -> Option<&Credentials> {
        self.cold(channel)?.credentials.as_ref()
    }

    /// Returns the values that CONNECT has negotiated. `None` before CONNECT.
    #[must_use]
    pub fn negotiated(&self, channel: ChannelId) -> Option<&Negotiated> {
        Some(&self.cold(channel)?.session.as_ref()?.granted)
    }

    /// Returns the session id and the client id of a channel. `None` before CONNECT.
    #[must_use]
    pub fn ids(&self, channel: ChannelId) -> Option<(SessionId, ClientId)> {
        let session = self.cold(channel)?.session.as_ref()?;
        Some((session.id, session.client_id))
    }

    /// Returns the description of the channel that was in the connection's private data.
    #[must_use]
    pub fn description(&self, channel: ChannelId) -> Option<ChannelDescription> {
        Some(self.cold(channel)?.description)
    }
}

impl Session {
    fn is_for(&self, name: &[u8], verifier: Verifier) -> bool {
        &*self.client_name == name && self.client_verifier == verifier
    }
}

/// Draws a random number that is not zero and that `fresh` accepts.
fn draw(entropy: &mut dyn Entropy, fresh: impl Fn(u64) -> bool) -> Result<u64, Status> {
    (0..DRAWS_MAX)
        .map(|_| entropy.next_u64())
        .find(|&number| number != 0 && fresh(number))
        .ok_or(Status::Resource)
}
