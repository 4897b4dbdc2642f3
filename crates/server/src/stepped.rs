//! A server that its owner drives step by step, with the owner's time and random numbers. The
//! simulator and embedders with their own event loop use it.
//!
//! Invariant: this code reads no clock, takes no random numbers from the system and starts no
//! thread. Nothing happens between two steps.

use std::sync::Arc;

use dafs_dat::sim::Network;
use dafs_dat::{Address, ServingInterface};
use dafs_store::Store;
use dafs_types::{Entropy, Moment};

use crate::config::{ServerConfig, ServerError};
use crate::meter::stats::ServerStats;
use crate::nfs::{Front, SteppedFront};
use crate::pool::jobs::Pool;
use crate::reactor::{Own, Reactor, Shared};
use crate::starting::{Started, start};

/// A file server that does all its work inside [`SteppedServer::step`] and [`SteppedServer::work`].
pub struct SteppedServer {
    shared: Shared,
    /// The state of each reactor.
    owns: Vec<Own>,
    /// The time at which each reactor wakes if no event arrives.
    dues: Vec<Moment>,
    has_overslept: bool,
    addresses: Vec<Address>,
    /// The service for NFS clients, which the last reactor runs. `None` if the server has none.
    nfs: Option<SteppedFront>,
}

impl SteppedServer {
    /// Binds the addresses over `interfaces`, one for each reactor. The interfaces must be new,
    /// with the reactor's number as their owner. `entropy` generates session ids and state ids;
    /// `order` decides the order in which the results of jobs are returned.
    ///
    /// An interface may listen already. If several interfaces listen, clients choose among them.
    ///
    /// With one interface more than `config` has reactors, the last one is for NFS clients
    /// ([`SteppedServer::serve_nfs`]).
    ///
    /// # Errors
    /// [`ServerError`], as for [`crate::Server::new`].
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
        let Started { shared, owns, addresses, reloader: _ } =
            start(config, store, interfaces, pool, entropy)?;
        let dues = vec![Moment(0); owns.len()];
        Ok(Self { shared, owns, dues, has_overslept: false, addresses, nfs: None })
    }

    /// Serves NFS clients at a port of a node of a simulated network, from the last reactor.
    ///
    /// # Errors
    /// [`ServerError`] if the configuration has no settings for NFS clients, if the server was
    /// given no interface for them, or if the port is in use.
    pub fn serve_nfs(
        &mut self,
        config: &ServerConfig,
        network: &Network,
        port: u16,
    ) -> Result<(), ServerError> {
        let own = self.owns.last().filter(|own| own.guest_results.is_some());
        let (Some(nfs), Some(own)) = (&config.nfs, own) else {
            return Err(ServerError::Reactors { asked: self.owns.len() });
        };
        let waker = own.interface.waker();
        let front = Front::simulated((network, port), nfs, waker, &mut self.shared)?;
        self.nfs = Some(SteppedFront::new(front));
        Ok(())
    }

    /// Returns the addresses that the server is bound to, with the ports that were chosen.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns the number of reactors of this server.
    #[must_use]
    pub fn reactors(&self) -> usize {
        self.owns.len()
    }

    /// Returns true if a reactor has work to do. A single reactor is always awake. With several
    /// reactors, each sleeps until an event arrives, another reactor wakes it, or its longest sleep
    /// is over.
    pub fn is_awake(&mut self, reactor: usize, now: Moment) -> bool {
        let Self { owns, dues, nfs, .. } = self;
        let (Some(own), Some(due)) = (owns.get_mut(reactor), dues.get(reactor)) else {
            return false;
        };
        let nfs = nfs.as_mut().filter(|_| own.guest_results.is_some());
        own.is_alone
            || nfs.is_some_and(SteppedFront::is_busy)
            || own.hits.has_kept()
            || own.interface.poll() > 0
            || own.interface.is_woken()
            || *due <= now
    }

    /// Returns true if a reactor has done the first half of its turn, so that its next step moves
    /// bytes.
    #[must_use]
    pub fn is_moving(&self, reactor: usize) -> bool {
        self.owns.get(reactor).is_some_and(|own| own.hits.has_kept())
    }

    /// Executes one of the jobs that would run on worker threads, and wakes the reactor that has
    /// submitted it. It has an effect only with several reactors.
    pub fn work(&mut self) {
        self.shared.pool.work();
    }

    /// Lets one reactor handle the events that have arrived by `now`, and executes one waiting job.
    /// `now` must never decrease. The owner decides the order in which reactors step. A step of a
    /// reactor that sleeps or does not exist has no effect.
    pub fn step(&mut self, reactor: usize, now: Moment) {
        self.work();
        if !self.is_awake(reactor, now) {
            return;
        }
        let Self { shared, owns, dues, has_overslept, nfs, .. } = self;
        let Some(own) = owns.get_mut(reactor) else { return };
        if let Some(nfs) = nfs.as_mut().filter(|_| own.guest_results.is_some()) {
            let is_called =
                nfs.is_busy() || own.interface.is_woken() || own.interface.event_count() > 0;
            *has_overslept |= !is_called && shared.handoffs.has_any(reactor);
            own.interface.take_wake_up();
            own.interface.poll();
            let rest = nfs.step(&mut Reactor { shared, own }, now);
            own.interface.flush();
            if let Some(due) = dues.get_mut(reactor) {
                *due = rest.pause.map_or(now, |pause| now.after(pause));
            }
            return;
        }
        if own.is_alone {
            own.interface.poll();
            Reactor { shared, own }.turn_at(now);
            return own.interface.flush();
        }
        // With several reactors, a step is half a turn, because other reactors may step between the
        // halves.
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

    /// Returns true if another reactor has ever failed to wake a reactor for new work, so that the
    /// work waited until the reactor's longest sleep ended.
    #[must_use]
    pub fn has_overslept(&self) -> bool {
        self.has_overslept
    }

    /// Returns the number of jobs whose results the reactors have not taken yet.
    #[must_use]
    pub fn jobs_under_way(&self) -> usize {
        self.shared.pool.under_way()
    }

    /// Returns the server's current statistics.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.shared.stats()
    }
}
