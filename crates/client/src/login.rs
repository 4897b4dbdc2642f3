//! Proving who the client is: by the kernel's word, a password or Kerberos (draft 3.1.1.1,
//! 6.2.2).
//!
//! Invariant: nobody is believed to be the server of a Kerberos session who has not proved
//! it, and a password goes out only where somebody has given one for this server.
//!
//! Whatever has to do with tickets blocks, for this thread has none beside it; see [`Login`].

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dafs_dat::Address;
use dafs_gss::{Context, Credential, GssError, Initiator, KERBEROS_OID, Library, Step};
use dafs_types::{AuthType, ClientId, SessionId, Status, Verifier, limits};
use dafs_wire::messages::{
    AuthMethod, AuthRequest, AuthResult, ClientAuth, ClientConnect, Empty, GssProcedure,
    GssService, SessionOptions as WireOptions,
};
use dafs_wire::{Procedure, Request, Response};

use crate::call::Answer;
use crate::client::Shared;
use crate::core::SLOT_BYTES;
use crate::decode::{decode, decode_any};
use crate::error::{ClientError, Result};
use crate::session::{Session, SessionOptions, connect_request, unexpected};

pub use dafs_gss::{CredentialSource, ServiceName};

/// Proof of identity.
///
/// Connecting by Kerberos may block the calling thread for longer than the server does, futures
/// too: it reads the ticket cache and, unless a ticket for the service is there, talks to a key
/// distribution centre, for many seconds if that is silent. Get the ticket beforehand
/// (`kvno dafs/HOST`) or connect on another thread where that matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// What it takes to prove it again.
    renewal: Option<Renewal>,
}

#[derive(Clone, Debug)]
struct Renewal {
    tickets: Tickets,
    service: ServiceName,
    session: SessionId,
    client: ClientId,
    /// The longest request with a token.
    request_bytes_max: u32,
}

