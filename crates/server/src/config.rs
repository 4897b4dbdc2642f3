//! What a server serves, where it listens, and how much it may use.

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

/// Configuration of one server. [`ServerConfig::default`] suits one machine; only
/// addresses must be added.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where to listen, over any transports.
    pub listen: Vec<Address>,
    /// What clients hold: opens, locks, delegations. [`FilerConfig::clients_kept_max`] is always
    /// [`SessionConfig::channels_max`].
    pub filer: FilerConfig,
    /// Connections, logins, credits, batches.
    pub sessions: SessionConfig,
    /// The data cache.
    pub cache: CacheConfig,
    /// Threads that serve connections: 1 to [`REACTORS_MAX`].
    pub reactors: usize,
    /// Threads for what may block: disk reads, syncs, password checks.
    pub pool_threads: usize,
    /// Users who may authenticate by password.
    pub password_file: Option<PathBuf>,
    /// A user of this run alone, who is in no file.
    pub one_time_user: Option<OneTimeUser>,
    /// Authentication by Kerberos, if it is wanted.
    pub kerberos: Option<KerberosConfig>,
    /// Who may come, who is trusted, and who sees what.
    pub access: AccessRules,
    /// When to spin and when to sleep.
    pub wait: WaitPolicy,
    /// Whether iWARP frames carry a CRC even if the client does not ask.
    pub crc: bool,
    /// Where the response cache is kept so that it outlives this server; without it, only
    /// broken connections are recovered from, not the server's own end.
    pub journal: Option<JournalConfig>,
    /// TLS for clients over TCP that begin with it, or for all of them.
    pub tls: Option<TlsServer>,
    /// How long a change of a fencing list waits for transfers of a client that is fenced
    /// out; then its connection is broken.
    pub fence_patience: Duration,
    /// How late a connection may be with its transfers while others wait for what they hold,
    /// besides what its bytes need at 512 KiB a second; then it is broken.
    pub transfer_patience: Duration,
    /// Whether clients of this host that hold a read delegation may be given the file itself, to
    /// read it without a message.
    pub direct_reads: bool,
    /// Whether requests are counted and timed. Only measurements of what that costs go without.
    pub metrics: bool,
    /// A defect on purpose, by which a test shows that it would be noticed.
    #[doc(hidden)]
    pub defect: Option<Defect>,
    /// How long a connection may take to stand; then it has as long as
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
                // Loopback is no proof, either.
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
    /// Refuses a number of reactors that a server cannot have.
    pub(crate) fn check_reactors(&self) -> Result<(), ServerError> {
        match self.reactors {
            1..=REACTORS_MAX => Ok(()),
            asked => Err(ServerError::Reactors { asked }),
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The system refused something the server cannot do without.
    #[error("cannot start: {what} failed")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// An address could not be listened on.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A server cannot have so many reactors.
    #[error("a server has 1 to {REACTORS_MAX} reactors, not {asked}")]
    Reactors {
        /// How many were asked for.
        asked: usize,
    },
    /// A limit makes no sense.
    #[error("the server's limits make no sense")]
    Config(#[from] dafs_filer::ConfigError),
    /// A limit of sessions makes no sense.
    #[error("the server's limits make no sense")]
    SessionConfig(#[from] dafs_sessions::ConfigError),
    /// The password file could not be read.
    #[error(transparent)]
    Passwords(#[from] crate::PasswordError),
    /// Clients cannot authenticate by Kerberos, though they should.
    #[error("cannot offer authentication by Kerberos")]
    Kerberos {
        /// Why, and what to do.
        source: KerberosError,
    },
    /// Rules speak of what the store does not have.
    #[error("{0}")]
    Access(String),
    /// The journal could not be opened, or what it says could not be settled.
    #[error("cannot recover what was under way when the last server ended")]
    Journal {
        /// Why.
        source: LedgerError,
    },
}

/// Physical memory of this machine, in bytes.
fn physical_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit)).max(1 << 30)
}

/// The most reactors that a server can have.
pub const REACTORS_MAX: usize = 8;
/// Room for a request with a padded block of 4 KiB inline.
const REQUEST_BYTES: u32 = 4096 + 512;
/// Room for a response with a block of 4 KiB inline.
const RESPONSE_BYTES: u32 = 4096 + 512;
