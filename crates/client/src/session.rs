//! Sessions: finding a server, connecting, authenticating, leaving.
//!
//! Invariant: a `Session` value stands for a session that was established; whether it
//! still is, every call finds out for itself.

use std::cell::RefCell;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::{
    Address, AddressError, EndpointConfig, EndpointId, Inbox, MpaOptions, RegionPath, Rights,
    TlsClient, TlsConfigError, TlsTarget,
};
use dafs_memory::{Memory, Pages};
use dafs_types::{ClientId, FileHandle, SessionId, Status, Verifier, limits};
use dafs_wire::messages::{ClientConnectAuth, Empty, SessionOptions as WireOptions};
use dafs_wire::{ByteOrder, ChannelType, ConnectData, Procedure, Request, Response};

use crate::acting::{Registered, Registrations};
use crate::back::BackWish;
use crate::buffer::Buffer;
use crate::call::Answer;
use crate::client::{Client, Shared};
use crate::core::{Core, DOMAIN, Phase, SLOT_BYTES, SPARE_SLOTS, SessionState};
use crate::credits::Credits;
use crate::decode::decode;
use crate::error::{ClientError, Result};
use crate::future::run;
use crate::label::Label;
use crate::login::{self, Identity, Login, message_bytes_max};
use crate::reasons::TLS_REQUIRED_ADVICE;
use crate::recovery::{Keeper, Place, Places, Recovery, SessionEvent};
use crate::typed::done;
use crate::umask::Umask;
use crate::url::{Location, ServerName, local_socket_candidates};

/// Which transports may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// Shared memory if the server is on this host and offers it, else TCP.
    #[default]
    Automatic,
    /// Shared memory or nothing.
    SharedMemory,
    /// TCP or nothing.
    Tcp,
}

/// What a session should be like.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Transport.
    pub transport: TransportChoice,
    /// Identity.
    pub login: Login,
    /// Whether the session comes back by itself when its connection is lost.
    pub recovery: Recovery,
    /// Name of the server's host, for whoever proves itself as a service of it; empty where
    /// it is this host.
    pub host: String,
    /// Whether the server keeps the results of requests that change something, for the case
    /// that an answer is lost, even for a session that does not come back by itself; for one
    /// that does, it always keeps them.
    pub response_cache: bool,
    /// Checksums on every message and all data.
    pub checksums: bool,
    /// CRC on iWARP frames; not over TLS, which needs none.
    pub crc: bool,
    /// What TLS is spoken with over TCP; a location that does not ask for TLS does without.
    pub tls: Option<TlsClient>,
    /// Whose certificate a server must show; `None` for the host of its location, or the
    /// address itself.
    pub tls_name: Option<String>,
    /// Credits to ask for: the most requests to have outstanding.
    pub credits: u16,
    /// Names this client to its server across connections; empty for a random name. No two
    /// sessions that stand at once may have the same.
    pub client_name: String,
    /// Name for fencing.
    pub fence_id: String,
    /// Whether files are asked for with the right to keep what is read of them (delegations):
    /// [`File::read_at`](crate::File::read_at) and [`File::metadata`](crate::File::metadata) are
    /// then answered without a message where possible. Others who want to change such a file
    /// wait until this client has turned, that is, until its next call: not for programs that
    /// rest for long with files open.
    pub delegations: bool,
    /// Longest silence of the server while a call waits for its answer, after which the
    /// connection is given up; `None` waits for ever. [`Client::wait`] has a time of its own.
    pub answer_timeout: Option<Duration>,
    /// What is taken away from the modes of what this session makes.
    pub umask: Umask,
    /// What its requests bear, so that they can be followed at the server;
    /// [`Session::set_label`] changes it.
    pub label: Label,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            transport: TransportChoice::Automatic,
            login: Login::None,
            recovery: Recovery::default(),
            host: String::new(),
            response_cache: false,
            checksums: false,
            crc: false,
            tls: None,
            tls_name: None,
            credits: 64,
            client_name: String::new(),
            fence_id: String::new(),
            delegations: false,
            answer_timeout: Some(ANSWER_TIMEOUT),
            umask: Umask::default(),
            label: Label::default(),
        }
    }
}

