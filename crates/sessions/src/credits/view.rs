//! Credits as an operator sees them: who is throttled, and by which limit.
//!
//! Invariant: a view is a copy; looking changes nothing.

use dafs_types::SessionId;

/// How much a client counts when credits are short: twice the weight, twice the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CreditWeight(u16);

impl CreditWeight {
    /// The heaviest.
    pub const MAX: Self = Self(1000);

    /// A weight from 1 to [`CreditWeight::MAX`]; others do not exist.
    #[must_use]
    pub const fn new(weight: u16) -> Option<Self> {
        if weight == 0 || weight > Self::MAX.0 { None } else { Some(Self(weight)) }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for CreditWeight {
    /// 1, the weight of whom nobody has given another.
    fn default() -> Self {
        Self(1)
    }
}

/// What keeps a session from having more credits, as its last change found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitedBy {
    /// It has what it asked for.
    Desire,
    /// It has the most that one session may have.
    SessionMaximum,
    /// Nothing is left of the server's credits, and it has less than its share, or nobody
    /// to share with: others will have to give some back.
    Budget,
    /// Nothing is left, and it has its share.
    Share,
    /// It did not use what it had.
    Idle,
    /// It may grow as soon as it uses all it has.
    Nothing,
}

/// The credits of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditView {
    /// Whose.
    pub session: SessionId,
    /// What it has, once it has read all responses.
    pub credits: u16,
    /// What it is to have.
    pub target: u16,
    /// Its requests in the server's hands.
    pub outstanding: u16,
    /// What it asked for last; 0 for nothing.
    pub desired: u16,
    /// What it counts.
    pub weight: CreditWeight,
    /// Why it has no more.
    pub limited_by: LimitedBy,
}
