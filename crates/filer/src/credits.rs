//! Credits: how many requests a client may have outstanding, and who gets how many
//! (draft 3.2.6).
//!
//! Invariant: for every window `outstanding <= nreq`, `1 <= target`, `1 <= nreq`, and
//! the sum of `max(nreq, target)` over all windows, plus one credit for every channel
//! that could still open, never exceeds the budget.
//!
//! `nreq` is what the client will believe once it has read every response sent so
//! far. It may still believe more, but then the responses under way make up for the
//! difference: each lowers its belief by one at most and also counts as outstanding
//! on its side. So `outstanding > nreq` here proves a violation there.
//!
//! Policy: a session starts small, doubles whenever it has used all its credits (or
//! jumps to what it desires while more than half of the budget is free), and gives
//! back what it has not used since the last tick. Falling takes responses: one each.

use dafs_types::{StreamId, limits};

use crate::{BreakReason, Grant};

/// Words of a bitmap with one bit per stream.
const STREAM_WORDS: usize = limits::CREDITS_MAX as usize / 64;
const _: () = assert!(limits::CREDITS_MAX.is_multiple_of(64));

/// The credits of the whole server.
#[derive(Debug)]
pub(crate) struct Budget {
    total: u32,
    charged: u32,
    /// One credit each for the channels that are not open yet.
    reserved: u32,
}

impl Budget {
    /// Keeps one credit back for each of `channels_max` channels.
    pub fn new(total: u32, channels_max: u32) -> Self {
        debug_assert!(total >= channels_max);
        Self { total, charged: 0, reserved: channels_max }
    }

    /// Credits charged to open channels.
    pub fn charged(&self) -> u32 {
        self.charged
    }

    /// Charges a channel its first credit, out of the reserve.
    pub fn channel_opened(&mut self) {
        debug_assert!(self.reserved > 0);
        self.reserved -= 1;
        self.charged += 1;
    }

    /// Takes everything back from a channel.
    pub fn channel_closed(&mut self, window: &Window) {
        self.charged -= u32::from(window.charge());
        self.reserved += 1;
    }

    fn available(&self) -> u16 {
        u16::try_from(self.total - self.charged - self.reserved).unwrap_or(u16::MAX)
    }

    fn is_plentiful(&self) -> bool {
        self.charged + self.reserved < self.total / 2
    }
}

/// The credits of one channel.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// What the client believes once it has read all responses.
    nreq: u16,
    /// What the server aims for.
    target: u16,
    outstanding: u16,
    /// Streams used since the last tick. A server that answers at once never sees many
    /// requests outstanding; how many streams a client needs shows its demand.
    used: [u64; STREAM_WORDS],
    /// Streams below this may be used: the most the client may still believe.
    stream_limit: u16,
    /// What the client asked for last; 0 for nothing.
    desired: u16,
    /// Most that may be granted in the channel's present phase.
    most: u16,
    /// All credits or streams were in use since `nreq` last changed.
    saturated: bool,
    busy: [u64; STREAM_WORDS],
    /// Streams answered since `nreq` last fell: a new request on one of them proves
    /// that the client knows the lower value.
    answered: [u64; STREAM_WORDS],
}

impl Window {
    /// One credit, as the connect exchange needs (draft 3.1.2.3.2).
    pub fn new() -> Self {
        Self {
            nreq: 1,
            target: 1,
            outstanding: 0,
            used: [0; STREAM_WORDS],
            stream_limit: 1,
            desired: 0,
            most: 1,
            saturated: false,
            busy: [0; STREAM_WORDS],
            answered: [0; STREAM_WORDS],
        }
    }

    fn charge(&self) -> u16 {
        self.nreq.max(self.target)
    }

    /// Requests received and not answered.
    pub fn outstanding(&self) -> u16 {
        self.outstanding
    }

