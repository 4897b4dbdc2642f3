//! The contexts of RPCSEC_GSS (RFC 2203): their handles, lifetimes and sequence numbers.
//!
//! Invariants:
//! - The number of contexts is limited, in all and for each peer. The context that was not used for
//!   the longest time goes first. Contexts of users that the server does not know go before others.
//! - A handle consists of random bits, and no handle is used twice.
//! - A sequence number of a context is accepted once.
//!
//! This module neither creates nor checks tokens and checksums. The caller checks the verifier of a
//! call before it calls [`GssContexts::arrive`], so that only the context's owner can move the
//! window of sequence numbers.

use std::collections::HashMap;
use std::time::Duration;

use dafs_types::Moment;

use crate::limits::{
    GSS_CONTEXTS_MAX, GSS_CONTEXTS_OF_PEER_MAX, GSS_HALF_PATIENCE, GSS_HALVES_MAX,
    GSS_HALVES_OF_PEER_MAX, GSS_REPLY_PATIENCE, GSS_SEQUENCE_WINDOW, GSS_STRANGER_LIFETIME,
};
use crate::peer::PeerId;

/// The smallest sequence number that no call may have (MAXSEQ, RFC 2203 section 5.3.3.1).
pub const GSS_SEQUENCE_LIMIT: u32 = 0x8000_0000;

/// The handle of a context: random bits, so that it cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GssHandle(pub [u8; 16]);

impl GssHandle {
    /// Returns the handle that a call contains. `None` if it is none of this server.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// All contexts of the clients of a server. `H` is a context that is not complete, and `C` is a
/// complete context.
#[derive(Debug)]
pub struct GssContexts<H, C> {
    halves: HashMap<GssHandle, Half<H>>,
    contexts: HashMap<GssHandle, Entry<C>>,
    by_peer: HashMap<PeerId, usize>,
    /// The number of the last use of a context. Uses have an order even if the clock stands still.
    last_use: u64,
}

/// A context that needs more tokens of the client.
#[derive(Debug)]
struct Half<H> {
    value: H,
    peer: PeerId,
    since: Moment,
}

#[derive(Debug)]
struct Entry<C> {
    value: C,
    peer: PeerId,
    is_stranger: bool,
    ends: Moment,
    used: u64,
    window: Window,
}

/// A complete context that the table does not contain yet.
#[derive(Debug)]
pub struct NewGssContext<C> {
    /// What the caller keeps of the context.
    pub value: C,
    /// The host that has created the context.
    pub peer: PeerId,
    /// True if the client's principal is no user of the server.
    pub is_stranger: bool,
    /// How long the context is valid.
    pub lifetime: Duration,
}

/// The decision about a call that has a valid verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GssArrival {
    /// The call is new, and must be executed.
    New,
    /// The call is a repetition, or older than the window. It must be dropped without a reply
    /// (RFC 2203 section 5.3.3.1).
    Drop,
    /// The sequence numbers of the context are used up: the reply is RPCSEC_GSS_CTXPROBLEM.
    Exhausted,
    /// There is no such context any more: the reply is RPCSEC_GSS_CREDPROBLEM.
    Unknown,
}

impl<H, C> Default for GssContexts<H, C> {
    fn default() -> Self {
        Self {
            halves: HashMap::new(),
            contexts: HashMap::new(),
            by_peer: HashMap::new(),
            last_use: 0,
        }
    }
}

impl<H, C> GssContexts<H, C> {
    /// Keeps a context that needs another token. Returns its handle, which consists of `random`. If
    /// there are too many, the oldest one of the same peer is dropped, or else the oldest of all.
    pub fn keep_half(&mut self, value: H, peer: PeerId, random: u128, now: Moment) -> GssHandle {
        let of_peer = self.halves.values().filter(|half| half.peer == peer).count();
        let only = (of_peer >= GSS_HALVES_OF_PEER_MAX).then_some(peer);
        if only.is_some() || self.halves.len() >= GSS_HALVES_MAX {
            let rivals =
                self.halves.iter().filter(|(_, half)| only.is_none_or(|peer| half.peer == peer));
            let oldest = rivals.min_by_key(|(_, half)| half.since).map(|(handle, _)| *handle);
            oldest.map(|oldest| self.halves.remove(&oldest));
        }
        let handle = GssHandle(random.to_be_bytes());
        self.halves.insert(handle, Half { value, peer, since: now });
        handle
    }

