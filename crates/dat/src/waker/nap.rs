//! One word that says whether an interface sleeps, and what it is to look at.
//!
//! ```text
//! the interface                              others
//! ASLEEP into the word, if it is empty       put something where the interface looks
//! wait for descriptors, if it was empty      WOKEN into the word
//! ASLEEP out of the word                     make a descriptor ready, if ASLEEP was alone in it
//! WOKEN out of the word, if it was there
//! look at what others put
//! ```
//!
//! Invariant: nobody sleeps with anything but ASLEEP in its word, unless a descriptor is ready or
//! about to be.
//!
//! Every change is one atomic read-modify-write, and those of one word have one order. If WOKEN
//! comes before ASLEEP, the interface does not sleep. If ASLEEP comes first, whoever puts WOKEN in
//! sees it. Whoever takes WOKEN out sees what was put before any WOKEN that went in until then. So
//! no fence is needed, but nobody may save an exchange because WOKEN seems to be there.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering};

/// What an interface is woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its owner has something to do.
    Woken = 1,
    /// Another interface has given it a connection.
    Called = 2,
}

/// The word of one interface.
#[derive(Debug)]
pub(super) struct Nap<W = AtomicU32> {
    word: W,
}

/// An atomic word: the processor's, or that of a model.
pub(super) trait Word: Debug {
    fn new() -> Self;
    /// Orders nothing.
    fn look(&self) -> u32;
    /// Puts bits in. Returns what was there.
    fn put(&self, bits: u32) -> u32;
    /// Takes bits out. Returns what was there.
    fn take(&self, bits: u32) -> u32;
    /// Puts bits into an empty word. What was there if it was not empty.
    fn fill(&self, bits: u32) -> Result<(), u32>;
}

impl<W: Word> Nap<W> {
    pub fn new() -> Self {
        Self { word: W::new() }
    }

    /// Whether anything is to be looked at, as far as is known.
    #[inline]
    pub fn is_rung(&self) -> bool {
        self.word.look() & CAUSES != 0
    }

    /// Whether this is, as far as is known.
    #[inline]
    pub fn has(&self, cause: Cause) -> bool {
        self.word.look() & cause as u32 != 0
    }

    /// Says what is to be looked at. True if the caller must make a descriptor ready.
    pub fn ring(&self, cause: Cause) -> bool {
        self.word.put(cause as u32) == ASLEEP
    }

    /// Takes a cause, if it is there. The caller then looks at what others have put.
    #[inline]
    pub fn take(&self, cause: Cause) -> bool {
        self.has(cause) && self.word.take(cause as u32) & cause as u32 != 0
    }

    /// Whether the owner may sleep. It may say so twice.
    pub fn lie_down(&self) -> bool {
        self.word.fill(ASLEEP).map_or_else(|found| found == ASLEEP, |()| true)
    }

    /// The owner is awake.
    pub fn get_up(&self) {
        self.word.take(ASLEEP);
    }
}