/// A session that was made and not authenticated.
struct Connected {
    session: SessionId,
    client: ClientId,
    granted: WireOptions,
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
            let connected = connect(shared, index, greeting).await?;
            let credential = tickets.find().map_err(|why| kerberos_error(shared, index, why))?;
            by_kerberos(shared, index, options, tickets, credential, &connected).await
        }
        Login::Automatic => {
            let connected = connect(shared, index, greeting).await?;
            automatically(shared, index, options, &connected).await
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
/// may need (draft 6.2.1).
async fn connect(shared: &Rc<Shared>, index: usize, greeting: &Greeting<'_>) -> Result<Connected> {
    let Greeting { options, name, verifier } = *greeting;
    let address = address_of(shared, index);
    let mut wishes = options.wishes(shared.borrow().sessions[index].wish);
    wishes.request_bytes_max = token_request_bytes(shared, index);
    let request = Request::ClientConnect(ClientConnect {
        options: wishes,
        fence_id: &options.fence_id,
        client_string: name.as_bytes(),
        verifier,
    });
    let reply = Answer::to(shared, index, &request)?.await?;
    let what = || format!("making a session with {address}");
    let (_, response) = decode(Procedure::ClientConnect, &reply, &address, what)?;
    let Response::ClientConnect(result) = response else {
        return Err(unexpected(&address, "CLIENT_CONNECT"));
    };
    shared.borrow_mut().on_connected(index, &result.options, result.session, result.client)?;
    Ok(Connected { session: result.session, client: result.client, granted: result.options })
}

/// Takes the best of what the server offers.
async fn automatically(
    shared: &Rc<Shared>,
    index: usize,
    options: &SessionOptions,
    connected: &Connected,
) -> Result<Identity> {
    let offered = offered(shared, index).await?;
    let has = |method| offered.contains(&method);
    let mut passed_over = Vec::new();
    let is_vouched_for = is_local(shared, index) && has(AuthType::None);
    if !is_vouched_for && has(AuthType::Gss) {
        match with_any_ticket(shared, index, options, connected).await {
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
    let identity = without_proof(shared, index, options, connected).await?;
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

/// With whatever ticket there is.
async fn with_any_ticket(
    shared: &Rc<Shared>,
    index: usize,
    options: &SessionOptions,
    connected: &Connected,
) -> Result<Identity> {
    let tickets = Tickets::default();
    let credential = tickets.find().map_err(|why| kerberos_error(shared, index, why))?;
    by_kerberos(shared, index, options, &tickets, credential, connected).await
}

/// CLIENT_AUTH without anything to show.
async fn without_proof(
    shared: &Rc<Shared>,
    index: usize,
    options: &SessionOptions,
    connected: &Connected,
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
    let credentials_max = if result.trusted { connected.granted.credentials_max } else { 0 };
    let trusted = result.trusted;
    Ok(Identity { trusted, credentials_max, ..Identity::of(AuthType::None) })
}

/// CLIENT_AUTH with tokens, bound to the session they are made for.
async fn by_kerberos(
    shared: &Rc<Shared>,
    index: usize,
    options: &SessionOptions,
    tickets: &Tickets,
    credential: Arc<Credential>,
    connected: &Connected,
) -> Result<Identity> {
    let service = match &tickets.service {
        Some(service) => service.clone(),
        None => {
            let host = host_name(&options.host);
            ServiceName::of_host(&host).map_err(|error| ClientError::Kerberos {
                address: address_of(shared, index),
                reason: error.to_string(),
                status: None,
            })?
        }
    };
    let granted = connected.granted.request_bytes_max;
    let renewal = Renewal {
        tickets: tickets.clone(),
        service,
        session: connected.session,
        client: connected.client,
        request_bytes_max: granted.min(token_request_bytes(shared, index)),
    };
    let (context, trusted) = exchange(shared, index, &renewal, credential).await?;
    let credentials_max = if trusted { connected.granted.credentials_max } else { 0 };
    Ok(Identity {
        trusted,
        credentials_max,
        server: Some(context.peer().to_string()),
        expires: Instant::now().checked_add(context.lifetime()),
        renewal: Some(renewal),
        ..Identity::of(AuthType::Gss)
    })
}

/// Exchanges tokens until both sides are proved.
async fn exchange(
    shared: &Rc<Shared>,
    index: usize,
    renewal: &Renewal,
    credential: Arc<Credential>,
) -> Result<(Context, bool)> {
    let room = renewal.request_bytes_max;
    let address = address_of(shared, index);
    let failed = |error: GssError| ClientError::Kerberos {
        address: address.clone(),
        reason: format!("{error} (as a client of {})", renewal.service),
        status: None,
    };
    let initiator = Initiator::new(credential, &renewal.service).map_err(failed)?;
    let mut step = initiator.bound_to(&renewal.binding()).step(None).map_err(failed)?;
    let mut procedure = GssProcedure::Init;
    loop {
        let (party, token) = match step {
            Step::Continue { party, token } => (party, token),
            // The first step has something to say, and the last one nothing.
            Step::Done { .. } => return Err(unexpected(&address, "CLIENT_AUTH")),
        };
        let answer = send_token(shared, index, procedure, &token, room)?.await?;
        let (header, response) = decode_any(Procedure::ClientAuth, &answer, &address)?;
        let result = match response {
            Response::ClientAuth(result) => Some(result),
            _ => None,
        };
        let (major, theirs) = match result.map(|result| result.authentication) {
            Some(AuthResult::Gss { major, token, .. }) => (major, token),
            _ => (0, &[][..]),
        };
        match header.status {
            Status::Ok => {
                let trusted = result.is_some_and(|result| result.trusted);
                return match party.step(Some(theirs)).map_err(failed)? {
                    Step::Done { context, token: None } => Ok((context, trusted)),
                    Step::Done { .. } | Step::Continue { .. } => {
                        Err(unexpected(&address, "CLIENT_AUTH"))
                    }
                };
            }
            Status::GssContinueInit => {
                step = party.step(Some(theirs)).map_err(failed)?;
                procedure = GssProcedure::Continue;
            }
            status => {
                let reason = match theirs {
                    [] => refusal(status, major).to_owned(),
                    // Not signed, and no proof of anything, but what an honest client needs.
                    token => match party.step(Some(token)) {
                        Err(error) => error.to_string(),
                        Ok(_) => refusal(status, major).to_owned(),
                    },
                };
                return Err(ClientError::Kerberos { address, reason, status: Some(status) });
            }
        }
    }
}

fn send_token(
    shared: &Rc<Shared>,
    index: usize,
    procedure: GssProcedure,
    token: &[u8],
    room: u32,
) -> Result<Answer> {
    if token.len() + TOKEN_ROOM > room as usize {
        return Err(ClientError::Kerberos {
            address: address_of(shared, index),
            reason: format!(
                "the ticket makes a token of {} octets, and the server takes requests of {room} \
                 (max-token of [kerberos] says so); users with fewer groups have smaller tickets",
                token.len()
            ),
            status: None,
        });
    }
    let service = GssService::Authentication;
    let authentication = AuthRequest::Gss { procedure, service, token };
    // For this request alone: the receives of all others are small.
    let usual = std::mem::replace(&mut shared.borrow_mut().sessions[index].request_bytes_max, room);
    let answer = Answer::to(shared, index, &Request::ClientAuth(ClientAuth { authentication }));
    shared.borrow_mut().sessions[index].request_bytes_max = usual;
    answer
}

impl Session {
    /// As what the session was established.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.identity_cell().borrow().clone()
    }

    /// Proves the client's identity anew, as one whose proof expires ([`Identity::expires`])
    /// must before that: past it the server answers all else with NOT_AUTHENTICATED, and
    /// gives the session up after a lease. Does nothing for others. Blocks as connecting does.
    ///
    /// # Errors
    /// [`ClientError::Kerberos`]: without a fresh ticket, or as the server says; the session
    /// goes on until the old proof's time.
    pub fn renew(&self) -> Result<()> {
        let Some(renewal) = self.identity().and_then(|identity| identity.renewal) else {
            return Ok(());
        };
        let (shared, index) = (&self.shared, self.index);
        let credential =
            renewal.tickets.find().map_err(|why| kerberos_error(shared, index, why))?;
        let exchanged = self.run(exchange(shared, index, &renewal, credential));
        let (context, trusted) = exchanged?;
        if let Some(identity) = &mut *self.identity_cell().borrow_mut() {
            identity.expires = Instant::now().checked_add(context.lifetime());
            identity.trusted = trusted;
        }
        Ok(())
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
            renewal: None,
        }
    }

    /// How long the proof is still good; `None` for as long as the session.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.expires.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

impl Renewal {
    /// What the token is bound to (`docs/decisions/0012-kerberos.md`).
    fn binding(&self) -> Vec<u8> {
        let mut octets = b"dafs1".to_vec();
        octets.extend_from_slice(&self.session.0.to_le_bytes());
        octets.extend_from_slice(&self.client.0.to_le_bytes());
        octets.push(OPERATION_CHANNEL);
        octets
    }
}

impl Tickets {
    /// Finds the tickets. Blocks: reads files, and with a keytab asks a centre.
    fn find(&self) -> std::result::Result<Arc<Credential>, String> {
        let library = Library::load().map_err(|error| error.to_string())?;
        let credential = Credential::acquire(&library, &self.source);
        credential.map(Arc::new).map_err(|error| error.to_string())
    }
}

/// The longest request the transport was set up for.
fn token_request_bytes(shared: &Rc<Shared>, index: usize) -> u32 {
    if is_local(shared, index) { SLOT_BYTES as u32 } else { limits::REQUEST_BYTES_MAX as u32 }
}

/// The longest message of a connection that may carry a ticket.
pub(crate) fn message_bytes_max(address: &Address, login: &Login) -> u32 {
    let may_be_long = matches!(login, Login::Kerberos(_) | Login::Automatic);
    match address {
        Address::Tcp(_) | Address::Sim(_) if may_be_long => limits::REQUEST_BYTES_MAX as u32,
        // A ring is made for the longest message, and other messages pay for that.
        Address::Tcp(_) | Address::Sim(_) | Address::Shm(_) => SLOT_BYTES as u32,
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

fn kerberos_error(shared: &Rc<Shared>, index: usize, reason: String) -> ClientError {
    ClientError::Kerberos { address: address_of(shared, index), reason, status: None }
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

/// Why a server may refuse without a word.
fn refusal(status: Status, major: u32) -> &'static str {
    match (status, major) {
        (Status::NotAuthorized, UNAUTHORIZED) => {
            "the server knows who you are, and has no user or no rule for you: its log says \
             which is missing"
        }
        (Status::NotAuthorized, 0) => "a rule of the server keeps you out: its log says which",
        (Status::NotAuthorized, _) => "the server does not take the ticket: its log says why",
        (Status::NotSupp, _) => "the server does not offer it",
        (Status::ServerFault, _) => "the server cannot use its own keys: its log says why",
        (Status::Inval, _) => "the server cannot read the token",
        (Status::ClidInUse, _) => "another principal has the client's name",
        _ => "the server refuses; its log says why",
    }
}

/// GSS_S_UNAUTHORIZED.
const UNAUTHORIZED: u32 = 15 << 16;
/// Octets of a request besides its token: header, fixed section, count.
const TOKEN_ROOM: usize = 128;
/// As the binding has it.
const OPERATION_CHANNEL: u8 = 0;
