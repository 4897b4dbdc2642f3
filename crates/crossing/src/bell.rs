//! How a reactor says that it sleeps, and how others find out that they must wake it.
//!
//! Invariant: whoever sleeps has nothing in its rings that nobody was going to wake it for, and
//! whoever is awake is never woken.
//!
//! ```text
//! sleeper                              sender
//! word := asleep                       put the messages into the ring
//! fence                                fence
//! look at the rings; leave if any      look at the word; wake if asleep
//! ```
//!
//! The fences are sequentially consistent: one of them comes first. If it is the sleeper's, the
//! sender sees the word. If it is the sender's, the sleeper sees the messages. The word goes from
//! asleep to awake by one exchange, so that of several senders one makes the system call.

use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The word of one reactor, on a cache line of its own: others read it after each batch.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Bell<W = AtomicU32> {
    word: W,
}

/// What was done for a reactor that may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Something is in one of its rings.
    Message,
    /// One of the rings that it writes to has room again.
    Room,
}

/// An atomic word: the processor's, or that of a model.
pub(crate) trait Word {
    fn new(value: u32) -> Self;
    fn load(&self) -> u32;
    fn store(&self, value: u32);
    fn swap(&self, value: u32) -> u32;
    /// Whether it was `old`, and is `new` now.
    fn exchange(&self, old: u32, new: u32) -> bool;
    /// Orders all before against all behind, for all threads.
    fn fence();
}

impl<W: Word> Bell<W> {
    pub fn new() -> Self {
        Self { word: W::new(AWAKE) }
    }

    /// The owner is going to sleep. `has_more` has the last look at everything that it might be
    /// woken for; if there is something, the owner stays awake. `wants_room` says that it waits
    /// for room in a ring as well.
    pub fn lie_down(&self, wants_room: bool, has_more: impl FnOnce() -> bool) -> Lying {
        self.word.store(if wants_room { ASLEEP_FOR_ROOM } else { ASLEEP });
        W::fence();
        if has_more() { Lying::Up { is_rung: self.get_up() } } else { Lying::Down }
    }

    /// The owner is awake again. True if somebody has rung, or is about to.
    pub fn get_up(&self) -> bool {
        self.word.swap(AWAKE) == AWAKE
    }

    /// Whether the caller has to wake the owner. It has called [`Bell::publish`] behind what it has
    /// done.
    #[inline]
    pub fn must_ring(&self, cause: Cause) -> bool {
        let word = self.word.load();
        let hears = match cause {
            Cause::Message => word != AWAKE,
            Cause::Room => word == ASLEEP_FOR_ROOM,
        };
        hears && self.word.exchange(word, AWAKE)
    }

    /// Between what was done for others and the looks at their bells.
    #[inline]
    pub fn publish() {
        W::fence();
    }
}

/// What became of a reactor that wanted to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lying {
    /// It may sleep.
    Down,
    /// It is awake: there is something to do. `is_rung` as [`Bell::get_up`].
    Up { is_rung: bool },
}

// All accesses are relaxed: the fences order them, and messages are handed over by their rings.
impl Word for AtomicU32 {
    fn new(value: u32) -> Self {
        AtomicU32::new(value)
    }

    #[inline]
    fn load(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }

    fn store(&self, value: u32) {
        self.store(value, Ordering::Relaxed);
    }

    fn swap(&self, value: u32) -> u32 {
        self.swap(value, Ordering::Relaxed)
    }

    fn exchange(&self, old: u32, new: u32) -> bool {
        self.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn fence() {
        fence(Ordering::SeqCst);
    }
}

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const ASLEEP_FOR_ROOM: u32 = 2;

#[cfg(test)]
mod tests {
    //! The same code over loom's words: all orders in which the threads can meet, and all values
    //! that a load may see. A lost wake-up is a thread that waits for ever, which loom reports.

    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use loom::sync::Notify;
    use loom::sync::atomic::{AtomicU32 as Modelled, AtomicUsize};

    use super::*;

    impl Word for Modelled {
        fn new(value: u32) -> Self {
            Modelled::new(value)
        }

        fn load(&self) -> u32 {
            self.load(Ordering::Relaxed)
        }

        fn store(&self, value: u32) {
            self.store(value, Ordering::Relaxed);
        }

        fn swap(&self, value: u32) -> u32 {
            self.swap(value, Ordering::Relaxed)
        }

        fn exchange(&self, old: u32, new: u32) -> bool {
            self.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        }

        fn fence() {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    /// A sleeper, and one ring for each that writes to it: how many messages were ever put in.
    struct Room<const SENDERS: usize> {
        bell: Bell<Modelled>,
        /// Ends the sleep, as an eventfd does.
        event: Notify,
        /// Times that it was written to.
        rung: AtomicUsize,
        tails: [AtomicUsize; SENDERS],
    }

    /// What somebody might get wrong.
    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        None,
        /// The sleeper looks at its rings, and then says that it sleeps.
        LookFirst,
        /// The sleeper has no fence.
        SleeperFence,
        /// The sender has none.
        SenderFence,
        /// The sender looks at the word before its messages are in the ring.
        RingFirst,
    }