    /// Removes and returns a context that needs another token. `None` if there is none, or if the
    /// client has waited too long.
    pub fn take_half(&mut self, handle: &[u8], now: Moment) -> Option<H> {
        let half = self.halves.remove(&GssHandle::from_bytes(handle)?)?;
        (now.since(half.since) < GSS_HALF_PATIENCE).then_some(half.value)
    }

    /// Adds a complete context. Returns its handle, which consists of `random`. If there are too
    /// many contexts, others are dropped.
    pub fn insert(&mut self, new: NewGssContext<C>, random: u128, now: Moment) -> GssHandle {
        let NewGssContext { value, peer, is_stranger, lifetime } = new;
        if self.by_peer.get(&peer).is_some_and(|count| *count >= GSS_CONTEXTS_OF_PEER_MAX) {
            self.drop_idlest(Some(peer));
        } else if self.contexts.len() >= GSS_CONTEXTS_MAX {
            self.drop_idlest(None);
        }
        let lifetime = match is_stranger {
            true => lifetime.min(GSS_STRANGER_LIFETIME),
            false => lifetime,
        };
        let handle = GssHandle(random.to_be_bytes());
        self.remove(handle);
        self.last_use += 1;
        let entry = Entry {
            value,
            peer,
            is_stranger,
            ends: now.after(lifetime),
            used: self.last_use,
            window: Window::default(),
        };
        self.contexts.insert(handle, entry);
        *self.by_peer.entry(peer).or_default() += 1;
        handle
    }

    /// Returns a complete context. `None` if there is none with this handle, or if it has expired:
    /// the reply is then RPCSEC_GSS_CREDPROBLEM.
    #[must_use]
    pub fn get(&self, handle: GssHandle, now: Moment) -> Option<&C> {
        let entry = self.contexts.get(&handle)?;
        (!entry.has_ended(now)).then_some(&entry.value)
    }

    /// Returns the context for the reply to a call that has arrived. A context is kept for a while
    /// after it has expired. `None` if it was removed.
    #[must_use]
    pub fn get_for_reply(&self, handle: GssHandle) -> Option<&C> {
        self.contexts.get(&handle).map(|entry| &entry.value)
    }

    /// Decides about a call of a context, whose verifier the caller has checked.
    pub fn arrive(&mut self, handle: GssHandle, sequence: u32, now: Moment) -> GssArrival {
        let Some(entry) = self.contexts.get_mut(&handle).filter(|entry| !entry.has_ended(now))
        else {
            return GssArrival::Unknown;
        };
        if sequence >= GSS_SEQUENCE_LIMIT {
            return GssArrival::Exhausted;
        }
        if !entry.window.take(sequence) {
            return GssArrival::Drop;
        }
        self.last_use += 1;
        entry.used = self.last_use;
        GssArrival::New
    }

    /// Removes a context, and returns its value.
    pub fn remove(&mut self, handle: GssHandle) -> Option<C> {
        let entry = self.contexts.remove(&handle)?;
        if let Some(count) = self.by_peer.get_mut(&entry.peer) {
            *count -= 1;
            if *count == 0 {
                self.by_peer.remove(&entry.peer);
            }
        }
        Some(entry.value)
    }

    /// Removes the contexts that have expired, and those for which the client's token is missing
    /// for too long.
    pub fn expire(&mut self, now: Moment) {
        self.halves.retain(|_, half| now.since(half.since) < GSS_HALF_PATIENCE);
        let is_over = |entry: &Entry<C>| entry.ends.after(GSS_REPLY_PATIENCE) <= now;
        let ended = self.contexts.iter().filter(|(_, entry)| is_over(entry));
        for handle in ended.map(|(handle, _)| *handle).collect::<Vec<_>>() {
            self.remove(handle);
        }
    }

    /// Returns the number of complete contexts.
    #[must_use]
    pub fn count(&self) -> usize {
        self.contexts.len()
    }

    fn drop_idlest(&mut self, of: Option<PeerId>) {
        let rivals = self.contexts.iter().filter(|(_, entry)| of.is_none_or(|of| entry.peer == of));
        let idlest = rivals.min_by_key(|(_, entry)| (!entry.is_stranger, entry.used));
        if let Some(handle) = idlest.map(|(handle, _)| *handle) {
            self.remove(handle);
        }
    }
}

