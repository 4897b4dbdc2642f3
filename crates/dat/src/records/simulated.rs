//! Connections over a simulated network, without sockets and without the clock of the machine.
//!
//! Invariant: what happens depends only on the network and on the times that the owner states.

use std::net::SocketAddr;
use std::time::Duration;

use super::clock::Clock;
use super::link::Link;
use super::socket::Socket;
use super::{LinkId, Records};
use crate::AddressError;
use crate::sim::{Listener, Network, address_of};

impl Records {
    /// Listens on a port of a node of a simulated network. From then on, the owner must call
    /// [`Records::poll_at`] instead of [`Records::wait`].
    ///
    /// # Errors
    /// [`AddressError`] if another listener has the port, or the node is killed.
    pub fn listen_simulated(&mut self, network: &Network, port: u16) -> Result<(), AddressError> {
        self.simulated = Some(Listener::bind(network, network.node(), port)?);
        self.clock = Clock::Virtual(Duration::ZERO);
        Ok(())
    }

    /// Returns true if [`Records::poll_at`] would find something to do, or if there are events.
    pub fn is_busy(&mut self) -> bool {
        let has_events = !self.events.is_empty() || !self.ready.is_empty();
        has_events
            || !self.unflushed.is_empty()
            || self.simulated.as_ref().is_some_and(Listener::has_request)
            || self.links.iter_mut().flatten().any(Link::is_due)
    }

    /// Sets the clock, writes pending replies to the simulated network, and receives the bytes that
    /// have arrived. [`Records::next_event`] returns the events.
    pub fn poll_at(&mut self, now: Duration) {
        self.clock = Clock::Virtual(now);
        self.flush();
        while let Some((stream, node)) = self.simulated.as_mut().and_then(Listener::accept_stream) {
            let peer = SocketAddr::new(address_of(node), PORT);
            if self.has_room_for(peer.ip()) {
                self.add(Socket::Simulated(stream), peer);
            }
        }
        let links: Vec<LinkId> = self
            .links
            .iter_mut()
            .flatten()
            .filter_map(|link| link.is_due().then_some(link.id))
            .collect();
        for link in links {
            self.transmit(link);
            self.receive(link);
        }
    }
}

/// The port of all simulated clients. Rules may demand a port below 1024.
const PORT: u16 = 1000;