impl SessionOptions {
    /// What a session is asked for.
    pub(crate) fn wishes(&self, credits: u16) -> WireOptions {
        WireOptions {
            checksums: self.checksums,
            response_cache: self.response_cache || self.recovery != Recovery::Off,
            // Opened only if something needs it.
            back_control_channel: true,
            requests_max: u32::from(credits),
            request_bytes_max: SLOT_BYTES as u32,
            response_bytes_max: SLOT_BYTES as u32,
            ..WireOptions::default()
        }
    }

    /// The client's name for itself.
    pub(crate) fn name(&self) -> String {
        if self.client_name.is_empty() {
            format!("{}-{:016x}", std::process::id(), random())
        } else {
            self.client_name.clone()
        }
    }

    /// Answers that there must be room for.
    fn slots(&self) -> u16 {
        self.credits.clamp(1, limits::CREDITS_MAX) + SPARE_SLOTS
    }
}

/// A session with a server. Cheap to clone. It ends with its last clone, the open files
/// among them: what is outstanding then fails.
#[derive(Clone)]
pub struct Session {
    pub(crate) shared: Rc<Shared>,
    pub(crate) index: usize,
    pub(crate) root: FileHandle,
    /// Whom it acts for, unless for itself.
    pub(crate) acting: Option<Registered>,
    _anchor: Rc<Anchor>,
}

/// What all clones of a session have in common.
struct Anchor {
    shared: Rc<Shared>,
    index: usize,
}

impl Drop for Anchor {
    fn drop(&mut self) {
        self.shared.leave(self.index);
    }
}

impl Client {
    /// Connects to the server of a location. The location's user, if any, counts for
    /// more than `options.login`.
    ///
    /// # Errors
    /// [`ClientError::Connect`] with every address tried and why it failed;
    /// [`ClientError::Login`] if the server refuses the identity.
    pub fn connect(&self, location: &Location, options: &SessionOptions) -> Result<Session> {
        let mut options = options.clone();
        if let Some((user, password)) = &location.user {
            let password = password.clone().or_else(|| match &options.login {
                Login::Password { password, .. } => Some(password.clone()),
                Login::None | Login::Kerberos(_) | Login::Automatic => None,
            });
            options.login =
                Login::Password { user: user.clone(), password: password.unwrap_or_default() };
        }
        if let (true, ServerName::Host { host, .. } | ServerName::Verbs { host, .. }) =
            (options.host.is_empty(), &location.server)
        {
            options.host.clone_from(host);
        }
        let places = places(&location.server, options.transport)?;
        let found = places.now();
        let is_tls = fit_tls(&location.server, &mut options)?;
        let mut reasons = Vec::new();
        for place in &found {
            let connecting = self.start_connect(place, &options, places.clone());
            let connected = connecting.and_then(|(index, future)| run(&self.0, index, future));
            match connected {
                Ok(session) => return Ok(session),
                // The only address says no more than the server's name.
                Err(ClientError::Connect { reason, .. }) if found.len() == 1 => {
                    reasons.push(reason);
                }
                Err(ClientError::Connect { reason, .. }) => {
                    reasons.push(format!("{}: {reason}", place.address));
                }
                Err(other) => return Err(other),
            }
        }
        reasons.extend(places.passed_over());
        let mut reason = reasons.join("; ");
        // By TLS it has mostly answered, and what it said tells more.
        if !is_tls && !reason.contains(TLS_REQUIRED_ADVICE) {
            reason.push_str("; is `dafs serve` running there?");
        }
        Err(ClientError::Connect { address: location.server.to_string(), reason })
    }