impl<C> Entry<C> {
    fn has_ended(&self, now: Moment) -> bool {
        self.ends <= now
    }
}

/// The sequence numbers of a context that have arrived.
#[derive(Debug, Default)]
struct Window {
    /// The highest number that has arrived. `None` before the first call.
    highest: Option<u32>,
    /// Whether a number of the window has arrived, at the bit of its remainder.
    arrived: [u64; WORDS],
}

const WORDS: usize = GSS_SEQUENCE_WINDOW as usize / 64;
const _: () = assert!(GSS_SEQUENCE_WINDOW.is_multiple_of(64));

impl Window {
    /// Notes the arrival of a number. Returns false if it has arrived before or is too old.
    fn take(&mut self, number: u32) -> bool {
        match self.highest {
            Some(highest) if number <= highest => {
                if highest - number >= GSS_SEQUENCE_WINDOW || *self.word(number) & bit(number) != 0
                {
                    return false;
                }
            }
            Some(highest) if number - highest >= GSS_SEQUENCE_WINDOW => {
                self.arrived = [0; WORDS];
                self.highest = Some(number);
            }
            highest => {
                for newer in highest.map_or(number, |highest| highest + 1)..=number {
                    *self.word(newer) &= !bit(newer);
                }
                self.highest = Some(number);
            }
        }
        *self.word(number) |= bit(number);
        true
    }

    fn word(&mut self, number: u32) -> &mut u64 {
        &mut self.arrived[(number % GSS_SEQUENCE_WINDOW / 64) as usize]
    }
}

