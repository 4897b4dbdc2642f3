//! The configuration of a server: what it serves, where it listens, and its limits.

use std::path::PathBuf;
use std::time::Duration;

use dafs_dat::{Address, AddressError, TlsServer, WaitPolicy};
use dafs_filer::FilerConfig;
use dafs_files::defect::Defect;
use dafs_files::ledger::{JournalConfig, LedgerError};
use dafs_sessions::{AuthPolicy, CreditPolicy, MessageLimits, SessionConfig};
use dafs_store::cache::CacheConfig;

use crate::access::authorize::AccessRules;
use crate::access::gss::{KerberosConfig, KerberosError};
use crate::access::one_time::OneTimeUser;

/// Configuration of one server. The defaults of [`ServerConfig::default`] suit one machine; only
/// the addresses must be added.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The addresses to listen on, for any transports.
    pub listen: Vec<Address>,
    /// Limits of what clients hold: opens, locks, delegations.
    /// [`FilerConfig::clients_kept_max`] is always [`SessionConfig::channels_max`].
    pub filer: FilerConfig,
    /// Limits of connections, logins, credits and batches.
    pub sessions: SessionConfig,
    /// Sizes of the data cache.
    pub cache: CacheConfig,
    /// The number of threads that serve connections: 1 to [`REACTORS_MAX`].
    pub reactors: usize,
    /// The number of threads for work that may block: disk reads, syncs, password checks.
    pub pool_threads: usize,
    /// The file of users who may authenticate by password.
    pub password_file: Option<PathBuf>,
    /// A user who exists for this run of the server only and is in no file.
    pub one_time_user: Option<OneTimeUser>,
    /// Settings for authentication by Kerberos; `None` turns it off.
    pub kerberos: Option<KerberosConfig>,
    /// Rules about who may connect, who is trusted, and who sees which exports.
    pub access: AccessRules,
    /// When the threads spin and when they sleep.
    pub wait: WaitPolicy,
    /// True if iWARP frames carry a CRC even if the client does not ask for one.
    pub crc: bool,
    /// Where the response cache is stored so that it survives this server. Without a journal,
    /// clients recover only from broken connections, not from a restart of the server.
    pub journal: Option<JournalConfig>,
    /// TLS for TCP clients that start with it, or for all of them.
    pub tls: Option<TlsServer>,
    /// How long a change of a fencing list waits for transfers of a client that it fences out.
    /// After that time the client's connection is broken.
    pub fence_patience: Duration,
    /// How long the transfers of a connection may delay others, in addition to the time that its
    /// bytes need at 512 KiB per second. After that time the connection is broken.
    pub transfer_patience: Duration,
    /// True if a client on this host that holds a read delegation may get the file itself, to
    /// read it without a message.
    pub direct_reads: bool,
    /// True if requests are counted and timed. Turn it off only to measure the cost of that.
    pub metrics: bool,
    /// A defect that a test injects to show that it would be noticed.
    #[doc(hidden)]
    pub defect: Option<Defect>,
    /// How long a connection may take to be established. After that it has
    /// [`AuthPolicy::timeout`] to authenticate.
    pub connect_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let memory_bytes = physical_memory_bytes();
        Self {
            listen: Vec::new(),
            filer: FilerConfig::default(),
            sessions: SessionConfig {
                channels_max: 2048,
                unauthenticated_max: 1024,
                credits: CreditPolicy { budget: 64 * 1024, initial: 16, ..CreditPolicy::default() },
                messages: MessageLimits {
                    request_bytes_default: REQUEST_BYTES,
                    request_bytes_max: REQUEST_BYTES,
                    response_bytes_default: RESPONSE_BYTES,
                    response_bytes_max: RESPONSE_BYTES,
                    ..MessageLimits::default()
                },
                // Even on the loopback interface a client must prove who it is.
                authentication: AuthPolicy { anonymous: None, ..AuthPolicy::default() },
                ..SessionConfig::default()
            },
            cache: CacheConfig {
                arena_bytes: usize::try_from(memory_bytes / 4).unwrap_or(1 << 30),
                dirty_bytes_max: usize::try_from(memory_bytes / 16).unwrap_or(1 << 28),
                write_back_age: Duration::from_secs(1),
                read_ahead_bytes_max: 4 << 20,
                file_count_max: 64 * 1024,
            },
            reactors: 1,
            pool_threads: 4,
            password_file: None,
            one_time_user: None,
            kerberos: None,
            access: AccessRules::default(),
            wait: WaitPolicy::default(),
            crc: false,
            journal: None,
            tls: None,
            fence_patience: Duration::from_secs(2),
            transfer_patience: Duration::from_secs(10),
            direct_reads: true,
            metrics: true,
            defect: None,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

impl ServerConfig {
    /// Refuses a number of reactors outside the limits.
    pub(crate) fn check_reactors(&self) -> Result<(), ServerError> {
        match self.reactors {
            1..=REACTORS_MAX => Ok(()),
            asked => Err(ServerError::Reactors { asked }),
        }
    }
}

/// The reason why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The system refused something that the server needs.
    #[error("cannot start: {what} failed")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The server could not listen on an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The number of reactors is outside the limits.
    #[error("a server has 1 to {REACTORS_MAX} reactors, not {asked}")]
    Reactors {
        /// The configured number.
        asked: usize,
    },
    /// A limit of the filer is impossible.
    #[error("the server's limits are invalid")]
    Config(#[from] dafs_filer::ConfigError),
    /// A limit of sessions is impossible.
    #[error("the server's limits are invalid")]
    SessionConfig(#[from] dafs_sessions::ConfigError),
    /// The password file could not be read.
    #[error(transparent)]
    Passwords(#[from] crate::PasswordError),
    /// Authentication by Kerberos is configured but cannot be offered.
    #[error("cannot offer authentication by Kerberos")]
    Kerberos {
        /// The reason, and what to do.
        source: KerberosError,
    },
    /// An access rule names something that the store does not have.
    #[error("{0}")]
    Access(String),
    /// A reload asked for a change that only a restart makes.
    #[error("{0} needs a restart of the server (clients reconnect by themselves)")]
    NeedsRestart(&'static str),
    /// The journal could not be opened, or its records could not be recovered.
    #[error("cannot recover the requests that were in flight when the last server ended")]
    Journal {
        /// The journal's error.
        source: LedgerError,
    },
}

/// Physical memory of this machine, in bytes.
fn physical_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit)).max(1 << 30)
}

/// The largest number of reactors of one server.
pub const REACTORS_MAX: usize = 8;
/// The size of a request that carries a padded block of 4 KiB inline.
const REQUEST_BYTES: u32 = 4096 + 512;
/// The size of a reply that carries a block of 4 KiB inline.
const RESPONSE_BYTES: u32 = 4096 + 512;
