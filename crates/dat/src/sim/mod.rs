//! Provider `sim`: a network that exists only in a seed and a list of calls.
//!
//! Invariant: the same seed and the same calls give the same events at the same
//! virtual moments. Nothing here looks at a clock, an address or a hash map's
//! order. Every fault that a transport may show is possible, none that it may not:
//! - connections are reordered against each other at will;
//! - within one connection messages stay in order; RDMA writes between two sends
//!   are placed in any order, but before the later send is delivered; RDMA reads
//!   are carried out in order among themselves and wait for no write;
//! - bytes are fetched from a sender's memory when they arrive, and placed when the
//!   receiving interface makes progress, so that a buffer touched too early shows;
//! - success of a send or a write may come long before its delivery, as over a
//!   socket, or only after it, as over a fabric.
//!
//! Some transfers are moved at once ([`NetworkConfig::at_once_ppm`]), as between processes that
//! share memory: they wait for nothing that is under way.
//!
//! A [`Network`] handle speaks for one node; [`Network::at`] gives the others. The
//! driver moves time with [`Network::advance`] and polls the interfaces; an
//! interface that waits moves time itself and returns when nothing is under way.
//!
//! A node may be several interfaces, as a server with several reactors is: each listens on a port
//! of its own, or they share what comes to one port ([`AcceptGroup`](crate::AcceptGroup)), for the
//! same seed in the same way. What happens to the node happens to all of them.
//!
//! A node may have a device ([`Network::set_device`]), which stands for an RDMA device: it calls
//! regions by names of its own, which are nothing to another device, and registers dmabufs, which
//! it maps.

mod at_once;
mod config;
mod connection;
mod device;
mod lane;
mod network;
mod packet;
mod random;
mod state;
mod trouble;

pub use config::{Fault, FaultPlan, NetworkConfig, Statistics};
pub use network::{ConnectionId, ConnectionInfo, Network, TraceEntry};

pub(crate) use connection::Connection;
pub(crate) use device::Registrations;

use std::io;

use crate::{Address, AddressError, ListenerId};

/// A listener on one of a node's ports; connections queue in the network until taken.
pub(crate) struct Listener {
    network: Network,
    node: u32,
    port: u16,
    generation: u64,
}

impl Listener {
    pub(crate) fn bind(network: &Network, node: u32, port: u16) -> Result<Self, AddressError> {
        let generation = network.state().bind(node, port).ok_or_else(|| AddressError::System {
            address: Address::Sim { node, port },
            source: io::ErrorKind::AddrInUse.into(),
        })?;
        Ok(Self { network: network.clone(), node, port, generation })
    }

    pub(crate) fn address(&self) -> Address {
        Address::Sim { node: self.node, port: self.port }
    }

    pub(crate) fn accept(&mut self, id: ListenerId) -> Option<Connection> {
        let mut state = self.network.state();
        let (link, greeting) = state.take_request(self.node, self.port, self.generation)?;
        drop(state);
        Some(Connection::pending(&self.network, link, greeting, id))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.network.state().unbind(self.node, self.port, self.generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_may_move_to_another_thread() {
        fn check<T: Send>() {}
        check::<Network>();
        check::<Connection>();
        check::<Listener>();
    }
}
