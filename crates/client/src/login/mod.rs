//! Proving who the client is: by the kernel's word, a password or Kerberos (draft 3.1.1.1,
//! 6.2.2).
//!
//! Invariant: nobody is believed to be the server of a Kerberos session who has not proved
//! it, and a password goes out only where somebody has given one for this server.
//!
//! Whatever has to do with tickets blocks, for this thread has none beside it; see [`Login`].

mod tokens;

use std::rc::Rc;
use std::time::{Duration, Instant};

use dafs_dat::Address;
use dafs_gss::{Context, KERBEROS_OID};
use dafs_types::{AuthType, Status, Verifier, limits};
use dafs_wire::messages::{
    AuthMethod, AuthRequest, ClientAuth, ClientConnect, Empty, GssProcedure,
    SessionOptions as WireOptions,
};
use dafs_wire::{Procedure, Request, Response};

use crate::call::Answer;
use crate::client::Shared;
use crate::core::{Core, Pending, Phase, SLOT_BYTES, SessionState};
use crate::decode::{decode, decode_any};
use crate::error::{ClientError, Result};
use crate::opens::procedure_of;
use crate::session::{Session, SessionOptions, connect_request, unexpected};

pub use dafs_gss::{CredentialSource, ServiceName};

pub(crate) use tokens::{
    BACK_CONTROL_CHANNEL, Binding, OPERATION_CHANNEL, Outlook, Prover, TOKEN_ROOM, Unproved,
    token_request,
};

/// Proof of identity.
///
/// Connecting by Kerberos may block the calling thread for longer than the server does, futures
/// too: it reads the ticket cache and, unless a ticket for the service is there, talks to a key
/// distribution centre, for many seconds if that is silent. Get the ticket beforehand
/// (`kvno dafs/HOST`) or connect on another thread where that matters. So does coming back after
/// a loss of the connection, which takes another look at the tickets.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Login {
    /// None: over shared memory the kernel vouches for the user.
    #[default]
    None,
    /// User name and password, in clear text.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// Kerberos, or nothing.
    Kerberos(Tickets),
    /// What is best of what the server offers and this client has: over shared memory the
    /// kernel's word, then Kerberos if there is a ticket, then none. [`Session::identity`]
    /// says what it was, and why it was nothing better.
    Automatic,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            // The password is in no log.
            Self::Password { user, .. } => {
                f.debug_struct("Password").field("user", user).finish_non_exhaustive()
            }
            Self::Kerberos(tickets) => f.debug_tuple("Kerberos").field(tickets).finish(),
            Self::Automatic => f.write_str("Automatic"),
        }
    }
}

impl Login {
    /// What it shows in the request that makes a session or binds a channel. Who proves
    /// himself by tickets shows nothing there.
    pub(crate) fn plain(&self) -> AuthRequest<'_> {
        match self {
            Self::Password { user, password } => AuthRequest::Text { identity: user, password },
            Self::None | Self::Automatic | Self::Kerberos(_) => AuthRequest::None,
        }
    }
}

/// Tickets, and for which service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tickets {
    /// The service to speak with; `None` is `dafs@` and the server's host.
    pub service: Option<ServiceName>,
    /// Where they come from.
    pub source: CredentialSource,
}

/// As what a session was established.
#[derive(Clone, Debug)]
pub struct Identity {
    /// How the client has proved itself.
    pub method: AuthType,
    /// Whether it may act for others.
    pub trusted: bool,
    /// Credentials it may register.
    pub credentials_max: u32,
    /// The service that has proved itself, by Kerberos.
    pub server: Option<String>,
    /// When the proof is good no longer. [`Session::renew`] gives it anew.
    pub expires: Option<Instant>,
    /// What the server would have taken, where that was asked.
    pub offered: Vec<AuthType>,
    /// Why better methods were not used, for people.
    pub passed_over: Vec<String>,
}

/// What a client says of itself.
pub(crate) struct Greeting<'a> {
    pub options: &'a SessionOptions,
    /// Names it among the server's clients.
    pub name: &'a str,
    /// Another one in its next life.
    pub verifier: Verifier,
}

