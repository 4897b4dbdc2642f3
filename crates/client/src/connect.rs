//! Finds a server, connects to it and logs in, both the first time and when reconnecting.
//!
//! Invariant: any failure while a session is being established ends it.

use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::rc::Rc;

use dafs_dat::{Address, EndpointId, RegionPath, Rights};
use dafs_memory::{Memory, Pages};
use dafs_types::{ClientId, FileHandle, SessionId, Verifier, limits};
use dafs_wire::messages::{Empty, SessionOptions as WireOptions};
use dafs_wire::{ChannelType, ConnectData, Procedure, Request, Response};

use crate::channels::opening::open_additional_channels;
use crate::client::{Client, Shared};
use crate::connect_request::ConnectParameters;
use crate::core::Core;
use crate::decode::{decode, unexpected};
use crate::disconnect_reasons::TLS_REQUIRED_ADVICE;
use crate::driving::run;
use crate::error::{ClientError, Result, system};
use crate::features::{without_tls, without_verbs};
use crate::ids::SessionKey;
use crate::login::establish::log_in;
use crate::login::identity::{Identity, Login, message_bytes_max};
use crate::options::{SessionOptions, TransportChoice, random};
use crate::recovery::machine::RecoveryMachine;
use crate::recovery::server_addresses::{ServerAddress, ServerAddresses};
use crate::reply_future::ReplyFuture;
use crate::session::{Anchor, Session};
use crate::sizes::DOMAIN;
use crate::state::SessionState;
use crate::transport::{NotOpened, Opening, Owner, Transport};
use crate::url::{Location, ServerName, local_socket_candidates};

impl Client {
    /// Connects to the server in `location`. A user name in the location overrides `options.login`.
    ///
    /// # Errors
    /// [`ClientError::Connect`] with every address that was tried and why it failed;
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
        let (mut reasons, mut first_system) = (Vec::new(), None);
        for place in &found {
            let connecting = self.start_connect(place, &options, places.clone());
            let connected = connecting.and_then(|(key, future)| run(&self.0, key, future));
            match connected {
                Ok(session) => return Ok(session),
                // If there was only one address, the error names the server alone.
                Err(ClientError::Connect { reason, system, .. }) if found.len() == 1 => {
                    (reasons, first_system) = (vec![reason], system);
                }
                Err(ClientError::Connect { reason, system, .. }) => {
                    reasons.push(format!("{}: {reason}", place.address));
                    first_system = first_system.or(system);
                }
                Err(other) => return Err(other),
            }
        }
        reasons.extend(places.passed_over());
        let mut reason = reasons.join("; ");
        // Over TLS the connection usually fails with a message from the server, which explains more
        // than this advice.
        if !is_tls && !reason.contains(TLS_REQUIRED_ADVICE) {
            reason.push_str("; is `dafs serve` running there?");
        }
        let address = location.server.to_string();
        Err(ClientError::Connect { address, reason, system: first_system })
    }

    /// Connects to one transport address, without resolving a host name.
    ///
    /// # Errors
    /// The errors of [`Client::connect`].
    pub fn connect_to(&self, address: &Address, options: &SessionOptions) -> Result<Session> {
        let places = ServerAddresses::one(address.clone());
        let place = ServerAddress::named(address.clone());
        let (key, establishing) = self.start_connect(&place, options, places)?;
        run(&self.0, key, establishing)
    }

    /// Starts to connect to one transport address and returns a future for the session. The thread
    /// that polls it must also call [`Client::process_events`].
    ///
    /// # Errors
    /// The errors of [`Client::connect`]. Failures before the connection starts are returned
    /// directly.
    pub fn connect_async(
        &self,
        address: &Address,
        options: &SessionOptions,
    ) -> Result<impl Future<Output = Result<Session>> + use<>> {
        let place = ServerAddress::named(address.clone());
        Ok(self.start_connect(&place, options, ServerAddresses::one(address.clone()))?.1)
    }

    /// Starts to connect; the returned future performs the exchange that establishes the session.
    fn start_connect(
        &self,
        place: &ServerAddress,
        options: &SessionOptions,
        places: ServerAddresses,
    ) -> Result<(SessionKey, impl Future<Output = Result<Session>> + use<>)> {
        let key = self.begin(place, options, places)?;
        // From here on any failure ends the session, by dropping `anchor`.
        let (shared, options) = (self.0.clone(), options.clone());
        let anchor = Anchor::new(self.0.clone(), key);
        Ok((key, async move {
            let root = establish(&shared, key, &options).await?;
            open_additional_channels(&shared, key).await;
            Ok(Session::new(shared, key, root, anchor))
        }))
    }

    /// Starts the transport connection and posts the receives for its replies.
    fn begin(
        &self,
        place: &ServerAddress,
        options: &SessionOptions,
        places: ServerAddresses,
    ) -> Result<SessionKey> {
        let options = Rc::new(options.clone());
        let Core { sessions, transport, .. } = &mut *self.0.borrow_mut();
        let added = sessions.add(|key| {
            let endpoint = open_endpoint(transport, key, place, &options)?;
            let recovery = RecoveryMachine::new(&options, places).map(Box::new);
            Ok(SessionState::begun(endpoint, place, options.clone(), recovery))
        });
        added.map_err(|failure: NotOpened| failure.at(&place.address))
    }
}

