//! Counters for the operator.
//!
//! Invariant: a gauge equals the current number of entries in the tables; a counter only rises.

/// A copy of the filer's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Gauge: the number of clients that have a record.
    pub clients: u32,
    /// Gauge: the number of clients that may still reclaim the state that they held before the
    /// server restarted.
    pub clients_expected: u32,
    /// Gauge: the number of opens.
    pub opens: u32,
    /// Gauge: the number of files with at least one open.
    pub files: u32,
    /// The number of opens refused with SHARE_DENIED.
    pub opens_share_denied: u64,
    /// The number of opens refused with KEY_MISMATCH.
    pub opens_key_mismatch: u64,
    /// The number of opens refused with RESOURCE because a limit was reached.
    pub opens_resource: u64,
    /// The number of reads and writes refused because of an invalid state id or a share
    /// reservation.
    pub io_refused: u64,
    /// The number of clients that restarted while the server held state for them.
    pub client_restarts: u64,
}
