//! One budget for all reactors: what may be in use at once, of memory, credits or connections.
//!
//! Invariant: what is in the common part, what reactors keep unused and what was taken add up to
//! the total. A reactor lives off a piece that it has fetched. It changes the common part when that
//! is used up, when it has much more than it needs, or when somebody else is short.
//!
//! Who is refused counts as short until it gets what it wants or says that it wants no more. Others
//! see that once a turn ([`Share::settle`]) and give back what they do not use: all above what they
//! keep at the first look, everything at the second. So whoever is short gets all that is unused
//! once the others have had two turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The budget. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct Shares {
    common: Arc<Common>,
}

/// One reactor's part of it. What is unused goes back when it is dropped.
#[derive(Debug)]
pub struct Share {
    common: Arc<Common>,
    /// Fetched and not taken.
    unused: u64,
    /// What it may keep unused while others are short.
    keep: u64,
    /// Whether it counts as short.
    is_short: bool,
    /// Looks in a row at which others were short.
    short_looks: u32,
}

#[derive(Debug)]
struct Common {
    total: u64,
    piece: u64,
    /// What nobody has fetched, and above it how many are short: one word, so that who gives
    /// back knows who was short at that moment.
    word: Padded,
}

/// A word on a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(AtomicU64);

impl Shares {
    /// A budget of `total`, of which reactors fetch `piece` at a time. It works best if what is
    /// taken at once is less than a piece, and all pieces that reactors live off are less than
    /// half of the total.
    ///
    /// # Panics
    /// If `total` is more than [`Shares::TOTAL_MAX`], or `piece` is 0.
    #[must_use]
    pub fn new(total: u64, piece: u64) -> Self {
        assert!(total <= Self::TOTAL_MAX, "a budget of {total} is too large to be counted");
        assert!(piece > 0, "a budget is fetched in pieces of something");
        let common = Common { total, piece, word: Padded(AtomicU64::new(total)) };
        Self { common: Arc::new(common) }
    }

    /// The largest budget: 2^48 - 1, which is 256 TiB of memory.
    pub const TOTAL_MAX: u64 = LEFT_MASK;

    /// A part for one reactor, which keeps at most `keep` unused while others are short.
    #[must_use]
    pub fn share(&self, keep: u64) -> Share {
        let common = self.common.clone();
        Share { common, unused: 0, keep, is_short: false, short_looks: 0 }
    }

    /// The whole budget.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.common.total
    }

    /// What no reactor has fetched.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.common.load().left
    }

    /// How many are short.
    #[must_use]
    pub fn short_count(&self) -> u64 {
        self.common.load().short
    }
}

impl Share {
    /// Takes so much. False if there is not that much, neither here nor in the common part;
    /// nothing was taken then, and this reactor counts as short. Those who sleep should be told
    /// ([`crate::Port::nudge_all`]): they may keep what is wanted.
    #[inline]
    pub fn take(&mut self, amount: u64) -> bool {
        if amount > self.unused || self.is_short {
            return self.fetch(amount);
        }
        self.unused -= amount;
        true
    }

    /// Gives back what was taken, here or in another reactor.
    #[inline]
    pub fn give(&mut self, amount: u64) {
        self.unused += amount;
        if self.unused >= self.keep.saturating_add(2 * self.common.piece) {
            self.give_back_above(self.keep.saturating_add(self.common.piece));
        }
    }

    /// Once a turn: gives back what others are short of. True if it has given something, and
    /// those who sleep should be told ([`crate::Port::nudge_all`]).
    #[inline]
    pub fn settle(&mut self) -> bool {
        let short = self.common.load().short - u64::from(self.is_short);
        if short == 0 {
            self.short_looks = 0;
            return false;
        }
        self.help()
    }

    /// Before a sleep: gives back all above what it keeps, or everything if somebody is short. True
    /// as for [`Share::settle`].
    pub fn rest(&mut self) -> bool {
        let others = self.common.load().short - u64::from(self.is_short);
        self.give_back_above(if others > 0 { 0 } else { self.keep })
    }

    /// Whether others are short of something that this reactor keeps. For the last look before a
    /// sleep ([`crate::Port::prepare_sleep_unless`]): one that was refused tells those who sleep.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.unused > 0 && self.common.load().short > u64::from(self.is_short)
    }

    /// Whether so much could be taken now. For the last look before a sleep
    /// ([`crate::Port::prepare_sleep_unless`]) of a reactor that was refused.
    #[must_use]
    pub fn could_take(&self, amount: u64) -> bool {
        amount <= self.unused + self.common.load().left
    }

    /// Whoever wanted what was refused wants it no more: this reactor is not short.
    pub fn want_no_more(&mut self) {
        if std::mem::take(&mut self.is_short) {
            self.common.word().fetch_sub(ONE_SHORT, Ordering::AcqRel);
        }
    }

    /// What it has fetched and nobody has taken.
    #[must_use]
    pub fn unused(&self) -> u64 {
        self.unused
    }

    /// Fetches what is missing: a whole piece, unless others are short.
    #[cold]
    fn fetch(&mut self, amount: u64) -> bool {
        let missing = amount.saturating_sub(self.unused);
        let mut fetched = None;
        let change = |word: u64| {
            let State { left, short } = State::of(word);
            let others = short - u64::from(self.is_short);
            if missing > left {
                fetched = None;
                // The mark alone, if it is not there.
                return (!self.is_short).then(|| State { left, short: short + 1 }.word());
            }
            let wanted = if others > 0 { missing } else { missing.max(self.common.piece) };
            let got = if missing == 0 { 0 } else { wanted.min(left) };
            fetched = Some(got);
            Some(State { left: left - got, short: others }.word())
        };
        let _ = self.common.word().fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        self.is_short = fetched.is_none();
        let Some(got) = fetched else { return false };
        self.unused = self.unused + got - amount;
        true
    }

    #[cold]
    fn help(&mut self) -> bool {
        self.short_looks = self.short_looks.saturating_add(1);
        // So does whoever is short itself: two with half of it each would wait for each other.
        self.give_back_above(if self.short_looks == 1 { self.keep } else { 0 })
    }

    /// True if it gave something back while others were short.
    fn give_back_above(&mut self, keep: u64) -> bool {
        let surplus = self.unused.saturating_sub(keep);
        if surplus == 0 {
            return false;
        }
        self.unused -= surplus;
        let before = State::of(self.common.word().fetch_add(surplus, Ordering::AcqRel));
        assert!(before.left + surplus <= self.common.total, "more was given than taken");
        before.short > u64::from(self.is_short)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.want_no_more();
        self.give_back_above(0);
    }
}

impl Common {
    fn word(&self) -> &AtomicU64 {
        &self.word.0
    }

    #[inline]
    fn load(&self) -> State {
        State::of(self.word().load(Ordering::Relaxed))
    }
}

/// The word taken apart.
#[derive(Clone, Copy)]
struct State {
    left: u64,
    short: u64,
}

impl State {
    #[inline]
    fn of(word: u64) -> Self {
        Self { left: word & LEFT_MASK, short: word >> LEFT_BITS }
    }

    fn word(self) -> u64 {
        self.left | self.short << LEFT_BITS
    }
}

const LEFT_BITS: u32 = 48;
const LEFT_MASK: u64 = (1 << LEFT_BITS) - 1;
const ONE_SHORT: u64 = 1 << LEFT_BITS;