    /// Connects to one transport address.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_to(&self, address: &Address, options: &SessionOptions) -> Result<Session> {
        let places = Places::one(address.clone());
        let place = Place::named(address.clone());
        let (index, establishing) = self.start_connect(&place, options, places)?;
        run(&self.0, index, establishing)
    }

    /// Connects to one transport address while the thread does other things; it is under
    /// way at once. Whoever polls it must also turn the client.
    ///
    /// # Errors
    /// As [`Client::connect`]; what cannot even begin fails here.
    pub fn connect_async(
        &self,
        address: &Address,
        options: &SessionOptions,
    ) -> Result<impl Future<Output = Result<Session>> + use<>> {
        let place = Place::named(address.clone());
        Ok(self.start_connect(&place, options, Places::one(address.clone()))?.1)
    }

    /// Begins to connect; the future goes on with the exchange that makes a session.
    fn start_connect(
        &self,
        place: &Place,
        options: &SessionOptions,
        places: Places,
    ) -> Result<(usize, impl Future<Output = Result<Session>> + use<>)> {
        let index = self.begin(place, options, places)?;
        // From here on whatever goes wrong ends the session by dropping this.
        let (shared, options) = (self.0.clone(), options.clone());
        let anchor = Rc::new(Anchor { shared: self.0.clone(), index });
        Ok((index, async move {
            let root = establish(&shared, index, &options).await?;
            Ok(Session { shared, index, root, acting: None, _anchor: anchor })
        }))
    }

    /// Starts the transport connection and posts the receives.
    fn begin(&self, place: &Place, options: &SessionOptions, places: Places) -> Result<usize> {
        let address = &place.address;
        let mut core = self.0.borrow_mut();
        let credits = options.credits.clamp(1, limits::CREDITS_MAX);
        let failed = |reason: String| ClientError::Connect { address: address.to_string(), reason };
        let (endpoint, inbox) = core.open_endpoint(place, options).map_err(failed)?;
        Ok(core.add_session(SessionState {
            endpoint,
            address: address.to_string(),
            phase: Phase::Connecting,
            greeting: None,
            credits: Credits::new(credits),
            inbox,
            pending: Vec::new(),
            queue: std::collections::VecDeque::new(),
            calls: std::collections::VecDeque::new(),
            chains: crate::chain::send::ChainQueue::default(),
            wish: credits,
            // Until sizes are negotiated (draft 3.1).
            request_bytes_max: limits::CONNECT_MESSAGE_BYTES as u32,
            response_bytes_max: limits::CONNECT_MESSAGE_BYTES as u32,
            options: Rc::new(options.clone()),
            place: place.clone(),
            id: SessionId(0),
            client: ClientId(0),
            identity: None,
            prover: None,
            token_bytes_max: 0,
            registered: Registrations::default(),
            label: options.label.get(),
            back_wish: BackWish::default(),
            delegated: options.delegations.then(Box::default),
            answer_timeout: options.answer_timeout,
            checksums: false,
            writes_inline: true,
            keeper: Keeper::new(options, places).map(Box::new),
            is_frail: false,
            has_spoken: false,
        }))
    }
}

impl Core {
    /// Starts a transport connection, with a receive posted for every slot of a new inbox.
    fn open_endpoint(
        &mut self,
        place: &Place,
        options: &SessionOptions,
    ) -> std::result::Result<(EndpointId, Inbox), String> {
        let address = &place.address;
        let slots = options.slots();
        let tls = tls_target(address, options).map_err(|error| error.to_string())?;
        let config = EndpointConfig {
            message_bytes_max: message_bytes_max(address, &options.login),
            receives_max: u32::from(slots),
            crc: options.crc,
            tls,
            mpa: MpaOptions { long_frames: true, ..MpaOptions::default() },
            socket_trust: place.trust,
            ..EndpointConfig::default()
        };
        let data = ConnectData {
            client_instance: std::process::id(),
            client_session: random() as u32,
            channel: ChannelType::Operation,
        };
        let data = data.encode(ByteOrder::NATIVE);
        let mut inbox = Inbox::new(&mut self.interface, DOMAIN, slots, SLOT_BYTES as u32)
            .map_err(|error| error.to_string())?;
        match self.interface.connect(address, DOMAIN, &config, &data) {
            Ok(endpoint) => {
                while inbox.post(&mut self.interface, endpoint) {}
                Ok((endpoint, inbox))
            }
            Err(error) => {
                self.interface.deregister(inbox.key());
                Err(match error {
                    AddressError::System { source, .. } => source.to_string(),
                    other => other.to_string(),
                })
            }
        }
    }

