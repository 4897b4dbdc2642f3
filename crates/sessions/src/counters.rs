//! Counters for the operator.
//!
//! Invariant: a gauge equals the current number of entries in the tables; a counter only rises.

/// A copy of the counters of sessions at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    /// Gauge: the number of open channels.
    pub channels: u32,
    /// Gauge: the number of channels that have not authenticated.
    pub unauthenticated: u32,
    /// Gauge: the number of authenticated sessions.
    pub sessions: u32,
    /// Gauge: the number of sessions whose replies are stored.
    pub sessions_kept: u32,
    /// Gauge: the number of sessions without a connection whose replies are stored.
    pub sessions_lost: u32,
    /// Gauge: the number of credits of open channels, which are subtracted from the budget.
    pub credits: u32,
    /// The number of channels refused with [`crate::ChannelRefusal`].
    pub channels_refused: u64,
    /// The number of unauthenticated channels that were closed to make room for other channels.
    pub channels_displaced: u64,
    /// The number of connect requests that were refused.
    pub connects_refused: u64,
    /// The number of authentications that were refused.
    pub authentications_refused: u64,
    /// The number of authentications that expired during a session.
    pub authentications_expired: u64,
    /// The number of requests that admission refused with an error status.
    pub requests_refused: u64,
    /// The number of connections broken because a peer exceeded its credits.
    pub breaks_credits: u64,
    /// The number of connections broken because a peer used a stream that was out of range or busy.
    pub breaks_stream: u64,
    /// The number of requests that arrived on a channel after the server had decided to close it.
    pub breaks_closing: u64,
    /// The number of channels that were closed because of a timeout.
    pub channels_expired: u64,
}
