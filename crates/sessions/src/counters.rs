//! Numbers for the operator.
//!
//! Invariant: gauges equal what the tables hold; counters only rise.

/// A copy of the numbers of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    /// Gauge: open channels.
    pub channels: u32,
    /// Gauge: channels that have not authenticated.
    pub unauthenticated: u32,
    /// Gauge: authenticated sessions.
    pub sessions: u32,
    /// Gauge: sessions whose results are kept.
    pub sessions_kept: u32,
    /// Gauge: those of them without a connection.
    pub sessions_lost: u32,
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
    /// Channels closed by time.
    pub channels_expired: u64,
}
