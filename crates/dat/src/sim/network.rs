//! The driver's handle on a simulated network.
//!
//! Invariant: nothing happens in the network but through these calls and through
//! the interfaces on it; the clock never goes back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::state::{Link, State};
use super::{Fault, FaultPlan, NetworkConfig, Statistics};

/// A simulated network, as one of its nodes sees it. Clones and the handles of
/// other nodes ([`Network::at`]) share one network.
#[derive(Clone, Debug)]
pub struct Network {
    shared: Arc<Mutex<State>>,
    node: u32,
}

/// Names a connection of a network, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) u64);

/// A connection as the network sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Which.
    pub id: ConnectionId,
    /// The node that connected.
    pub initiator: u32,
    /// The node that was connected to.
    pub acceptor: u32,
    /// Its port.
    pub port: u16,
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// When, in virtual nanoseconds.
    pub at_ns: u64,
    /// What arrived, or what went wrong.
    pub what: &'static str,
    /// The connection's number (for a node's trouble, the node).
    pub connection: u64,
    /// The side it arrived at: 0 the initiator, 1 the acceptor.
    pub to: usize,
    /// Bytes; for an acknowledgement the work's number.
    pub length: u64,
}

impl std::fmt::Display for TraceEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { at_ns, what, connection, to, length } = self;
        write!(f, "{at_ns:>12} ns  connection {connection} side {to}: {what} {length}")
    }
}

impl Network {
    /// A network, seen from node 0.
    #[must_use]
    pub fn new(config: NetworkConfig) -> Self {
        Self { shared: Arc::new(Mutex::new(State::new(config))), node: 0 }
    }

    /// The same network, seen from another node: what connects through this handle
    /// comes from there.
    #[must_use]
    pub fn at(&self, node: u32) -> Self {
        Self { shared: Arc::clone(&self.shared), node }
    }

    /// The node this handle speaks for.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.node
    }

    // ---- time -----------------------------------------------------------------

    /// The virtual moment, in nanoseconds since the network began.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state().now_ns
    }

    /// When the next thing happens; `None` if the network is quiet.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.state().next_ns()
    }

    /// Moves the clock to the next thing to happen and lets it happen; an interface
    /// sees an arrival when it next polls. False if the network is quiet.
    pub fn advance(&self) -> bool {
        self.state().advance()
    }

    /// Lets everything happen that is due by `at_ns`, then moves the clock there.
    pub fn advance_to(&self, at_ns: u64) {
        let mut state = self.state();
        while state.next_ns().is_some_and(|next| next <= at_ns) {
            state.advance();
        }
        state.now_ns = state.now_ns.max(at_ns);
    }

    /// Advances until nothing is under way, at most `steps_max` times. Returns the
    /// steps taken. What interfaces answer when they poll is not waited for.
    pub fn run_until_quiet(&self, steps_max: usize) -> usize {
        (0..steps_max).take_while(|_| self.advance()).count()
    }

    // ---- trouble --------------------------------------------------------------

    /// Every connection, connects under way included, oldest first.
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

    /// Breaks a connection. Each side still gets what is under way to it, or not.
    pub fn break_connection(&self, connection: ConnectionId) {
        self.state().cut_cable(connection.0);
    }

    /// Kills a node: its listeners are gone, its connections break, and connects to it
    /// go unanswered.
    pub fn kill_node(&self, node: u32) {
        self.state().kill(node);
    }

    /// Lets a killed node listen and connect again; it remembers nothing.
    pub fn restart_node(&self, node: u32) {
        let mut state = self.state();
        state.note("restart", u64::from(node), 0, 0);
        state.nodes.entry(node).or_default().down = false;
    }

    /// Parts a node from all others. Arrivals are held back; a connection breaks
    /// once its first one has waited for [`NetworkConfig::hold_ns_max`].
    pub fn partition(&self, node: u32) {
        let mut state = self.state();
        state.note("partition", u64::from(node), 0, 0);
        state.nodes.entry(node).or_default().isolated = true;
    }

    /// Ends a node's partition; what was held back arrives, in order.
    pub fn heal(&self, node: u32) {
        self.state().heal(node);
    }

    /// Gives a node this device, or none, from now on. The connections that it has break, and
    /// those that it makes afterwards go through this.
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

    /// Dmabufs that a device has registered now.
    #[must_use]
    pub fn registration_count(&self, device: u32) -> usize {
        self.state().registrations.get(&device).copied().unwrap_or(0)
    }

    /// Changes what goes wrong by itself from now on.
    pub fn set_faults(&self, faults: FaultPlan) {
        self.state().config.faults = faults;
    }

    /// Has one fault strike the data sent after the next `skip` pieces of data.
    pub fn inject(&self, fault: Fault, skip: u64) {
        self.state().orders.push((fault, skip));
    }

    // ---- what happened --------------------------------------------------------

    /// Counts of what has happened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.state().statistics
    }

    /// A hash over everything that has happened: equal for equal seeds and calls.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.state().trace_hash
    }

    /// The latest events, oldest first; bounded.
    #[must_use]
    pub fn trace(&self) -> Vec<TraceEntry> {
        self.state().trace.iter().copied().collect()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the state whole: no call unwinds half-way.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