    /// Begins to connect a session once more. It has nothing under way.
    pub fn connect_again(
        &mut self,
        index: usize,
        place: &Place,
        options: &SessionOptions,
    ) -> std::result::Result<(), String> {
        let (endpoint, inbox) = self.open_endpoint(place, options)?;
        let session = &mut self.sessions[index];
        let former = std::mem::replace(&mut session.inbox, inbox);
        self.interface.deregister(former.key());
        (session.endpoint, session.address) = (endpoint, place.address.to_string());
        session.place = place.clone();
        session.request_bytes_max = limits::CONNECT_MESSAGE_BYTES as u32;
        session.checksums = false;
        self.note_endpoint(endpoint, index);
        Ok(())
    }
}

/// Waits for the connection, authenticates, and asks for the root.
async fn establish(
    shared: &Rc<Shared>,
    index: usize,
    options: &SessionOptions,
) -> Result<FileHandle> {
    Answer::to_connect(shared, index)?.await?;
    let address = shared.borrow().sessions[index].address.clone();
    let (name, verifier) = match &shared.borrow().sessions[index].keeper {
        Some(keeper) => (keeper.name.clone(), keeper.verifier),
        None => (options.name(), Verifier(random().to_ne_bytes())),
    };
    let greeting = login::Greeting { options, name: &name, verifier };
    let identity = login::establish(shared, index, &greeting).await?;
    shared.borrow_mut().on_established(index, identity);
    let reply = Answer::to(shared, index, &Request::GetRootHandle(Empty))?.await?;
    let what = || format!("asking {address} for its root");
    match decode(Procedure::GetRootHandle, &reply, &address, what)? {
        (_, Response::GetRootHandle(root)) => Ok(root.file),
        _ => Err(unexpected(&address, "GET_ROOT_HANDLE")),
    }
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

impl Core {
    /// The server has let the client in for the first time.
    pub(crate) fn on_connected(
        &mut self,
        index: usize,
        granted: &WireOptions,
        id: SessionId,
        client: ClientId,
    ) -> Result<()> {
        self.apply(index, granted)?;
        let session = &mut self.sessions[index];
        (session.id, session.client) = (id, client);
        if !granted.response_cache {
            // Without kept results nobody could say what became of a request; and without
            // questions for them the server does not part the old connection, which might
            // go on to write into memory that a new one uses.
            session.keeper = None;
        }
        Ok(())
    }

    /// The client has proved itself: from now on the session comes back by itself.
    fn on_established(&mut self, index: usize, identity: Identity) {
        let session = &mut self.sessions[index];
        session.identity = Some(identity);
        if let Some(keeper) = &mut session.keeper {
            (keeper.session, keeper.client) = (Some(session.id), session.client);
        }
    }

    /// From now on the session is as the server granted.
    pub(crate) fn apply(&mut self, index: usize, granted: &WireOptions) -> Result<()> {
        let session = &mut self.sessions[index];
        session.checksums = granted.checksums;
        // The server may change any value; what it grants beyond ours is not used.
        session.request_bytes_max = granted.request_bytes_max.min(SLOT_BYTES as u32);
        session.token_bytes_max = granted.request_bytes_max.min(session.token_request_bytes());
        session.response_bytes_max = granted.response_bytes_max.min(SLOT_BYTES as u32);
        if session.request_bytes_max < limits::REQUEST_BYTES_MIN as u32 {
            return Err(ClientError::Protocol {
                address: session.address.clone(),
                what: format!("requests of {} octets at most", session.request_bytes_max),
            });
        }
        // One small region tells how bytes get to memory that the library allocates.
        let probe = Memory::shared(4096, Pages::Small)
            .map_err(|error| crate::core::system("allocating memory", error))?;
        if let Some(region) = self.interface.register(&probe, DOMAIN, Rights::LOCAL) {
            let endpoint = self.sessions[index].endpoint;
            let path = self.interface.region_path(endpoint, region.key);
            self.sessions[index].choose_write_form(path.unwrap_or(RegionPath::Network));
            self.interface.deregister(region.key);
        }
        Ok(())
    }
}

impl Session {
    /// The transport address in use: after a loss of the connection it may be another than
    /// before.
    #[must_use]
    pub fn address(&self) -> Address {
        self.shared.borrow().sessions[self.index].place.address.clone()
    }

    /// The client it belongs to.
    #[must_use]
    pub fn client(&self) -> Client {
        Client(self.shared.clone())
    }

    /// How bytes get into a buffer over this session; `None` while it has no connection.
    #[must_use]
    pub fn path_of(&self, buffer: &Buffer) -> Option<RegionPath> {
        let core = self.shared.borrow();
        let session = &core.sessions[self.index];
        let endpoint = match session.phase {
            Phase::Open => session.endpoint,
            Phase::Connecting | Phase::Recovering | Phase::Ended(_) => return None,
        };
        core.interface.region_path(endpoint, buffer.0.region.key)
    }

    /// Credits now: the most requests that may be outstanding.
    #[must_use]
    pub fn credits(&self) -> u16 {
        self.shared.borrow().sessions[self.index].credits.nreq()
    }

    /// A round trip that does nothing but renew the lease.
    ///
    /// # Errors
    /// If the session has ended.
    pub fn ping(&self) -> Result<()> {
        self.run(self.ping_async())
    }

    /// The same; under way at once.
    pub fn ping_async(&self) -> impl Future<Output = Result<()>> + '_ {
        self.ask(&Request::Null(Empty), |status, _| done("NULL", status))
    }

    /// Has `listener` told of what becomes of the connection, from now on, within calls of
    /// this client that make progress. It may use the client, but must not hold the session,
    /// which would last for ever. Nothing is told of a session that does not come back by
    /// itself.
    pub fn on_event(&self, listener: impl FnMut(&SessionEvent) + 'static) {
        let mut core = self.shared.borrow_mut();
        if let Some(keeper) = &mut core.sessions[self.index].keeper {
            let before = keeper.listener.replace(Rc::new(RefCell::new(listener)));
            core.retired.extend(before);
        }
        drop(core);
        self.shared.tell();
    }

    /// Leaves in order. Every operation that is outstanding fails.
    ///
    /// # Errors
    /// If the session has ended already, or its connection is lost and does not come back
    /// within some seconds.
    pub fn disconnect(self) -> Result<()> {
        let session = self.clone();
        session.run(self.disconnect_async())
    }

    /// The same, once it is polled.
    ///
    /// # Errors
    /// As [`Session::disconnect`].
    pub async fn disconnect_async(self) -> Result<()> {
        // A connection that breaks over this, or is lost, comes back once more, so that the
        // server forgets what it keeps; but nobody waits for that for long.
        if let Some(keeper) = &mut self.shared.borrow_mut().sessions[self.index].keeper {
            keeper.hurry(LEAVING_MAX);
        }
        let leaving = self.ask(&Request::Disconnect(Empty), |status, _| done("DISCONNECT", status));
        let result = leaving.await;
        let mut core = self.shared.borrow_mut();
        let endpoint = core.sessions[self.index].endpoint;
        core.end_session(self.index, "disconnected".into());
        core.interface.disconnect(endpoint);
        result
    }

    /// Runs a future of this session's on this thread.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        run(&self.shared, self.index, future)
    }

    /// Makes a call and reads its answer, be it a failure.
    pub(crate) fn call<T>(
        &self,
        request: &Request<'_>,
        read: impl FnOnce(Status, &Response<'_>) -> Result<T> + Unpin,
    ) -> Result<T> {
        self.run(self.ask(request, read))
    }

    pub(crate) fn protocol_error(&self, what: &str) -> ClientError {
        unexpected(&self.shared.borrow().sessions[self.index].address, what)
    }
}

