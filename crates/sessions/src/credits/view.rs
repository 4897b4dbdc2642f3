//! Shows an operator the credits of each session, and the limit that keeps the session from having
//! more credits.
//!
//! Invariant: a view is a copy of the state.

use dafs_types::SessionId;

/// The weight of a client when credits are scarce: a client with twice the weight gets twice the
/// share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CreditWeight(u16);

impl CreditWeight {
    /// The largest weight. The smallest weight is 1.
    pub const MAX: Self = Self(1000);

    /// Creates a weight from 1 to [`CreditWeight::MAX`]. Returns `None` for other values.
    #[must_use]
    pub const fn new(weight: u16) -> Option<Self> {
        if weight == 0 || weight > Self::MAX.0 { None } else { Some(Self(weight)) }
    }

    /// Returns the weight as an integer.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for CreditWeight {
    /// Returns the weight 1, for clients without a configured weight.
    fn default() -> Self {
        Self(1)
    }
}

/// The limit that kept a session from getting more credits when its target last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitedBy {
    /// The session has as many credits as it asked for.
    Desire,
    /// The session has the most credits that one session may have.
    SessionMaximum,
    /// The server has no free credits, and the session has less than its share or is the only
    /// session that contends. Other sessions will have to give credits back.
    Budget,
    /// The server has no free credits, and the session already has its share.
    Share,
    /// The session did not use all the credits that it had.
    Idle,
    /// No limit applies: the session gets more credits as soon as it uses all its credits.
    Nothing,
}

/// The credits of one session, for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditView {
    /// The id of the session.
    pub session: SessionId,
    /// The number of credits that the session has when its client has read all replies.
    pub credits: u16,
    /// The number of credits that the server wants the session to have.
    pub target: u16,
    /// The number of the session's requests in flight.
    pub outstanding: u16,
    /// The number of credits that the client last asked for; 0 if it has not asked.
    pub desired: u16,
    /// The weight of the session's client.
    pub weight: CreditWeight,
    /// The limit that keeps the session from having more credits.
    pub limited_by: LimitedBy,
}
