//! Tokens of Kerberos in CLIENT_AUTH, CLIENT_CONNECT_AUTH and CONNECT_BIND, and SERVER_AUTH,
//! which they answer (draft 3.1.1.1.1, 6.2.2 to 6.2.5).
//!
//! Invariant: a channel has one authentication under way at most, which is with the pool or
//! waits for the client's next token.

use std::sync::Arc;

use dafs_filer::Principal;
use dafs_sessions::{ChannelId, ChannelKind, Sessions};
use dafs_types::{AuthType, Status};
use dafs_wire::messages::{GssProcedure, GssService, ServerProof};

use super::{Exchange, PendingLogin, Proof, Purpose};
use crate::access::gss::{self, Binding, Kerberos, TokenJob, TokenOutcome};
use crate::channel::Channel;
use crate::pool::jobs::Job;

/// A token has come: what is to look at it. Whoever does brings it back.
pub(super) fn begin_token(
    kerberos: Arc<Kerberos>,
    sessions: &Sessions,
    channel: &mut Channel,
    pending: PendingLogin,
    (procedure, service, token): (GssProcedure, GssService, &[u8]),
) -> Result<Job, Status> {
    if service != GssService::Authentication {
        // No message is protected, so that nobody may believe it is.
        return Err(Status::NotSupp);
    }
    let binding = binding_of(sessions, channel.id, pending.purpose);
    let session = binding.map(|binding| binding.session);
    let awaited = channel.exchange.awaited.take();
    let acceptor = match (procedure, awaited) {
        (GssProcedure::Init, _) => kerberos.acceptor(binding),
        (GssProcedure::Continue, Some((acceptor, bound_for))) if bound_for == session => *acceptor,
        (GssProcedure::Continue, _) => return Err(Status::IllegalState),
    };
    channel.pending_login = Some(pending);
    let job = Box::new(TokenJob { kerberos, acceptor, token: token.into() });
    Ok(Job::Token { endpoint: channel.endpoint, job })
}

/// What a token has come to.
pub(super) enum TokenEnd {
    /// The client is to send another one for this.
    Continue(Vec<u8>),
    /// The exchange is over: how, and what the client is told of it.
    Over { proof: Result<Proof, Status>, major: u32, minor: u32, token: Vec<u8> },
}

/// A token has been looked at.
pub(super) fn end_token(
    sessions: &mut Sessions,
    channel: &mut Channel,
    purpose: Purpose,
    outcome: TokenOutcome,
) -> TokenEnd {
    let failed =
        |status, major| TokenEnd::Over { proof: Err(status), major, minor: 0, token: Vec::new() };
    match outcome {
        TokenOutcome::Continue { acceptor, token } => {
            let session = match purpose {
                Purpose::Connected(results) => Some(results.session_id),
                Purpose::Session => sessions.ids(channel.id).map(|(session, _)| session),
                Purpose::Channel(session, _) => Some(session),
            };
            channel.exchange.awaited = Some((acceptor, session));
            sessions.await_token(channel.id);
            TokenEnd::Continue(token)
        }
        TokenOutcome::Done { context, token, who: Ok(credentials) } => {
            let lifetime = context.lifetime();
            let proof = Ok(Proof {
                principal: Principal::Gss(context.peer().as_str().into()),
                credentials,
                how: AuthType::Gss,
                lifetime: (lifetime <= gss::LIFETIME_MAX).then_some(lifetime),
            });
            channel.exchange = Exchange { awaited: None, _context: Some(context) };
            TokenEnd::Over { proof, major: gss::COMPLETE, minor: 0, token }
        }
        TokenOutcome::Done { who: Err(_), .. } => failed(Status::NotAuthorized, gss::UNAUTHORIZED),
        TokenOutcome::Panicked => failed(Status::ServerFault, gss::FAILURE),
        TokenOutcome::Failed(error) => TokenEnd::Over {
            proof: Err(gss::status_of(error.reason())),
            major: error.major(),
            minor: error.minor(),
            token: error.reply().unwrap_or_default().to_vec(),
        },
    }
}

/// How a check of a token has failed, if it has.
pub(super) fn failure_of(outcome: &TokenOutcome) -> Option<Status> {
    match outcome {
        TokenOutcome::Continue { .. } | TokenOutcome::Done { who: Ok(_), .. } => None,
        TokenOutcome::Done { who: Err(_), .. } => Some(Status::NotAuthorized),
        TokenOutcome::Panicked => Some(Status::ServerFault),
        TokenOutcome::Failed(error) => Some(gss::status_of(error.reason())),
    }
}

/// Tells the log why a client was refused.
pub(super) fn log_failure(from: &str, outcome: &TokenOutcome) {
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
pub(super) fn server_proof(
    by_token: bool,
    asked: AuthType,
) -> Result<ServerProof<'static>, Status> {
    match asked {
        AuthType::None => Ok(ServerProof::None),
        AuthType::Default => Ok(ServerProof::Default),
        AuthType::Gss if by_token => Ok(ServerProof::Gss),
        AuthType::Gss => Err(Status::NotAuthorized),
        // A server has no password of its own.
        AuthType::Text => Err(Status::NotSupp),
    }
}

/// The session a token must be made for; none is known yet where one request does it all.
fn binding_of(sessions: &Sessions, id: ChannelId, purpose: Purpose) -> Option<Binding> {
    match purpose {
        Purpose::Connected(_) => None,
        Purpose::Session => {
            let (session, client) = sessions.ids(id)?;
            Some(Binding { session, client, channel: 0 })
        }
        Purpose::Channel(session, _) => {
            let channel = match sessions.description(id)?.kind {
                ChannelKind::Operation => 0,
                ChannelKind::BackControl => 1,
                ChannelKind::RdmaRead => 2,
            };
            Some(Binding { session, client: sessions.client_of_session(session)?, channel })
        }
    }
}