pub(crate) fn unexpected(address: &str, what: &str) -> ClientError {
    ClientError::Protocol {
        address: address.to_owned(),
        what: format!("{what} was answered with results of another procedure"),
    }
}

/// Fits the options to whether a server's name asks for TLS. Whether it does.
fn fit_tls(server: &ServerName, options: &mut SessionOptions) -> Result<bool> {
    let ServerName::Host { host, tls: true, .. } = server else {
        options.tls = None;
        return Ok(false);
    };
    if options.tls.is_none() {
        return Err(ClientError::Connect {
            address: server.to_string(),
            reason: "TLS needs the authorities that vouch for servers; \
                     give --tls-ca FILE or DAFS_TLS_CA"
                .into(),
        });
    }
    options.tls_name.get_or_insert_with(|| host.clone());
    Ok(true)
}

/// Whom TLS is spoken with at an address, if it is.
pub(crate) fn tls_target(
    address: &Address,
    options: &SessionOptions,
) -> std::result::Result<Option<TlsTarget>, TlsConfigError> {
    let (Address::Tcp(socket), Some(tls)) = (address, &options.tls) else { return Ok(None) };
    let name = options.tls_name.clone().unwrap_or_else(|| socket.ip().to_string());
    tls.target(&name).map(Some)
}

