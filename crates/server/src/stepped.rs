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
    /// When each wakes though nothing has come.
    dues: Vec<Moment>,
    has_overslept: bool,
    addresses: Vec<Address>,
}

impl SteppedServer {
    /// Binds the addresses over interfaces of the owner's, which must be fresh: one for each
    /// reactor, with the reactor's number as its owner.
    /// `entropy` names sessions and states; `order` says in which order jobs that would
    /// go to threads come back.
    ///
    /// An interface may listen already. Where several reactors do, clients choose among them.
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
        let wakers = interfaces.iter().map(ServingInterface::waker).collect();
        let pool = Pool::stepped(order, wakers);
        let Started { shared, owns, addresses } = start(config, store, interfaces, pool, entropy)?;
        let dues = vec![Moment(0); owns.len()];
        Ok(Self { shared, owns, dues, has_overslept: false, addresses })
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

    /// Whether a reactor has something to do. The only one is always asked; of several, each
    /// sleeps until something has come to it, another has woken it, or the time has come that it
    /// sleeps for at most.
    pub fn is_awake(&mut self, reactor: usize, now: Moment) -> bool {
        let Self { owns, dues, .. } = self;
        let (Some(own), Some(due)) = (owns.get_mut(reactor), dues.get(reactor)) else {
            return false;
        };
        own.is_alone
            || own.hits.has_kept()
            || own.interface.poll() > 0
            || own.interface.is_woken()
            || *due <= now
    }

    /// Whether a reactor has done the first half of its turn, and is to move bytes next.
    #[must_use]
    pub fn is_moving(&self, reactor: usize) -> bool {
        self.owns.get(reactor).is_some_and(|own| own.hits.has_kept())
    }

    /// Does one of the jobs that would go to threads beside several reactors. Whoever has given it
    /// away is woken.
    pub fn work(&mut self) {
        self.shared.pool.work();
    }

    /// One reactor serves what has arrived by `now`, and one job that waits for a disk is brought
    /// one step further. `now` never goes back. Which of them does so when is for the owner to
    /// say; one that is not there, or sleeps, does nothing.
    pub fn step(&mut self, reactor: usize, now: Moment) {
        self.work();
        if !self.is_awake(reactor, now) {
            return;
        }
        let Self { shared, owns, dues, has_overslept, .. } = self;
        let Some(own) = owns.get_mut(reactor) else { return };
        if own.is_alone {
            own.interface.poll();
            Reactor { shared, own }.turn_at(now);
            return own.interface.flush();
        }
        // Where others may have their turns in between, half of one is a step.
        if !own.hits.has_kept() {
            let is_called = own.interface.is_woken() || own.interface.event_count() > 0;
            *has_overslept |= !is_called && shared.handoffs.has_any(reactor);
            own.interface.take_wake_up();
            shared.life.pass_to(now);
            if (Reactor { shared, own }).begin_shared_turn() {
                return;
            }
        }
        own.move_hits();
        let mut turn = Reactor { shared, own };
        turn.end_turn_at(now);
        let rest = turn.rest();
        own.interface.flush();
        if let Some(due) = dues.get_mut(reactor) {
            *due = rest.pause.map_or(now, |pause| now.after(pause));
        }
    }

    /// Whether a reactor has ever found something that another had left to it when its sleep was
    /// over, and had not been woken for it.
    #[must_use]
    pub fn has_overslept(&self) -> bool {
        self.has_overslept
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
