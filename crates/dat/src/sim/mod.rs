//! The provider `sim` is a simulated network, determined by a seed and a list of calls.
//!
//! Invariant: the same seed and the same calls produce the same events at the same virtual times.
//! No code here uses a clock, an address or the order of a hash map. Every fault that a transport
//! may show can occur, and no other fault:
//!
//! - The order of events on different connections is arbitrary.
//! - Within one connection messages stay in order. RDMA writes between two sends are placed in any
//!   order, but before the later send is delivered. RDMA reads are executed in order among
//!   themselves and do not wait for writes.
//! - Bytes are fetched from a sender's memory when they arrive. They are placed when the receiving
//!   interface makes progress, so that a test detects a buffer that is used too early.
//! - A send or a write may report success long before its delivery, as over a socket, or only after
//!   its delivery, as over a fabric.
//!
//! Some transfers are executed immediately ([`NetworkConfig::at_once_ppm`]), as between processes
//! that share memory: they do not wait for packets in flight.
//!
//! A [`Network`] handle belongs to one node; [`Network::at`] returns handles for the others. The
//! driver advances time with [`Network::advance`] and polls the interfaces. An interface that waits
//! advances time itself and returns when nothing is in flight.
//!
//! A node may consist of several interfaces, like a server with several reactors. Each listens on
//! its own port, or they share the connections of one port ([`AcceptGroup`](crate::AcceptGroup)),
//! in the same way for the same seed. A fault of the node affects all of them.
//!
//! Streams of bytes ([`Stream`]) use the same lanes as the messages of RDMA connections, and have
//! the same delays and faults. The service for NFS clients uses them through `records`.
//!
//! A node may have a device ([`Network::set_device`]), which simulates an RDMA device: the device
//! gives regions its own STags, which are invalid on another device, and it registers and maps
//! dmabufs.

mod at_once;
mod config;
mod connection;
mod device;
mod lane;
mod network;
mod packet;
mod random;
mod state;
mod stream;
mod trouble;

pub use config::{Fault, FaultPlan, NetworkConfig, Statistics};
pub use network::{ConnectionId, ConnectionInfo, Network, TraceEntry};
pub use stream::{Stream, StreamEnd, address_of};

pub(crate) use connection::Connection;
pub(crate) use device::Registrations;

use std::io;

use crate::{Address, AddressError, ListenerId};

/// A listener on one of a node's ports. Connections queue in the network until they are taken.
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
