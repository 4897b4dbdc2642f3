//! Credits: the number of requests that a client may have outstanding, and the distribution of
//! credits among sessions (draft 3.2.6). The credits of one channel are called its *window*. A
//! *stream* is one of the numbered sequences of requests of a channel: a request names a stream,
//! and the next request on that stream follows after its reply. A client with `n` credits may use
//! the streams 0 to `n - 1`.
//!
//! Invariants: for every window `outstanding <= nreq`, `1 <= target` and `1 <= nreq`. The sum of
//! `max(nreq, target)` over all windows, plus one credit for every channel that could still open,
//! never exceeds the budget.
//!
//! `nreq` is a field of the window: the number of credits that the client will have when it has
//! read every reply sent so far. The client may still assume a greater number while replies are on
//! their way. Each of these replies lowers the client's number by at most one, and until the client
//! has read the reply, it counts the request as outstanding. So `outstanding > nreq` on the server
//! proves that the client has violated the protocol.
//!
//! Growth: a session starts with few credits. The number doubles whenever the session has used all
//! its credits. While more than half of the budget is free, the number instead rises directly to
//! the number that the client desires. The number also grows once when the client asks for more
//! than before. The number of credits never exceeds the number that the client desires. Credits
//! that the session has not used since the last tick are taken back. Each reply lowers the number
//! by at most one.
//!
//! Contention: when credits are scarce, the sessions that use all their credits contend for the
//! credits that the other sessions do not have. The share of a contending session is the number of
//! these credits times the session's weight, divided by the sum of the weights of all contending
//! sessions. A session does not contend if it already has as many credits as its desire or the
//! maximum allows, and this number is within its share. While a session with less than its share
//! finds no free credits, the sessions with more than their share must give back the number that is
//! missing, and no session grows beyond its share. While any session needs more credits, a session
//! that has not used all its credits keeps at the next tick only the number that it has used. An
//! idle session learns of its lower target only with its next reply. The server may drop such a
//! session ([`Window::withholds`]), which is off by default.
//!
//! Streams with numbers of `nreq` and above may be used, and the replies on them are kept, until
//! the client provably knows the lower number (draft 5.2.2). The proof is that the client reuses a
//! stream on which the last reply was sent after `nreq` fell. The draft also accepts, as proof, a
//! request that desires the new value. But a desire does not show that the client has read the
//! reply, and a stream is reused at most `nreq` requests later.

mod budget;
mod view;

use std::time::Duration;

use dafs_types::{Moment, SessionId, StreamId, limits};

use crate::{BreakReason, Grant};

pub(crate) use budget::Budget;
pub use view::{CreditView, CreditWeight, LimitedBy};

/// The number of 64-bit words in a bitmap with one bit for each stream of a channel.
const STREAM_WORDS: usize = limits::CREDITS_MAX as usize / 64;
const _: () = assert!(limits::CREDITS_MAX.is_multiple_of(64));
/// The stream number that means "no stream".
const NO_STREAM: u16 = u16::MAX;

/// A flag: all credits or all streams of the session were in use since the last check.
const SATURATED: u8 = 1;
/// A flag: the client has asked for more credits than it has.
const ASKED: u8 = 2;

