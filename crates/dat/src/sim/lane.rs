//! One direction of one connection: what may overtake what.
//!
//! Invariant: a send arrives after every earlier write and send of its lane, a
//! write after every earlier send, a read request after every earlier send and read
//! request, a read response after every earlier response, a close after all.

use std::collections::VecDeque;

use super::packet::Packet;

/// The way from one side to the other, with the moments of the latest arrivals.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    ordered_ns: u64,
    placed_ns: u64,
    read_ns: u64,
    response_ns: u64,
    latest_ns: u64,
    /// Arrivals of an older epoch are lost.
    pub(crate) epoch: u64,
    /// Nothing more gets in.
    pub(crate) cut: bool,
    /// Work that the receiving side has not taken in.
    pub(crate) in_flight: usize,
}

impl Lane {
    /// The moment at which a packet arrives that could arrive at `at`.
    pub(crate) fn schedule(&mut self, packet: &Packet, at: u64) -> u64 {
        let at = match packet {
            Packet::Connect(_) | Packet::Accept { .. } | Packet::Reject { .. } => {
                self.raise(at);
                at
            }
            Packet::Send { .. } => {
                self.ordered_ns = at.max(self.placed_ns).max(self.ordered_ns);
                self.placed_ns = self.ordered_ns;
                self.ordered_ns
            }
            Packet::Write { .. } => {
                let at = at.max(self.ordered_ns);
                self.placed_ns = self.placed_ns.max(at);
                at
            }
            Packet::ReadRequest { .. } => {
                self.read_ns = at.max(self.ordered_ns).max(self.read_ns);
                self.read_ns
            }
            Packet::ReadResponse { .. } => {
                self.response_ns = at.max(self.response_ns);
                self.response_ns
            }
            Packet::Acknowledge { .. } => at,
            Packet::Close(_) | Packet::Lost(_) => at.max(self.latest_ns),
        };
        self.latest_ns = self.latest_ns.max(at);
        at
    }

    /// Nothing sent from now on arrives before `at`.
    pub(crate) fn raise(&mut self, at: u64) {
        for bound in [
            &mut self.ordered_ns,
            &mut self.placed_ns,
            &mut self.read_ns,
            &mut self.response_ns,
            &mut self.latest_ns,
        ] {
            *bound = at.max(*bound);
        }
    }

    /// Loses what is under way.
    pub(crate) fn purge(&mut self) {
        self.epoch += 1;
        self.latest_ns = 0;
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) node: u32,
    /// Arrived, not yet taken in.
    pub(crate) inbox: VecDeque<Packet>,
    /// The last packet it will ever get is in the inbox.
    pub(crate) ended: bool,
    /// Nobody will look at the inbox again.
    pub(crate) gone: bool,
}

impl Side {
    pub(crate) fn new(node: u32) -> Self {
        Self { node, inbox: VecDeque::new(), ended: false, gone: false }
    }

    pub(crate) fn push(&mut self, packet: Packet) {
        if self.ended || self.gone {
            return;
        }
        self.ended = matches!(packet, Packet::Close(_) | Packet::Lost(_));
        self.inbox.push_back(packet);
    }
}
