//! Runs the ring's own code on the words of a model checker, loom. Loom tries the orders in which
//! the steps of the two sides can occur, and the values that each load may see under the memory
//! model.
//!
//! Loom reports two kinds of failures. If a message is read before it was written, or overwritten
//! before it was read, that is a data race in the lines of the model. If a wakeup is lost, a side
//! waits forever. Each [`Fault`] weakens one memory ordering of the ring, and a test requires that
//! loom detects the fault.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::Notify;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;

use super::super::delta::LINE_WORDS;
use super::*;

/// A deliberate mistake in one memory ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The producer commits a header with relaxed ordering.
    HeaderStore,
    /// The consumer loads a header with relaxed ordering.
    HeaderLoad,
    /// The consumer stores its position, which releases space, with relaxed ordering.
    HeadStore,
    /// The producer loads the consumer's position with relaxed ordering.
    HeadLoad,
    /// The producer does not clear the word of the next header if that word was payload.
    Clear,
    /// The producer counts a withdrawal with relaxed ordering.
    RevisionAdd,
    /// The consumer loads the count of withdrawals with relaxed ordering.
    RevisionLoad,
    /// The producer omits its fences.
    ProducerFence,
    /// The consumer omits its fence.
    ConsumerFence,
}

/// A word of the model checker, some of whose orderings may be weakened.
#[derive(Debug)]
struct Weak<W> {
    word: W,
    stores_relaxed: bool,
    loads_relaxed: bool,
    keeps_payload: bool,
}

impl<W> Weak<W> {
    fn strong(word: W) -> Self {
        Self { word, stores_relaxed: false, loads_relaxed: false, keeps_payload: false }
    }

    fn store_ordering(&self, ordering: Ordering) -> Ordering {
        if self.stores_relaxed { Ordering::Relaxed } else { ordering }
    }
}

macro_rules! word_of {
    ($atomic:ty, $value:ty) => {
        impl Word for Weak<$atomic> {
            type Value = $value;

            fn load(&self, ordering: Ordering) -> $value {
                self.word.load(if self.loads_relaxed { Ordering::Relaxed } else { ordering })
            }

            fn store(&self, value: $value, ordering: Ordering) {
                if value != 0 || !self.keeps_payload {
                    self.word.store(value, self.store_ordering(ordering));
                }
            }

            fn swap(&self, value: $value, ordering: Ordering) -> $value {
                self.word.swap(value, ordering)
            }

            fn fetch_add(&self, value: $value, ordering: Ordering) -> $value {
                self.word.fetch_add(value, self.store_ordering(ordering))
            }

            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.word.compare_exchange(current, new, success, failure)
            }
        }
    };
}

word_of!(AtomicU32, u32);
word_of!(AtomicU64, u64);

/// One line of the ring. The bytes of bodies are plain memory, which only one side may access at a
/// time. The first word is atomic.
#[derive(Debug)]
struct Line {
    first: Weak<AtomicU64>,
    bytes: UnsafeCell<[u8; LINE]>,
}

/// The memory that both sides share.
#[derive(Debug)]
struct Shared {
    lines: Box<[Line]>,
    head: Weak<AtomicU64>,
    wake_at: Weak<AtomicU64>,
    wants_early: Weak<AtomicU64>,
    produced: Weak<AtomicU64>,
    revision: Weak<AtomicU64>,
    blocked: Weak<AtomicU32>,
}

// SAFETY: loom runs one thread at a time, and reports unsynchronized accesses of the lines.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(lines: usize, fault: Fault) -> Self {
        let strong = || Weak::strong(AtomicU64::new(0));
        Self {
            lines: (0..lines)
                .map(|_| Line {
                    first: Weak {
                        stores_relaxed: fault == Fault::HeaderStore,
                        loads_relaxed: fault == Fault::HeaderLoad,
                        keeps_payload: fault == Fault::Clear,
                        ..strong()
                    },
                    bytes: UnsafeCell::new([0; LINE]),
                })
                .collect(),
            head: Weak {
                stores_relaxed: fault == Fault::HeadStore,
                loads_relaxed: fault == Fault::HeadLoad,
                ..strong()
            },
            wake_at: strong(),
            wants_early: strong(),
            produced: strong(),
            revision: Weak {
                stores_relaxed: fault == Fault::RevisionAdd,
                loads_relaxed: fault == Fault::RevisionLoad,
                ..strong()
            },
            blocked: Weak::strong(AtomicU32::new(0)),
        }
    }
}

/// One side's view of the shared memory.
#[derive(Debug)]
struct Side {
    shared: Arc<Shared>,
    omits_fences: bool,
}

impl Side {
    fn line(&self, position: u64) -> &Line {
        &self.shared.lines[self.place(position) as usize / LINE]
    }