/// The window of a channel: its credits and the state of its streams.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// The number of credits that the client will have when it has read all replies sent so far.
    nreq: u16,
    /// The number of credits that the server wants the session to have.
    target: u16,
    outstanding: u16,
    /// The streams used since the last tick. The number of these streams shows how many credits the
    /// client needs. The number of outstanding requests does not show it, because a server that
    /// replies quickly never sees many.
    used: [u64; STREAM_WORDS],
    /// The number of streams that the client may use. It is the largest number of credits that the
    /// client may still assume to have.
    stream_limit: u16,
    /// The number of streams, counted from stream 0, that may have a reply that the client has not
    /// read.
    kept_limit: u16,
    /// The number of credits that the client last asked for; 0 if it has not asked.
    desired: u16,
    /// The largest number of credits that may be granted in the present phase of the channel.
    most: u16,
    /// The flags [`SATURATED`] and [`ASKED`], which the server takes into account at the next
    /// reply.
    attention: u8,
    busy: [u64; STREAM_WORDS],
    /// The streams on which a reply was sent since `nreq`, the client's number of credits, last
    /// fell. A new request on one of them proves that the client knows the lower value.
    answered: [u64; STREAM_WORDS],
    /// The streams on which a reply was sent since the last reply on a stream beyond `nreq`, the
    /// client's number of credits. A new request on one of them proves that the client has read all
    /// replies on the streams beyond `nreq`.
    settled: [u64; STREAM_WORDS],
    /// The first of the streams that the client may no longer use, if this was not reported yet;
    /// otherwise [`NO_STREAM`].
    expired: u16,
    weight: CreditWeight,
    /// True if the session has used all its credits and needs more than its share. The budget's
    /// sums then include the session.
    contends: bool,
    /// The number of credits within its share that the session needs but could not get. The budget
    /// contains the sum over all sessions.
    missing: u16,
    /// True if the session would take more credits if more were free. The budget contains the
    /// number of such sessions.
    wants_more: bool,
    /// True if the session has used all its credits at some time since the last tick.
    saturated_lately: bool,
    limited_by: LimitedBy,
    /// The time since which the session, without sending a request, has kept credits that other
    /// sessions need. `None` if the session keeps no such credits.
    withheld: Option<Moment>,
}

impl Window {
    /// Creates a window with one credit, which the exchange of the connect request and its reply
    /// needs (draft 3.1.2.3.2).
    pub(crate) fn new() -> Self {
        Self {
            nreq: 1,
            target: 1,
            outstanding: 0,
            used: [0; STREAM_WORDS],
            stream_limit: 1,
            kept_limit: 1,
            desired: 0,
            most: 1,
            attention: 0,
            busy: [0; STREAM_WORDS],
            answered: [0; STREAM_WORDS],
            settled: [0; STREAM_WORDS],
            expired: NO_STREAM,
            weight: CreditWeight::default(),
            contends: false,
            missing: 0,
            wants_more: false,
            saturated_lately: false,
            limited_by: LimitedBy::Nothing,
            withheld: None,
        }
    }

    fn charge(&self) -> u16 {
        self.nreq.max(self.target)
    }

    /// Returns the number of requests without a reply.
    pub(crate) fn outstanding(&self) -> u16 {
        self.outstanding
    }

    /// Counts a request as outstanding. Returns the number of outstanding requests, including this
    /// one.
    #[inline]
    pub(crate) fn on_request(
        &mut self,
        stream: StreamId,
        desired: u16,
    ) -> Result<u16, BreakReason> {
        let (word, bit) = place(stream);
        if self.kept_limit != self.nreq {
            self.note_stream_use(word, bit);
        }
        if stream.0 >= self.stream_limit {
            return Err(BreakReason::StreamOutOfRange);
        }
        if self.busy[word] & bit != 0 {
            return Err(BreakReason::StreamBusy);
        }
        if self.outstanding >= self.nreq {
            return Err(BreakReason::CreditsExceeded);
        }
        self.busy[word] |= bit;
        self.outstanding += 1;
        self.used[word] |= bit;
        if desired != self.desired {
            self.desire(desired);
        }
        // Clients use the stream that was freed last, so a request on the top stream shows that all
        // streams were in use.
        let is_saturated = self.outstanding == self.nreq || stream.0 + 1 == self.nreq;
        self.attention |= u8::from(is_saturated) * SATURATED;
        Ok(self.outstanding)
    }

    /// Records the number of credits that the client desires. If this number is higher than both
    /// the present number and the previous desire, the target is checked at the next reply.
    fn desire(&mut self, desired: u16) {
        if desired != 0 {
            let asks = desired > self.target && desired > self.desired;
            self.attention |= u8::from(asks) * ASKED;
            self.desired = desired;
        }
    }

