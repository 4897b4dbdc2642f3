//! Counters for the operator.
//!
//! Invariant: gauges equal what the tables hold; counters only rise.

/// A snapshot of the counters of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    /// Gauge: the number of open channels.
    pub channels: u32,
    /// Gauge: channels that have not authenticated.
    pub unauthenticated: u32,
    /// Gauge: the number of authenticated sessions.
    pub sessions: u32,
    /// Gauge: sessions whose replies are kept.
    pub sessions_kept: u32,
    /// Gauge: sessions without a connection whose replies are kept.
    pub sessions_lost: u32,
    /// Gauge: credits charged to the budget.
    pub credits: u32,
    /// Channels refused with [`crate::ChannelRefusal`].
    pub channels_refused: u64,
    /// Unauthenticated channels that were closed to make room for others.
    pub channels_displaced: u64,
    /// Connect requests that were refused.
    pub connects_refused: u64,
    /// Authentications that were refused.
    pub authentications_refused: u64,
    /// Authentications that expired during a session.
    pub authentications_expired: u64,
    /// Requests that admission answered with an error status.
    pub requests_refused: u64,
    /// Connections broken because a peer exceeded its credits.
    pub breaks_credits: u64,
    /// Connections broken because of a stream out of range or busy.
    pub breaks_stream: u64,
    /// Requests that arrived on a channel that was closing.
    pub breaks_closing: u64,
    /// Channels closed because of a timeout.
    pub channels_expired: u64,
}