/// Makes a session and authenticates.
pub(crate) async fn establish(
    shared: &Rc<Shared>,
    index: usize,
    greeting: &Greeting<'_>,
) -> Result<Identity> {
    let options = greeting.options;
    match &options.login {
        Login::None | Login::Password { .. } => at_once(shared, index, greeting).await,
        Login::Kerberos(tickets) => {
            let credentials_max = connect(shared, index, greeting).await?;
            by_kerberos(shared, index, options, tickets, credentials_max).await
        }
        Login::Automatic => {
            let credentials_max = connect(shared, index, greeting).await?;
            automatically(shared, index, options, credentials_max).await
        }
    }
}

/// CLIENT_CONNECT_AUTH: one exchange for what needs no session to be bound to.
async fn at_once(shared: &Rc<Shared>, index: usize, greeting: &Greeting<'_>) -> Result<Identity> {
    let Greeting { options, name, verifier } = *greeting;
    let address = address_of(shared, index);
    let wish = shared.borrow().sessions[index].wish;
    let request = connect_request(options, name, verifier, wish);
    let method = match &options.login {
        Login::Password { .. } => AuthType::Text,
        Login::None | Login::Kerberos(_) | Login::Automatic => AuthType::None,
    };
    let reply = Answer::to(shared, index, &request)?.await?;
    let (header, response) = decode_any(Procedure::ClientConnectAuth, &reply, &address)?;
    if header.status != Status::Ok {
        return Err(refused(address, options, header.status));
    }
    let Response::ClientConnectAuth(result) = response else {
        return Err(unexpected(&address, "CLIENT_CONNECT_AUTH"));
    };
    shared.borrow_mut().on_connected(index, &result.options, result.session, result.client)?;
    Ok(Identity {
        trusted: result.trusted,
        credentials_max: result.options.credentials_max,
        ..Identity::of(method)
    })
}