    /// Updates the limits of the streams after the client has used a stream. If the last reply on
    /// that stream reported the lower `nreq`, streams beyond `nreq` are out of range from now on.
    /// If that reply was sent after all replies on the streams beyond `nreq`, the client has read
    /// those replies, so the server need not keep them any more.
    fn note_stream_use(&mut self, word: usize, bit: u64) {
        if self.answered[word] & bit != 0 {
            self.stream_limit = self.nreq;
        }
        if self.settled[word] & bit != 0 && !self.is_busy_beyond() {
            self.kept_limit = self.nreq;
            self.expired = self.nreq;
        }
    }

    /// Returns true if a request is in flight on a stream that is now out of range.
    fn is_busy_beyond(&self) -> bool {
        let (first, bit) = place(StreamId(self.nreq));
        let beyond_first = u32::from(self.nreq) < u32::from(limits::CREDITS_MAX);
        beyond_first
            && (self.busy[first] & !(bit - 1) != 0
                || self.busy[first + 1..].iter().any(|&word| word != 0))
    }

    /// Returns the first expired stream, if streams have expired since the last call. The response
    /// cache may drop the replies of streams from this one on (draft 5.2.2). Must be called after
    /// each successful `on_request`, because the information is lost when the window grows again.
    pub(crate) fn take_expired(&mut self) -> Option<StreamId> {
        let expired = std::mem::replace(&mut self.expired, NO_STREAM);
        (expired != NO_STREAM).then_some(StreamId(expired))
    }

    /// Counts a reply: frees the request's stream and credit, and changes `nreq` in the same way as
    /// the client will when it reads the reply.
    #[inline]
    pub(crate) fn on_reply(&mut self, stream: StreamId, budget: &mut Budget) -> Grant {
        let (word, bit) = place(stream);
        if self.busy[word] & bit == 0 {
            debug_assert!(false, "finished a request that was not admitted");
            return Grant { target_credits: self.target, receives_to_post: 0 };
        }
        self.busy[word] &= !bit;
        self.outstanding -= 1;
        let steady = self.nreq == self.target && self.kept_limit == self.nreq;
        if steady && self.attention == 0 && (self.desired == 0 || self.desired >= self.target) {
            return Grant { target_credits: self.target, receives_to_post: 1 };
        }
        if steady && self.has_all_it_may(budget) {
            return Grant { target_credits: self.target, receives_to_post: 1 };
        }
        self.retarget(budget);
        let before = self.nreq;
        self.apply_client_rule(stream, budget);
        Grant { target_credits: self.target, receives_to_post: self.nreq + 1 - before }
    }

    /// Returns the number of credits that the server wants the session to have.
    #[inline]
    pub(crate) fn target(&self) -> u16 {
        self.target
    }

    /// Applies the client's rule, `nreq = max(nreq - 1, target)`, for the reply on a stream.
    fn apply_client_rule(&mut self, stream: StreamId, budget: &mut Budget) {
        let (word, bit) = place(stream);
        let before = self.charge();
        let next = (self.nreq - 1).max(self.target);
        if next < self.nreq {
            self.answered = [0; STREAM_WORDS];
            self.settled = [0; STREAM_WORDS];
        }
        self.nreq = next;
        self.answered[word] |= bit;
        if stream.0 < next {
            self.settled[word] |= bit;
        } else {
            self.settled = [0; STREAM_WORDS];
        }
        self.withheld = None;
        self.stream_limit = self.stream_limit.max(next);
        self.kept_limit = self.kept_limit.max(next);
        if self.expired < next {
            self.expired = NO_STREAM;
        }
        budget.recharge(before, self.charge(), self.contends);
    }

    /// Returns the maximum number of credits that the session may have, and the limit that
    /// determines this number.
    fn cap(&self) -> (u16, LimitedBy) {
        if self.desired != 0 && self.desired <= self.most {
            (self.desired, LimitedBy::Desire)
        } else {
            (self.most, LimitedBy::SessionMaximum)
        }
    }

