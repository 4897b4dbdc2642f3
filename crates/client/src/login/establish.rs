//! The exchange that authenticates a client to its server, initially and whenever the proof is
//! renewed.
//!
//! Invariant: if the exchange fails, the session is either unchanged or ends.

use std::rc::Rc;

use dafs_gss::{Context, KERBEROS_OID, ServiceName};
use dafs_types::{AuthType, Status};
use dafs_wire::messages::{AuthMethod, AuthRequest, ClientAuth, Empty, GssProcedure};
use dafs_wire::{Procedure, Request, Response};

use crate::client::Shared;
use crate::connect_request::{ConnectParameters, connect_request, plain_connect_request};
use crate::decode::{decode, decode_any, unexpected};
use crate::error::{ClientError, Result};
use crate::ids::SessionKey;
use crate::login::identity::{Identity, Login, Tickets, expiry};
use crate::login::tokens::{AuthFailure, AuthStep, OPERATION_CHANNEL, Prover, token_request};
use crate::options::SessionOptions;
use crate::reply_future::ReplyFuture;
use crate::requests::procedure_of;
use crate::session::Session;
use crate::state::{Phase, SessionState, Standing};
use crate::work::Pending;

/// Establishes a session with the server and authenticates the client.
pub(crate) async fn log_in(
    shared: &Rc<Shared>,
    key: SessionKey,
    parameters: &ConnectParameters<'_>,
) -> Result<Identity> {
    let options = parameters.options;
    match &options.login {
        Login::None | Login::Password { .. } => at_once(shared, key, parameters).await,
        Login::Kerberos(tickets) => {
            let credentials_max = connect(shared, key, parameters).await?;
            by_kerberos(shared, key, options, tickets, credentials_max).await
        }
        Login::Automatic => {
            let credentials_max = connect(shared, key, parameters).await?;
            automatically(shared, key, options, credentials_max).await
        }
    }
}

/// Sends CLIENT_CONNECT_AUTH, which establishes the session and authenticates in one exchange. Used
/// for proofs that are not bound to a session.
async fn at_once(
    shared: &Rc<Shared>,
    key: SessionKey,
    parameters: &ConnectParameters<'_>,
) -> Result<Identity> {
    let ConnectParameters { options, name, verifier } = *parameters;
    let address = address_of(shared, key);
    let wanted_credits = shared.borrow().sessions[key].terms.wanted_credits;
    let request = connect_request(options, name, verifier, wanted_credits);
    let method = match &options.login {
        Login::Password { .. } => AuthType::Text,
        Login::None | Login::Kerberos(_) | Login::Automatic => AuthType::None,
    };
    let reply = ReplyFuture::send(shared, key, None, &request)?.await?;
    let (header, response) = decode_any(Procedure::ClientConnectAuth, &reply, &address)?;
    if header.status != Status::Ok {
        return Err(refused(address, options, header.status));
    }
    let Response::ClientConnectAuth(result) = response else {
        return Err(unexpected(&address, "CLIENT_CONNECT_AUTH"));
    };
    shared.borrow_mut().on_connected(key, &result.options, result.session, result.client)?;
    Ok(Identity {
        trusted: result.trusted,
        credentials_max: result.options.credentials_max,
        ..Identity::of(method)
    })
}

/// Sends CLIENT_CONNECT. After it, requests may be as long as the server allows, which a Kerberos
/// ticket may need (draft 6.2.1). Returns the number of credentials that a trusted client may
/// register.
async fn connect(
    shared: &Rc<Shared>,
    key: SessionKey,
    parameters: &ConnectParameters<'_>,
) -> Result<u32> {
    let ConnectParameters { options, name, verifier } = *parameters;
    let address = address_of(shared, key);
    let wanted_credits = shared.borrow().sessions[key].terms.wanted_credits;
    let room = shared.borrow().sessions[key].token_request_bytes();
    let request = plain_connect_request(options, name, verifier, wanted_credits, room);
    let reply = ReplyFuture::send(shared, key, None, &request)?.await?;
    let what = || format!("establishing a session with {address}");
    let (_, response) = decode(Procedure::ClientConnect, &reply, &address, what)?;
    let Response::ClientConnect(result) = response else {
        return Err(unexpected(&address, "CLIENT_CONNECT"));
    };
    shared.borrow_mut().on_connected(key, &result.options, result.session, result.client)?;
    Ok(result.options.credentials_max)
}