/// Starts the transport connection of a session.
pub(crate) fn open_endpoint(
    transport: &mut Transport,
    key: SessionKey,
    place: &ServerAddress,
    options: &SessionOptions,
) -> std::result::Result<EndpointId, NotOpened> {
    transport.open(&Opening {
        owner: Owner::Session(key),
        place,
        options,
        message_bytes_max: message_bytes_max(&place.address, &options.login),
        receives: options.slots(),
        data: ConnectData {
            client_instance: std::process::id(),
            client_session: random() as u32,
            channel: ChannelType::Operation,
        },
    })
}

impl Core {
    /// Starts to reconnect a session. The session has no requests in flight at this time.
    pub(crate) fn connect_again(
        &mut self,
        key: SessionKey,
        place: &ServerAddress,
    ) -> std::result::Result<(), String> {
        let session = &mut self.sessions[key];
        let opened = open_endpoint(&mut self.transport, key, place, &session.options);
        session.endpoint = opened.map_err(|failure| failure.reason)?;
        session.place = place.clone();
        session.address = place.address.to_string();
        session.terms.request_bytes_max = limits::CONNECT_MESSAGE_BYTES as u32;
        session.terms.checksums = false;
        Ok(())
    }

    /// Completes a session after the server has accepted the client for the first time.
    pub(crate) fn on_connected(
        &mut self,
        key: SessionKey,
        granted: &WireOptions,
        id: SessionId,
        client: ClientId,
    ) -> Result<()> {
        self.apply(key, granted)?;
        let session = &mut self.sessions[key];
        (session.standing.session, session.standing.client) = (id, client);
        if !granted.response_cache {
            // If the server kept no results, the outcome of a request would be unknown after a
            // reconnect. And only a server that handles questions about results closes the old
            // connection; otherwise that connection might go on writing into memory that the new
            // one uses.
            session.recovery = None;
        }
        Ok(())
    }

    /// Records the authenticated identity. From now on the session reconnects after it loses its
    /// connection.
    fn note_identity(&mut self, key: SessionKey, identity: Identity) {
        let session = &mut self.sessions[key];
        session.standing.identity = Some(identity);
        if let Some(machine) = &mut session.recovery {
            machine.note_established(session.standing.session, session.standing.client);
        }
    }

    /// Applies the session parameters that the server has granted.
    pub(crate) fn apply(&mut self, key: SessionKey, granted: &WireOptions) -> Result<()> {
        let session = &mut self.sessions[key];
        let token_bytes = session.token_request_bytes();
        session.terms.agree(granted, token_bytes);
        if session.terms.request_bytes_max < limits::REQUEST_BYTES_MIN as u32 {
            return Err(ClientError::Protocol {
                address: session.address.clone(),
                what: format!("requests of {} bytes at most", session.terms.request_bytes_max),
            });
        }
        // Registering one small region shows by which path data reaches memory that the library
        // allocates.
        let probe = Memory::shared(4096, Pages::Small)
            .map_err(|error| system("allocating memory", error))?;
        let interface = self.transport.interface_mut();
        if let Some(region) = interface.register(&probe, DOMAIN, Rights::LOCAL) {
            let path = interface.region_path(session.endpoint, region.key);
            session.terms.choose_write_form(path.unwrap_or(RegionPath::Network));
            interface.deregister(region.key);
        }
        Ok(())
    }
}