    /// Returns true if the session uses all its credits, has as many as it may have, and no other
    /// session needs credits. This is the usual case of a busy session, which needs no further
    /// work.
    fn has_all_it_may(&mut self, budget: &Budget) -> bool {
        let (cap, capped_by) = self.cap();
        if cap != self.target || self.contends || budget.wanting > 0 {
            return false;
        }
        self.saturated_lately |= self.attention & SATURATED != 0;
        self.attention = 0;
        self.limited_by = capped_by;
        true
    }

    /// Chooses a new credit target before a reply is sent.
    fn retarget(&mut self, budget: &mut Budget) {
        let (cap, capped_by) = self.cap();
        // A session that cannot grow must not take the slow path for every reply.
        let attention = std::mem::take(&mut self.attention);
        let saturated = attention & SATURATED != 0;
        if saturated {
            self.saturated_lately = true;
            let has_all = self.target >= cap && budget.satisfies(self, cap);
            self.contend_unless(has_all, budget);
        }
        let share = if budget.missing > 0 && self.contends { budget.share(self) } else { cap };
        if cap < self.target {
            self.limited_by = capped_by;
            self.note_shortage(false, 0, budget);
            self.set_target(cap, budget);
        } else if saturated && self.target > share && self.nreq == self.target {
            // The session gives up at most the number that is missing, minus what other sessions
            // have given back. Then the need is checked again.
            let missing = budget.missing.saturating_sub(budget.available());
            let missing = u16::try_from(missing).unwrap_or(u16::MAX);
            self.limited_by = LimitedBy::Share;
            self.set_target(share.max(self.target.saturating_sub(missing)), budget);
        } else if attention != 0 && self.nreq > self.target {
            // The session was told to shrink, but uses its credits again and still has them.
            let most = cap.min(share);
            self.limited_by = if most > self.nreq {
                LimitedBy::Nothing
            } else if share < cap {
                LimitedBy::Share
            } else {
                capped_by
            };
            self.set_target(most.min(self.nreq).max(self.target), budget);
        } else if attention != 0 {
            self.grow(cap, capped_by, share, budget);
        }
    }

    /// Raises the credit target as far as the cap, the share and the budget allow.
    fn grow(&mut self, cap: u16, capped_by: LimitedBy, share: u16, budget: &mut Budget) {
        let leap = self.desired != 0 && budget.is_plentiful();
        let wish = if leap { cap } else { cap.min(self.target.saturating_mul(2)) };
        let fair = wish.min(share.max(self.target));
        let available = u16::try_from(budget.available()).unwrap_or(u16::MAX);
        let next = fair.min(self.target.saturating_add(available));
        // The session is below its share. A session that has its share takes no credits from
        // others.
        let wants_more = next < wish && self.contends;
        let missing = if next < fair && wants_more {
            fair.min(budget.share(self)).saturating_sub(next)
        } else {
            0
        };
        self.note_shortage(wants_more, missing, budget);
        self.limited_by = if next == cap {
            capped_by
        } else if next == wish {
            LimitedBy::Nothing
        } else if wants_more && missing == 0 && budget.is_shared_with(self) {
            LimitedBy::Share
        } else {
            LimitedBy::Budget
        };
        self.set_target(next, budget);
    }

    /// Includes the channel in the budget's sums over the channels that contend for scarce credits,
    /// or excludes it if `satisfied` is true.
    fn contend_unless(&mut self, satisfied: bool, budget: &mut Budget) {
        if self.contends != satisfied {
            return;
        }
        let (weight, charge) = (u32::from(self.weight.get()), u32::from(self.charge()));
        if satisfied {
            self.note_shortage(false, 0, budget);
            budget.contending_weight -= weight;
            budget.contending_charge -= charge;
        } else {
            budget.contending_weight += weight;
            budget.contending_charge += charge;
        }
        self.contends = !satisfied;
    }

