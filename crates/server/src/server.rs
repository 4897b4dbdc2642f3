//! The server's interface to the program that runs it: create, run, stop.
//!
//! Invariant: when [`Server::run`] returns, all written data is in the files.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dafs_dat::{AcceptGroup, Address, InterfaceConfig, ServingInterface, WaitPolicy, Waker};
use dafs_files::ledger::LedgerError;
use dafs_store::Store;
use dafs_types::Entropy;

use crate::access::live::Reloader;
use crate::config::{ServerConfig, ServerError};
use crate::hold::{Alone, Hold, InTurns, Lock};
use crate::meter::inspect::Inspector;
use crate::meter::stats::ServerStats;
use crate::nfs::{Front, serve_nfs};
use crate::pool::jobs::Pool;
use crate::reactor::{Own, Reactor, Rest, Shared};
use crate::starting::{Started, start};

/// A file server that listens on its addresses. [`Server::run`] serves clients until the server is
/// stopped.
pub struct Server {
    shared: Shared,
    /// The reactor that runs in the thread of [`Server::run`].
    own: Own,
    /// The reactors that run in threads of their own.
    others: Vec<Own>,
    /// The reactor that serves NFS clients. `None` if the server serves DAFS clients only.
    nfs: Option<(Own, Front)>,
    addresses: Vec<Address>,
    reloader: Reloader,
}

/// A handle with which another thread, such as a signal handler's, stops a server.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    waker: Waker,
}

impl Server {
    /// Binds the addresses and allocates everything the server needs. Clients are served only after
    /// [`Server::run`] is called.
    ///
    /// # Errors
    /// [`ServerError`] if the configuration is invalid or a resource is not available.
    pub fn new(config: &ServerConfig, store: Arc<dyn Store>) -> Result<Self, ServerError> {
        config.check_reactors()?;
        let system = |what| move |source| ServerError::System { what, source };
        let group = (config.reactors > 1).then(AcceptGroup::new);
        let wait = wait_of(config);
        let mut interfaces = Vec::new();
        for owner in (0..).take(config.reactors) {
            let interface = ServingInterface::serving(InterfaceConfig {
                wait,
                endpoints_max: config.sessions.channels_max as usize + 64,
                connect_timeout: config.patience.connect,
                tls: config.tls.clone(),
                owner,
                group: group.clone(),
                ..InterfaceConfig::default()
            });
            interfaces.push(interface.map_err(system("creating the transport interface"))?);
        }
        if config.nfs.is_some() {
            let owner = u8::try_from(config.reactors).unwrap_or(u8::MAX);
            let interface = ServingInterface::serving(InterfaceConfig {
                wait: WaitPolicy { spin_max: Duration::ZERO },
                owner,
                ..InterfaceConfig::default()
            });
            interfaces.push(interface.map_err(system("creating the transport interface"))?);
        }
        let wakers: Vec<Waker> = interfaces.iter().map(ServingInterface::waker).collect();
        let pool = Pool::new(config.pool_threads, &wakers).map_err(system("starting threads"))?;
        let Started { mut shared, owns, addresses, reloader } =
            start(config, store, interfaces, pool, Box::new(SystemEntropy))?;
        let mut owns = owns.into_iter();
        let own = owns.next().ok_or(ServerError::Reactors { asked: 0 })?;
        let mut others: Vec<_> = owns.collect();
        let nfs = match &config.nfs {
            Some(nfs) => {
                let own = others.pop().ok_or(ServerError::Reactors { asked: 0 })?;
                let interface = (own.interface.as_fd(), own.interface.waker());
                let front = Front::new(nfs, config.tls.clone(), interface, wait, &mut shared)?;
                Some((own, front))
            }
            None => None,
        };
        Ok(Self { shared, own, others, nfs, addresses, reloader })
    }

    /// Returns the addresses at which NFS clients are served, with the ports that the system chose.
    #[must_use]
    pub fn nfs_addresses(&self) -> Vec<SocketAddr> {
        self.nfs.as_ref().map_or_else(Vec::new, |(_, front)| front.addresses())
    }

    /// Returns the path by which NFS clients mount the first export.
    #[must_use]
    pub fn nfs_path(&self) -> OsString {
        let mut exports = self.shared.entrance.exports();
        exports.next().map_or_else(|| "/".into(), |(_, path)| path.clone())
    }

    /// Returns the addresses at which NFS clients are served over RDMA, with the ports that the
    /// system chose.
    #[must_use]
    pub fn nfs_rdma_addresses(&self) -> &[Address] {
        self.nfs.as_ref().map_or(&[], |(_, front)| front.rdma_addresses())
    }