    impl<const SENDERS: usize> Room<SENDERS> {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                bell: Bell::new(),
                event: Notify::new(),
                rung: AtomicUsize::new(0),
                tails: std::array::from_fn(|_| AtomicUsize::new(0)),
            })
        }

        fn ring(&self, cause: Cause) {
            if self.bell.must_ring(cause) {
                self.rung.fetch_add(1, Ordering::Relaxed);
                self.event.notify();
            }
        }

        /// Puts the message of this number into a ring, and wakes the sleeper if need be.
        fn send(&self, sender: usize, number: usize, fault: Fault) {
            if fault == Fault::RingFirst {
                self.ring(Cause::Message);
            }
            self.tails[sender].store(number, Ordering::Release);
            if fault != Fault::SenderFence {
                Bell::<Modelled>::publish();
            }
            if fault != Fault::RingFirst {
                self.ring(Cause::Message);
            }
        }

        fn seen(&self) -> usize {
            self.tails.iter().map(|tail| tail.load(Ordering::Acquire)).sum()
        }

        /// Takes messages in until there were so many, and sleeps in between. Returns how often it
        /// found out that it was woken.
        fn receive(&self, count: usize, fault: Fault) -> usize {
            let (mut taken, mut woken) = (0, 0);
            while taken < count {
                let seen = self.seen();
                if seen != taken {
                    taken = seen;
                    continue;
                }
                let lying = match fault {
                    Fault::LookFirst => {
                        let has_more = self.seen() != taken;
                        self.bell.lie_down(false, || has_more)
                    }
                    Fault::SleeperFence => {
                        self.bell.word.store(ASLEEP, Ordering::Relaxed);
                        let has_more = self.seen() != taken;
                        if has_more {
                            Lying::Up { is_rung: self.bell.get_up() }
                        } else {
                            Lying::Down
                        }
                    }
                    _ => self.bell.lie_down(false, || self.seen() != taken),
                };
                let is_rung = match lying {
                    Lying::Up { is_rung } => is_rung,
                    Lying::Down => {
                        self.event.wait();
                        self.bell.get_up()
                    }
                };
                woken += usize::from(is_rung);
            }
            woken
        }
    }

    /// One sleeper; the other threads send it so many messages each.
    fn messages<const SENDERS: usize>(each: usize, fault: Fault) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = (SENDERS > 1 || each > 1).then_some(3);
        builder.check(move || {
            let room = Room::<SENDERS>::new();
            let senders: Vec<_> = (0..SENDERS)
                .map(|sender| {
                    let room = room.clone();
                    loom::thread::spawn(move || {
                        (1..=each).for_each(|number| room.send(sender, number, fault));
                    })
                })
                .collect();
            let woken = room.receive(SENDERS * each, fault);
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            let rung = room.rung.load(Ordering::Relaxed);
            // Nobody rings for those who are awake, and each ring is known to whoever has to take
            // it back from the eventfd.
            assert_eq!(rung, woken, "wake-ups and those that the sleeper knows of");
        });
    }

    /// A sleeper that waits for room in a ring of one slot, and one who takes what is in it.
    fn room(cause: Cause) {
        loom::model(move || {
            let room = Room::<1>::new();
            let taker = room.clone();
            let thread = loom::thread::spawn(move || {
                // The head of the ring: what was in it is taken.
                taker.tails[0].store(1, Ordering::Release);
                Bell::<Modelled>::publish();
                taker.ring(cause);
            });
            while room.seen() == 0 {
                if room.bell.lie_down(true, || room.seen() != 0) == Lying::Down {
                    room.event.wait();
                    room.bell.get_up();
                }
            }
            thread.join().unwrap();
        });
    }

    fn is_found(check: impl Fn()) -> bool {
        catch_unwind(AssertUnwindSafe(check)).is_err()
    }

    #[test]
    fn no_wake_up_is_lost_in_any_order() {
        messages::<1>(1, Fault::None);
        messages::<1>(2, Fault::None);
        messages::<2>(1, Fault::None);
    }

    #[test]
    fn no_room_is_lost_in_any_order() {
        room(Cause::Room);
        room(Cause::Message);
    }

    #[test]
    fn the_model_finds_what_somebody_might_get_wrong() {
        let faults = [Fault::LookFirst, Fault::SleeperFence, Fault::SenderFence, Fault::RingFirst];
        for (number, fault) in faults.into_iter().enumerate() {
            assert!(is_found(|| messages::<1>(1, fault)), "fault {number} was not found");
        }
    }

    #[test]
    fn whoever_waits_for_messages_alone_is_not_woken_for_room() {
        let bell = Bell::<AtomicU32>::new();
        assert!(!bell.must_ring(Cause::Message), "it is awake");
        assert_eq!(bell.lie_down(false, || false), Lying::Down);
        assert!(!bell.must_ring(Cause::Room));
        assert!(bell.must_ring(Cause::Message));
        assert!(!bell.must_ring(Cause::Message), "one of them wakes it");
        assert!(bell.get_up(), "it knows that it was woken");
        assert_eq!(bell.lie_down(true, || false), Lying::Down);
        assert!(bell.must_ring(Cause::Room));
        assert!(bell.get_up());
        assert_eq!(bell.lie_down(false, || true), Lying::Up { is_rung: false });
        assert!(!bell.must_ring(Cause::Message));
    }
}
