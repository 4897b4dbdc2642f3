//! The streams and credits of one session (draft 3.2.6).
//!
//! Invariants:
//!
//! - The number of outstanding requests never exceeds `nreq`, and the numbers of all streams in use
//!   are below `nreq`.
//! - `nreq` is at least one and at most the number of posted receives.
//! - When the server's target rises, `nreq` rises immediately; when it falls, `nreq` drops by one
//!   per reply.

use dafs_types::{SequenceNumber, StreamId};

/// The kind of requests for which free credits are reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservedFor {
    /// Any request may take a credit.
    Any,
    /// Only members of the open chain may take a credit.
    Members,
    /// Only requests that recover the session may take a credit.
    Recovery,
}

/// The credits and streams of a session.
#[derive(Debug)]
pub(crate) struct Credits {
    nreq: u16,
    target: u16,
    /// The number of receives posted for replies. The client never uses more credits than this,
    /// even if the server's target is higher.
    limit: u16,
    outstanding: u16,
    /// The number of free credits that any request may take: all free credits, or 0 while they are
    /// reserved.
    open: u16,
    holder: ReservedFor,
    /// The free streams with numbers below `made`, the most recently used last.
    free: Vec<u16>,
    /// The next sequence number of each stream used so far, indexed by stream.
    sequences: Vec<SequenceNumber>,
}

impl Credits {
    /// Creates the credits of a new connection. A connection has one credit until the connect
    /// exchange, and may later have up to `limit` credits.
    pub(crate) fn new(limit: u16) -> Self {
        Self {
            nreq: 1,
            target: 1,
            limit: limit.max(1),
            outstanding: 0,
            open: 1,
            holder: ReservedFor::Any,
            free: Vec::new(),
            sequences: Vec::new(),
        }
    }