    /// Records whether the session would take more credits, and the number of credits within its
    /// share that it could not get.
    fn note_shortage(&mut self, wants_more: bool, missing: u16, budget: &mut Budget) {
        budget.wanting = budget.wanting - u32::from(self.wants_more) + u32::from(wants_more);
        budget.missing = budget.missing - u32::from(self.missing) + u32::from(missing);
        (self.wants_more, self.missing) = (wants_more, missing);
    }

    /// Sets the initial credit target of a session, which the free credits of the budget limit, and
    /// the number that the client desires. The client learns the target from the next reply.
    /// Returns the target.
    pub(crate) fn begin(&mut self, credits: u16, desired: u16, budget: &mut Budget) -> u16 {
        self.contend_unless(true, budget);
        let available = u16::try_from(budget.available()).unwrap_or(u16::MAX);
        let most_now = self.charge().saturating_add(available);
        self.set_target(credits.min(most_now), budget);
        self.most = self.target;
        self.desired = desired;
        self.attention = 0;
        self.limited_by = if most_now < credits { LimitedBy::Budget } else { LimitedBy::Nothing };
        self.target
    }

    /// Sets the maximum number of credits that the session may have. Called when its client has
    /// authenticated.
    pub(crate) fn may_grow_to(&mut self, most: u16) {
        self.most = most;
        self.limited_by = LimitedBy::Nothing;
    }

    /// Sets the weight of the session's client.
    pub(crate) fn set_weight(&mut self, weight: CreditWeight, budget: &mut Budget) {
        if self.contends {
            budget.contending_weight -= u32::from(self.weight.get());
            budget.contending_weight += u32::from(weight.get());
        }
        self.weight = weight;
    }

    /// Lowers the target of a session that has used less than half of its credits since the last
    /// tick. The new target is twice the number that the session has used, but at least `floor`.
    /// While other sessions need credits, the new target of a session that has not used all its
    /// credits is exactly the number that it has used.
    pub(crate) fn shrink_if_idle(&mut self, floor: u16, budget: &mut Budget) {
        let lately = std::mem::take(&mut self.saturated_lately) || self.attention & SATURATED != 0;
        if !lately {
            self.contend_unless(true, budget);
        }
        let used: u32 = self.used.iter().map(|word| word.count_ones()).sum();
        let keep = if budget.wanting > 0 && !lately { used } else { (used * 2).max(floor.into()) };
        let keep = u16::try_from(keep).unwrap_or(u16::MAX).max(1);
        if keep < self.target {
            self.limited_by = LimitedBy::Idle;
            self.set_target(keep, budget);
            self.attention = 0;
        }
        self.used = self.busy;
    }

    /// Returns true if, for the time `longest`, the session has kept credits that it was told to
    /// give back, has sent no request, and another session has needed credits. The draft lets the
    /// server drop such a session (3.2.6.4.2). Must be called after `shrink_if_idle`.
    pub(crate) fn withholds(&mut self, longest: Duration, now: Moment, budget: &Budget) -> bool {
        if self.nreq <= self.target || self.outstanding > 0 || budget.wanting == 0 {
            self.withheld = None;
            return false;
        }
        now.since(*self.withheld.get_or_insert(now)) >= longest
    }

    /// Describes the credits of the channel for the operator.
    pub(crate) fn view(&self, session: SessionId) -> CreditView {
        CreditView {
            session,
            credits: self.nreq,
            target: self.target,
            outstanding: self.outstanding,
            desired: self.desired,
            weight: self.weight,
            limited_by: self.limited_by,
        }
    }

    fn set_target(&mut self, target: u16, budget: &mut Budget) {
        let before = self.charge();
        self.target = target.max(1);
        budget.recharge(before, self.charge(), self.contends);
    }
}

/// Returns the word and the bit of a stream in a bitmap. Streams beyond the bitmap share the last
/// word. This is harmless, because they are out of range in every window, and `on_request` checks
/// that before it uses a bit.
#[inline]
fn place(stream: StreamId) -> (usize, u64) {
    let word = usize::from(stream.0 / 64).min(STREAM_WORDS - 1);
    (word, 1 << (stream.0 % 64))
}

#[cfg(test)]
mod contention;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod tests;
