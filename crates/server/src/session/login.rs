//! Connecting, logging in and leaving.

use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::{
    AuthDecision, BindArguments, ChannelKind, ConnectArguments, ConnectResults, Negotiated,
    Succession, Verified,
};
use dafs_journal::RecordNumber;
use dafs_types::{AuthType, ClientId, Credentials, SessionId, Status};
use dafs_wire::messages::{
    AuthMethod, AuthRequest as WireAuth, AuthResult, ChannelUse, ClientAuth, ClientAuthResult,
    ClientConnect, ClientConnectAuth, ClientConnectAuthResult, ClientConnectResult, ConnectBind,
    Empty, SecurityMethods, SessionOptions,
};
use dafs_wire::{Array, RequestHeader, Response};

use super::{PendingLogin, Proof, Purpose, asked, brings_results, options, wanted};
use crate::back::BackSizes;
use crate::caller::{Asker, View};
use crate::jobs::Job;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::respond::ReplyStatus;
use crate::{authorize, gss};

impl Reactor {
    pub(crate) fn client_connect(
        &mut self,
        answer: ReplyTo,
        header: &RequestHeader,
        request: &ClientConnect<'_>,
    ) -> Result<(), Status> {
        let arguments = ConnectArguments {
            protocol_version: header.version,
            wanted: self.wanted(answer, &request.options),
            fence_id: request.fence_id,
            client_id_string: request.client_string,
            client_verifier: request.verifier,
            order: self.order_of(answer.endpoint).ok_or(Status::BadSession)?,
        };
        let Some(results) = self.try_connect(answer, &arguments) else { return Ok(()) };
        let response = Response::ClientConnect(ClientConnectResult {
            session: results.session_id,
            client: results.client_id,
            options: options(&results.granted),
        });
        self.reply(answer, &response);
        self.apply(answer.endpoint, &results);
        Ok(())
    }

    pub(crate) fn client_connect_auth(
        &mut self,
        answer: ReplyTo,
        header: &RequestHeader,
        request: &ClientConnectAuth<'_>,
    ) -> Result<(), Status> {
        let arguments = ConnectArguments {
            protocol_version: header.version,
            wanted: self.wanted(answer, &request.options),
            fence_id: request.fence_id,
            client_id_string: request.client_string,
            client_verifier: request.verifier,
            order: self.order_of(answer.endpoint).ok_or(Status::BadSession)?,
        };
        let Some(results) = self.try_connect(answer, &arguments) else { return Ok(()) };
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let decision = self.filer.begin_auth(id, asked(&request.authentication));
        self.authenticate(answer, &request.authentication, decision, Purpose::Connected(results))
    }

