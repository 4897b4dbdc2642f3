//! The server as its owner sees it: made, run, stopped.
//!
//! Invariant: when [`Server::run`] has returned, everything written is in the files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dafs_dat::{Address, InterfaceConfig, ServingInterface, Waker};
use dafs_files::ledger::LedgerError;
use dafs_store::Store;
use dafs_types::Entropy;

use crate::config::{ServerConfig, ServerError};
use crate::meter::inspect::Inspector;
use crate::meter::stats::ServerStats;
use crate::pool::jobs::Pool;
use crate::reactor::Reactor;
use crate::starting::start;

/// A file server, listening. [`Server::run`] serves until it is stopped.
pub struct Server {
    reactor: Reactor,
    addresses: Vec<Address>,
}

/// Stops a server from another thread or a signal handler's thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    waker: Waker,
}

impl Server {
    /// Binds the addresses and prepares everything.
    ///
    /// # Errors
    /// [`ServerError`]: what could not be had, and why.
    pub fn new(config: &ServerConfig, store: Arc<dyn Store>) -> Result<Self, ServerError> {
        config.check_reactors()?;
        let system = |what| move |source| ServerError::System { what, source };
        let interface = ServingInterface::serving(InterfaceConfig {
            wait: config.wait,
            endpoints_max: config.sessions.channels_max as usize + 64,
            connect_timeout: config.connect_timeout,
            tls: config.tls.clone(),
            ..InterfaceConfig::default()
        })
        .map_err(system("creating the transport interface"))?;
        let pool = Pool::new(config.pool_threads, &interface.waker())
            .map_err(system("starting threads"))?;
        let (reactor, addresses) = start(config, store, interface, pool, Box::new(SystemEntropy))?;
        Ok(Self { reactor, addresses })
    }

    /// Where the server really listens.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// A handle that stops [`Server::run`].
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { stop: self.reactor.life.switch(), waker: self.reactor.interface.waker() }
    }

    /// A handle that looks into the running server.
    #[must_use]
    pub fn inspector(&self) -> Inspector {
        Inspector::new(self.reactor.meter.window(), self.reactor.interface.waker())
    }

    /// One turn of the loop, which waits for nothing.
    pub(crate) fn step(&mut self) {
        self.reactor.interface.poll();
        self.reactor.turn_at(self.reactor.present());
    }

    /// What is held for connections: channels, endpoints, requests parked, opens.
    pub(crate) fn held(&self) -> [usize; 4] {
        let reactor = &self.reactor;
        let (tasks, opens) = (reactor.tasks.count(), reactor.holdings.opened().state_count());
        [reactor.channels.count(), reactor.interface.endpoint_count(), tasks, opens]
    }

    /// Serves until stopped; then writes everything back. Returns the last numbers.
    ///
    /// # Errors
    /// [`LedgerError`] if the journal failed: the server ends, since it can promise nothing
    /// any more, and the next one finds out what was done.
    pub fn run(mut self) -> Result<ServerStats, LedgerError> {
        self.reactor.run();
        self.reactor.write_everything_back();
        match self.reactor.life.take_reason() {
            Some(error) => Err(error),
            None => Ok(self.reactor.stats()),
        }
    }
}

impl Stopper {
    /// Ends the server's loop after the present turn.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// The system's random numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        // The kernel's generator cannot fail once the machine has booted.
        let filled = getrandom::fill(&mut bytes);
        assert!(filled.is_ok(), "the system has no random numbers");
        u64::from_ne_bytes(bytes)
    }
}