    /// Returns the addresses that the server is bound to, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns a handle that stops [`Server::run`].
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { stop: self.shared.life.switch(), waker: self.own.interface.waker() }
    }

    /// Returns a handle that replaces access rules and passwords while the server runs.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Returns a handle with which other threads inspect the server.
    #[must_use]
    pub fn inspector(&self) -> Inspector {
        Inspector::new(self.shared.meter.window(), self.own.interface.waker())
    }

    /// Runs one turn without waiting for events.
    pub(crate) fn step(&mut self) {
        self.own.interface.poll();
        let mut reactor = Reactor { shared: &mut self.shared, own: &mut self.own };
        reactor.turn_at(reactor.present());
    }

    /// Returns four counts, in this order: channels, endpoints, parked requests, and opens.
    pub(crate) fn held(&self) -> [usize; 4] {
        let Self { shared, own, .. } = self;
        let (tasks, opens) = (shared.tasks.count(), shared.holdings.opened().state_count());
        [shared.channels.count(), own.interface.endpoint_count(), tasks, opens]
    }

    /// Serves clients until the server is stopped, then writes all dirty data to the files. Returns
    /// the final statistics.
    ///
    /// # Errors
    /// [`LedgerError`] if the journal failed. The server stops then, because it can no longer keep
    /// its promises; the next server recovers the state that is in the journal.
    pub fn run(self) -> Result<ServerStats, LedgerError> {
        let Self { mut shared, mut own, others, nfs, .. } = self;
        let stop = shared.life.switch();
        if others.is_empty() && nfs.is_none() {
            serve(&mut own, &mut Alone(&mut shared), &stop);
        } else {
            shared = serve_together(shared, &mut own, (others, nfs), &stop);
        }
        own.is_alone = true;
        let mut reactor = Reactor { shared: &mut shared, own: &mut own };
        reactor.write_everything_back();
        match reactor.shared.life.take_reason() {
            Some(error) => Err(error),
            None => Ok(reactor.shared.stats()),
        }
    }
}

/// Returns how long the reactors spin before they sleep. The spin is short on a machine that has no
/// more cores than reactors, because a long spin would keep clients and other reactors from
/// running.
fn wait_of(config: &ServerConfig) -> WaitPolicy {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let is_short_of_cores = config.reactors > 1 && config.reactors >= cores;
    let spin_max = config.wait.spin_max;
    WaitPolicy { spin_max: if is_short_of_cores { spin_max.min(SHORT_SPIN) } else { spin_max } }
}

/// A spin that is short enough to delay no other thread: about the time of one turn.
const SHORT_SPIN: Duration = Duration::from_micros(3);

/// Runs several reactors, one in this thread and each of the others in a thread of its own. Returns
/// the shared state when all reactors have ended.
fn serve_together(
    shared: Shared,
    own: &mut Own,
    (others, nfs): (Vec<Own>, Option<(Own, Front)>),
    stop: &Arc<AtomicBool>,
) -> Shared {
    let shared = Lock::new(shared);
    std::thread::scope(|scope| {
        if let Some((mut own, front)) = nfs {
            let (shared, stop) = (&shared, stop.clone());
            let body = move || {
                let _ends = StopAll { shared, stop: &stop };
                serve_nfs(&mut own, front, &mut InTurns(shared), &stop);
            };
            let thread = std::thread::Builder::new().name("dafs-nfs".to_owned());
            if let Err(error) = thread.spawn_scoped(scope, body) {
                tracing::error!(%error, "the thread for NFS clients cannot be started");
            }
        }
        for mut other in others {
            let name = format!("dafs-reactor-{}", other.number);
            let (shared, stop) = (&shared, stop.clone());
            let body = move || {
                let _ends = StopAll { shared, stop: &stop };
                serve(&mut other, &mut InTurns(shared), &stop);
            };
            // The interface of this reactor is closed and gets no connections; the other reactors
            // serve all clients.
            if let Err(error) = std::thread::Builder::new().name(name).spawn_scoped(scope, body) {
                tracing::error!(%error, "a reactor's thread cannot be started");
            }
        }
        let _ends = StopAll { shared: &shared, stop };
        serve(own, &mut InTurns(&shared), stop);
    });
    shared.into_inner()
}

/// A guard that stops all reactors when one reactor ends.
struct StopAll<'s> {
    shared: &'s Lock,
    stop: &'s AtomicBool,
}

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.shared.wake_all();
    }
}

/// The main loop of a reactor, which runs until the server is stopped.
fn serve(own: &mut Own, hold: &mut impl Hold, stop: &AtomicBool) {
    let mut rest = hold.with(|shared| {
        let mut reactor = Reactor { shared, own };
        reactor.shared.show_itself();
        reactor.rest()
    });
    while !stop.load(Ordering::Acquire) {
        own.wait(&rest);
        rest = take_turn(own, hold);
    }
}

/// Runs one turn. With several reactors, bytes are moved outside the lock, while other reactors
/// take turns.
fn take_turn(own: &mut Own, hold: &mut impl Hold) -> Rest {
    if own.is_alone {
        return hold.with(|shared| Reactor { shared, own }.take_turn());
    }
    let rest = hold.with(|shared| Reactor { shared, own }.take_turn_but_moves());
    if let Some(rest) = rest {
        return rest;
    }
    own.move_hits();
    hold.with(|shared| Reactor { shared, own }.end_moves())
}

impl Stopper {
    /// Stops the server after the current turn. [`Server::run`] then writes dirty data back and
    /// returns.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
    }
}
/// The source of random numbers that the operating system provides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        // The kernel's generator does not fail once the machine has booted.
        let filled = getrandom::fill(&mut bytes);
        assert!(filled.is_ok(), "the system has no random numbers");
        u64::from_ne_bytes(bytes)
    }
}
