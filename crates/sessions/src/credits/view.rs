//! Credits as an operator sees them: which sessions are throttled, and by which limit.
//!
//! Invariant: a view is a copy and changes nothing.

use dafs_types::SessionId;

/// The weight of a client when credits are short: twice the weight gives twice the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CreditWeight(u16);

impl CreditWeight {
    /// The largest weight: 1000 times the smallest weight, which is 1.
    pub const MAX: Self = Self(1000);

    /// Makes a weight from 1 to [`CreditWeight::MAX`]; `None` for other values.
    #[must_use]
    pub const fn new(weight: u16) -> Option<Self> {
        if weight == 0 || weight > Self::MAX.0 { None } else { Some(Self(weight)) }
    }

    /// Returns the weight as a number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for CreditWeight {
    /// Returns 1, the weight of clients without a configured one.
    fn default() -> Self {
        Self(1)
    }
}

/// What keeps a session from having more credits, as of the last change of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitedBy {
    /// The session has as many credits as it asked for.
    Desire,
    /// The session has the most credits that one session may have.
    SessionMaximum,
    /// The server has no free credits, and the session has less than its share or is the only one
    /// that contends: other sessions will have to give some back.
    Budget,
    /// The server has no free credits, and the session has its share.
    Share,
    /// The session did not use the credits it had.
    Idle,
    /// The session may grow as soon as it uses all its credits.
    Nothing,
}

/// The credits of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditView {
    /// The session that this describes.
    pub session: SessionId,
    /// The session's credits, once its client has read all replies.
    pub credits: u16,
    /// The number of credits the server aims for.
    pub target: u16,
    /// The number of the session's requests in flight.
    pub outstanding: u16,
    /// The number of credits that the client asked for last; 0 for no statement.
    pub desired: u16,
    /// The weight of the session's client.
    pub weight: CreditWeight,
    /// The reason why the session has no more credits.
    pub limited_by: LimitedBy,
}
