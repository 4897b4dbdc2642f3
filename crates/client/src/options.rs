//! The options of a session.
//!
//! Invariant: the options of a session do not change once it exists.

use std::time::Duration;

use dafs_dat::{Address, TlsClient, TlsConfigError, TlsTarget};
use dafs_types::limits;
use dafs_wire::messages::SessionOptions as WireOptions;

use crate::label::Label;
use crate::login::identity::Login;
use crate::recovery::options::Recovery;
use crate::setters::setters;
use crate::sizes::{SLOT_BYTES, SPARE_SLOTS};
use crate::umask::Umask;

/// Selects the transports that may be used.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// Shared memory if the server is on this host and offers it, otherwise TCP.
    #[default]
    Automatic,
    /// Shared memory only; fails if the server does not offer it.
    SharedMemory,
    /// TCP only, even to a server on this host.
    Tcp,
}

/// The options of a session, for [`Client::connect`](crate::Client::connect).
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The transports over which the session may connect.
    pub transport: TransportChoice,
    /// The identity and the method by which the client authenticates.
    pub login: Login,
    /// Controls reconnecting after the connection is lost.
    pub recovery: Recovery,
    /// The name of the server's host, for authentication by Kerberos; an empty name means this
    /// host.
    pub host: String,
    /// True to ask the server to keep the results of requests that change something, in case a
    /// reply is lost. Sessions with recovery always do so; the option matters only to sessions
    /// without recovery.
    pub response_cache: bool,
    /// True to send checksums with every message and all data.
    pub checksums: bool,
    /// True to add a CRC to iWARP frames. TLS connections do not use it, because TLS protects the
    /// data itself.
    pub crc: bool,
    /// The TLS settings for TCP connections; not used for locations that do not ask for TLS.
    pub tls: Option<TlsClient>,
    /// The name that the server's certificate must contain; `None` for the host name or the IP
    /// address in the location.
    pub tls_name: Option<String>,
    /// The number of credits to request from the server; the number granted limits the requests in
    /// flight.
    pub credits: u16,
    /// The maximum number of connections over which transfers are spread, each with its own
    /// credits. The server may offer fewer, and [`SessionOptions::CHANNELS_MAX`] is the upper
    /// limit. Only sessions with recovery, over TCP or shared memory, can have more than one
    /// connection. See [`Session::channel_count`](crate::Session::channel_count).
    pub channels: u16,
    /// The name by which the server knows this client, also after a reconnect; empty for a random
    /// name. Two sessions that exist at the same time must not have the same name.
    pub client_name: String,
    /// The fence identity of this client, by which fencing lists name it.
    pub fence_id: String,
    /// True to request delegations, which allow this client to cache what it reads.
    /// [`File::read_at`](crate::File::read_at) and [`File::metadata`](crate::File::metadata) then
    /// avoid messages where possible. Another client that wants to change such a file has to wait
    /// until this client next calls the library, so do not enable delegations in programs that keep
    /// files open while they are idle.
    pub delegations: bool,
    /// True to allow this process to read files through its own descriptors while it holds a read
    /// delegation, if the server is on the same host. The server hands over the descriptors.
    pub direct_reads: bool,
    /// The timeout for replies: if the server sends nothing for this long while a call waits, the
    /// connection is considered lost, and the session reconnects or ends. `None` means no timeout.
    /// [`Client::wait`](crate::Client::wait) has its own timeout.
    pub answer_timeout: Option<Duration>,
    /// The bits removed from the modes of new files and directories.
    pub umask: Umask,
    /// The label sent in all requests, by which the server's operator can follow them;
    /// [`Session::set_label`](crate::Session::set_label) changes it.
    pub label: Label,
}

setters! { SessionOptions:
    transport: TransportChoice,
    login: Login,
    recovery: Recovery,
    host: String,
    response_cache: bool,
    checksums: bool,
    crc: bool,
    tls: Option<TlsClient>,
    tls_name: Option<String>,
    credits: u16,
    channels: u16,
    client_name: String,
    fence_id: String,
    delegations: bool,
    direct_reads: bool,
    answer_timeout: Option<Duration>,
    umask: Umask,
    label: Label,
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
            channels: 1,
            client_name: String::new(),
            fence_id: String::new(),
            delegations: false,
            direct_reads: true,
            answer_timeout: Some(ANSWER_TIMEOUT),
            umask: Umask::default(),
            label: Label::default(),
        }
    }
}

impl SessionOptions {
    /// The upper limit for the number of connections of one session.
    pub const CHANNELS_MAX: u16 = limits::CLIENT_CHANNELS_MAX;

    /// Returns the parameters to request for a session.
    pub(crate) fn session_options(&self, credits: u16) -> WireOptions {
        WireOptions {
            checksums: self.checksums,
            response_cache: self.response_cache || self.recovery != Recovery::Off,
            // The channel is requested always, but opened only when it is needed.
            back_control_channel: true,
            requests_max: u32::from(credits),
            request_bytes_max: SLOT_BYTES as u32,
            response_bytes_max: SLOT_BYTES as u32,
            ..WireOptions::default()
        }
    }

    /// Returns the client name to send to the server: the one in the options, or a random name.
    pub(crate) fn name(&self) -> String {
        if self.client_name.is_empty() {
            format!("{}-{:016x}", std::process::id(), random())
        } else {
            self.client_name.clone()
        }
    }

    /// Returns the number of receives to post for replies.
    pub(crate) fn slots(&self) -> u16 {
        self.credits.clamp(1, limits::CREDITS_MAX) + SPARE_SLOTS
    }
}

/// Returns the TLS target for an address, or `None` if TLS is not used.
pub(crate) fn tls_target(
    address: &Address,
    options: &SessionOptions,
) -> std::result::Result<Option<TlsTarget>, TlsConfigError> {
    let (Address::Tcp(socket), Some(tls)) = (address, &options.tls) else { return Ok(None) };
    let name = options.tls_name.clone().unwrap_or_else(|| socket.ip().to_string());
    tls.target(&name).map(Some)
}

/// Returns unpredictable bits, for names only.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    // If the kernel's generator fails, names are merely less likely to be unique.
    let _ = getrandom::fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// The default reply timeout. A server that is still working replies much sooner.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
