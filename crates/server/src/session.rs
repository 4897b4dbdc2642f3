//! Handles the requests that connect, authenticate and disconnect a client. The exchange of tokens
//! is in a module of its own.
//!
//! Invariant: this module accesses the store only for a channel that has authenticated.

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

/// The state of a token exchange with a client.
#[derive(Debug, Default)]
pub(crate) struct TokenExchange {
    /// The acceptor for the client's next token, and the id of the session to which the token must
    /// be bound, if any. The outer value is `None` if no token is expected.
    awaited: Option<(Box<Acceptor>, Option<SessionId>)>,
    /// The established security context. It ends with the channel (draft 3.1.1.1.1).
    _context: Option<Box<Context>>,
}

/// The request that an authentication belongs to.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// The request is CLIENT_AUTH.
    Session,
    /// The request is CLIENT_CONNECT_AUTH, and its connect part has succeeded.
    Connected(ConnectResults),
    /// The request is CONNECT_BIND, for this session and with these message sizes and credits.
    Channel(SessionId, BackSizes),
}

/// The identity that a client has proved.
struct Proof {
    principal: Principal,
    credentials: Credentials,
    how: AuthType,
    /// The time for which the proof is valid. `None` if it is valid for the whole session.
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
