//! Handles Kerberos tokens in CLIENT_AUTH, CLIENT_CONNECT_AUTH and CONNECT_BIND, and SERVER_AUTH
//! for clients that authenticate by token (draft 3.1.1.1.1, 6.2.2 to 6.2.5).
//!
//! Invariant: a channel has at most one authentication in progress. It is either being checked by
//! the pool or waits for the client's next token.

use std::sync::Arc;

use dafs_filer::Principal;
use dafs_sessions::{ChannelId, ChannelKind, Sessions};
use dafs_types::{AuthType, Status};
use dafs_wire::messages::{GssProcedure, GssService, ServerProof};

use super::{PendingLogin, Proof, Purpose, TokenExchange};
use crate::access::gss::{self, Binding, Kerberos, TokenJob, TokenOutcome};
use crate::channel::Channel;
use crate::pool::jobs::Job;

/// Starts the check of a token. The result of the check includes the acceptor, which checks the
/// client's next token.
pub(super) fn begin_token(
    kerberos: Arc<Kerberos>,
    sessions: &Sessions,
    channel: &mut Channel,
    pending: PendingLogin,
    (procedure, service, token): (GssProcedure, GssService, &[u8]),
) -> Result<Job, Status> {
    if service != GssService::Authentication {
        // The request is refused, because the mechanism never protects messages and the client must
        // not assume that it does.
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

/// The result of a token check.
pub(super) enum TokenEnd {
    /// The exchange continues: this token is sent to the client, which must reply with another
    /// token.
    Continue(Vec<u8>),
    /// The exchange has ended with this result. `token` is the final token for the client.
    Over { proof: Result<Proof, Status>, major: u32, minor: u32, token: Vec<u8> },
}

/// Handles the result of a token check. Returns how the exchange with the client continues.
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
            channel.exchange = TokenExchange { awaited: None, _context: Some(context) };
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

/// Returns the status with which a token check failed. `None` if it did not fail.
pub(super) fn failure_of(outcome: &TokenOutcome) -> Option<Status> {
    match outcome {
        TokenOutcome::Continue { .. } | TokenOutcome::Done { who: Ok(_), .. } => None,
        TokenOutcome::Done { who: Err(_), .. } => Some(Status::NotAuthorized),
        TokenOutcome::Panicked => Some(Status::ServerFault),
        TokenOutcome::Failed(error) => Some(gss::status_of(error.reason())),
    }
}

/// Logs why a client was refused.
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

/// Handles SERVER_AUTH. The draft defines results for this request but does not say what they
/// contain (6.2.3). Kerberos proves the server's identity together with the client's.
pub(super) fn server_proof(
    by_token: bool,
    asked: AuthType,
) -> Result<ServerProof<'static>, Status> {
    match asked {
        AuthType::None => Ok(ServerProof::None),
        AuthType::Default => Ok(ServerProof::Default),
        AuthType::Gss if by_token => Ok(ServerProof::Gss),
        AuthType::Gss => Err(Status::NotAuthorized),
        // A server has no password of its own to prove.
        AuthType::Text => Err(Status::NotSupp),
    }
}

/// Returns the session and channel to which a token must be bound. `None` if the token's own
/// request creates the session.
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
