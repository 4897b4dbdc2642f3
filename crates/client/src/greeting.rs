//! What a client says of itself when it connects.
//!
//! Invariant: it says the same after each loss of the connection as at first.

use dafs_types::Verifier;
use dafs_wire::Request;
use dafs_wire::messages::{ClientConnect, ClientConnectAuth, SessionOptions as WireOptions};

use crate::options::SessionOptions;

/// What a client says of itself.
pub(crate) struct Greeting<'a> {
    pub options: &'a SessionOptions,
    /// Names it among the server's clients.
    pub name: &'a str,
    /// Another one in its next life.
    pub verifier: Verifier,
}

/// What a client says of itself, at first and after each loss of the connection.
pub(crate) fn connect_request<'a>(
    options: &'a SessionOptions,
    name: &'a str,
    verifier: Verifier,
    wish: u16,
) -> Request<'a> {
    let authentication = options.login.plain();
    Request::ClientConnectAuth(ClientConnectAuth {
        options: options.wishes(wish),
        fence_id: &options.fence_id,
        client_string: name.as_bytes(),
        verifier,
        authentication,
    })
}

/// What a client says of itself that will prove it in requests of up to `request_bytes_max`.
pub(crate) fn plain_connect_request<'a>(
    options: &'a SessionOptions,
    name: &'a str,
    verifier: Verifier,
    wish: u16,
    request_bytes_max: u32,
) -> Request<'a> {
    Request::ClientConnect(ClientConnect {
        options: WireOptions { request_bytes_max, ..options.wishes(wish) },
        fence_id: &options.fence_id,
        client_string: name.as_bytes(),
        verifier,
    })
}
