//! For what request something is asked, and under which number the answer is awaited.
//!
//! Invariant: all of these are small numbers. What they stand for is known to whoever gave them
//! out, so they can be kept, copied and sent anywhere.

use crate::codec::{Code, record};

/// A front: the half of a protocol that faces its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrontId(pub u8);

impl FrontId {
    /// No front.
    pub const NONE: Self = Self(0);
    /// DAFS 1.0.
    pub const DAFS: Self = Self(1);
}

record! {
    /// Names a request among all that any client ever sends, so that what became of it can be
    /// found after a crash.
    ///
    /// What the numbers mean is the front's business, but that two different requests never have
    /// the same. DAFS has the session, the stream, the number on the stream, and as `index` the
    /// number of the procedure.
    #[derive(Copy, PartialOrd, Ord, Hash)]
    Origin {
        /// Whose request it is.
        front: FrontId,
        /// The session it came in.
        session: u64,
        /// Where in the session: a stream or a slot.
        slot: u32,
        /// Its number there.
        sequence: u32,
        /// Which part of it: an operation of several, or a kind of request.
        index: u16,
    }
}

impl Origin {
    /// Of a request of which nothing is kept.
    pub const NONE: Self =
        Self { front: FrontId::NONE, session: 0, slot: 0, sequence: 0, index: 0 };

    /// Whether what becomes of the request is kept.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.front != FrontId::NONE
    }

    /// Adds the bytes of it.
    pub fn encode(&self, to: &mut Vec<u8>) {
        self.put(to);
    }

    /// Takes an origin from the front of `from`; `None` if the bytes end before it does.
    #[must_use]
    pub fn take(from: &mut &[u8]) -> Option<Self> {
        Code::take(from)
    }
}

/// The asker's own number of something it has asked for. The highest byte names the front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

impl Ticket {
    /// The ticket with this number of a front; of the number the lower 56 bits count.
    #[must_use]
    pub const fn new(front: FrontId, number: u64) -> Self {
        Self((front.0 as u64) << FRONT_SHIFT | (number & NUMBER))
    }

    /// The front it belongs to.
    #[must_use]
    pub const fn front(self) -> FrontId {
        FrontId((self.0 >> FRONT_SHIFT) as u8)
    }

    /// The front's number for it.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & NUMBER
    }
}

/// Where the front stands in a ticket.
const FRONT_SHIFT: u32 = 56;
/// The bits of a ticket that are the front's own.
const NUMBER: u64 = (1 << FRONT_SHIFT) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_names_its_front_and_its_number() {
        let ticket = Ticket::new(FrontId(0xfe), u64::MAX);
        assert_eq!((ticket.front(), ticket.number()), (FrontId(0xfe), NUMBER));
    }

    #[test]
    fn an_origin_comes_back_and_leaves_what_follows_it() {
        let origin = Origin {
            front: FrontId::DAFS,
            session: 0x0123_4567_89ab_cdef,
            slot: 3,
            sequence: 65_535,
            index: 144,
        };
        let mut bytes = Vec::new();
        origin.encode(&mut bytes);
        bytes.push(7);
        let mut rest = bytes.as_slice();
        assert_eq!(Origin::take(&mut rest), Some(origin));
        assert_eq!(rest, [7]);
        assert!(origin.is_some() && !Origin::NONE.is_some());
        assert_eq!(Origin::take(&mut &bytes[..18]), None);
    }
}