    /// Takes a credit and a stream for a request. Returns `None` if all credits are in use or
    /// reserved.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(StreamId, SequenceNumber)> {
        if self.outstanding >= self.open {
            return None;
        }
        self.take_any()
    }

    /// Takes a credit for a member of the open chain or, if no chain is open, for the first member
    /// of the next chain.
    pub(crate) fn take_for_member(&mut self) -> Option<(StreamId, SequenceNumber)> {
        if self.holder == ReservedFor::Recovery { None } else { self.take_held() }
    }

    /// Takes a credit, even if the free credits are reserved.
    pub(crate) fn take_held(&mut self) -> Option<(StreamId, SequenceNumber)> {
        if self.outstanding >= self.nreq { None } else { self.take_any() }
    }

    /// Reserves the free credits for `holder` from now on.
    pub(crate) fn hold(&mut self, holder: ReservedFor) {
        self.holder = holder;
        self.open = if holder == ReservedFor::Any { self.nreq } else { 0 };
    }

    #[inline(always)]
    fn take_any(&mut self) -> Option<(StreamId, SequenceNumber)> {
        // Streams with numbers above the reduced number of credits stay in the list until the
        // number grows again.
        let place = self.free.iter().rposition(|stream| *stream < self.nreq);
        let stream = match place {
            Some(place) => self.free.remove(place),
            None => self.make()?,
        };
        self.outstanding += 1;
        let sequence = &mut self.sequences[usize::from(stream)];
        let taken = *sequence;
        *sequence = taken.next();
        Some((StreamId(stream), taken))
    }

    /// Returns the credit of a stream whose reply has arrived, and adopts the server's new credit
    /// target.
    #[inline]
    pub(crate) fn give(&mut self, stream: StreamId, target: u16) {
        self.outstanding -= 1;
        self.free.push(stream.0);
        self.target = target.clamp(1, self.limit);
        self.nreq = (self.nreq.saturating_sub(1)).max(self.target).max(1);
        if self.open != 0 {
            self.open = self.nreq;
        }
    }

    /// Returns the credit of a stream on which no request was sent.
    pub(crate) fn withdraw(&mut self, stream: StreamId) {
        self.outstanding -= 1;
        self.free.push(stream.0);
    }

    /// Returns true if `sequence` belongs to the newest request on a stream.
    #[inline]
    pub(crate) fn is_newest(&self, stream: StreamId, sequence: SequenceNumber) -> bool {
        self.sequences.get(usize::from(stream.0)).is_some_and(|next| sequence.next() == *next)
    }

    /// Returns the sequence number of the newest request on a stream.
    pub(crate) fn newest(&self, stream: StreamId) -> SequenceNumber {
        let next = self.sequences.get(usize::from(stream.0)).copied().unwrap_or_default();
        SequenceNumber(next.0.wrapping_sub(1))
    }

    /// Returns true if the server wants credits back and no request is in flight whose reply would
    /// return them.
    pub(crate) fn should_shrink(&self) -> bool {
        self.outstanding == 0 && self.target < self.nreq && self.holder == ReservedFor::Any
    }

    /// Returns the number of requests without a reply.
    pub(crate) fn outstanding(&self) -> u16 {
        self.outstanding
    }

    /// Returns the limit for the number of requests without a reply.
    pub(crate) fn nreq(&self) -> u16 {
        self.nreq
    }

    fn make(&mut self) -> Option<u16> {
        let stream = u16::try_from(self.sequences.len()).ok().filter(|s| *s < self.nreq)?;
        self.sequences.push(SequenceNumber(0));
        Some(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u16 = 24;

    #[test]
    fn reserved_credits_are_for_recovery_alone() {
        let mut credits = Credits::new(LIMIT);
        credits.hold(ReservedFor::Recovery);
        assert_eq!(credits.take(), None);
        assert_eq!(credits.take_for_member(), None);
        let (stream, sequence) = credits.take_held().unwrap();
        assert_eq!(credits.newest(stream), sequence);
        credits.give(stream, 2);
        credits.hold(ReservedFor::Any);
        assert!(credits.take().is_some() && credits.take().is_some());
        assert_eq!(credits.take(), None);
    }

    #[test]
    fn while_a_chain_is_open_only_its_members_are_sent() {
        let mut credits = Credits::new(LIMIT);
        let (stream, _) = credits.take_for_member().unwrap();
        assert!(credits.take_for_member().is_none(), "one credit");
        credits.hold(ReservedFor::Members);
        credits.give(stream, 4);
        assert!(credits.take().is_none(), "held");
        let (first, _) = credits.take_for_member().unwrap();
        credits.take_for_member().unwrap();
        credits.give(first, 4);
        assert!(credits.take().is_none(), "still held");
        credits.hold(ReservedFor::Any);
        assert!((0..3).all(|_| credits.take().is_some()));
        assert!(credits.take().is_none() && credits.take_for_member().is_none());
    }

    #[test]
    fn never_more_outstanding_than_credits_whatever_the_server_says() {
        let mut credits = Credits::new(LIMIT);
        let mut busy: Vec<(StreamId, SequenceNumber)> = Vec::new();
        let mut next = std::collections::HashMap::new();
        let mut state = 3u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
            if state >> 62 != 0 || busy.is_empty() {
                let before = credits.nreq();
                match credits.take() {
                    Some((stream, sequence)) => {
                        assert!(busy.len() < usize::from(before) && stream.0 < before);
                        assert!(busy.iter().all(|(other, _)| *other != stream));
                        let expected = next.entry(stream.0).or_insert(0u16);
                        assert_eq!(sequence.0, *expected);
                        *expected = expected.wrapping_add(1);
                        busy.push((stream, sequence));
                    }
                    None => assert!(!busy.is_empty()),
                }
            } else {
                let (stream, sequence) = busy.swap_remove((state >> 20) as usize % busy.len());
                assert!(credits.is_newest(stream, sequence));
                assert!(!credits.is_newest(stream, sequence.next()));
                let (before, target) = (credits.nreq(), (state >> 40) as u16 % 40);
                credits.give(stream, target);
                assert_eq!(credits.nreq(), (before - 1).max(target.min(LIMIT)).max(1));
            }
        }
    }
}
