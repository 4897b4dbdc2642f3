//! Connections over a simulated network, without sockets and without the clock of the machine.
//!
//! Invariant: what happens depends only on the network and on the times that the owner states.

use std::net::SocketAddr;
use std::time::Duration;

use super::clock::Clock;
use super::link::Link;
use super::socket::Socket;
use super::{LinkId, RecordEvent, Records, network_of};
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

    /// Returns true if an address may have another connection.
    pub(super) fn has_room_for(&self, address: std::net::IpAddr) -> bool {
        let of_network = self.addresses.get(&network_of(address)).copied().unwrap_or(0);
        self.count < self.config.connections_max
            && of_network < self.config.connections_per_address_max
    }

    /// Adds a connection.
    pub(super) fn add(&mut self, socket: Socket, peer: SocketAddr) {
        let link = self.new_link();
        if let Socket::System(socket) = &socket
            && self.watch_as(std::os::fd::AsFd::as_fd(socket), link.0).is_err()
        {
            return self.free.push(link.index() as u32);
        }
        self.links[link.index()] = Some(Link::new(link, socket, peer.ip()));
        self.count += 1;
        *self.addresses.entry(network_of(peer.ip())).or_default() += 1;
        self.events.push_back(RecordEvent::Opened { link, peer, is_datagram: false });
    }
}

/// The port of all simulated clients. Rules may demand a port below 1024.
const PORT: u16 = 1000;
