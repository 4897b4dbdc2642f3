//! What one reactor sends another: a ring, and who may use its slots.
//!
//! Invariant: the three classes have slots of their own, and there are as many slots as all of them
//! may use. So whatever was accepted fits into the ring when it is handed over:
//!
//! - an ask counts from when it is sent until its answer was taken in;
//! - an answer has the place of an ask that counts on the other side, since there is one for each;
//! - a notice counts until the other side has taken it out.

use std::collections::VecDeque;

use rtrb::{Consumer, Producer, RingBuffer};

/// The end that sends.
pub(crate) struct Outgoing<T> {
    ring: Producer<T>,
    /// What goes into the ring with the next batch.
    batch: Vec<T>,
    /// Messages that ever went into batches.
    sent: u64,
    asks_under_way: usize,
    /// Of the notices that count, their numbers among all messages.
    notices: VecDeque<u64>,
    /// Of asks, and of notices.
    slots: usize,
}

impl<T> Outgoing<T> {
    /// A ring, whose classes have so many slots each.
    pub fn open(slots: usize) -> (Self, Consumer<T>) {
        let capacity = slots * CLASSES;
        let (ring, incoming) = RingBuffer::new(capacity);
        let (batch, notices) = (Vec::with_capacity(capacity), VecDeque::with_capacity(slots));
        (Self { ring, batch, sent: 0, asks_under_way: 0, notices, slots }, incoming)
    }

    /// Whether one more ask may be under way.
    #[inline]
    pub fn takes_ask(&self) -> bool {
        self.asks_under_way < self.slots
    }

    /// Only if [`Outgoing::takes_ask`].
    #[inline]
    pub fn put_ask(&mut self, message: T) {
        self.asks_under_way += 1;
        self.put(message);
    }

    /// The answer to one of the asks was taken in.
    #[inline]
    pub fn ask_ended(&mut self) {
        self.asks_under_way -= 1;
    }

    /// Asks whose answers have not come.
    pub fn asks_under_way(&self) -> usize {
        self.asks_under_way
    }

    /// An answer, for one that was asked: there is room.
    #[inline]
    pub fn put_answer(&mut self, message: T) {
        self.put(message);
    }

    /// Whether one more notice has room.
    #[inline]
    pub fn takes_notice(&mut self) -> bool {
        self.notices.len() < self.slots || self.forget_read_notices()
    }

    /// Only if [`Outgoing::takes_notice`].
    #[inline]
    pub fn put_notice(&mut self, message: T) {
        self.notices.push_back(self.sent);
        self.put(message);
    }

    /// Hands the batch over. The other side sees all of it or nothing.
    pub fn hand_over(&mut self) {
        let count = self.batch.len();
        let chunk = self.ring.write_chunk_uninit(count);
        let put = chunk.map_or(0, |chunk| chunk.fill_from_iter(self.batch.drain(..)));
        assert_eq!(put, count, "a ring has a slot for everything that was accepted");
    }

    #[inline]
    fn put(&mut self, message: T) {
        self.sent += 1;
        self.batch.push(message);
    }

    /// Ends the count of notices that were taken out. True if there is room for one.
    fn forget_read_notices(&mut self) -> bool {
        let in_ring = self.ring.buffer().capacity() - self.ring.slots();
        let read = self.sent - (in_ring + self.batch.len()) as u64;
        while self.notices.front().is_some_and(|number| *number < read) {
            self.notices.pop_front();
        }
        self.notices.len() < self.slots
    }
}

/// Asks, answers, notices.
const CLASSES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_class_leaves_the_others_their_room() {
        let (mut out, mut incoming) = Outgoing::open(2);
        let capacities = (out.batch.capacity(), out.notices.capacity());
        for round in 0..100 {
            for _ in 0..2 {
                assert!(out.takes_ask() && out.takes_notice());
                out.put_ask('q');
                out.put_answer('a');
                out.put_notice('n');
            }
            assert!(!out.takes_ask() && !out.takes_notice());
            assert!(incoming.is_empty(), "nothing is seen before it is handed over");
            out.hand_over();
            assert!(!out.takes_ask() && !out.takes_notice(), "nothing was taken out");
            let taken: String = std::iter::from_fn(|| incoming.pop().ok()).collect();
            assert_eq!(taken, "qanqan");
            assert!(out.takes_notice(), "round {round}");
            assert!(!out.takes_ask(), "the answers have not come");
            out.ask_ended();
            out.ask_ended();
        }
        let now = (out.batch.capacity(), out.notices.capacity());
        assert_eq!(now, capacities, "nothing was allocated");
    }

    #[test]
    fn each_notice_that_was_taken_out_makes_room_for_one() {
        let (mut out, mut incoming) = Outgoing::open(3);
        for number in 0..3 {
            assert!(out.takes_notice());
            out.put_notice(number);
        }
        out.put_answer(9);
        out.hand_over();
        assert_eq!((incoming.pop(), incoming.pop()), (Ok(0), Ok(1)));
        for number in 3..5 {
            assert!(out.takes_notice());
            out.put_notice(number);
        }
        assert!(!out.takes_notice());
        out.hand_over();
        let taken: Vec<_> = std::iter::from_fn(|| incoming.pop().ok()).collect();
        assert_eq!(taken, [2, 9, 3, 4]);
    }
}
