//! The configuration of a server: its listening addresses, limits, and access rules.

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
use crate::nfs::config::NfsConfig;

/// Configuration of a server. The defaults of [`ServerConfig::default`] suit one machine; only the
/// listening addresses must be added.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The addresses to listen on, each with its transport.
    pub listen: Vec<Address>,
    /// Limits on the opens, locks and delegations that clients hold. The server ignores
    /// [`FilerConfig::clients_kept_max`] and uses [`SessionConfig::channels_max`] in its place.
    pub filer: FilerConfig,
    /// Limits of connections, logins, credits and batches.
    pub sessions: SessionConfig,
    /// The block size and the memory limits of the data cache.
    pub cache: CacheConfig,
    /// The number of reactor threads, which serve connections: 1 to [`REACTORS_MAX`].
    pub reactors: usize,
    /// The number of worker threads for work that may block: disk reads, syncs.
    pub pool_threads: usize,
    /// The path of the password file. `None` turns authentication by password off, unless there is
    /// a one-time user.
    pub password_file: Option<PathBuf>,
    /// A user who is not in the password file and exists only while this server runs.
    pub one_time_user: Option<OneTimeUser>,
    /// Settings for authentication by Kerberos; `None` turns it off.
    pub kerberos: Option<KerberosConfig>,
    /// Rules about who may connect, who is trusted, and who sees which exports.
    pub access: AccessRules,
    /// How long the reactor threads poll for events before they sleep.
    pub wait: WaitPolicy,
    /// True if iWARP frames always carry a CRC, even if the client does not ask for it.
    pub crc: bool,
    /// The location of the journal, in which stored replies survive a restart. Without a journal,
    /// clients recover only from broken connections, not from a restart of the server.
    pub journal: Option<JournalConfig>,
    /// The TLS settings, which apply to TCP clients that start with TLS or to all TCP clients.
    /// `None` turns TLS off.
    pub tls: Option<TlsServer>,
    /// How long the server waits for a client before it breaks the client's connection.
    pub patience: Patience,
    /// True if a client on this host that holds a read delegation may receive the file's
    /// descriptor, to read the file without messages.
    pub direct_reads: bool,
    /// Settings for NFS clients. `None` serves DAFS clients only.
    pub nfs: Option<NfsConfig>,
    /// True if requests are counted and timed. False is meant only for measuring the overhead of
    /// the statistics.
    pub metrics: bool,
    /// The defect that a test injects, in order to show that the tests detect it. `None` outside
    /// tests.
    #[doc(hidden)]
    pub defect: Option<Defect>,
}

/// How long a server waits for a client before it breaks the client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How long the establishment of a connection may take. Afterwards the client has
    /// [`AuthPolicy::timeout`] to authenticate.
    pub connect: Duration,
    /// How long a change of a fencing list waits for the transfers of a client that is fenced out.
    pub fence: Duration,
    /// How long the transfers of a connection may block other requests, in addition to the time
    /// that the transfers' bytes take at 512 KiB per second.
    pub transfer: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            fence: Duration::from_secs(2),
            transfer: Duration::from_secs(10),
        }
    }
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
                // A client must prove its identity even on the loopback interface.
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
            patience: Patience::default(),
            direct_reads: true,
            nfs: None,
            metrics: true,
            defect: None,
        }
    }
}

impl ServerConfig {
    /// Checks that the number of reactors is within the limits.
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
    /// A system call that the server needs failed.
    #[error("cannot start: {what} failed")]
    System {
        /// The name of the operation that failed.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The server could not listen on a configured address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The configured number of reactors is out of range.
    #[error("a server has 1 to {REACTORS_MAX} reactors, not {asked}")]
    Reactors {
        /// The configured number of reactors.
        asked: usize,
    },
    /// A limit in [`ServerConfig::filer`] is invalid.
    #[error("the server's limits are invalid")]
    Config(#[from] dafs_filer::ConfigError),
    /// A limit in [`ServerConfig::sessions`] is invalid.
    #[error("the server's limits are invalid")]
    SessionConfig(#[from] dafs_sessions::ConfigError),
    /// The password file could not be used.
    #[error(transparent)]
    Passwords(#[from] crate::PasswordError),
    /// Authentication by Kerberos is configured but cannot be offered.
    #[error("cannot offer authentication by Kerberos")]
    Kerberos {
        /// Why Kerberos cannot be offered, and what to do.
        source: KerberosError,
    },
    /// An access rule names an export that does not exist, or sets a term that the store does not
    /// support.
    #[error("{0}")]
    Access(String),
    /// A reload asked for a change that takes effect only after a restart.
    #[error("{0} needs a restart of the server (clients reconnect by themselves)")]
    NeedsRestart(&'static str),
    /// The journal could not be opened, or its records could not be replayed.
    #[error("cannot recover the requests that were in flight when the last server ended")]
    Journal {
        /// The error from the journal.
        source: LedgerError,
    },
}

/// Returns the size of this machine's physical memory in bytes.
fn physical_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit)).max(1 << 30)
}

/// The largest number of reactors of a server.
pub const REACTORS_MAX: usize = 8;
/// The size in bytes of a request that contains 4 KiB of inline data, including padding.
const REQUEST_BYTES: u32 = 4096 + 512;
/// The size in bytes of a reply that contains 4 KiB of inline data.
const RESPONSE_BYTES: u32 = 4096 + 512;