    /// Calls `each` for each line that a body of `length` bytes touches, with the line, the range
    /// of the body's bytes in the line, and the offset of these bytes in the body.
    fn each_line(
        &self,
        position: u64,
        skip: usize,
        length: usize,
        mut each: impl FnMut(&Line, std::ops::Range<usize>, usize),
    ) {
        let start = self.place(position) as usize + HEADER_BYTES + skip;
        assert!(start + length <= self.shared.lines.len() * LINE, "a frame beyond the ring's end");
        let mut done = 0;
        while done < length {
            let at = start + done;
            let first = at % LINE;
            let count = (LINE - first).min(length - done);
            each(&self.shared.lines[at / LINE], first..first + count, done);
            done += count;
        }
    }
}

impl RingMemory for Side {
    type Word = Weak<AtomicU64>;
    type Flag = Weak<AtomicU32>;

    fn capacity(&self) -> u64 {
        (self.shared.lines.len() * LINE) as u64
    }

    fn body(&self, position: u64) -> usize {
        self.place(position) as usize + HEADER_BYTES
    }

    fn header(&self, position: u64) -> &Self::Word {
        &self.line(position).first
    }

    fn head(&self) -> &Self::Word {
        &self.shared.head
    }

    fn wake_at(&self) -> &Self::Word {
        &self.shared.wake_at
    }

    fn wants_early(&self) -> &Self::Word {
        &self.shared.wants_early
    }

    fn produced(&self) -> &Self::Word {
        &self.shared.produced
    }

    fn revision(&self) -> &Self::Word {
        &self.shared.revision
    }

    fn blocked(&self) -> &Self::Flag {
        &self.shared.blocked
    }

    fn write(&self, position: u64, skip: usize, bytes: &[u8]) {
        self.each_line(position, skip, bytes.len(), |line, range, done| {
            let bytes = &bytes[done..done + range.len()];
            // Payload in the first word of a line is what a header could be mistaken for.
            if range.start == 0
                && let Some(word) = bytes.first_chunk()
            {
                line.first.word.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            }
            // SAFETY: loom checks that no other access is concurrent.
            line.bytes.with_mut(|own| unsafe { (&mut *own)[range].copy_from_slice(bytes) });
        });
    }

    fn read(&self, position: u64, bytes: &mut [u8]) {
        let length = bytes.len();
        self.each_line(position, 0, length, |line, range, done| {
            let bytes = &mut bytes[done..done + range.len()];
            // SAFETY: loom checks that no write is concurrent.
            line.bytes.with(|own| unsafe { bytes.copy_from_slice(&(&*own)[range]) });
        });
    }

    fn write_line(&self, position: u64, words: &[u64; LINE_WORDS]) {
        self.write(position, 0, &words.map(u64::to_ne_bytes).concat());
    }

    fn read_line(&self, position: u64) -> [u64; LINE_WORDS] {
        let mut bytes = [0; LINE_BODY_BYTES];
        self.read(position, &mut bytes);
        let mut words = bytes.chunks_exact(8);
        std::array::from_fn(|_| {
            u64::from_ne_bytes(words.next().and_then(<[u8]>::first_chunk).copied().unwrap())
        })
    }

    fn prefetch_for_write(&self, _position: u64) {}

    fn fence(&self, ordering: Ordering) {
        if !self.omits_fences {
            loom::sync::atomic::fence(ordering);
        }
    }
}

/// The events that wake the two sides, like the descriptors of a connection.
struct Events {
    consumer: Notify,
    producer: Notify,
}

fn ring(lines: usize, fault: Fault) -> (Producer<Side>, Consumer<Side>, Arc<Events>) {
    let shared = Arc::new(Shared::new(lines, fault));
    let side = |fence| Side { shared: shared.clone(), omits_fences: fault == fence };
    let (producer, consumer) = (side(Fault::ProducerFence), side(Fault::ConsumerFence));
    let events = Events { consumer: Notify::new(), producer: Notify::new() };
    (Producer::over(producer), Consumer::over(consumer), Arc::new(events))
}

