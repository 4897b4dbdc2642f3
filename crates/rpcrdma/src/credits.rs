//! Credits: how many calls one end may have in flight to the other (RFC 8166 section 3.3.1).
//!
//! Invariants: a grant is never zero and never more than the limit. The grants of a connection
//! never decrease, so that a peer which has more calls in flight than it was granted is at fault,
//! however the messages of both directions cross.

/// The credits that this end has granted to its peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    limit: u32,
    granted: u32,
    asked: u32,
    in_flight: u32,
}

impl Granted {
    /// Before the first reply, a peer may have one call in flight.
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit: limit.max(1), granted: 1, asked: 1, in_flight: 0 }
    }

    /// Counts a call. Returns false if the peer had no credit for it.
    pub(crate) fn begin(&mut self, asked: u32) -> bool {
        self.asked = asked;
        let has_credit = self.in_flight < self.granted;
        if has_credit {
            self.in_flight += 1;
        }
        has_credit
    }

    /// Ends a call, and returns the number of credits that its reply grants.
    pub(crate) fn end(&mut self) -> u32 {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.grant()
    }

    /// Returns the number of credits that a message to the peer grants.
    pub(crate) fn grant(&mut self) -> u32 {
        self.granted = self.granted.max(self.asked.clamp(1, self.limit));
        self.granted
    }

    /// Returns the number of calls in flight.
    pub(crate) const fn in_flight(&self) -> u32 {
        self.in_flight
    }
}

/// The credits that the peer has granted to this end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    wanted: u32,
    granted: u32,
}

impl Received {
    /// Before the first reply, one call may be in flight.
    pub(crate) fn new(wanted: u32) -> Self {
        Self { wanted: wanted.max(1), granted: 1 }
    }

    /// Returns the number of credits to ask for.
    pub(crate) const fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Takes the grant of a reply. A grant of zero would end all traffic, so it counts as one.
    pub(crate) fn take(&mut self, granted: u32) {
        self.granted = granted.clamp(1, self.wanted);
    }

    /// Returns true if one more call may be sent.
    pub(crate) const fn allows(&self, in_flight: usize) -> bool {
        in_flight < self.granted as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_never_zero_and_never_above_the_limit() {
        let mut credits = Granted::new(8);
        assert!(credits.begin(0));
        assert!(!credits.begin(0), "one call before the first reply");
        assert_eq!(credits.end(), 1);
        assert!(credits.begin(u32::MAX));
        assert_eq!(credits.end(), 8);
        // A smaller wish does not take back what the peer may be using already.
        assert!(credits.begin(2));
        assert_eq!(credits.end(), 8);
        assert!((0..8).all(|_| credits.begin(8)));
        assert!(!credits.begin(8));
        assert_eq!(credits.in_flight(), 8);
    }

    #[test]
    fn a_grant_that_is_received_is_at_least_one_and_at_most_the_wish() {
        let mut credits = Received::new(4);
        assert!(credits.allows(0) && !credits.allows(1));
        credits.take(0);
        assert!(credits.allows(0) && !credits.allows(1));
        credits.take(u32::MAX);
        assert!(credits.allows(3) && !credits.allows(4));
    }
}