/// Where a server may be found, now and later.
fn places(server: &ServerName, choice: TransportChoice) -> Result<Places> {
    let (host, port) = match server {
        ServerName::Socket(_) if choice == TransportChoice::Tcp => {
            return Err(ClientError::Connect {
                address: server.to_string(),
                reason: "a socket path leads over shared memory, not TCP; \
                         name the server with dafs://host[:port]/path"
                    .into(),
            });
        }
        ServerName::Socket(path) => return Ok(Places::one(Address::Shm(path.clone()))),
        ServerName::Verbs { host, port } => return places_by_verbs(server, host, *port, choice),
        ServerName::Host { tls: true, .. } if choice == TransportChoice::SharedMemory => {
            return Err(ClientError::Connect {
                address: server.to_string(),
                reason: "TLS goes over TCP, not over shared memory; write dafs://".into(),
            });
        }
        ServerName::Host { host, port, .. } => (host, *port),
    };
    // Whoever asks for TLS wants that server proved, on whatever host it is.
    let is_tls = matches!(server, ServerName::Host { tls: true, .. });
    let choice = if is_tls { TransportChoice::Tcp } else { choice };
    let failed = |reason: String| ClientError::Connect { address: server.to_string(), reason };
    let sockets: Vec<_> = (host.as_str(), port)
        .to_socket_addrs()
        .map_err(|error| failed(format!("the host name cannot be resolved: {error}")))?
        .collect();
    let is_local = sockets.iter().any(|address| is_own(address.ip()));
    let local = match choice != TransportChoice::Tcp && is_local {
        true => local_socket_candidates(port),
        false => Vec::new(),
    };
    let fixed = match choice {
        TransportChoice::SharedMemory => Vec::new(),
        TransportChoice::Automatic | TransportChoice::Tcp => {
            sockets.into_iter().map(Address::Tcp).collect()
        }
    };
    let places = Places::new(local, fixed);
    if places.now().is_empty() {
        let mut reason = "no server on this host offers shared memory at the usual places; \
                          name its socket with dafs+shm:///path/to/socket!/path"
            .to_owned();
        for passed_over in places.passed_over() {
            reason.push_str(&format!("; {passed_over}"));
        }
        return Err(failed(reason));
    }
    Ok(places)
}

/// Through RDMA devices; a session that has lost its own, and finds no other, comes back over
/// TCP.
fn places_by_verbs(
    server: &ServerName,
    host: &str,
    port: u16,
    choice: TransportChoice,
) -> Result<Places> {
    let failed = |reason: String| ClientError::Connect { address: server.to_string(), reason };
    if choice != TransportChoice::Automatic {
        return Err(failed("dafs+verbs:// names the transport already".into()));
    }
    let sockets: Vec<_> = (host, port)
        .to_socket_addrs()
        .map_err(|error| failed(format!("the host name cannot be resolved: {error}")))?
        .collect();
    let spare = sockets.iter().copied().map(Address::Tcp).collect();
    let fixed = sockets.into_iter().map(Address::Verbs).collect();
    Ok(Places::new(Vec::new(), fixed).with_spare(spare))
}

/// Whether an address is one of this host's: only those can be bound.
fn is_own(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Unpredictable bits, for names only.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without the kernel's generator names are merely less likely to be unique.
    let _ = getrandom::fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// Longest time to reach a lost server, only to leave it.
const LEAVING_MAX: Duration = Duration::from_secs(5);
/// A server that works at something answers far sooner.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
