//! Builds the CLIENT_CONNECT request, by which a client introduces itself to a server.
//!
//! Invariant: the content of the request is the same at the first connection and after each
//! reconnect.

use dafs_types::Verifier;
use dafs_wire::Request;
use dafs_wire::messages::{ClientConnect, ClientConnectAuth, SessionOptions as WireOptions};

use crate::options::SessionOptions;

/// The parameters of a client's connect request.
pub(crate) struct ConnectParameters<'a> {
    pub options: &'a SessionOptions,
    /// The client's name, unique among the server's clients.
    pub name: &'a str,
    /// The verifier of this client incarnation; every incarnation has a different verifier.
    pub verifier: Verifier,
}

/// Builds the connect request, for the first time and after each loss of the connection.
pub(crate) fn connect_request<'a>(
    options: &'a SessionOptions,
    name: &'a str,
    verifier: Verifier,
    wanted_credits: u16,
) -> Request<'a> {
    let authentication = options.login.plain();
    Request::ClientConnectAuth(ClientConnectAuth {
        options: options.session_options(wanted_credits),
        fence_id: &options.fence_id,
        client_string: name.as_bytes(),
        verifier,
        authentication,
    })
}

/// Builds the connect request of a client that authenticates afterwards, with tokens in requests of
/// up to `request_bytes_max` bytes.
pub(crate) fn plain_connect_request<'a>(
    options: &'a SessionOptions,
    name: &'a str,
    verifier: Verifier,
    wanted_credits: u16,
    request_bytes_max: u32,
) -> Request<'a> {
    Request::ClientConnect(ClientConnect {
        options: WireOptions { request_bytes_max, ..options.session_options(wanted_credits) },
        fence_id: &options.fence_id,
        client_string: name.as_bytes(),
        verifier,
    })
}
