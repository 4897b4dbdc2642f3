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
use crate::reactor::{Own, Reactor, Shared};
use crate::starting::{Started, start};

/// A file server that only works inside [`SteppedServer::step`].
pub struct SteppedServer {
    shared: Shared,
    /// Of each reactor.
    owns: Vec<Own>,
    addresses: Vec<Address>,
}

impl SteppedServer {
    /// Binds the addresses over interfaces of the owner's, which must be fresh: one for each
    /// reactor, with the reactor's number as its owner.
    /// `entropy` names sessions and states; `order` says in which order jobs that would
    /// go to threads come back.
    ///
    /// # Errors
    /// [`ServerError`], as [`crate::Server::new`].
    pub fn new(
        config: &ServerConfig,
        store: Arc<dyn Store>,
        interfaces: Vec<ServingInterface>,
        entropy: Box<dyn Entropy + Send>,
        order: Box<dyn Entropy + Send>,
    ) -> Result<Self, ServerError> {
        config.check_reactors()?;
        let pool = Pool::stepped(order);
        let Started { shared, owns, addresses } = start(config, store, interfaces, pool, entropy)?;
        Ok(Self { shared, owns, addresses })
    }

    /// Where the server really listens.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Reactors there are.
    #[must_use]
    pub fn reactors(&self) -> usize {
        self.owns.len()
    }

    /// One reactor serves what has arrived by `now`, and brings one job that waits for a disk one
    /// step further. `now` never goes back. Which of them does so when is for the owner to say;
    /// one that is not there does nothing.
    pub fn step(&mut self, reactor: usize, now: Moment) {
        let Self { shared, owns, .. } = self;
        let Some(own) = owns.get_mut(reactor) else { return };
        if own.is_alone {
            own.interface.poll();
            Reactor { shared, own }.turn_at(now);
            return own.interface.flush();
        }
        // Where others may have their turns in between, half of one is a step.
        if !own.hits.has_kept() {
            own.interface.poll();
            shared.life.pass_to(now);
            if (Reactor { shared, own }).begin_shared_turn() {
                return;
            }
        }
        own.move_hits();
        Reactor { shared, own }.end_turn_at(now);
        own.interface.flush();
    }

    /// Jobs that wait for further steps.
    #[must_use]
    pub fn jobs_under_way(&self) -> usize {
        self.shared.pool.under_way()
    }

    /// Present amounts and counters.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.shared.stats()
    }
}
