//! Connects, logs in and disconnects clients.

use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::Principal;
use dafs_files::caller::Identity;
use dafs_journal::RecordNumber;
use dafs_sessions::{
    AuthDecision, BindArguments, ChannelId, ChannelKind, ConnectArguments, ConnectResults,
};
use dafs_types::{AuthType, Credentials, Status, Verifier};
use dafs_wire::messages::{
    AuthRequest as WireAuth, AuthResult, ChannelUse, ClientAuth, ClientConnect, ClientConnectAuth,
    ClientConnectResult, ConnectBind, Empty, GssProcedure, GssService, SecurityMethods, ServerAuth,
    ServerAuthResult, SessionOptions,
};
use dafs_wire::{Array, RequestHeader, Response};

use super::proof::{auth_methods, login_response};
use super::tokens::{self, TokenEnd};
use super::{PendingLogin, Proof, Purpose, asked, brings_results, options, wanted};
use crate::access::gss::{self, TokenOutcome};
use crate::access::rule_text;
use crate::pool::jobs::Job;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::requests::respond::ReplyStatus;
use crate::session::back::BackSizes;

impl Reactor<'_> {
    /// Handles CLIENT_CONNECT.
    pub(crate) fn client_connect(
        &mut self,
        answer: ReplyTo,
        header: &RequestHeader,
        request: &ClientConnect<'_>,
    ) -> Result<(), Status> {
        let ClientConnect { fence_id, client_string, verifier, options: wishes, .. } = request;
        let client = (*fence_id, *client_string, *verifier);
        let Some(results) = self.connect(answer, header.version, wishes, client)? else {
            return Ok(());
        };
        let response = Response::ClientConnect(ClientConnectResult {
            session: results.session_id,
            client: results.client_id,
            options: options(&results.granted),
        });
        self.reply(answer, &response);
        self.apply(answer.endpoint, &results);
        Ok(())
    }

    /// Handles CLIENT_CONNECT_AUTH.
    pub(crate) fn client_connect_auth(
        &mut self,
        answer: ReplyTo,
        header: &RequestHeader,
        request: &ClientConnectAuth<'_>,
    ) -> Result<(), Status> {
        let ClientConnectAuth { fence_id, client_string, verifier, options: wishes, .. } = request;
        let client = (*fence_id, *client_string, *verifier);
        let Some(results) = self.connect(answer, header.version, wishes, client)? else {
            return Ok(());
        };
        let id = self.channel_id(answer)?;
        self.refresh_auth_types();
        let decision = self.shared.sessions.begin_auth(id, asked(&request.authentication));
        self.authenticate(answer, &request.authentication, decision, Purpose::Connected(results))
    }

    /// Creates a session for a client. The client is identified by its fence identity, name and
    /// verifier. If the session is refused, this function replies itself, because the reply may
    /// have to contain a version.
    fn connect(
        &mut self,
        answer: ReplyTo,
        protocol_version: u32,
        wishes: &SessionOptions,
        (fence_id, client_id_string, client_verifier): (&str, &[u8], Verifier),
    ) -> Result<Option<ConnectResults>, Status> {
        let channel = self.shared.channels.get(answer.endpoint).ok_or(Status::BadSession)?;
        let mut wanted = wanted(wishes);
        // A request must fit into a slot of the inbox.
        wanted.max_request_size = wanted.max_request_size.min(channel.inbox.slot_bytes());
        let order = channel.order.ok_or(Status::BadSession)?;
        let arguments = ConnectArguments {
            protocol_version,
            wanted,
            fence_id,
            client_id_string,
            client_verifier,
            order,
        };
        match self.shared.sessions.connect(
            &mut self.shared.filer,
            channel.id,
            &arguments,
            self.shared.entrance.entropy(),
        ) {
            Ok(results) => return Ok(Some(results)),
            Err(refusal) if refusal.status == Status::IllegalProt => {
                self.refuse_version(answer, refusal.status, refusal.protocol_version);
            }
            Err(refusal) => self.fail(answer, refusal.status),
        }
        Ok(None)
    }

    pub(crate) fn client_auth(
        &mut self,
        answer: ReplyTo,
        request: &ClientAuth<'_>,
    ) -> Result<(), Status> {
        let id = self.channel_id(answer)?;
        self.refresh_auth_types();
        let decision = self.shared.sessions.begin_auth(id, asked(&request.authentication));
        self.authenticate(answer, &request.authentication, decision, Purpose::Session)
    }

    pub(crate) fn connect_bind(
        &mut self,
        answer: ReplyTo,
        header: &RequestHeader,
        request: &ConnectBind<'_>,
    ) -> Result<(), Status> {
        let id = self.channel_id(answer)?;
        let arguments = BindArguments {
            protocol_version: header.version,
            session: request.session,
            kind: match request.channel_use {
                ChannelUse::BackControl => ChannelKind::BackControl,
                ChannelUse::RdmaRead => ChannelKind::RdmaRead,
            },
            proof: asked(&request.authentication),
        };
        let sizes = BackSizes::grant(request, self.shared.sessions.config().credits.session_max);
        let decision = self.shared.sessions.begin_bind(id, &arguments);
        self.authenticate(
            answer,
            &request.authentication,
            decision,
            Purpose::Channel(request.session, sizes),
        )
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
                let proof = self.channel_id(answer);
                let proof = proof.and_then(|id| {
                    Proof::of(&self.shared.sessions, id, credentials, AuthType::None)
                });
                self.finish_login(answer, purpose, proof, result);
                Ok(())
            }
            (AuthDecision::VerifyPassword, WireAuth::Text { identity, password }) => {
                if let Some(channel) = self.shared.channels.get_mut(answer.endpoint) {
                    channel.pending_login = Some(PendingLogin { answer, purpose });
                }
                let job = Job::Login {
                    endpoint: answer.endpoint,
                    user: (*identity).to_owned(),
                    password: (*password).to_owned(),
                    file: self.shared.entrance.passwords(),
                };
                self.submit_login((answer.endpoint, Some(*identity)), job);
                Ok(())
            }
            (AuthDecision::VerifyToken, WireAuth::Gss { procedure, service, token }) => {
                match self
                    .begin_token(PendingLogin { answer, purpose }, (*procedure, *service, token))
                {
                    Ok(job) => self.submit_login((answer.endpoint, None), job),
                    Err(status) => {
                        self.finish_login(answer, purpose, Err(status), AuthResult::None);
                    }
                }
                Ok(())
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

    /// Updates the offered types of authentication, because a reload may have replaced the password
    /// file.
    fn refresh_auth_types(&mut self) {
        let is_offered = self.shared.entrance.offers_passwords();
        self.shared.sessions.set_offers_passwords(is_offered);
    }

    /// Removes the session that a CLIENT_CONNECT_AUTH request has created, because the
    /// authentication in the same request has failed.
    fn undo_connect(&mut self, answer: ReplyTo, purpose: &Purpose) {
        if let (Purpose::Connected(_), Some(channel)) =
            (purpose, self.shared.channels.get(answer.endpoint))
        {
            self.shared.sessions.connect_failed(&mut self.shared.filer, channel.id);
        }
    }

    fn begin_token(
        &mut self,
        pending: PendingLogin,
        sent: (GssProcedure, GssService, &[u8]),
    ) -> Result<Job, Status> {
        let kerberos = self.shared.entrance.kerberos().ok_or(Status::NotSupp)?;
        let channel =
            self.shared.channels.get_mut(pending.answer.endpoint).ok_or(Status::BadSession)?;
        tokens::begin_token(kerberos, &self.shared.sessions, channel, pending, sent)
    }

    /// Handles the result of a token check. If the token was refused, logs that, and the client's
    /// next check is delayed.
    pub(crate) fn on_token(&mut self, endpoint: EndpointId, outcome: TokenOutcome) {
        if self.note_login(endpoint, tokens::failure_of(&outcome)) {
            tokens::log_failure(&self.shared.channels.origin_of(endpoint), &outcome);
        }
        let Some(channel) = self.shared.channels.get_mut(endpoint) else { return };
        let Some(PendingLogin { answer, purpose }) = channel.pending_login.take() else { return };
        match tokens::end_token(&mut self.shared.sessions, channel, purpose, outcome) {
            TokenEnd::Continue(token) => {
                let result =
                    AuthResult::Gss { major: gss::CONTINUE_NEEDED, minor: 0, token: &token };
                let told = ReplyStatus::now(Status::GssContinueInit);
                self.answer_login(answer, &purpose, told, result, false);
            }
            TokenEnd::Over { proof, major, minor, token } => {
                let result = AuthResult::Gss { major, minor, token: &token };
                self.finish_login(answer, purpose, proof, result);
            }
        }
    }

    /// Handles SERVER_AUTH, by which a client asks for proof of the server's identity.
    pub(crate) fn server_auth(
        &mut self,
        answer: ReplyTo,
        request: &ServerAuth,
    ) -> Result<(), Status> {
        let id = self.channel_id(answer)?;
        let by_token = matches!(self.shared.sessions.principal(id), Some(Principal::Gss(_)));
        let proof = tokens::server_proof(by_token, request.auth_type)?;
        self.reply(answer, &Response::ServerAuth(ServerAuthResult { proof }));
        Ok(())
    }

    /// Handles the result of a password check.
    pub(crate) fn on_login(&mut self, endpoint: EndpointId, outcome: Result<Credentials, Status>) {
        self.note_login(endpoint, outcome.as_ref().err().copied());
        self.end_login(endpoint, outcome);
    }

    /// Submits the check of a password or token. If a check was refused because the queue is full,
    /// replies to its client that it should try later.
    fn submit_login(&mut self, whose: (EndpointId, Option<&str>), job: Job) {
        let refused = self.shared.entrance.logins().submit(
            &self.shared.channels,
            whose,
            job,
            self.shared.life.now(),
        );
        if let Some(refused) = refused {
            self.end_login(refused, Err(Status::Delay));
        }
        self.shared.entrance.logins().give(&mut self.shared.pool, self.shared.life.now());
    }

    /// Records the end of a check. Returns true if the failure must be logged.
    fn note_login(&mut self, endpoint: EndpointId, failed: Option<Status>) -> bool {
        let logins = self.shared.entrance.logins();
        let is_told = logins.note(&self.shared.channels, endpoint, failed, self.shared.life.now());
        logins.give(&mut self.shared.pool, self.shared.life.now());
        is_told
    }

    /// Returns the filer's channel id of the connection that a request came over.
    fn channel_id(&self, to: ReplyTo) -> Result<ChannelId, Status> {
        Ok(self.shared.channels.get(to.endpoint).ok_or(Status::BadSession)?.id)
    }

    /// Ends a login by password. Also ends a login by token if the check of the token was refused
    /// because the queue of checks is full.
    pub(crate) fn end_login(&mut self, endpoint: EndpointId, outcome: Result<Credentials, Status>) {
        let Some(channel) = self.shared.channels.get_mut(endpoint) else { return };
        let Some(PendingLogin { answer, purpose }) = channel.pending_login.take() else { return };
        let id = channel.id;
        let proof =
            outcome.and_then(|who| Proof::of(&self.shared.sessions, id, who, AuthType::Text));
        self.finish_login(answer, purpose, proof, AuthResult::Text);
    }

    fn finish_login(
        &mut self,
        answer: ReplyTo,
        purpose: Purpose,
        proof: Result<Proof, Status>,
        result: AuthResult<'_>,
    ) {
        let Some(channel) = self.shared.channels.get(answer.endpoint) else { return };
        let (id, now) = (channel.id, self.shared.life.now());
        let how = proof.as_ref().map_or(AuthType::None, |proof| proof.how);
        let apply_rules = proof
            .and_then(|proof| proof.apply_rules(&mut self.shared.entrance, &channel.peer, now));
        let (verified, view) = match apply_rules {
            Ok((verified, view)) => (Ok(verified), Some(view)),
            Err(status) => (Err(status), None),
        };
        if let Purpose::Channel(_, sizes) = purpose {
            return self.finish_bind(answer, verified, sizes, result);
        }
        let is_renewal = self.shared.sessions.credentials(id).is_some();
        let finished = self.shared.sessions.finish_auth(
            &mut self.shared.filer,
            id,
            verified,
            self.shared.life.now(),
        );
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
        if let (Some(view), Some(who)) = (view, self.shared.sessions.credentials(id).cloned())
            && let Some(channel) = self.shared.channels.get_mut(answer.endpoint)
        {
            let (uid, by, trusted) = (who.uid(), rule_text::named(how), outcome.trusted);
            let principal = self.shared.sessions.principal(id).map(ToString::to_string);
            let principal = principal.as_deref().unwrap_or_default();
            let from = &channel.peer;
            tracing::info!(%from, principal, uid, by, trusted, "session established");
            channel.who = Arc::new(Identity::new(who, &view));
        }
        // A client that knows its session id may query the session in the server's next
        // incarnation, so the record of the session must be durable before the reply.
        let after = if is_renewal { RecordNumber(0) } else { self.note_session(id) };
        let told = ReplyStatus::ok_after(after);
        self.answer_login(answer, &purpose, told, result, outcome.trusted);
        if let Purpose::Connected(results) = purpose {
            self.apply(answer.endpoint, &results);
        }
    }

    /// Replies to an authentication, in the form of the request that contained it. A refusal
    /// contains only a status, unless it contains a token that tells an honest client what to do.
    fn answer_login(
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
        let granted = self.shared.channels.get(answer.endpoint);
        let granted = granted.and_then(|channel| self.shared.sessions.negotiated(channel.id));
        let is_refusal = told.status == Status::NotAuthorized;
        let response = login_response(purpose, is_refusal, granted, authentication, trusted);
        self.respond(answer, told, &response);
    }

    /// Sets fields of the channel to the negotiated values. They are valid for all messages after
    /// the exchange of the connect request and its reply.
    fn apply(&mut self, endpoint: EndpointId, results: &ConnectResults) {
        if let Some(channel) = self.shared.channels.get_mut(endpoint) {
            channel.checksums = results.granted.use_checksums != 0;
            channel.response_bytes_max = results.granted.max_response_size as usize;
        }
    }

    pub(crate) fn security_info(&mut self, answer: ReplyTo) -> Result<(), Status> {
        let id = self.channel_id(answer)?;
        self.refresh_auth_types();
        let methods = auth_methods(&self.shared.sessions.auth_types(id));
        let methods = Array::from(methods.as_slice());
        self.reply(answer, &Response::SecInfo(SecurityMethods { methods }));
        Ok(())
    }

    /// Handles DISCONNECT. The reply is sent when a journal record is durable which says that the
    /// client has no state to reclaim after a restart of the server.
    pub(crate) fn disconnect(&mut self, answer: ReplyTo) -> Result<(), Status> {
        let channel = self.shared.channels.get_mut(answer.endpoint).ok_or(Status::BadSession)?;
        // The client closes the connection when it has the reply. If it does not, `on_tick` closes
        // it.
        channel.closing = Some(self.shared.life.now());
        let id = channel.id;
        let released =
            self.shared.sessions.disconnect(&mut self.shared.filer, id, self.shared.life.now());
        self.know(answer.endpoint);
        for closed in released {
            self.files().release_open(&closed);
        }
        let after = self.files().act_on_locks().max(self.note_forgotten());
        self.respond(answer, ReplyStatus::ok_after(after), &Response::Disconnect(Empty));
        self.show_answers();
        Ok(())
    }
}