const fn bit(number: u32) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    type Table = GssContexts<&'static str, u32>;

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    fn context(value: u32, peer: u128) -> NewGssContext<u32> {
        let lifetime = Duration::from_secs(100);
        NewGssContext { value, peer: PeerId(peer), is_stranger: false, lifetime }
    }

    #[test]
    fn a_number_is_accepted_once_and_only_within_the_window() {
        let mut table = Table::default();
        let handle = table.insert(context(1, 1), 7, at(0));
        let mut arrive = |number| table.arrive(handle, number, at(1));
        assert_eq!(arrive(5), GssArrival::New);
        assert_eq!(arrive(5), GssArrival::Drop);
        assert_eq!(arrive(3), GssArrival::New);
        assert_eq!(arrive(0), GssArrival::New);
        let far = 5 + GSS_SEQUENCE_WINDOW;
        assert_eq!(arrive(far), GssArrival::New);
        assert_eq!(arrive(5), GssArrival::Drop, "just older than the window");
        assert_eq!(arrive(6), GssArrival::New, "the oldest of the window");
        assert_eq!(arrive(6), GssArrival::Drop);
        assert_eq!(arrive(GSS_SEQUENCE_LIMIT - 1), GssArrival::New);
        assert_eq!(arrive(far + 1), GssArrival::Drop);
        assert_eq!(arrive(GSS_SEQUENCE_LIMIT), GssArrival::Exhausted);
        assert_eq!(arrive(u32::MAX), GssArrival::Exhausted);
        assert_eq!(table.arrive(GssHandle([0; 16]), 1, at(1)), GssArrival::Unknown);
    }

    #[test]
    fn the_window_decides_as_a_set_of_all_numbers_would() {
        let mut dice = 0x9e37_79b9_u32;
        for _ in 0..20 {
            let (mut window, mut seen, mut highest) = (Window::default(), BTreeSet::new(), 0);
            for _ in 0..4000 {
                dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let step = dice >> 20;
                let number = match dice >> 16 & 7 {
                    0..=4 => (highest + 20_u32).saturating_sub(step % 64),
                    5 | 6 => highest.saturating_sub(step % (2 * GSS_SEQUENCE_WINDOW)),
                    _ => highest + step,
                };
                let is_old = number + GSS_SEQUENCE_WINDOW <= highest;
                let is_kept = seen.is_empty() || !is_old;
                let expected = is_kept && seen.insert(number);
                assert_eq!(window.take(number), expected, "{number} after {highest}");
                highest = highest.max(number);
            }
        }
    }

    #[test]
    fn a_context_ends_with_its_lifetime_and_a_stranger_earlier() {
        let mut table = Table::default();
        let own = table.insert(context(1, 1), 1, at(0));
        let long = Duration::from_secs(86_400);
        let stranger = NewGssContext { is_stranger: true, lifetime: long, ..context(2, 1) };
        let stranger = table.insert(stranger, 2, at(0));
        let forever = NewGssContext { lifetime: Duration::MAX, ..context(3, 1) };
        let forever = table.insert(forever, 3, at(0));
        assert_eq!(table.get(own, at(99)), Some(&1));
        assert_eq!(table.get(own, at(100)), None);
        assert_eq!(table.arrive(own, 1, at(100)), GssArrival::Unknown);
        let late = at(GSS_STRANGER_LIFETIME.as_secs());
        assert_eq!(table.get(stranger, late), None);
        table.expire(late);
        assert_eq!(table.get_for_reply(own), None);
        assert_eq!(table.get_for_reply(stranger), Some(&2), "a call may still be in progress");
        table.expire(late.after(GSS_REPLY_PATIENCE));
        assert_eq!(table.count(), 1);
        assert_eq!(table.get(forever, at(1 << 30)), Some(&3));
        assert_eq!(table.remove(forever), Some(3));
        assert_eq!(table.remove(forever), None);
        assert!(table.by_peer.is_empty());
    }

    #[test]
    fn a_flood_of_contexts_pushes_out_the_idle_ones_of_its_own_host() {
        let mut table = Table::default();
        let quiet = table.insert(context(0, 1), 1, at(0));
        let busy = table.insert(context(1, 2), 2, at(0));
        for number in 0..2 * GSS_CONTEXTS_OF_PEER_MAX as u32 {
            table.insert(context(number, 2), 100 + u128::from(number), at(0));
            assert_eq!(table.arrive(busy, number, at(0)), GssArrival::New);
        }
        assert_eq!(table.count(), GSS_CONTEXTS_OF_PEER_MAX + 1);
        assert_eq!(table.get(quiet, at(0)), Some(&0));
        assert_eq!(table.get(busy, at(0)), Some(&1));
    }

    #[test]
    fn many_hosts_together_stay_below_the_limit_and_strangers_go_first() {
        let mut table = Table::default();
        let user = table.insert(context(0, 0), 1, at(0));
        let stranger = NewGssContext { is_stranger: true, ..context(0, 0) };
        let stranger = table.insert(stranger, 2, at(0));
        for number in 2..GSS_CONTEXTS_MAX as u128 + 1 {
            table.insert(context(0, number), 1 + number, at(0));
        }
        assert_eq!(table.count(), GSS_CONTEXTS_MAX);
        assert_eq!(table.get(stranger, at(0)), None);
        assert_eq!(table.get(user, at(0)), Some(&0));
        table.insert(context(0, 1), 0, at(0));
        assert_eq!(table.get(user, at(0)), None, "the idlest goes");
        assert_eq!(table.count(), GSS_CONTEXTS_MAX);
    }

    #[test]
    fn a_context_that_is_not_complete_waits_for_its_client_for_a_limited_time() {
        let mut table = Table::default();
        let handle = table.keep_half("first", PeerId(1), 9, at(0));
        assert_eq!(table.get(handle, at(0)), None);
        assert_eq!(table.arrive(handle, 1, at(0)), GssArrival::Unknown);
        assert_eq!(table.take_half(b"short", at(1)), None);
        assert_eq!(table.take_half(&handle.0, at(1)), Some("first"));
        assert_eq!(table.take_half(&handle.0, at(1)), None);
        let late = table.keep_half("late", PeerId(1), 10, at(0));
        assert_eq!(table.take_half(&late.0, at(GSS_HALF_PATIENCE.as_secs())), None);
        let kept = table.keep_half("kept", PeerId(2), 11, at(0));
        for number in 0..2 * GSS_HALVES_MAX as u128 {
            table.keep_half("flood", PeerId(1), 100 + number, at(1));
        }
        assert_eq!(table.halves.len(), GSS_HALVES_OF_PEER_MAX + 1);
        assert_eq!(table.take_half(&kept.0, at(1)), Some("kept"));
        table.expire(at(1000));
        assert!(table.halves.is_empty());
    }
}
