//! Starts the server: binds the addresses and allocates everything the server needs.
//!
//! Invariant: the server does not start if a configured feature is not available.

use std::path::Path;
use std::sync::Arc;

use dafs_dat::{Address, Domain, ServingInterface};
use dafs_filer::locks::AutoRecovery;
use dafs_filer::{Filer, FilerConfig};
use dafs_files::defect::Defect;
use dafs_files::holdings::Holdings;
use dafs_sessions::{SessionConfig, Sessions};
use dafs_store::Store;
use dafs_store::cache::Cache;
use dafs_types::{Entropy, limits};

use crate::access::entrance::Entrance;
use crate::access::gss::Kerberos;
use crate::access::live::{Live, Reloader, check_access, read_passwords};
use crate::access::users::Users;
use crate::afterwards::Afterwards;
use crate::batch::Batches;
use crate::channel::Channels;
use crate::config::{ServerConfig, ServerError};
use crate::guests::GuestResults;
use crate::handoff::Handoffs;
use crate::ledger::recovery;
use crate::life::Life;
use crate::meter::Meter;
use crate::moving::hits::Hits;
use crate::moving::transfer::Loans;
use crate::persistent::PersistentSessions;
use crate::pool::jobs::Pool;
use crate::reactor::{Own, Shared};
use crate::repeats::Repeats;
use crate::task::Tasks;
use crate::waiting::Waiting;

/// A server that is initialized but has not run its first turn.
pub(crate) struct Started {
    pub shared: Shared,
    /// The state of each reactor.
    pub owns: Vec<Own>,
    pub addresses: Vec<Address>,
    pub reloader: Reloader,
}

/// Binds the addresses and allocates everything the server needs.
pub(crate) fn start(
    config: &ServerConfig,
    store: Arc<dyn Store>,
    interfaces: Vec<ServingInterface>,
    pool: Pool,
    mut entropy: Box<dyn Entropy + Send>,
) -> Result<Started, ServerError> {
    let system = |what| move |source| ServerError::System { what, source };
    let cache = Cache::new(config.cache).map_err(system("mapping the cache's arena"))?;
    let reactors = interfaces.len();
    let handoffs = Handoffs::new(interfaces.iter().map(ServingInterface::waker), config.defect);
    let mut owns = Vec::new();
    for mut interface in interfaces {
        let arena = interface.register_local(cache.arena(), Domain(0)).ok_or_else(|| {
            system("registering the arena")(std::io::ErrorKind::OutOfMemory.into())
        })?;
        let (number, hits, is_alone) = (owns.len(), Hits::default(), reactors == 1);
        let guest_results = (number >= config.reactors).then(GuestResults::default);
        let defect = config.defect;
        owns.push(Own { number, interface, arena, hits, guest_results, is_alone, defect });
    }
    let boot = entropy.next_u64();
    let live = Live::new(
        config.access.clone(),
        read_passwords(config.password_file.as_deref(), config.one_time_user.clone())?,
    );
    let kerberos = start_kerberos(config, &live)?;
    let is_kerberized = kerberos.as_ref().is_some_and(|kerberos| kerberos.serves_nfs());
    check_access(&config.access, &*store, is_kerberized)?;
    if config.nfs.is_some() {
        config.access.nfs.check_tls(config.tls.as_ref()).map_err(ServerError::Access)?;
    }
    let mut session_config = session_config(config, kerberos.as_deref());
    // With several reactors, a channel for RDMA reads could belong to another reactor than its
    // session, so such channels are turned off.
    session_config.rdma_read &= reactors == 1;
    let batches = Batches::new(session_config.batch)?;
    let mut filer = Filer::new(filer_config(config), boot)?;
    let mut sessions = Sessions::new(session_config, boot)?;
    let (mut calls, mut persistent) = (Repeats::default(), PersistentSessions::default());
    let ledger = match &config.journal {
        Some(journal) => {
            let parts = (&mut filer, &mut sessions, (&mut calls, &mut persistent));
            let mut ledger = recovery::open(journal, &store, parts, entropy.as_mut())?;
            // The seed is not the boot number, because clients learn that number.
            ledger.prepare(entropy.next_u64(), config.defect);
            Some(ledger)
        }
        None => None,
    };
    // This comes after the recovery of the journal, which may itself search for objects.
    let waiting = Waiting::new(config, store.defer_searches());
    let mut addresses = Vec::new();
    // The first interface listens; its connections are distributed over all interfaces.
    if let Some(Own { interface, .. }) = owns.first_mut() {
        for address in &config.listen {
            prepare_directory(address);
            let listener = interface.listen(address)?;
            addresses.push(interface.listener_address(listener).unwrap_or(address.clone()));
        }
    }
    let reloader = Reloader::new(live.clone(), store.clone(), config, is_kerberized);
    let guest_reactor = (reactors > config.reactors).then_some(config.reactors);
    let mut channels = Channels::new(config.patience.transfer, reactors, guest_reactor);
    let guests = channels.guests_mut();
    (guests.repeats, guests.persistent) = (calls, persistent);
    let shared = Shared {
        filer,
        sessions,
        cache,
        entrance: Entrance::new(config, &store, live.clone(), kerberos, entropy),
        whole_store: store,
        pool,
        channels,
        tasks: Tasks::default(),
        batches,
        loans: Loans::new(config),
        holdings: Holdings::default(),
        ledger,
        life: Life::begin(boot),
        waiting,
        meter: Meter::new(config.metrics),
        afterwards: Afterwards::default(),
        handoffs,
    };
    Ok(Started { shared, owns, addresses, reloader })
}

