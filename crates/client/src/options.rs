//! What a session is asked to be like.
//!
//! Invariant: the options of a session do not change once it is begun.

use std::time::Duration;

use dafs_dat::{Address, TlsClient, TlsConfigError, TlsTarget};
use dafs_types::limits;
use dafs_wire::messages::SessionOptions as WireOptions;

use crate::label::Label;
use crate::login::identity::Login;
use crate::recovery::options::Recovery;
use crate::sizes::{SLOT_BYTES, SPARE_SLOTS};
use crate::umask::Umask;

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
    /// Most connections to spread transfers over, each with credits of its own; the server says by
    /// how many it can be used, and [`SessionOptions::CHANNELS_MAX`] are the most. Only sessions
    /// that come back by themselves have more than one, over TCP or shared memory. See
    /// [`Session::channel_count`](crate::Session::channel_count).
    pub channels: u16,
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
    /// Whether a server on this host is asked for files that there is a read delegation of, which
    /// this process then reads by itself.
    pub direct_reads: bool,
    /// Longest silence of the server while a call waits for its answer, after which the
    /// connection is given up; `None` waits for ever.
    /// [`Client::wait`](crate::Client::wait) has a time of its own.
    pub answer_timeout: Option<Duration>,
    /// What is taken away from the modes of what this session makes.
    pub umask: Umask,
    /// What its requests bear, so that they can be followed at the server;
    /// [`Session::set_label`](crate::Session::set_label) changes it.
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
    /// The most connections of one session, and so as many as its server has use for.
    pub const CHANNELS_MAX: u16 = limits::CLIENT_CHANNELS_MAX;

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
    pub(crate) fn slots(&self) -> u16 {
        self.credits.clamp(1, limits::CREDITS_MAX) + SPARE_SLOTS
    }
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

/// Unpredictable bits, for names only.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without the kernel's generator names are merely less likely to be unique.
    let _ = getrandom::fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// A server that works at something answers far sooner.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
