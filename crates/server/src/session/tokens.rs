//! Tokens of Kerberos in CLIENT_AUTH, CLIENT_CONNECT_AUTH and CONNECT_BIND, and SERVER_AUTH,
//! which they answer (draft 3.1.1.1.1, 6.2.2 to 6.2.5).
//!
//! Invariant: a channel has one authentication under way at most, which is with the pool or
//! waits for the client's next token.

use dafs_dat::EndpointId;
use dafs_filer::{ChannelId, ChannelKind, Filer, Principal};
use dafs_types::{AuthType, Status};
use dafs_wire::Response;
use dafs_wire::messages::{
    AuthResult, GssProcedure, GssService, ServerAuth, ServerAuthResult, ServerProof,
};

use super::{Exchange, PendingLogin, Proof, Purpose};
use crate::gss::{self, Binding, TokenJob, TokenOutcome};
use crate::jobs::Job;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::respond::ReplyStatus;

impl Reactor {
    /// A token has come; whoever looks at it brings it back through `on_token`.
    pub(super) fn begin_token(
        &mut self,
        answer: ReplyTo,
        (procedure, service): (GssProcedure, GssService),
        token: &[u8],
        purpose: Purpose,
    ) -> Result<(), Status> {
        let kerberos = self.entrance.kerberos().ok_or(Status::NotSupp)?;
        if service != GssService::Authentication {
            // No message is protected, so that nobody may believe it is.
            return Err(Status::NotSupp);
        }
        let channel = self.channels.get_mut(answer.endpoint).ok_or(Status::BadSession)?;
        let binding = binding_of(&self.filer, channel.id, purpose);
        let session = binding.map(|binding| binding.session);
        let awaited = channel.exchange.awaited.take();
        let acceptor = match (procedure, awaited) {
            (GssProcedure::Init, _) => kerberos.acceptor(binding),
            (GssProcedure::Continue, Some((acceptor, bound_for))) if bound_for == session => {
                *acceptor
            }
            (GssProcedure::Continue, _) => return Err(Status::IllegalState),
        };
        channel.pending_login = Some(PendingLogin { answer, purpose });
        let job = Box::new(TokenJob { kerberos, acceptor, token: token.into() });
        self.submit_login((answer.endpoint, None), Job::Token { endpoint: answer.endpoint, job });
        Ok(())
    }

    /// A token has been looked at.
    pub(crate) fn on_token(&mut self, endpoint: EndpointId, outcome: TokenOutcome) {
        self.note_token(endpoint, &outcome);
        let Some(channel) = self.channels.get_mut(endpoint) else { return };
        let Some(PendingLogin { answer, purpose }) = channel.pending_login.take() else { return };
        let id = channel.id;
        let gss = |major, minor, token| AuthResult::Gss { major, minor, token };
        match outcome {
            TokenOutcome::Continue { acceptor, token } => {
                let session = match purpose {
                    Purpose::Connected(results) => Some(results.session_id),
                    Purpose::Session => self.filer.ids(id).map(|(session, _)| session),
                    Purpose::Channel(session, _) => Some(session),
                };
                channel.exchange.awaited = Some((acceptor, session));
                self.filer.await_token(id);
                let result = gss(gss::CONTINUE_NEEDED, 0, &token);
                let told = ReplyStatus::now(Status::GssContinueInit);
                self.answer_login(answer, &purpose, told, result, false);
            }
            TokenOutcome::Done { context, token, who: Ok(credentials) } => {
                let lifetime = context.lifetime();
                let proof = Proof {
                    principal: Principal::Gss(context.peer().as_str().into()),
                    credentials,
                    how: AuthType::Gss,
                    lifetime: (lifetime <= gss::LIFETIME_MAX).then_some(lifetime),
                };
                channel.exchange = Exchange { awaited: None, _context: Some(context) };
                self.finish_login(answer, purpose, Ok(proof), gss(gss::COMPLETE, 0, &token));
            }
            TokenOutcome::Done { who: Err(_), .. } => {
                let result = gss(gss::UNAUTHORIZED, 0, &[]);
                self.finish_login(answer, purpose, Err(Status::NotAuthorized), result);
            }
            TokenOutcome::Panicked => {
                let result = gss(gss::FAILURE, 0, &[]);
                self.finish_login(answer, purpose, Err(Status::ServerFault), result);
            }
            TokenOutcome::Failed(error) => {
                let token = error.reply().unwrap_or_default();
                let result = gss(error.major(), error.minor(), token);
                let status = gss::status_of(error.reason());
                self.finish_login(answer, purpose, Err(status), result);
            }
        }
    }

    /// What a token comes to counts for the next one, and the log has it.
    fn note_token(&mut self, endpoint: EndpointId, outcome: &TokenOutcome) {
        let failed = match outcome {
            TokenOutcome::Continue { .. } | TokenOutcome::Done { who: Ok(_), .. } => None,
            TokenOutcome::Done { who: Err(_), .. } => Some(Status::NotAuthorized),
            TokenOutcome::Panicked => Some(Status::ServerFault),
            TokenOutcome::Failed(error) => Some(gss::status_of(error.reason())),
        };
        if !self.note_login(endpoint, failed) {
            return;
        }
        let from = self.channels.origin_of(endpoint);
        match outcome {
            TokenOutcome::Done { context, who: Err(why), .. } => {
                let principal = context.peer().as_str();
                tracing::warn!(%from, principal, %why, "login refused");
            }
            TokenOutcome::Failed(error) => tracing::warn!(%from, %error, "login refused"),
            TokenOutcome::Continue { .. } | TokenOutcome::Done { .. } | TokenOutcome::Panicked => {}
        }
    }

    /// SERVER_AUTH: the draft has results for it, and nothing to put into them (6.2.3).
    /// Kerberos has proved the server with the client.
    pub(crate) fn server_auth(
        &mut self,
        answer: ReplyTo,
        request: &ServerAuth,
    ) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let by_token = matches!(self.filer.principal(id), Some(Principal::Gss(_)));
        let proof = match request.auth_type {
            AuthType::None => ServerProof::None,
            AuthType::Default => ServerProof::Default,
            AuthType::Gss if by_token => ServerProof::Gss,
            AuthType::Gss => return Err(Status::NotAuthorized),
            // A server has no password of its own.
            AuthType::Text => return Err(Status::NotSupp),
        };
        self.reply(answer, &Response::ServerAuth(ServerAuthResult { proof }));
        Ok(())
    }
}

/// The session a token must be made for; none is known yet where one request does it all.
fn binding_of(filer: &Filer, id: ChannelId, purpose: Purpose) -> Option<Binding> {
    match purpose {
        Purpose::Connected(_) => None,
        Purpose::Session => {
            let (session, client) = filer.ids(id)?;
            Some(Binding { session, client, channel: 0 })
        }
        Purpose::Channel(session, _) => {
            let channel = match filer.description(id)?.kind {
                ChannelKind::Operation => 0,
                ChannelKind::BackControl => 1,
                ChannelKind::RdmaRead => 2,
            };
            Some(Binding { session, client: filer.client_of_session(session)?, channel })
        }
    }
}