/// Makes a word of an atomic type: one text for the processor's and the model's, so that the model
/// has the orderings that run.
macro_rules! word_of {
    ($atomic:ty) => {
        impl Word for $atomic {
            fn new() -> Self {
                <$atomic>::new(0)
            }

            #[inline]
            fn look(&self) -> u32 {
                self.load(Ordering::Relaxed)
            }

            fn put(&self, bits: u32) -> u32 {
                self.fetch_or(bits, Ordering::AcqRel)
            }

            fn take(&self, bits: u32) -> u32 {
                self.fetch_and(!bits, Ordering::AcqRel)
            }

            fn fill(&self, bits: u32) -> Result<(), u32> {
                self.compare_exchange(0, bits, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
            }
        }
    };
}

word_of!(AtomicU32);

const CAUSES: u32 = Cause::Woken as u32 | Cause::Called as u32;
const ASLEEP: u32 = 4;

#[cfg(test)]
mod tests {
    //! The same code over loom's words: all orders in which the threads can meet, and all values
    //! that a load may see. A lost wake-up is a thread that waits for ever, which loom reports.

    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use loom::sync::Notify;
    use loom::sync::atomic::{AtomicU32 as Modelled, AtomicUsize};

    use super::*;

    word_of!(Modelled);

    /// A sleeper, and what others have put where it looks: how much that ever was.
    struct Room<const OTHERS: usize> {
        nap: Nap<Modelled>,
        /// Ends the sleep, as an eventfd does.
        event: Notify,
        /// Times that it was written to.
        written: AtomicUsize,
        put: [AtomicUsize; OTHERS],
    }

    /// What somebody might get wrong.
    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        None,
        /// The sleeper looks at the word, and then says that it sleeps.
        LookFirst,
        /// Others say that there is something before they put it there.
        RingFirst,
        /// Others leave the word alone if it seems to say what they would.
        RingSeldom,
        /// Others look whether somebody sleeps, and then say that there is something.
        PeepFirst,
    }

    impl<const OTHERS: usize> Room<OTHERS> {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                nap: Nap::new(),
                event: Notify::new(),
                written: AtomicUsize::new(0),
                put: std::array::from_fn(|_| AtomicUsize::new(0)),
            })
        }

        fn ring(&self, cause: Cause, fault: Fault) {
            let must_write = match fault {
                Fault::RingSeldom if self.nap.has(cause) => false,
                Fault::PeepFirst => {
                    let is_asleep = self.nap.word.look() == ASLEEP;
                    self.nap.ring(cause);
                    is_asleep
                }
                _ => self.nap.ring(cause),
            };
            if must_write {
                self.written.fetch_add(1, Ordering::Relaxed);
                self.event.notify();
            }
        }

        /// The stores and loads of what is put order nothing: the word does.
        fn put(&self, other: usize, number: usize, cause: Cause, fault: Fault) {
            if fault == Fault::RingFirst {
                self.ring(cause, fault);
            }
            self.put[other].store(number, Ordering::Relaxed);
            if fault != Fault::RingFirst {
                self.ring(cause, fault);
            }
        }

        /// Looks at what was put whenever it is told to, until there was so much. Returns how
        /// often it slept.
        fn look(&self, count: usize, fault: Fault) -> usize {
            let (mut seen, mut naps) = (0, 0);
            while seen < count {
                if self.nap.take(Cause::Woken) | self.nap.take(Cause::Called) {
                    seen = self.put.iter().map(|put| put.load(Ordering::Relaxed)).sum();
                    continue;
                }
                let may_sleep = match fault {
                    Fault::LookFirst if self.nap.is_rung() => false,
                    Fault::LookFirst => {
                        self.nap.word.store(ASLEEP, Ordering::Release);
                        true
                    }
                    _ => self.nap.lie_down(),
                };
                if may_sleep {
                    naps += 1;
                    self.event.wait();
                    self.nap.get_up();
                }
            }
            naps
        }
    }

    /// One sleeper; the other threads put so much each, for one cause or for both in turns.
    fn meet<const OTHERS: usize>(each: usize, causes: [Cause; 2], fault: Fault) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = (OTHERS > 1 || each > 1).then_some(3);
        builder.check(move || {
            let room = Room::<OTHERS>::new();
            let others: Vec<_> = (0..OTHERS)
                .map(|other| {
                    let room = room.clone();
                    loom::thread::spawn(move || {
                        for number in 1..=each {
                            room.put(other, number, causes[(other + number) % 2], fault);
                        }
                    })
                })
                .collect();
            let naps = room.look(OTHERS * each, fault);
            others.into_iter().for_each(|other| other.join().unwrap());
            let written = room.written.load(Ordering::Relaxed);
            assert!(written <= naps, "{written} writes for {naps} naps");
        });
    }

    const WOKEN: [Cause; 2] = [Cause::Woken; 2];
    const BOTH: [Cause; 2] = [Cause::Woken, Cause::Called];

    #[test]
    fn no_wake_up_is_lost_in_any_order() {
        meet::<1>(1, WOKEN, Fault::None);
        meet::<1>(2, WOKEN, Fault::None);
        meet::<1>(2, BOTH, Fault::None);
        meet::<2>(1, WOKEN, Fault::None);
        meet::<2>(1, BOTH, Fault::None);
    }

    #[test]
    fn the_model_finds_what_somebody_might_get_wrong() {
        let faults = [Fault::LookFirst, Fault::RingFirst, Fault::RingSeldom, Fault::PeepFirst];
        for (number, fault) in faults.into_iter().enumerate() {
            let check = AssertUnwindSafe(|| meet::<1>(2, WOKEN, fault));
            assert!(catch_unwind(check).is_err(), "fault {number} was not found");
        }
    }
}
