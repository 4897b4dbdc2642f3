//! The driver's handle for a simulated network.
//!
//! Invariant: the network changes only through these calls and through the interfaces on it. The
//! clock never goes back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::state::{Link, State};
use super::{Fault, FaultPlan, NetworkConfig, Statistics};

/// A handle for a simulated network that belongs to one of its nodes. Clones and the handles of
/// other nodes ([`Network::at`]) share one network.
#[derive(Clone, Debug)]
pub struct Network {
    shared: Arc<Mutex<State>>,
    node: u32,
}

/// Identifies a connection of a network. Identifiers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) u64);

/// The description of a connection in a simulated network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The identifier of the connection.
    pub id: ConnectionId,
    /// The number of the node that connected.
    pub initiator: u32,
    /// The number of the node that was connected to.
    pub acceptor: u32,
    /// The port that was connected to.
    pub port: u16,
}

/// One event in the history of a simulated network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// The time of the event in virtual nanoseconds.
    pub at_ns: u64,
    /// The kind of packet that arrived, or the fault that occurred.
    pub what: &'static str,
    /// The number of the connection, or of the node for a fault of a node.
    pub connection: u64,
    /// The side at which the packet arrived: 0 the initiator, 1 the acceptor.
    pub to: usize,
    /// The number of bytes in the packet; for an acknowledgement the sequence number of the work.
    pub length: u64,
}

impl std::fmt::Display for TraceEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { at_ns, what, connection, to, length } = self;
        write!(f, "{at_ns:>12} ns  connection {connection} side {to}: {what} {length}")
    }
}

impl Network {
    /// Creates a network and returns the handle of node 0.
    #[must_use]
    pub fn new(config: NetworkConfig) -> Self {
        Self { shared: Arc::new(Mutex::new(State::new(config))), node: 0 }
    }

    /// Returns a handle for the same network that belongs to another node. Connects through this
    /// handle come from that node.
    #[must_use]
    pub fn at(&self, node: u32) -> Self {
        Self { shared: Arc::clone(&self.shared), node }
    }

    /// Returns the number of the node to which this handle belongs.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.node
    }

    // ---- time -----------------------------------------------------------------

    /// Returns the virtual time in nanoseconds since the network was created.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state().now_ns
    }

    /// Returns the time of the next event, or `None` if nothing is in flight.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.state().next_ns()
    }

    /// Advances the clock to the next event and executes it. An interface sees an arrival when it
    /// next polls. Returns false if nothing is in flight.
    pub fn advance(&self) -> bool {
        self.state().advance()
    }

    /// Executes all events due by `at_ns`, then sets the clock to that time.
    pub fn advance_to(&self, at_ns: u64) {
        let mut state = self.state();
        while state.next_ns().is_some_and(|next| next <= at_ns) {
            state.advance();
        }
        state.now_ns = state.now_ns.max(at_ns);
    }

    /// Advances until nothing is in flight, but at most `steps_max` times. Returns the number of
    /// steps. Does not poll the interfaces, so packets that they would send in response are not
    /// included.
    pub fn run_until_quiet(&self, steps_max: usize) -> usize {
        (0..steps_max).take_while(|_| self.advance()).count()
    }

    // ---- trouble --------------------------------------------------------------

    /// Returns every connection, including connects in progress, oldest first.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        let state = self.state();
        state
            .links
            .iter()
            .map(|(id, link)| ConnectionInfo {
                id: ConnectionId(*id),
                initiator: link.sides[0].node,
                acceptor: link.sides[1].node,
                port: link.port,
            })
            .collect()
    }

    /// Breaks a connection. For each side it is random whether the data in flight to that side
    /// still arrives.
    pub fn break_connection(&self, connection: ConnectionId) {
        self.state().cut_cable(connection.0);
    }

    /// Kills a node: its listeners disappear, its connections break, and connects to it get no
    /// reply.
    pub fn kill_node(&self, node: u32) {
        self.state().kill(node);
    }

    /// Allows a killed node to listen and connect again, without any of its former state.
    pub fn restart_node(&self, node: u32) {
        let mut state = self.state();
        state.note("restart", u64::from(node), 0, 0);
        state.nodes.entry(node).or_default().down = false;
    }

    /// Separates a node from all others: packets from and to it are held back. A connection breaks
    /// once its first held packet has waited for [`NetworkConfig::hold_ns_max`].
    pub fn partition(&self, node: u32) {
        let mut state = self.state();
        state.note("partition", u64::from(node), 0, 0);
        state.nodes.entry(node).or_default().isolated = true;
    }

    /// Ends a node's partition. The held packets are delivered in their original order.
    pub fn heal(&self, node: u32) {
        self.state().heal(node);
    }

    /// Sets or removes a node's device. The node's connections break, and later connections use the
    /// new device.
    pub fn set_device(&self, node: u32, device: Option<u32>) {
        let mut state = self.state();
        state.note("device", u64::from(node), 0, device.map_or(0, u64::from));
        state.nodes.entry(node).or_default().device = device;
        let of_node = |(id, link): (&u64, &Link)| {
            link.sides.iter().any(|side| side.node == node).then_some(*id)
        };
        let broken: Vec<u64> = state.links.iter().filter_map(of_node).collect();
        broken.into_iter().for_each(|id| state.cut_cable(id));
    }

    /// Returns the number of dmabufs registered with a device.
    #[must_use]
    pub fn registration_count(&self, device: u32) -> usize {
        self.state().registrations.get(&device).copied().unwrap_or(0)
    }

    /// Changes the faults that occur at random from now on.
    pub fn set_faults(&self, faults: FaultPlan) {
        self.state().config.faults = faults;
    }

    /// Makes one fault affect the data packet that follows the next `skip` data packets.
    pub fn inject(&self, fault: Fault, skip: u64) {
        self.state().orders.push((fault, skip));
    }

    // ---- what happened --------------------------------------------------------

    /// Returns the counts of past events.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.state().statistics
    }

    /// Returns a hash over all past events, which is equal for equal seeds and calls.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.state().trace_hash
    }

    /// Returns the latest events, oldest first; their number is limited.
    #[must_use]
    pub fn trace(&self) -> Vec<TraceEntry> {
        self.state().trace.iter().copied().collect()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the state consistent, because no call panics in the middle of a
        // change.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
