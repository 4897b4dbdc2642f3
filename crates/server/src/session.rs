//! Connect, authenticate and disconnect. The exchange of tokens is in a module of its own.
//!
//! Invariant: nothing here accesses the store for a channel that has not authenticated.

pub(crate) mod back;
mod login;
mod proof;
mod tokens;

use std::time::Duration;

use dafs_filer::Principal;
use dafs_gss::{Acceptor, Context};
use dafs_sessions::{AuthRequest, ConnectResults, Negotiated};
use dafs_types::{AuthType, Credentials, SessionId, Status};
use dafs_wire::messages::{AuthRequest as WireAuth, AuthResult, GssProcedure, SessionOptions};

use crate::reply_to::ReplyTo;
use crate::session::back::BackSizes;

/// An authentication that waits for the check of its password or token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingLogin {
    answer: ReplyTo,
    purpose: Purpose,
}

/// An exchange of tokens with a client.
#[derive(Debug, Default)]
pub(crate) struct TokenExchange {
    /// The acceptor that waits for the next token, and the session that it is bound to.
    awaited: Option<(Box<Acceptor>, Option<SessionId>)>,
    /// The established context. It ends with the channel (draft 3.1.1.1.1).
    _context: Option<Box<Context>>,
}

/// The purpose of an authentication.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// CLIENT_AUTH.
    Session,
    /// CLIENT_CONNECT_AUTH after the connect part has succeeded.
    Connected(ConnectResults),
    /// CONNECT_BIND.
    Channel(SessionId, BackSizes),
}

/// The identity of a client that has authenticated.
struct Proof {
    principal: Principal,
    credentials: Credentials,
    how: AuthType,
    /// How long the proof is valid; `None` if as long as the session.
    lifetime: Option<Duration>,
}

/// Returns true if the reply to an authentication with this status contains results.
pub(crate) fn brings_results(status: Status, authentication: &AuthResult<'_>) -> bool {
    match status {
        Status::Ok | Status::GssContinueInit => true,
        Status::NotAuthorized => matches!(authentication, AuthResult::Gss { .. }),
        _ => false,
    }
}

fn asked<'a>(request: &WireAuth<'a>) -> AuthRequest<'a> {
    match request {
        WireAuth::None => AuthRequest::None,
        WireAuth::Default => AuthRequest::Default,
        WireAuth::Gss { procedure, .. } => {
            AuthRequest::Gss { is_first: *procedure == GssProcedure::Init }
        }
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
