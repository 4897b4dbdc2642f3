//! What a simulated network is like, and what goes wrong in it.
//!
//! Invariant: a plan only says how likely things are; the seed says whether.

/// A simulated network's character. Durations are virtual nanoseconds; chances are
/// parts per million.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// Decides every choice the network makes.
    pub seed: u64,
    /// Shortest time from one node to another.
    pub latency_ns_min: u64,
    /// Longest time from one node to another, delays by fault aside.
    pub latency_ns_max: u64,
    /// Most pieces of work of one side that are under way on a connection.
    pub in_flight_max: usize,
    /// Chance that a send or write succeeds as soon as it is under way.
    pub early_success_ppm: u32,
    /// Chance that an RDMA write or read is done at once where that is asked for and nothing that
    /// was posted before waits.
    pub at_once_ppm: u32,
    /// Longest time a connection stands over a partition before it breaks; all ones for ever.
    pub hold_ns_max: u64,
    /// Longest time a connect may take; all ones for ever.
    pub connect_ns_max: u64,
    /// What goes wrong by itself.
    pub faults: FaultPlan,
}

impl NetworkConfig {
    /// A network without faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            latency_ns_min: 1_000,
            latency_ns_max: 20_000,
            in_flight_max: 64,
            early_success_ppm: 300_000,
            at_once_ppm: 0,
            hold_ns_max: 1_000_000_000,
            connect_ns_max: 10_000_000_000,
            faults: FaultPlan::default(),
        }
    }
}

/// How likely each fault is, per send, RDMA write or RDMA read response, in parts
/// per million. The default is none at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// The connection breaks and the data is lost.
    pub break_before_ppm: u32,
    /// The data arrives, then the connection breaks.
    pub break_after_ppm: u32,
    /// The data, and what must not overtake it, is late.
    pub delay_ppm: u32,
    /// Longest such delay, virtual nanoseconds.
    pub delay_ns_max: u64,
    /// A bit flips and the transport's checksum notices: the connection breaks.
    pub flip_caught_ppm: u32,
    /// A bit of the payload flips and the transport does not notice.
    pub flip_silent_ppm: u32,
    /// Per orderly close: what is still under way from the closing side is lost.
    pub close_loses_ppm: u32,
    /// Faults after which the network behaves.
    pub count_max: u64,
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self {
            break_before_ppm: 0,
            break_after_ppm: 0,
            delay_ppm: 0,
            delay_ns_max: 1_000_000,
            flip_caught_ppm: 0,
            flip_silent_ppm: 0,
            close_loses_ppm: 0,
            count_max: u64::MAX,
        }
    }
}

impl FaultPlan {
    /// Each fault with its chance, in the order in which one draw decides.
    pub(crate) fn chances(&self) -> [(Fault, u32); 5] {
        [
            (Fault::BreakBefore, self.break_before_ppm),
            (Fault::BreakAfter, self.break_after_ppm),
            (Fault::Delay, self.delay_ppm),
            (Fault::FlipCaught, self.flip_caught_ppm),
            (Fault::FlipSilent, self.flip_silent_ppm),
        ]
    }
}

/// A fault of one piece of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// See [`FaultPlan::break_before_ppm`].
    BreakBefore,
    /// See [`FaultPlan::break_after_ppm`].
    BreakAfter,
    /// See [`FaultPlan::delay_ppm`].
    Delay,
    /// See [`FaultPlan::flip_caught_ppm`].
    FlipCaught,
    /// See [`FaultPlan::flip_silent_ppm`].
    FlipSilent,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Sends, writes, reads, answers and handshakes that arrived.
    pub arrivals: u64,
    /// Data lost with its connection.
    pub breaks_before: u64,
    /// Connections broken just after data arrived.
    pub breaks_after: u64,
    /// Data delayed.
    pub delays: u64,
    /// Flipped bits noticed.
    pub flips_caught: u64,
    /// Flipped bits let through.
    pub flips_silent: u64,
    /// Arrivals held back by a partition.
    pub holds: u64,
    /// Connections severed, for whatever reason but an orderly close.
    pub severed: u64,
    /// Orderly closes that lost what was under way.
    pub lossy_closes: u64,
}
