//! The properties of a simulated network and its faults.
//!
//! Invariant: a plan contains only probabilities. The seed determines all random choices.

/// The properties of a simulated network. Durations are in virtual nanoseconds, probabilities in
/// parts per million.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// The seed that decides every random choice of the network.
    pub seed: u64,
    /// The minimum latency from one node to another, in virtual nanoseconds.
    pub latency_ns_min: u64,
    /// The maximum latency from one node to another, without delays by faults, in virtual
    /// nanoseconds.
    pub latency_ns_max: u64,
    /// The maximum number of work requests of one side in flight on a connection.
    pub in_flight_max: usize,
    /// The probability, in parts per million, that a send or write reports success as soon as it is
    /// in flight.
    pub early_success_ppm: u32,
    /// The probability, in parts per million, that an RDMA write or read is executed immediately if
    /// the caller requests that and no earlier work is waiting.
    pub at_once_ppm: u32,
    /// The time in virtual nanoseconds for which a connection survives a partition; `u64::MAX`
    /// means for ever.
    pub hold_ns_max: u64,
    /// The maximum time in virtual nanoseconds that a connect may take; `u64::MAX` means no limit.
    pub connect_ns_max: u64,
    /// The faults that occur at random.
    pub faults: FaultPlan,
}

impl NetworkConfig {
    /// Returns the properties of a network without faults.
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

/// The probability of each fault per send, RDMA write or RDMA read response, in parts per million.
/// The default has no faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// The probability, in parts per million, that the connection breaks and the data is lost.
    pub break_before_ppm: u32,
    /// The probability, in parts per million, that the connection breaks after the data has
    /// arrived.
    pub break_after_ppm: u32,
    /// The probability, in parts per million, that the data, and everything that must not overtake
    /// it, is delayed.
    pub delay_ppm: u32,
    /// The maximum delay by a fault, in virtual nanoseconds.
    pub delay_ns_max: u64,
    /// The probability, in parts per million, that a bit flips and the transport's checksum detects
    /// it, which breaks the connection.
    pub flip_caught_ppm: u32,
    /// The probability, in parts per million, that a bit of the payload flips and the transport
    /// does not detect it.
    pub flip_silent_ppm: u32,
    /// The probability, in parts per million, that a regular close loses the data in flight from
    /// the closing side.
    pub close_loses_ppm: u32,
    /// The number of faults after which no more faults occur.
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
    /// Returns each fault with its probability, in the order in which one random number selects
    /// among them.
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

/// A fault that affects one packet of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection breaks and the data is lost, see [`FaultPlan::break_before_ppm`].
    BreakBefore,
    /// The connection breaks after the data has arrived, see [`FaultPlan::break_after_ppm`].
    BreakAfter,
    /// The data is delayed, see [`FaultPlan::delay_ppm`].
    Delay,
    /// A bit flip is detected, see [`FaultPlan::flip_caught_ppm`].
    FlipCaught,
    /// A bit flip is not detected, see [`FaultPlan::flip_silent_ppm`].
    FlipSilent,
}

/// The counts of past events of a simulated network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The number of sends, writes, reads, replies and handshakes that arrived.
    pub arrivals: u64,
    /// The number of packets lost with their connection.
    pub breaks_before: u64,
    /// The number of connections broken just after data arrived.
    pub breaks_after: u64,
    /// The number of delayed packets.
    pub delays: u64,
    /// The number of detected bit flips.
    pub flips_caught: u64,
    /// The number of undetected bit flips.
    pub flips_silent: u64,
    /// The number of arrivals held back by a partition.
    pub holds: u64,
    /// The number of connections that ended in any way other than a regular close.
    pub severed: u64,
    /// The number of regular closes that lost data in flight.
    pub lossy_closes: u64,
}