    pub(crate) fn client_auth(
        &mut self,
        answer: ReplyTo,
        request: &ClientAuth<'_>,
    ) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let decision = self.filer.begin_auth(id, asked(&request.authentication));
        self.authenticate(answer, &request.authentication, decision, Purpose::Session)
    }

    pub(crate) fn connect_bind(
        &mut self,
        answer: ReplyTo,
        header: &RequestHeader,
        request: &ConnectBind<'_>,
    ) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let arguments = BindArguments {
            protocol_version: header.version,
            session: request.session,
            kind: match request.channel_use {
                ChannelUse::BackControl => ChannelKind::BackControl,
                ChannelUse::RdmaRead => ChannelKind::RdmaRead,
            },
            proof: asked(&request.authentication),
        };
        let sizes = BackSizes::grant(request, self.filer.config().credits_session_max);
        let decision = self.filer.begin_bind(id, &arguments);
        self.authenticate(
            answer,
            &request.authentication,
            decision,
            Purpose::Channel(request.session, sizes),
        )
    }

    /// What a client wishes for; requests no larger than the room for them.
    fn wanted(&self, answer: ReplyTo, options: &SessionOptions) -> Negotiated {
        let mut wanted = wanted(options);
        if let Some(channel) = self.channels.get(answer.endpoint) {
            wanted.max_request_size = wanted.max_request_size.min(channel.inbox.slot_bytes());
        }
        wanted
    }

    /// Makes a session; a refusal is answered here, since it may name a version.
    fn try_connect(
        &mut self,
        answer: ReplyTo,
        arguments: &ConnectArguments<'_>,
    ) -> Option<ConnectResults> {
        let id = self.channels.get(answer.endpoint)?.id;
        match self.filer.connect(id, arguments, self.entrance.entropy()) {
            Ok(results) => Some(results),
            Err(refusal) if refusal.status == Status::IllegalProt => {
                self.refuse_version(answer, refusal.status, refusal.protocol_version);
                None
            }
            Err(refusal) => {
                self.fail(answer, refusal.status);
                None
            }
        }
    }

    fn authenticate(
        &mut self,
        answer: ReplyTo,
        request: &WireAuth<'_>,
        decision: AuthDecision,
        purpose: Purpose,
    ) -> Result<(), Status> {
        match (decision, request) {
            (AuthDecision::Accept(credentials), _) => {
                let result = if matches!(request, WireAuth::None) {
                    AuthResult::None
                } else {
                    AuthResult::Default
                };
                let proof = self.proof(answer, credentials, AuthType::None);
                self.finish_login(answer, purpose, proof, result);
                Ok(())
            }
            (AuthDecision::VerifyPassword, WireAuth::Text { identity, password }) => {
                if let Some(channel) = self.channels.get_mut(answer.endpoint) {
                    channel.pending_login = Some(PendingLogin { answer, purpose });
                }
                let job = Job::Login {
                    endpoint: answer.endpoint,
                    user: (*identity).to_owned(),
                    password: (*password).to_owned(),
                    file: self.entrance.passwords(),
                };
                self.submit_login((answer.endpoint, Some(*identity)), job);
                Ok(())
            }
            (AuthDecision::VerifyToken, WireAuth::Gss { procedure, service, token }) => {
                let begun = self.begin_token(answer, (*procedure, *service), token, purpose);
                begun.or_else(|status| {
                    self.finish_login(answer, purpose, Err(status), AuthResult::None);
                    Ok(())
                })
            }
            (AuthDecision::VerifyPassword | AuthDecision::VerifyToken, _) => {
                Err(Status::ServerFault)
            }
            (AuthDecision::Reject(status), _) => {
                self.undo_connect(answer, &purpose);
                Err(status)
            }
        }
    }

    /// The second half of CLIENT_CONNECT_AUTH failed.
    fn undo_connect(&mut self, answer: ReplyTo, purpose: &Purpose) {
        if let (Purpose::Connected(_), Some(channel)) =
            (purpose, self.channels.get(answer.endpoint))
        {
            self.filer.connect_failed(channel.id);
        }
    }

    /// A password has been checked.
    pub(crate) fn on_login(&mut self, endpoint: EndpointId, outcome: Result<Credentials, Status>) {
        self.note_login(endpoint, outcome.as_ref().err().copied());
        self.end_login(endpoint, outcome);
    }

    /// Has a password or token checked. Whoever finds no room is told to try later.
    pub(super) fn submit_login(&mut self, whose: (EndpointId, Option<&str>), job: Job) {
        let refused = self.entrance.logins().submit(&self.channels, whose, job, self.life.now());
        if let Some(refused) = refused {
            self.end_login(refused, Err(Status::Delay));
        }
        self.entrance.logins().give(&mut self.pool, self.life.now());
    }

    /// A check has come back. Whether its failure is to be logged.
    pub(super) fn note_login(&mut self, endpoint: EndpointId, failed: Option<Status>) -> bool {
        let logins = self.entrance.logins();
        let is_told = logins.note(&self.channels, endpoint, failed, self.life.now());
        logins.give(&mut self.pool, self.life.now());
        is_told
    }

    /// What somebody waits for who has named a user, or who has shown a token in vain.
    pub(crate) fn end_login(&mut self, endpoint: EndpointId, outcome: Result<Credentials, Status>) {
        let Some(channel) = self.channels.get_mut(endpoint) else { return };
        let Some(PendingLogin { answer, purpose }) = channel.pending_login.take() else { return };
        let proof = outcome.and_then(|who| self.proof(answer, who, AuthType::Text));
        self.finish_login(answer, purpose, proof, AuthResult::Text);
    }

    /// Whom the request itself says it is, and that has been checked.
    fn proof(&self, answer: ReplyTo, who: Credentials, how: AuthType) -> Result<Proof, Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let principal = self.filer.principal(id).cloned().ok_or(Status::IllegalState)?;
        Ok(Proof { principal, credentials: who, how, lifetime: None })
    }

    /// What the rules say of a client that has proved who it is.
    fn judge(
        &mut self,
        endpoint: EndpointId,
        proof: Proof,
    ) -> Result<(Verified, Arc<View>), Status> {
        let channel = self.channels.get(endpoint).ok_or(Status::BadSession)?;
        let Proof { principal, credentials: who, how, lifetime } = proof;
        let verdict = match self.entrance.judge(&channel.peer, &principal, how) {
            Ok(verdict) => verdict,
            Err(refusal) => {
                let by = authorize::named(how);
                tracing::warn!(%principal, from = %channel.peer, by, %refusal, "not let in");
                return Err(Status::NotAuthorized);
            }
        };
        let view = self.entrance.view(verdict.terms);
        let expires = lifetime.map(|lifetime| self.life.now().after(lifetime));
        let principal = Some(principal);
        Ok((Verified { who, principal, trusted: verdict.trusted, expires }, view))
    }

    pub(super) fn finish_login(
        &mut self,
        answer: ReplyTo,
        purpose: Purpose,
        proof: Result<Proof, Status>,
        result: AuthResult<'_>,
    ) {
        let Some(channel) = self.channels.get(answer.endpoint) else { return };
        let id = channel.id;
        let how = proof.as_ref().map_or(AuthType::None, |proof| proof.how);
        let judged = proof.and_then(|proof| self.judge(answer.endpoint, proof));
        let (verified, view) = match judged {
            Ok((verified, view)) => (Ok(verified), Some(view)),
            Err(status) => (Err(status), None),
        };
        if let Purpose::Channel(_, sizes) = purpose {
            return self.finish_bind(answer, verified, sizes, result);
        }
        let is_renewal = self.filer.credentials(id).is_some();
        let finished = self.filer.finish_auth(id, verified, self.life.now());
        self.know(answer.endpoint);
        let outcome = match finished {
            Ok(outcome) => outcome,
            Err(status) => {
                self.undo_connect(answer, &purpose);
                let told = ReplyStatus::now(status);
                return self.answer_login(answer, &purpose, told, result, false);
            }
        };
        self.files().act_on_locks();
        if let (Some(view), Some(who)) = (view, self.filer.credentials(id).cloned())
            && let Some(channel) = self.channels.get_mut(answer.endpoint)
        {
            let (uid, by, trusted) = (who.uid(), authorize::named(how), outcome.trusted);
            let principal = self.filer.principal(id).map(ToString::to_string);
            let principal = principal.as_deref().unwrap_or_default();
            let from = &channel.peer;
            tracing::info!(%from, principal, uid, by, trusted, "session established");
            channel.who = Arc::new(Asker::new(who, &view));
        }
        // Whoever knows the session may ask for it in the server's next life.
        let after = if is_renewal { RecordNumber(0) } else { self.note_session(id) };
        let told = ReplyStatus::ok_after(after);
        self.answer_login(answer, &purpose, told, result, outcome.trusted);
        if let Purpose::Connected(results) = purpose {
            self.apply(answer.endpoint, &results);
        }
    }

    /// Lives of clients have begun: what those before had is given up.
    #[cold]
    pub(crate) fn succeed(&mut self) {
        let Succession { released, close } = self.filer.take_succession();
        self.files().act_on_locks();
        for closed in &released {
            self.files().release_open(closed);
        }
        for channel in close {
            if let Some(endpoint) = self.channels.endpoint_of(channel) {
                self.know(endpoint);
                self.give_up(endpoint);
            }
        }
    }

    /// A connection takes over who it is by now, in the eyes of the filer.
    pub(crate) fn know(&mut self, endpoint: EndpointId) {
        if let Some(channel) = self.channels.get_mut(endpoint) {
            channel.know(&self.filer);
        }
    }

    /// Answers an authentication, in whichever request it came. A refusal says no more than
    /// its status, unless a token tells an honest client what to do.
    pub(super) fn answer_login(
        &mut self,
        answer: ReplyTo,
        purpose: &Purpose,
        told: ReplyStatus,
        authentication: AuthResult<'_>,
        trusted: bool,
    ) {
        if !brings_results(told.status, &authentication) {
            return self.fail(answer, told.status);
        }
        let is_refusal = told.status == Status::NotAuthorized;
        let response = match purpose {
            Purpose::Session => Response::ClientAuth(ClientAuthResult { authentication, trusted }),
            Purpose::Connected(results) if !is_refusal => {
                let granted = self.channels.get(answer.endpoint);
                let granted = granted.and_then(|channel| self.filer.negotiated(channel.id));
                Response::ClientConnectAuth(ClientConnectAuthResult {
                    session: results.session_id,
                    client: results.client_id,
                    options: options(granted.unwrap_or(&results.granted)),
                    authentication,
                    trusted,
                })
            }
            // There is no session.
            Purpose::Connected(_) => Response::ClientConnectAuth(ClientConnectAuthResult {
                session: SessionId(0),
                client: ClientId(0),
                options: SessionOptions::default(),
                authentication,
                trusted,
            }),
            Purpose::Channel(_, sizes) => {
                Response::ConnectBind(sizes.result(authentication, trusted))
            }
        };
        self.respond(answer, told, &response);
    }

    /// From the next message on the negotiated values hold; never for the connect
    /// exchange itself.
    fn apply(&mut self, endpoint: EndpointId, results: &ConnectResults) {
        if let Some(channel) = self.channels.get_mut(endpoint) {
            channel.checksums = results.granted.use_checksums != 0;
            channel.response_bytes_max = results.granted.max_response_size as usize;
        }
    }

    pub(crate) fn security_info(&mut self, answer: ReplyTo) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let methods: Vec<AuthMethod<'_>> = self
            .filer
            .auth_types(id)
            .into_iter()
            .map(|kind| match kind {
                AuthType::None => AuthMethod::None,
                AuthType::Text => AuthMethod::Text,
                AuthType::Default => AuthMethod::Default,
                AuthType::Gss => gss::method(),
            })
            .collect();
        let methods = Array::from(methods.as_slice());
        self.reply(answer, &Response::SecInfo(SecurityMethods { methods }));
        Ok(())
    }

    /// Whoever leaves has nothing to take back from the next server: that is durable before
    /// it is answered.
    pub(crate) fn disconnect(&mut self, answer: ReplyTo) -> Result<(), Status> {
        let channel = self.channels.get_mut(answer.endpoint).ok_or(Status::BadSession)?;
        // The client closes once it has the answer; `on_tick` is the backstop.
        channel.closing = Some(self.life.now());
        let id = channel.id;
        let released = self.filer.depart(id, self.life.now());
        self.know(answer.endpoint);
        for closed in released {
            self.files().release_open(&closed);
        }
        let after = self.files().act_on_locks().max(self.files().note_forgotten());
        self.respond(answer, ReplyStatus::ok_after(after), &Response::Disconnect(Empty));
        self.interface.flush();
        Ok(())
    }
}
