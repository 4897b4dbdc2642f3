//! Identifies the request to which an operation belongs, and the operation whose result a front
//! waits for.
//!
//! Invariant: all identifiers are plain integers. Only the code that assigned them interprets them,
//! so they can be stored, copied and sent anywhere.

use crate::codec::{Code, record};

/// The id of a front, which is the part of the server that implements one protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrontId(pub u8);

impl FrontId {
    /// The id that stands for no front.
    pub const NONE: Self = Self(0);
    /// The front for DAFS 1.0.
    pub const DAFS: Self = Self(1);
    /// The front for NFS version 3.
    pub const NFS3: Self = Self(2);
    /// The front for NFS versions 4.1 and 4.2.
    pub const NFS4: Self = Self(3);
}

record! {
    /// Identifies a request among all requests of all clients, so that its result can be found
    /// after a crash.
    ///
    /// Each front defines the meaning of the fields, but two different requests never have the same
    /// values in all fields. DAFS uses the session, the stream, the sequence number on the stream,
    /// and as `index` the number of the procedure. NFSv3 has no sessions: `session` stands for the
    /// client's machine and the user, `slot` is a checksum of the arguments, `sequence` the number
    /// of the call (xid), and `index` the procedure. NFSv4 uses the session, the slot, the sequence
    /// number on the slot, and the index of the operation in its compound.
    #[derive(Copy, PartialOrd, Ord, Hash)]
    Origin {
        /// The front that received the request.
        front: FrontId,
        /// The id of the session to which the request belongs.
        session: u64,
        /// The stream or slot of the request within the session.
        slot: u32,
        /// The sequence number on the stream or slot.
        sequence: u32,
        /// A number that distinguishes several operations, or kinds of request, with the same
        /// sequence number.
        index: u16,
    }
}

impl Origin {
    /// The origin of a request whose result the server does not keep.
    pub const NONE: Self =
        Self { front: FrontId::NONE, session: 0, slot: 0, sequence: 0, index: 0 };

    /// Returns true if the server keeps the result of the request.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.front != FrontId::NONE
    }

    /// Appends the encoded origin to `to`.
    pub fn encode(&self, to: &mut Vec<u8>) {
        self.put(to);
    }

    /// Decodes an origin from the start of `from`, and removes its bytes. `None` if there are too
    /// few bytes.
    #[must_use]
    pub fn take(from: &mut &[u8]) -> Option<Self> {
        Code::take(from)
    }
}

/// A number by which a front identifies an operation whose result it waits for. The highest byte is
/// the front's id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

impl Ticket {
    /// Creates a ticket from a front and a number, of which only the lower 56 bits are used.
    #[must_use]
    pub const fn new(front: FrontId, number: u64) -> Self {
        Self((front.0 as u64) << FRONT_SHIFT | (number & NUMBER))
    }

    /// Returns the front that has created the ticket.
    #[must_use]
    pub const fn front(self) -> FrontId {
        FrontId((self.0 >> FRONT_SHIFT) as u8)
    }

    /// Returns the number that the front has chosen.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & NUMBER
    }
}

/// The bit position of the front's id in a ticket.
const FRONT_SHIFT: u32 = 56;
/// The bits of a ticket that hold the front's own number.
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