/// Returns the filer's configuration, with the values that follow from other settings.
fn filer_config(config: &ServerConfig) -> FilerConfig {
    let mut filer = config.filer.clone();
    filer.clients_kept_max = config.sessions.channels_max;
    // Without a journal no lock can survive a restart.
    filer.locks.persistent = config.journal.is_some();
    if config.journal.is_some() {
        filer.locks.auto_recovery = AutoRecovery::Ranges;
    }
    filer
}

/// Returns the configuration of sessions, with the values that follow from other settings.
fn session_config(config: &ServerConfig, kerberos: Option<&Kerberos>) -> SessionConfig {
    let mut sessions = config.sessions.clone();
    // Each connection is served by one reactor, so a session needs one connection for each reactor.
    let reactors = config.reactors.min(usize::from(limits::CLIENT_CHANNELS_MAX)) as u16;
    sessions.client_channels = sessions.client_channels.max(reactors);
    sessions.reuses_replies |= config.defect == Some(Defect::ReuseStreamReply);
    let has_kerberos = kerberos.is_some();
    sessions.authentication.gss = has_kerberos;
    sessions.credentials.gss_names = has_kerberos;
    sessions.credentials.is_served = !config.access.trusted.is_empty();
    if let Some(kerberos) = kerberos {
        let bytes_max = &mut sessions.messages.request_bytes_max;
        *bytes_max = (*bytes_max).max(kerberos.request_bytes_max());
    }
    sessions
}

fn start_kerberos(
    config: &ServerConfig,
    live: &Live,
) -> Result<Option<Arc<Kerberos>>, ServerError> {
    let Some(wanted) = &config.kerberos else { return Ok(None) };
    let mut kerberos = Kerberos::start(wanted, Users::new(live.clone()))
        .map_err(|source| ServerError::Kerberos { source })?;
    if config.nfs.is_some() {
        kerberos.serve_nfs();
    }
    Ok(Some(Arc::new(kerberos)))
}

/// Creates the directory for a Unix socket if the directory is missing. An error is ignored here,
/// because binding the address then fails and reports it.
fn prepare_directory(address: &Address) {
    if let Address::Shm(path) = address
        && let Some(parent) = path.parent().filter(|parent| *parent != Path::new(""))
    {
        let _ = std::fs::create_dir_all(parent);
    }
}
