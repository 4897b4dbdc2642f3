//! Numbers for the operator.
//!
//! Invariant: gauges equal what the tables hold; counters only rise.

/// A copy of the filer's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Gauge: known clients.
    pub clients: u32,
    /// Gauge: clients that may take back what they held before a restart.
    pub clients_expected: u32,
    /// Gauge: opens.
    pub opens: u32,
    /// Gauge: files with at least one open.
    pub files: u32,
    /// Opens refused with SHARE_DENIED.
    pub opens_share_denied: u64,
    /// Opens refused with KEY_MISMATCH.
    pub opens_key_mismatch: u64,
    /// Opens refused with RESOURCE.
    pub opens_resource: u64,
    /// Reads and writes refused because of a state id or a reservation.
    pub io_refused: u64,
    /// Clients that restarted with state in place.
    pub client_restarts: u64,
}
