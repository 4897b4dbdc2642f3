//! Connecting, authenticating, leaving.
//!
//! Invariant: until a channel has authenticated, nothing here looks at the store.

use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::{
    AuthDecision, AuthRequest, BindArguments, ChannelKind, ConnectArguments, ConnectResults,
    Negotiated,
};
use dafs_types::{AuthType, Credentials, Status};
use dafs_wire::messages::{
    AuthMethod, AuthRequest as WireAuth, AuthResult, ChannelUse, ClientAuth, ClientAuthResult,
    ClientConnect, ClientConnectAuth, ClientConnectAuthResult, ClientConnectResult, ConnectBind,
    Empty, SecurityMethods, SessionOptions,
};
use dafs_wire::{Array, RequestHeader, Response};

use crate::back::BackSizes;
use crate::jobs::Job;
use crate::reactor::Reactor;
use crate::task::Answer;

/// An authentication that waits for a password check.
#[derive(Clone, Copy, Debug)]
pub struct PendingLogin {
    answer: Answer,
    purpose: Purpose,
}

/// What somebody authenticates for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// CLIENT_AUTH.
    Session,
    /// CLIENT_CONNECT_AUTH, whose first half is done.
    Connected(ConnectResults),
    /// CONNECT_BIND.
    Channel(BackSizes),
}

