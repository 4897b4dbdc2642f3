//! Numbers for the operator.
//!
//! Invariant: gauges equal what the tables hold; counters only rise.

/// A copy of the filer's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Gauge: open channels.
    pub channels: u32,
    /// Gauge: channels that have not authenticated.
    pub unauthenticated: u32,
    /// Gauge: authenticated sessions.
    pub sessions: u32,
    /// Gauge: known clients.
    pub clients: u32,
    /// Gauge: sessions whose results are kept.
    pub sessions_kept: u32,
    /// Gauge: those of them without a connection.
    pub sessions_lost: u32,
    /// Gauge: clients that may take back what they held before a restart.
    pub clients_expected: u32,
    /// Gauge: opens.
    pub opens: u32,
    /// Gauge: files with at least one open.
    pub files: u32,
    /// Gauge: credits charged to the budget.
    pub credits: u32,
    /// Channels refused by [`crate::ChannelRefusal`].
    pub channels_refused: u64,
    /// Channels that had not authenticated, and had to give way to others.
    pub channels_displaced: u64,
    /// Connect requests refused.
    pub connects_refused: u64,
    /// Authentications refused.
    pub authentications_refused: u64,
    /// Authentications whose time ran out under a session.
    pub authentications_expired: u64,
    /// Requests answered with a status by admission.
    pub requests_refused: u64,
    /// Connections broken because a peer exceeded its credits.
    pub breaks_credits: u64,
    /// Connections broken because of a stream out of range or busy.
    pub breaks_stream: u64,
    /// Requests that found their channel closing.
    pub breaks_closing: u64,
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
    /// Channels closed by time.
    pub channels_expired: u64,
}