    /// Takes a request in; returns how many are outstanding with it.
    #[inline]
    pub fn take(&mut self, stream: StreamId, desired: u16) -> Result<u16, BreakReason> {
        let (word, bit) = place(stream);
        if self.stream_limit != self.nreq {
            self.learn(word, bit);
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
        if desired != 0 {
            self.desired = desired;
        }
        // Clients take the stream freed last, so the top one means that all were taken.
        self.saturated |= self.outstanding == self.nreq || stream.0 + 1 == self.nreq;
        Ok(self.outstanding)
    }

    /// The client used a stream: if that stream's last response told it of the lower
    /// `nreq`, streams above are out of range from now on.
    fn learn(&mut self, word: usize, bit: u64) {
        if self.answered[word] & bit != 0 {
            self.stream_limit = self.nreq;
        }
    }

    /// Answers a request: frees stream and credit, and moves `nreq` as the client will.
    #[inline]
    pub fn give(&mut self, stream: StreamId, budget: &mut Budget) -> Grant {
        let (word, bit) = place(stream);
        if self.busy[word] & bit == 0 {
            debug_assert!(false, "finished a request that was not admitted");
            return Grant { target_nreq: self.target, receives_to_post: 0 };
        }
        self.busy[word] &= !bit;
        self.outstanding -= 1;
        let steady = self.nreq == self.target && self.stream_limit == self.nreq;
        if steady && !self.saturated && (self.desired == 0 || self.desired >= self.target) {
            return Grant { target_nreq: self.target, receives_to_post: 1 };
        }
        self.retarget(budget);
        let before = self.nreq;
        self.follow(word, bit, budget);
        Grant { target_nreq: self.target, receives_to_post: self.nreq + 1 - before }
    }

    /// The client's rule, `nreq = max(nreq - 1, target)`, at the response on a stream.
    fn follow(&mut self, word: usize, bit: u64, budget: &mut Budget) {
        let before = self.charge();
        let next = (self.nreq - 1).max(self.target);
        if next < self.nreq {
            self.answered = [0; STREAM_WORDS];
        }
        self.nreq = next;
        self.answered[word] |= bit;
        self.stream_limit = self.stream_limit.max(next);
        budget.charged = budget.charged - u32::from(before) + u32::from(self.charge());
    }

    /// Chooses a new target before a response is sent.
    fn retarget(&mut self, budget: &mut Budget) {
        let cap = if self.desired == 0 { self.most } else { self.desired.min(self.most) };
        if cap < self.target {
            self.set_target(cap, budget);
        } else if self.saturated && self.nreq > self.target {
            // It was told to shrink and needs its credits again: it still has them.
            self.set_target(cap.min(self.nreq), budget);
        } else if self.saturated && self.nreq == self.target && self.target < cap {
            let leap = self.desired != 0 && budget.is_plentiful();
            let wish = if leap { cap } else { cap.min(self.target.saturating_mul(2)) };
            let most_now = self.target.saturating_add(budget.available());
            self.set_target(wish.min(most_now), budget);
        }
        // A session that cannot grow must not take the long way every time.
        self.saturated = false;
    }

    /// Sets the target a new session begins with, at most what the budget has, and the
    /// client's first wish; the client hears of it with the next response. Returns it.
    pub fn begin(&mut self, credits: u16, desired: u16, budget: &mut Budget) -> u16 {
        let most_now = self.charge().saturating_add(budget.available());
        self.set_target(credits.min(most_now), budget);
        self.most = self.target;
        self.desired = desired;
        self.saturated = false;
        self.target
    }

    /// The client has authenticated: from now on its session may grow.
    pub fn may_grow_to(&mut self, most: u16) {
        self.most = most;
    }

    /// Lets a session that used less than half of its credits since the last tick aim
    /// for twice what it used, but not below `floor`.
    pub fn shrink_if_idle(&mut self, floor: u16, budget: &mut Budget) {
        let count: u32 = self.used.iter().map(|word| word.count_ones()).sum();
        let used = u16::try_from(count * 2).unwrap_or(u16::MAX);
        if used < self.target && floor < self.target {
            self.set_target(used.max(floor), budget);
            self.saturated = false;
        }
        self.used = self.busy;
    }

    fn set_target(&mut self, target: u16, budget: &mut Budget) {
        let before = self.charge();
        self.target = target.max(1);
        budget.charged = budget.charged - u32::from(before) + u32::from(self.charge());
        debug_assert!(budget.charged + budget.reserved <= budget.total);
    }
}

/// A stream's word and bit. Streams beyond the bitmap share the last word: they are
/// out of range of every window, which `take` finds before it looks at a bit.
#[inline]
fn place(stream: StreamId) -> (usize, u64) {
    let word = usize::from(stream.0 / 64).min(STREAM_WORDS - 1);
    (word, 1 << (stream.0 % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session with this many credits that may grow to 64.
    fn window(credits: u16, budget: &mut Budget) -> Window {
        let mut window = Window::new();
        budget.channel_opened();
        window.begin(credits, 0, budget);
        window.take(StreamId(0), 0).unwrap();
        window.give(StreamId(0), budget);
        window.may_grow_to(64);
        window
    }

    #[test]
    fn the_first_response_brings_the_first_credits() {
        let mut budget = Budget::new(100, 1);
        let mut window = Window::new();
        budget.channel_opened();
        assert_eq!(window.begin(8, 0, &mut budget), 8);
        assert_eq!(window.take(StreamId(0), 0), Ok(1));
        assert_eq!(window.take(StreamId(1), 0), Err(BreakReason::StreamOutOfRange));
        let grant = window.give(StreamId(0), &mut budget);
        assert_eq!(grant, Grant { target_nreq: 8, receives_to_post: 8 });
        assert_eq!(budget.charged(), 8);
        assert_eq!(window.take(StreamId(7), 0), Ok(1));
    }

    #[test]
    fn violations_are_told_apart() {
        let mut budget = Budget::new(100, 1);
        let mut window = window(2, &mut budget);
        window.may_grow_to(2);
        assert_eq!(window.take(StreamId(2), 0), Err(BreakReason::StreamOutOfRange));
        assert_eq!(window.take(StreamId(u16::MAX), 0), Err(BreakReason::StreamOutOfRange));
        window.take(StreamId(1), 0).unwrap();
        assert_eq!(window.take(StreamId(1), 0), Err(BreakReason::StreamBusy));
        // The session shrinks while stream 1 is busy: stream 0 alone is one too many.
        window.may_grow_to(1);
        window.take(StreamId(0), 0).unwrap();
        assert_eq!(window.give(StreamId(0), &mut budget).receives_to_post, 0);
        assert_eq!(window.take(StreamId(0), 0), Err(BreakReason::CreditsExceeded));
    }

    #[test]
    fn a_saturated_session_doubles_up_to_its_limit() {
        let mut budget = Budget::new(40, 1);
        let mut window = window(4, &mut budget);
        window.may_grow_to(16);
        let mut targets = vec![];
        for _ in 0..3 {
            let credits = window.nreq;
            for stream in 0..credits {
                window.take(StreamId(stream), 0).unwrap();
            }
            targets.push(window.give(StreamId(0), &mut budget).target_nreq);
            for stream in 1..credits {
                window.give(StreamId(stream), &mut budget);
            }
        }
        assert_eq!(targets, [8, 16, 16]);
        assert_eq!(budget.charged(), 16);
    }

    #[test]
    fn desire_caps_growth_and_speeds_it_up_while_credits_are_plentiful() {
        let mut budget = Budget::new(1000, 1);
        let mut window = window(1, &mut budget);
        window.take(StreamId(0), 40).unwrap();
        let grant = window.give(StreamId(0), &mut budget);
        assert_eq!(grant, Grant { target_nreq: 40, receives_to_post: 40 });
        window.take(StreamId(0), 3).unwrap();
        let grant = window.give(StreamId(0), &mut budget);
        assert_eq!(grant, Grant { target_nreq: 3, receives_to_post: 0 });
        assert_eq!((window.nreq, budget.charged()), (39, 39));
    }

    #[test]
    fn idle_sessions_give_back_one_credit_per_response() {
        let mut budget = Budget::new(100, 1);
        let mut window = window(32, &mut budget);
        window.shrink_if_idle(4, &mut budget);
        window.shrink_if_idle(4, &mut budget);
        assert_eq!((window.target, window.nreq, budget.charged()), (4, 32, 32));
        for left in (4..32).rev() {
            window.take(StreamId(0), 0).unwrap();
            assert_eq!(window.give(StreamId(0), &mut budget).receives_to_post, 0);
            assert_eq!(budget.charged(), left);
        }
        window.take(StreamId(0), 0).unwrap();
        assert_eq!(window.give(StreamId(0), &mut budget).receives_to_post, 1);
    }

    #[test]
    fn a_stream_goes_out_of_range_once_the_client_must_know() {
        let mut budget = Budget::new(100, 1);
        let mut window = window(4, &mut budget);
        window.set_target(3, &mut budget);
        window.take(StreamId(0), 0).unwrap();
        window.take(StreamId(1), 0).unwrap();
        window.give(StreamId(0), &mut budget);
        // The response on stream 0 may still be under way: stream 3 is legal.
        window.take(StreamId(3), 0).unwrap();
        window.give(StreamId(3), &mut budget);
        // Stream 0 again: its response has been read, so the client knows.
        window.take(StreamId(0), 0).unwrap();
        assert_eq!(window.take(StreamId(3), 0), Err(BreakReason::StreamOutOfRange));
    }

    #[test]
    fn growth_leaves_a_credit_for_every_channel_to_come() {
        let mut budget = Budget::new(20, 5);
        let mut window = window(64, &mut budget);
        assert_eq!(window.nreq, 16);
        for stream in 0..16 {
            window.take(StreamId(stream), 64).unwrap();
        }
        assert_eq!(window.give(StreamId(3), &mut budget).target_nreq, 16);
        assert_eq!(budget.charged() + budget.reserved, 20);
        budget.channel_closed(&window);
        assert_eq!((budget.charged(), budget.reserved), (0, 5));
    }
}