impl Reactor {
    pub(crate) fn client_connect(
        &mut self,
        answer: Answer,
        header: &RequestHeader,
        request: &ClientConnect<'_>,
    ) -> Result<(), Status> {
        let arguments = ConnectArguments {
            protocol_version: header.version,
            wanted: wanted(&request.options),
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
        answer: Answer,
        header: &RequestHeader,
        request: &ClientConnectAuth<'_>,
    ) -> Result<(), Status> {
        let arguments = ConnectArguments {
            protocol_version: header.version,
            wanted: wanted(&request.options),
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
        answer: Answer,
        request: &ClientAuth<'_>,
    ) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let decision = self.filer.begin_auth(id, asked(&request.authentication));
        self.authenticate(answer, &request.authentication, decision, Purpose::Session)
    }

    pub(crate) fn connect_bind(
        &mut self,
        answer: Answer,
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
        self.authenticate(answer, &request.authentication, decision, Purpose::Channel(sizes))
    }

    /// Makes a session; a refusal is answered here, since it may name a version.
    fn try_connect(
        &mut self,
        answer: Answer,
        arguments: &ConnectArguments<'_>,
    ) -> Option<ConnectResults> {
        let id = self.channels.get(answer.endpoint)?.id;
        match self.filer.connect(id, arguments, self.entropy.as_mut()) {
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
        answer: Answer,
        request: &WireAuth<'_>,
        decision: AuthDecision,
        purpose: Purpose,
    ) -> Result<(), Status> {
        match (decision, request) {
            (AuthDecision::Accept(credentials), _) => {
                let kind = if matches!(request, WireAuth::None) {
                    AuthType::None
                } else {
                    AuthType::Default
                };
                self.finish_login(answer, purpose, Ok(credentials), kind);
                Ok(())
            }
            (AuthDecision::VerifyPassword, WireAuth::Text { identity, password }) => {
                if let Some(channel) = self.channels.get_mut(answer.endpoint) {
                    channel.pending_login = Some(PendingLogin { answer, purpose });
                }
                self.pool.submit(Job::Login {
                    endpoint: answer.endpoint,
                    user: (*identity).to_owned(),
                    password: (*password).to_owned(),
                    file: self.passwords.clone(),
                });
                Ok(())
            }
            (AuthDecision::VerifyPassword, _) => Err(Status::ServerFault),
            (AuthDecision::Reject(status), _) => {
                self.undo_connect(answer, &purpose);
                Err(status)
            }
        }
    }

    /// The second half of CLIENT_CONNECT_AUTH failed.
    fn undo_connect(&mut self, answer: Answer, purpose: &Purpose) {
        if let (Purpose::Connected(_), Some(channel)) =
            (purpose, self.channels.get(answer.endpoint))
        {
            self.filer.connect_failed(channel.id);
        }
    }

    /// A password has been checked.
    pub(crate) fn on_login(&mut self, endpoint: EndpointId, who: Option<Credentials>) {
        let Some(channel) = self.channels.get_mut(endpoint) else { return };
        let Some(pending) = channel.pending_login.take() else { return };
        let verified = who.ok_or(Status::Access);
        self.finish_login(pending.answer, pending.purpose, verified, AuthType::Text);
    }

    fn finish_login(
        &mut self,
        answer: Answer,
        purpose: Purpose,
        verified: Result<Credentials, Status>,
        kind: AuthType,
    ) {
        let Some(channel) = self.channels.get(answer.endpoint) else { return };
        let id = channel.id;
        let authentication = match kind {
            AuthType::None => AuthResult::None,
            AuthType::Text => AuthResult::Text,
            AuthType::Gss | AuthType::Default => AuthResult::Default,
        };
        if let Purpose::Channel(sizes) = purpose {
            return self.finish_bind(answer, verified, sizes, authentication);
        }
        let outcome = match self.filer.finish_auth(id, verified, self.now) {
            Ok(outcome) => outcome,
            Err(status) => {
                self.undo_connect(answer, &purpose);
                return self.fail(answer, status);
            }
        };
        self.act_on_locks();
        for closed in &outcome.released {
            self.release_open(closed);
        }
        for channel in outcome.close {
            self.give_up_channel(channel);
        }
        if let Some(who) = self.filer.credentials(id).cloned()
            && let Some(channel) = self.channels.get_mut(answer.endpoint)
        {
            tracing::info!(uid = who.uid, ?kind, "session established");
            channel.who = Arc::new(who);
        }
        self.note_session(id);
        let trusted = outcome.trusted;
        match purpose {
            Purpose::Connected(results) => {
                let response = Response::ClientConnectAuth(ClientConnectAuthResult {
                    session: results.session_id,
                    client: results.client_id,
                    options: options(&results.granted),
                    authentication,
                    trusted,
                });
                self.reply(answer, &response);
                self.apply(answer.endpoint, &results);
            }
            Purpose::Session | Purpose::Channel(_) => {
                let response = Response::ClientAuth(ClientAuthResult { authentication, trusted });
                self.reply(answer, &response);
            }
        }
    }

    /// From the next message on the negotiated values hold; never for the connect
    /// exchange itself.
    fn apply(&mut self, endpoint: EndpointId, results: &ConnectResults) {
        if let Some(channel) = self.channels.get_mut(endpoint) {
            channel.checksums = results.granted.use_checksums != 0;
            channel.response_bytes_max = results.granted.max_response_size as usize;
        }
    }

    pub(crate) fn security_info(&mut self, answer: Answer) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let methods: Vec<AuthMethod<'_>> = self
            .filer
            .auth_types(id)
            .into_iter()
            .filter_map(|kind| match kind {
                AuthType::None => Some(AuthMethod::None),
                AuthType::Text => Some(AuthMethod::Text),
                AuthType::Default => Some(AuthMethod::Default),
                AuthType::Gss => None,
            })
            .collect();
        let methods = Array::from(methods.as_slice());
        self.reply(answer, &Response::SecInfo(SecurityMethods { methods }));
        Ok(())
    }

    pub(crate) fn null(&mut self, answer: Answer) -> Result<(), Status> {
        self.reply(answer, &Response::Null(Empty));
        Ok(())
    }

    pub(crate) fn disconnect(&mut self, answer: Answer) -> Result<(), Status> {
        self.reply(answer, &Response::Disconnect(Empty));
        self.interface.flush();
        if let Some(channel) = self.channels.get_mut(answer.endpoint) {
            // The client closes once it has the answer; `on_tick` is the backstop.
            channel.closing = true;
        }
        Ok(())
    }
}

fn asked<'a>(request: &WireAuth<'a>) -> AuthRequest<'a> {
    match request {
        WireAuth::None => AuthRequest::None,
        WireAuth::Default => AuthRequest::Default,
        WireAuth::Gss { .. } => AuthRequest::Gss,
        WireAuth::Text { identity, .. } => AuthRequest::Text { user: identity },
    }
}

fn wanted(options: &SessionOptions) -> Negotiated {
    Negotiated {
        use_checksums: u32::from(options.checksums),
        use_response_cache: u32::from(options.response_cache),
        max_credentials: options.credentials_max,
        max_request_size: options.request_bytes_max,
        max_response_size: options.response_bytes_max,
        max_requests: options.requests_max,
        inline_write_header_size: options.inline_write_header_bytes,
        use_back_control_channel: u32::from(options.back_control_channel),
        use_rdma_read_channel: u32::from(options.rdma_read_channel),
    }
}

fn options(granted: &Negotiated) -> SessionOptions {
    SessionOptions {
        checksums: granted.use_checksums != 0,
        response_cache: granted.use_response_cache != 0,
        credentials_max: granted.max_credentials,
        request_bytes_max: granted.max_request_size,
        response_bytes_max: granted.max_response_size,
        requests_max: granted.max_requests,
        inline_write_header_bytes: granted.inline_write_header_size,
        back_control_channel: granted.use_back_control_channel != 0,
        rdma_read_channel: granted.use_rdma_read_channel != 0,
    }
}