/// Waits for the connection, authenticates the client, and requests the handle of the root
/// directory.
pub(crate) async fn establish(
    shared: &Rc<Shared>,
    key: SessionKey,
    options: &SessionOptions,
) -> Result<FileHandle> {
    ReplyFuture::connected(shared, key)?.await?;
    let address = shared.borrow().sessions[key].address.clone();
    let (name, verifier) = match &shared.borrow().sessions[key].recovery {
        Some(machine) => {
            let (name, verifier) = machine.name();
            (name.to_owned(), verifier)
        }
        None => (options.name(), Verifier(random().to_ne_bytes())),
    };
    let parameters = ConnectParameters { options, name: &name, verifier };
    let identity = log_in(shared, key, &parameters).await?;
    shared.borrow_mut().note_identity(key, identity);
    let reply = ReplyFuture::send(shared, key, None, &Request::GetRootHandle(Empty))?.await?;
    let what = || format!("requesting the root of {address}");
    match decode(Procedure::GetRootHandle, &reply, &address, what)? {
        (_, Response::GetRootHandle(root)) => Ok(root.file),
        _ => Err(unexpected(&address, "GET_ROOT_HANDLE")),
    }
}

/// Adjusts the options to the server name. Returns true if the name requires TLS.
fn fit_tls(server: &ServerName, options: &mut SessionOptions) -> Result<bool> {
    let ServerName::Host { host, tls: true, .. } = server else {
        options.tls = None;
        return Ok(false);
    };
    if let Some(reason) = without_tls() {
        return Err(ClientError::Connect { address: server.to_string(), reason, system: None });
    }
    if options.tls.is_none() {
        return Err(ClientError::Connect {
            address: server.to_string(),
            reason: "TLS needs trusted certificate authorities; give --tls-ca FILE or DAFS_TLS_CA"
                .into(),
            system: None,
        });
    }
    options.tls_name.get_or_insert_with(|| host.clone());
    Ok(true)
}

/// Returns the addresses to try, both for the first connection and for reconnecting.
fn places(server: &ServerName, choice: TransportChoice) -> Result<ServerAddresses> {
    let (host, port) = match server {
        ServerName::Socket(_) if choice == TransportChoice::Tcp => {
            return Err(ClientError::Connect {
                address: server.to_string(),
                reason: "a socket path means shared memory, not TCP; name the server with \
                         dafs://host[:port]/path"
                    .into(),
                system: None,
            });
        }
        ServerName::Socket(path) => return Ok(ServerAddresses::one(Address::Shm(path.clone()))),
        ServerName::Verbs { host, port } => return places_by_verbs(server, host, *port, choice),
        ServerName::Host { tls: true, .. } if choice == TransportChoice::SharedMemory => {
            return Err(ClientError::Connect {
                address: server.to_string(),
                reason: "TLS works over TCP only, not over shared memory; write dafs://".into(),
                system: None,
            });
        }
        ServerName::Host { host, port, .. } => (host, *port),
    };
    // With TLS the server must be authenticated, even if it is on this host.
    let is_tls = matches!(server, ServerName::Host { tls: true, .. });
    let choice = if is_tls { TransportChoice::Tcp } else { choice };
    let failed =
        |reason: String| ClientError::Connect { address: server.to_string(), reason, system: None };
    let sockets: Vec<_> = (host.as_str(), port)
        .to_socket_addrs()
        .map_err(|error| unresolved(server, error))?
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
    let places = ServerAddresses::new(local, fixed);
    if places.now().is_empty() {
        let mut reason = "no server on this host listens for shared memory at the usual paths; \
                          name its socket with dafs+shm:///path/to/socket!/path"
            .to_owned();
        for passed_over in places.passed_over() {
            reason.push_str(&format!("; {passed_over}"));
        }
        return Err(failed(reason));
    }
    Ok(places)
}

/// Returns the error for a host name that the system does not resolve.
fn unresolved(server: &ServerName, error: std::io::Error) -> ClientError {
    let reason = format!("the host name cannot be resolved: {error}");
    let system = Some(error.into());
    ClientError::Connect { address: server.to_string(), reason, system }
}

/// Returns the addresses to try through RDMA devices. A session whose device is lost reconnects
/// over TCP if no other device reaches the server.
fn places_by_verbs(
    server: &ServerName,
    host: &str,
    port: u16,
    choice: TransportChoice,
) -> Result<ServerAddresses> {
    let failed =
        |reason: String| ClientError::Connect { address: server.to_string(), reason, system: None };
    if let Some(reason) = without_verbs() {
        return Err(failed(reason));
    }
    if choice != TransportChoice::Automatic {
        return Err(failed("dafs+verbs:// already selects the transport".into()));
    }
    let sockets: Vec<_> =
        (host, port).to_socket_addrs().map_err(|error| unresolved(server, error))?.collect();
    let spare = sockets.iter().copied().map(Address::Tcp).collect();
    let fixed = sockets.into_iter().map(Address::Verbs).collect();
    Ok(ServerAddresses::new(Vec::new(), fixed).with_spare(spare))
}

/// Returns true if an address belongs to this host: a socket can be bound only to such an address.
fn is_own(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}
