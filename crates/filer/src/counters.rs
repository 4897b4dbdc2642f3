//! Counters for the operator.
//!
//! Invariant: gauges equal what the tables hold; counters only rise.

/// A snapshot of the filer's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Gauge: the number of known clients.
    pub clients: u32,
    /// Gauge: clients that may still reclaim the state they held before the server restarted.
    pub clients_expected: u32,
    /// Gauge: the number of opens.
    pub opens: u32,
    /// Gauge: files with at least one open.
    pub files: u32,
    /// Opens refused with SHARE_DENIED.
    pub opens_share_denied: u64,
    /// Opens refused with KEY_MISMATCH.
    pub opens_key_mismatch: u64,
    /// Opens refused with RESOURCE because a limit was reached.
    pub opens_resource: u64,
    /// Reads and writes refused because of a state id or a reservation.
    pub io_refused: u64,
    /// Clients that restarted while the server held state of theirs.
    pub client_restarts: u64,
}
