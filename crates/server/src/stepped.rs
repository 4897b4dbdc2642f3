//! The server as its owner's to drive: step by step, with the owner's time and random
//! numbers. The simulator and embedders with an event loop of their own use it.
//!
//! Invariant: nothing here looks at a clock, asks the system for random numbers or
//! starts a thread, and between two steps nothing happens.

use std::sync::Arc;

use dafs_dat::{Address, ServingInterface};
use dafs_store::Store;
use dafs_types::{Entropy, Moment};

use crate::config::{ServerConfig, ServerError};
use crate::meter::stats::ServerStats;
use crate::pool::jobs::Pool;
use crate::reactor::Reactor;
use crate::starting::start;

/// A file server that only works inside [`SteppedServer::step`].
pub struct SteppedServer {
    reactor: Reactor,
    addresses: Vec<Address>,
}

impl SteppedServer {
    /// Binds the addresses over an interface of the owner's, which must be fresh.
    /// `entropy` names sessions and states; `order` says in which order jobs that would
    /// go to threads come back.
    ///
    /// # Errors
    /// [`ServerError`], as [`crate::Server::new`].
    pub fn new(
        config: &ServerConfig,
        store: Arc<dyn Store>,
        interface: ServingInterface,
        entropy: Box<dyn Entropy + Send>,
        order: Box<dyn Entropy + Send>,
    ) -> Result<Self, ServerError> {
        config.check_reactors()?;
        let pool = Pool::stepped(order);
        let (reactor, addresses) = start(config, store, interface, pool, entropy)?;
        Ok(Self { reactor, addresses })
    }

    /// Where the server really listens.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Serves what has arrived by `now`, and brings one job that waits for a disk one
    /// step further. `now` never goes back.
    pub fn step(&mut self, now: Moment) {
        self.reactor.interface.poll();
        self.reactor.turn_at(now);
        self.reactor.interface.flush();
    }

    /// Jobs that wait for further steps.
    #[must_use]
    pub fn jobs_under_way(&self) -> usize {
        self.reactor.pool.under_way()
    }

    /// Present amounts and counters.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.reactor.stats()
    }
}
