//! One word that records whether an interface sleeps, and what it must check.
//!
//! ```text
//! the interface                              other threads
//! set ASLEEP, if the word is empty           store data for the interface
//! wait for descriptors, if it was empty      set WOKEN
//! clear ASLEEP                               make a descriptor ready, if only ASLEEP was set
//! clear WOKEN, if it was set
//! read the data that was stored
//! ```
//!
//! Invariant: an interface sleeps only if no bit other than ASLEEP is set in its word, unless a
//! descriptor is ready or about to become ready.
//!
//! Every change is one atomic read-modify-write, and all changes of one word have a single order.
//! If WOKEN is set before ASLEEP, the interface does not sleep. If ASLEEP is set first, the thread
//! that sets WOKEN sees it. When the interface clears WOKEN, it sees all data that other threads
//! stored before they set it. So no fence is needed. But no thread may omit its exchange because
//! WOKEN seems to be set already.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering};

/// The reason for waking an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The interface's owner has work to do.
    Woken = 1,
    /// Another interface has given a connection to this one.
    Called = 2,
}

/// The state word of one interface.
#[derive(Debug)]
pub(super) struct Nap<W = AtomicU32> {
    word: W,
}

/// An atomic word: either the processor's type or the type of a model checker.
pub(super) trait Word: Debug {
    fn new() -> Self;
    /// Loads the word with relaxed ordering.
    fn look(&self) -> u32;
    /// Sets bits and returns the previous value.
    fn put(&self, bits: u32) -> u32;
    /// Clears bits and returns the previous value.
    fn take(&self, bits: u32) -> u32;
    /// Sets bits if the word is empty. Otherwise returns the word's value as the error.
    fn fill(&self, bits: u32) -> Result<(), u32>;
}

impl<W: Word> Nap<W> {
    pub(super) fn new() -> Self {
        Self { word: W::new() }
    }

    /// Returns true if any cause is set. The load is relaxed, so the result may be stale.
    #[inline]
    pub(super) fn is_rung(&self) -> bool {
        self.word.look() & CAUSES != 0
    }

    /// Returns true if `cause` is set. The load is relaxed, so the result may be stale.
    #[inline]
    pub(super) fn has(&self, cause: Cause) -> bool {
        self.word.look() & cause as u32 != 0
    }

    /// Sets a cause. Returns true if the caller must make a descriptor ready.
    pub(super) fn ring(&self, cause: Cause) -> bool {
        self.word.put(cause as u32) == ASLEEP
    }

    /// Clears a cause and returns true if it was set. The caller then checks for the data that
    /// other threads have stored.
    #[inline]
    pub(super) fn take(&self, cause: Cause) -> bool {
        self.has(cause) && self.word.take(cause as u32) & cause as u32 != 0
    }

    /// Marks the interface as asleep. Returns true if it may sleep. May be called again while
    /// asleep.
    pub(super) fn lie_down(&self) -> bool {
        self.word.fill(ASLEEP).map_or_else(|found| found == ASLEEP, |()| true)
    }

    /// Marks the interface as awake.
    pub(super) fn get_up(&self) {
        self.word.take(ASLEEP);
    }
}

/// Implements [`Word`] for an atomic type. The processor's type and the model's type share this
/// code, so that the model checks the memory orderings that are really used.
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
    //! Runs the same code on loom's words: every order in which the threads can meet, and every
    //! value that a load may see. A lost wake-up is a thread that waits for ever, which loom
    //! reports.

    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use loom::sync::Notify;
    use loom::sync::atomic::{AtomicU32 as Modelled, AtomicUsize};

    use super::*;

    word_of!(Modelled);

    /// A state word, and the numbers that the other threads have stored for the thread that sleeps.
    struct Room<const OTHERS: usize> {
        nap: Nap<Modelled>,
        /// The event that ends the sleep, like an eventfd.
        event: Notify,
        /// The number of times that the event was written to.
        written: AtomicUsize,
        put: [AtomicUsize; OTHERS],
    }

    /// A deliberate mistake in the algorithm.
    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        None,
        /// The sleeper checks for a wakeup first and only then marks itself as asleep.
        LookFirst,
        /// Other threads signal the sleeper before they store their number.
        RingFirst,
        /// Other threads do not signal if the cause seems to be set already.
        RingSeldom,
        /// Other threads check whether the sleeper is asleep, and only then set the cause.
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

        /// Stores a number and signals the sleeper. The stores and loads of numbers are relaxed, so
        /// the state word must order them.
        fn put(&self, other: usize, number: usize, cause: Cause, fault: Fault) {
            if fault == Fault::RingFirst {
                self.ring(cause, fault);
            }
            self.put[other].store(number, Ordering::Relaxed);
            if fault != Fault::RingFirst {
                self.ring(cause, fault);
            }
        }

        /// Reads the stored numbers after each signal, until their sum is `count`. Returns the
        /// number of times that this thread slept.
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

    /// Runs one sleeper and several threads that each store `each` numbers, for one cause or for
    /// both in turn.
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