/// Authenticates with the best method that the server offers.
async fn automatically(
    shared: &Rc<Shared>,
    key: SessionKey,
    options: &SessionOptions,
    credentials_max: u32,
) -> Result<Identity> {
    let offered = offered(shared, key).await?;
    let has = |method| offered.contains(&method);
    let mut passed_over = Vec::new();
    let is_vouched_for = is_local(shared, key) && has(AuthType::None);
    if !is_vouched_for && has(AuthType::Gss) {
        match by_kerberos(shared, key, options, &Tickets::default(), credentials_max).await {
            Ok(identity) => return Ok(Identity { offered, ..identity }),
            // No token was sent, so the session is unchanged.
            Err(error @ ClientError::Kerberos { status: None, .. }) => {
                passed_over.push(format!("kerberos: {}", reason_of(error)));
            }
            Err(error) => return Err(error),
        }
    } else if !is_vouched_for {
        passed_over.push("kerberos: the server does not offer it (it has no keytab)".into());
    }
    if has(AuthType::Text) {
        passed_over.push("password: no user was named; write dafs://USER@HOST/".into());
    }
    if !has(AuthType::None) {
        passed_over.push("none: the server refuses clients without a proof of identity".into());
        let address = address_of(shared, key);
        return Err(ClientError::NoLogin { address, reasons: passed_over });
    }
    let identity = without_proof(shared, key, options, credentials_max).await?;
    Ok(Identity { offered, passed_over, ..identity })
}

/// Returns the methods that the server accepts and this client supports.
async fn offered(shared: &Rc<Shared>, key: SessionKey) -> Result<Vec<AuthType>> {
    let address = address_of(shared, key);
    let reply = ReplyFuture::send(shared, key, None, &Request::SecInfo(Empty))?.await?;
    let what = || format!("asking {address} for its methods of authentication");
    let (_, response) = decode(Procedure::SecInfo, &reply, &address, what)?;
    let Response::SecInfo(methods) = response else {
        return Err(unexpected(&address, "SECINFO"));
    };
    let known = |method| match method {
        AuthMethod::None => Some(AuthType::None),
        AuthMethod::Text => Some(AuthType::Text),
        AuthMethod::Default => Some(AuthType::Default),
        AuthMethod::Gss { oid, .. } => (oid == KERBEROS_OID).then_some(AuthType::Gss),
    };
    Ok(methods.methods.iter().filter_map(known).collect())
}

/// Sends CLIENT_AUTH without a proof of identity.
async fn without_proof(
    shared: &Rc<Shared>,
    key: SessionKey,
    options: &SessionOptions,
    credentials_max: u32,
) -> Result<Identity> {
    let address = address_of(shared, key);
    let authentication = AuthRequest::None;
    let request = Request::ClientAuth(ClientAuth { authentication });
    let reply = ReplyFuture::send(shared, key, None, &request)?.await?;
    let (header, response) = decode_any(Procedure::ClientAuth, &reply, &address)?;
    if header.status != Status::Ok {
        return Err(refused(address, options, header.status));
    }
    let Response::ClientAuth(result) = response else {
        return Err(unexpected(&address, "CLIENT_AUTH"));
    };
    let trusted = result.trusted;
    let credentials_max = if trusted { credentials_max } else { 0 };
    Ok(Identity { trusted, credentials_max, ..Identity::of(AuthType::None) })
}

/// Sends CLIENT_AUTH with tokens that are bound to the new session.
async fn by_kerberos(
    shared: &Rc<Shared>,
    key: SessionKey,
    options: &SessionOptions,
    tickets: &Tickets,
    credentials_max: u32,
) -> Result<Identity> {
    let service = match &tickets.service {
        Some(service) => service.clone(),
        None => ServiceName::of_host(&host_name(&options.host))
            .map_err(|error| AuthFailure::here(error.to_string()).at(&address_of(shared, key)))?,
    };
    let prover = Rc::new(Prover { tickets: tickets.clone(), service });
    let (context, trusted) = exchange(shared, key, &prover).await?;
    // From now on the prover authenticates every channel, and every later connection of this
    // session.
    shared.borrow_mut().sessions[key].standing.prover = Some(prover);
    Ok(Identity {
        trusted,
        credentials_max: if trusted { credentials_max } else { 0 },
        server: Some(context.peer().to_string()),
        expires: expiry(&context),
        ..Identity::of(AuthType::Gss)
    })
}

/// Exchanges tokens until both sides are authenticated. Returns true if the client is trusted.
async fn exchange(
    shared: &Rc<Shared>,
    key: SessionKey,
    prover: &Prover,
) -> Result<(Context, bool)> {
    let address = address_of(shared, key);
    let failed = |unproved: AuthFailure| unproved.at(&address);
    let binding = shared.borrow().sessions[key].binding(OPERATION_CHANNEL);
    let (mut party, mut token) = prover.begin(binding).map_err(failed)?;
    let mut procedure = GssProcedure::Init;
    loop {
        let answer = send_token(shared, key, procedure, &token)?.await?;
        let (header, response) = decode_any(Procedure::ClientAuth, &answer, &address)?;
        let result = match &response {
            Response::ClientAuth(result) => Some(result),
            _ => None,
        };
        let theirs = result.map(|result| &result.authentication);
        match prover.process_reply(party, header.status, theirs).map_err(failed)? {
            AuthStep::Token(next, more) => (party, token) = (next, more),
            AuthStep::Proved(context) => {
                return Ok((context, result.is_some_and(|result| result.trusted)));
            }
        }
        procedure = GssProcedure::Continue;
    }
}