/// Removes and returns the next message; `None` if there is none.
fn take(consumer: &mut Consumer<Side>) -> Option<Vec<u8>> {
    let (header, _) = consumer.peek().expect("a valid header")?;
    let message = consumer.message(header).expect("a valid message").to_vec();
    consumer.advance(header);
    Some(message)
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

/// Checks that messages of one and of two lines arrive while they go around the ring. Neither side
/// sleeps.
fn pass(messages: fn() -> Vec<Vec<u8>>, fault: Fault) {
    check(move || {
        let (mut producer, mut consumer, _) = ring(LINES, fault);
        let other = thread::spawn(move || {
            for message in messages() {
                while !producer.put(&message, 0) {
                    thread::yield_now();
                }
            }
        });
        for expected in messages() {
            let message = loop {
                match take(&mut consumer) {
                    Some(message) => break message,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(message, expected);
            consumer.publish();
        }
        assert!(take(&mut consumer).is_none(), "a frame that nobody sent");
        other.join().unwrap();
    });
}

/// Checks that no wakeup is lost. The consumer sleeps until a number of messages have arrived, and
/// the producer until there is room, as a connection does in `arm` and `execute_all`. If the alarm
/// is early, the producer wakes the consumer before it sends the message.
fn sleep(lines: usize, alarm: Alarm, fault: Fault) {
    check(move || {
        let (mut producer, mut consumer, events) = ring(lines, fault);
        let theirs = events.clone();
        let other = thread::spawn(move || {
            for message in numbers() {
                if alarm.early && producer.must_wake_early() {
                    theirs.consumer.notify();
                }
                while !producer.put(&message, 0) {
                    let is_blocked = !producer.block(message.len() as u32);
                    if producer.must_wake(is_blocked) {
                        theirs.consumer.notify();
                    }
                    if is_blocked {
                        theirs.producer.wait();
                    }
                }
                if producer.must_wake(false) {
                    theirs.consumer.notify();
                }
            }
        });
        let mut expected = numbers();
        loop {
            while let Some(message) = take(&mut consumer) {
                assert_eq!(Some(message), expected.next());
            }
            let left = expected.len();
            let threshold = alarm.threshold.min(left);
            let rest = consumer.prepare_sleep(Alarm { threshold, ..alarm });
            if rest.must_wake {
                events.producer.notify();
            }
            if left == 0 {
                break;
            }
            if rest.may_sleep {
                events.consumer.wait();
            }
            consumer.disarm();
        }
        other.join().unwrap();
    });
}

/// Checks that a side that sees the count of withdrawals also sees the withdrawal, which is stored
/// before it is counted.
fn withdraw(fault: Fault) {
    check(move || {
        let (producer, consumer, _) = ring(LINES, fault);
        let withdrawn = Arc::new(AtomicU32::new(0));
        let theirs = withdrawn.clone();
        let other = thread::spawn(move || {
            theirs.store(1, Ordering::Relaxed);
            producer.announce_withdrawal();
        });
        if consumer.revision() == 1 {
            assert_eq!(withdrawn.load(Ordering::Relaxed), 1);
        }
        other.join().unwrap();
    });
}

/// Returns messages that take two lines, two lines after a wrap marker, and one line as a
/// difference from the previous message.
fn long() -> Vec<Vec<u8>> {
    let message = |first| {
        let mut message = vec![5; 96];
        message[0] = first;
        message
    };
    vec![message(1), b"short".to_vec(), vec![7; 96], vec![8; 96], {
        let mut message = vec![8; 96];
        message[0] = 9;
        message
    }]
}

/// Returns a message whose second line looks like a frame of the next lap, and as many short
/// messages as are needed until the next header is in that line.
fn deceptive() -> Vec<Vec<u8>> {
    let frame = FrameHeader { kind: FrameKind::Send, length: 1, word: 0 }.pack(2);
    let mut first = vec![1; LINE_BODY_BYTES];
    first.extend(frame.to_ne_bytes());
    vec![first, vec![2], vec![3], vec![4]]
}

/// Returns two short messages.
fn numbers() -> impl ExactSizeIterator<Item = Vec<u8>> {
    [1, 2].into_iter().map(|number| vec![number])
}

#[test]
fn messages_arrive_whole_and_in_order_in_any_order_of_steps() {
    pass(long, Fault::None);
    pass(deceptive, Fault::None);
}

#[test]
fn no_wakeup_is_lost_by_either_side_in_any_order_of_steps() {
    for (lines, alarm) in SLEEPS {
        sleep(lines, alarm, Fault::None);
    }
}

#[test]
fn a_side_that_sees_a_withdrawals_count_sees_the_withdrawal() {
    withdraw(Fault::None);
}

#[test]
fn the_model_finds_each_weakened_ordering_of_the_ring() {
    let found = |fault: Fault, model: &dyn Fn(Fault)| {
        let outcome = catch_unwind(AssertUnwindSafe(|| model(fault)));
        assert!(outcome.is_err(), "{fault:?} was not found");
    };
    for fault in [Fault::HeaderStore, Fault::HeaderLoad, Fault::HeadStore, Fault::HeadLoad] {
        found(fault, &|fault| pass(long, fault));
    }
    found(Fault::Clear, &|fault| pass(deceptive, fault));
    for fault in [Fault::RevisionAdd, Fault::RevisionLoad] {
        found(fault, &withdraw);
    }
    for fault in [Fault::ProducerFence, Fault::ConsumerFence] {
        for (lines, alarm) in SLEEPS {
            found(fault, &|fault| sleep(lines, alarm, fault));
        }
    }
}

/// The number of lines of the ring in most tests.
const LINES: usize = 4;
/// The number of lines of a ring that has room for one short message.
const LINES_MIN: usize = 2;
/// The number of lines of the ring, and the condition that ends the consumer's sleep: the next
/// message, two messages, the next message with an early wakeup, and the next message while the
/// producer waits for room.
const SLEEPS: [(usize, Alarm); 4] = [
    (LINES, Alarm { threshold: 1, early: false }),
    (LINES, Alarm { threshold: 2, early: false }),
    (LINES, Alarm { threshold: 1, early: true }),
    (LINES_MIN, Alarm { threshold: 1, early: false }),
];
/// The maximum number of times that one thread is stopped in favour of the other in one run.
const PREEMPTIONS_MAX: usize = 3;