/// CLIENT_CONNECT. From here on requests may be as long as the server allows, which a ticket
/// may need (draft 6.2.1). How many credentials may be registered, if the client is trusted.
async fn connect(shared: &Rc<Shared>, index: usize, greeting: &Greeting<'_>) -> Result<u32> {
    let Greeting { options, name, verifier } = *greeting;
    let address = address_of(shared, index);
    let wish = shared.borrow().sessions[index].wish;
    let room = shared.borrow().sessions[index].token_request_bytes();
    let request = plain_connect_request(options, name, verifier, wish, room);
    let reply = Answer::to(shared, index, &request)?.await?;
    let what = || format!("making a session with {address}");
    let (_, response) = decode(Procedure::ClientConnect, &reply, &address, what)?;
    let Response::ClientConnect(result) = response else {
        return Err(unexpected(&address, "CLIENT_CONNECT"));
    };
    shared.borrow_mut().on_connected(index, &result.options, result.session, result.client)?;
    Ok(result.options.credentials_max)
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

/// Takes the best of what the server offers.
async fn automatically(
    shared: &Rc<Shared>,
    index: usize,
    options: &SessionOptions,
    credentials_max: u32,
) -> Result<Identity> {
    let offered = offered(shared, index).await?;
    let has = |method| offered.contains(&method);
    let mut passed_over = Vec::new();
    let is_vouched_for = is_local(shared, index) && has(AuthType::None);
    if !is_vouched_for && has(AuthType::Gss) {
        match by_kerberos(shared, index, options, &Tickets::default(), credentials_max).await {
            Ok(identity) => return Ok(Identity { offered, ..identity }),
            // No token has gone out: the session is as it was.
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
        passed_over.push("none: the server does not let clients in without a proof".into());
        let address = address_of(shared, index);
        return Err(ClientError::NoLogin { address, reasons: passed_over });
    }
    let identity = without_proof(shared, index, options, credentials_max).await?;
    Ok(Identity { offered, passed_over, ..identity })
}

/// What the server would take, as far as this client has it.
async fn offered(shared: &Rc<Shared>, index: usize) -> Result<Vec<AuthType>> {
    let address = address_of(shared, index);
    let reply = Answer::to(shared, index, &Request::SecInfo(Empty))?.await?;
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

/// CLIENT_AUTH without anything to show.
async fn without_proof(
    shared: &Rc<Shared>,
    index: usize,
    options: &SessionOptions,
    credentials_max: u32,
) -> Result<Identity> {
    let address = address_of(shared, index);
    let authentication = AuthRequest::None;
    let request = Request::ClientAuth(ClientAuth { authentication });
    let reply = Answer::to(shared, index, &request)?.await?;
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

/// CLIENT_AUTH with tokens, bound to the session they are made for.
async fn by_kerberos(
    shared: &Rc<Shared>,
    index: usize,
    options: &SessionOptions,
    tickets: &Tickets,
    credentials_max: u32,
) -> Result<Identity> {
    let service = match &tickets.service {
        Some(service) => service.clone(),
        None => ServiceName::of_host(&host_name(&options.host))
            .map_err(|error| Unproved::here(error.to_string()).at(&address_of(shared, index)))?,
    };
    let prover = Rc::new(Prover { tickets: tickets.clone(), service });
    let (context, trusted) = exchange(shared, index, &prover).await?;
    // From now on it proves every channel, and every session that takes this one's place.
    shared.borrow_mut().sessions[index].prover = Some(prover);
    Ok(Identity {
        trusted,
        credentials_max: if trusted { credentials_max } else { 0 },
        server: Some(context.peer().to_string()),
        expires: expiry(&context),
        ..Identity::of(AuthType::Gss)
    })
}

/// Exchanges tokens until both sides are proved. Whether the client is trusted.
async fn exchange(shared: &Rc<Shared>, index: usize, prover: &Prover) -> Result<(Context, bool)> {
    let address = address_of(shared, index);
    let failed = |unproved: Unproved| unproved.at(&address);
    let binding = shared.borrow().sessions[index].binding(OPERATION_CHANNEL);
    let (mut party, mut token) = prover.begin(binding).map_err(failed)?;
    let mut procedure = GssProcedure::Init;
    loop {
        let answer = send_token(shared, index, procedure, &token)?.await?;
        let (header, response) = decode_any(Procedure::ClientAuth, &answer, &address)?;
        let result = match &response {
            Response::ClientAuth(result) => Some(result),
            _ => None,
        };
        let theirs = result.map(|result| &result.authentication);
        match prover.go_on(party, header.status, theirs).map_err(failed)? {
            Outlook::Token(next, more) => (party, token) = (next, more),
            Outlook::Proved(context) => {
                return Ok((context, result.is_some_and(|result| result.trusted)));
            }
        }
        procedure = GssProcedure::Continue;
    }
}

fn send_token(
    shared: &Rc<Shared>,
    index: usize,
    procedure: GssProcedure,
    token: &[u8],
) -> Result<Answer> {
    let room = shared.borrow().sessions[index].token_bytes_max;
    let authentication = token_request(procedure, token, room)
        .map_err(|unproved| unproved.at(&address_of(shared, index)))?;
    // For this request alone: the receives of all others are small.
    let usual = std::mem::replace(&mut shared.borrow_mut().sessions[index].request_bytes_max, room);
    let answer = Answer::to(shared, index, &Request::ClientAuth(ClientAuth { authentication }));
    shared.borrow_mut().sessions[index].request_bytes_max = usual;
    answer
}

/// When a proof is good no longer.
pub(crate) fn expiry(context: &Context) -> Option<Instant> {
    Instant::now().checked_add(context.lifetime())
}

impl Session {
    /// As what the session was established, or has come back.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.shared.borrow().sessions[self.index].identity.clone()
    }

    /// Proves the client's identity anew, as one whose proof expires ([`Identity::expires`])
    /// may before that. Does nothing for others. Blocks as connecting does.
    ///
    /// Past it the server answers all else with NOT_AUTHENTICATED, and gives the session up
    /// after a lease. A session with [`crate::Recovery::On`] then comes back as after a loss,
    /// with what tickets there are by then, so that only a pause is noticed.
    ///
    /// # Errors
    /// [`ClientError::Kerberos`]: without a fresh ticket, or as the server says; the session
    /// goes on until the old proof's time.
    pub fn renew(&self) -> Result<()> {
        let state =
            |core: &Core| (core.sessions[self.index].prover.clone(), core.sessions[self.index].id);
        let (prover, before) = state(&self.shared.borrow());
        let Some(prover) = prover else { return Ok(()) };
        let exchanged = self.run(exchange(&self.shared, self.index, &prover));
        let (context, trusted) = match exchanged {
            Ok(proved) => proved,
            // A token for the session that was lost is worth nothing in the one after it.
            Err(_) if state(&self.shared.borrow()).1 != before => return Ok(()),
            Err(error) => return Err(error),
        };
        self.shared.borrow_mut().sessions[self.index].note_proof(&context, trusted);
        Ok(())
    }
}

impl SessionState {
    /// A proof was given anew.
    pub fn note_proof(&mut self, context: &Context, trusted: bool) {
        if let Some(identity) = &mut self.identity {
            (identity.expires, identity.trusted) = (expiry(context), trusted);
        }
    }

    /// Whether the server answers a request so because the client's proof has run out, and the
    /// session can come back with a fresh one.
    #[cold]
    pub fn has_lapsed(&self, pending: &Pending) -> bool {
        let is_asked_for = match pending {
            Pending::Call(call) => procedure_of(&call.message) != Some(Procedure::ClientAuth),
            Pending::Transfer(_) | Pending::Member(_) => true,
            Pending::Rescue(_) | Pending::Silent => false,
        };
        let is_open = matches!(self.phase, Phase::Open);
        is_asked_for && is_open && self.prover.is_some() && self.keeper.is_some()
    }

    /// What a token for a channel of the session is bound to.
    pub fn binding(&self, channel: u8) -> Binding {
        Binding { session: self.id, client: self.client, channel }
    }

    /// The longest request the transport was set up for.
    pub fn token_request_bytes(&self) -> u32 {
        message_bytes_max(&self.place.address, &self.options.login)
    }
}

impl Identity {
    fn of(method: AuthType) -> Self {
        Self {
            method,
            trusted: false,
            credentials_max: 0,
            server: None,
            expires: None,
            offered: Vec::new(),
            passed_over: Vec::new(),
        }
    }

    /// How long the proof is still good; `None` for as long as the session.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.expires.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// The longest message of a connection that may carry a ticket.
pub(crate) fn message_bytes_max(address: &Address, login: &Login) -> u32 {
    let may_be_long = matches!(login, Login::Kerberos(_) | Login::Automatic);
    match address {
        Address::Tcp(_) | Address::Verbs(_) | Address::Sim(_) if may_be_long => {
            limits::REQUEST_BYTES_MAX as u32
        }
        // A ring is made for the longest message, and other messages pay for that.
        Address::Tcp(_) | Address::Verbs(_) | Address::Sim(_) | Address::Shm(_) => {
            SLOT_BYTES as u32
        }
    }
}

/// The name a server's host has in Kerberos. This host's own names say nothing to others.
fn host_name(named: &str) -> String {
    let is_own = named.is_empty()
        || named == "localhost"
        || named.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    if !is_own {
        return named.to_owned();
    }
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn is_local(shared: &Rc<Shared>, index: usize) -> bool {
    shared.borrow().sessions[index].address.starts_with("shm:")
}

fn address_of(shared: &Rc<Shared>, index: usize) -> String {
    shared.borrow().sessions[index].address.clone()
}

/// Why it did not come to an answer.
fn reason_of(error: ClientError) -> String {
    match error {
        ClientError::Kerberos { reason, .. } => reason,
        other => other.to_string(),
    }
}

fn refused(address: String, options: &SessionOptions, status: Status) -> ClientError {
    let user = match &options.login {
        Login::Password { user, .. } => Some(user.clone()),
        Login::None | Login::Kerberos(_) | Login::Automatic => None,
    };
    ClientError::Login { address, user, status }
}

/// Why a session is made anew whose connection stands.
pub(crate) const LAPSED: &str = "the ticket that the session was established by has expired";