fn send_token(
    shared: &Rc<Shared>,
    key: SessionKey,
    procedure: GssProcedure,
    token: &[u8],
) -> Result<ReplyFuture> {
    let room = shared.borrow().sessions[key].terms.token_bytes_max;
    let authentication = token_request(procedure, token, room)
        .map_err(|unproved| unproved.at(&address_of(shared, key)))?;
    let request = Request::ClientAuth(ClientAuth { authentication });
    // Only this request needs a longer limit: the receives for all other requests are small.
    ReplyFuture::send_limited(shared, key, room, &request)
}

impl Session {
    /// Returns the identity under which the session was established or most recently reconnected.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.shared.borrow().sessions[self.key].standing.identity.clone()
    }

    /// Authenticates again, before the current proof expires ([`Identity::expires`]). Has no effect
    /// on proofs that do not expire. The call blocks, as connecting does.
    ///
    /// After the proof has expired, the server replies NOT_AUTHENTICATED to all other requests, and
    /// ends the session after a lease. A session with [`crate::Recovery::On`] then reconnects as
    /// after a lost connection, with the tickets available by then, so that callers only notice a
    /// pause.
    ///
    /// # Errors
    /// [`ClientError::Kerberos`] if there is no fresh ticket or the server refuses it; the session
    /// then continues until the old proof expires.
    pub fn renew(&self) -> Result<()> {
        self.renew_channel(self.key)?;
        let additional = self.shared.borrow().sessions[self.key].role.additional();
        for key in additional {
            if self.shared.borrow().sessions[key].is_open() {
                // A channel whose renewal fails reconnects later with a fresh ticket.
                let _ = self.renew_channel(key);
            }
        }
        Ok(())
    }

    fn renew_channel(&self, key: SessionKey) -> Result<()> {
        let state = |standing: &Standing| (standing.prover.clone(), standing.session);
        let (prover, before) = state(&self.shared.borrow().sessions[key].standing);
        let Some(prover) = prover else { return Ok(()) };
        let exchanged = self.run(exchange(&self.shared, key, &prover));
        let (context, trusted) = match exchanged {
            Ok(proved) => proved,
            // The session has lost its connection and reconnected since, so a token for the former
            // session is useless.
            Err(_) if state(&self.shared.borrow().sessions[key].standing).1 != before => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.shared.borrow_mut().sessions[key].note_proof(&context, trusted);
        Ok(())
    }
}

impl SessionState {
    /// Records that the client's proof was renewed.
    pub(crate) fn note_proof(&mut self, context: &Context, trusted: bool) {
        if let Some(identity) = &mut self.standing.identity {
            (identity.expires, identity.trusted) = (expiry(context), trusted);
        }
    }

    /// True if the server refused a request because the client's proof has expired, and the session
    /// can reconnect with a fresh one.
    #[cold]
    pub(crate) fn has_lapsed(&self, pending: &Pending) -> bool {
        let is_asked_for = match pending {
            Pending::Call(call) => procedure_of(&call.message) != Some(Procedure::ClientAuth),
            Pending::Transfer(_) | Pending::Member(_) => true,
            Pending::Recovery(_) | Pending::Ignored => false,
        };
        let is_open = matches!(self.phase, Phase::Open);
        is_asked_for && is_open && self.standing.prover.is_some() && self.recovery.is_some()
    }
}

/// Returns the name of a server's host for Kerberos. Names such as `localhost` have no meaning on
/// other hosts, so they are replaced by this host's name.
fn host_name(named: &str) -> String {
    let is_own = named.is_empty()
        || named == "localhost"
        || named.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    if !is_own {
        return named.to_owned();
    }
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn is_local(shared: &Rc<Shared>, key: SessionKey) -> bool {
    shared.borrow().sessions[key].address.starts_with("shm:")
}

fn address_of(shared: &Rc<Shared>, key: SessionKey) -> String {
    shared.borrow().sessions[key].address.clone()
}

/// Returns the text of the error that prevented a reply.
fn reason_of(error: ClientError) -> String {
    match error {
        ClientError::Kerberos { reason, .. } => reason,
        other => other.in_full(),
    }
}

fn refused(address: String, options: &SessionOptions, status: Status) -> ClientError {
    let user = match &options.login {
        Login::Password { user, .. } => Some(user.clone()),
        Login::None | Login::Kerberos(_) | Login::Automatic => None,
    };
    ClientError::Login { address, user, status }
}
