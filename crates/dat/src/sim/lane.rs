//! One direction of one connection, and its rules of ordering.
//!
//! Invariants:
//!
//! - A send arrives after all earlier writes and sends of its lane.
//! - A write arrives after all earlier sends.
//! - A read request arrives after all earlier sends and read requests.
//! - A read response arrives after all earlier responses.
//! - A close arrives last.

use std::collections::VecDeque;

use super::packet::Packet;
use crate::region::RegionEntry;

/// One direction of a connection, with the times of its latest arrivals.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    ordered_ns: u64,
    placed_ns: u64,
    read_ns: u64,
    response_ns: u64,
    latest_ns: u64,
    /// The current epoch: arrivals of an older epoch are lost.
    pub(crate) epoch: u64,
    /// True if the lane accepts no more packets.
    pub(crate) cut: bool,
    /// The number of work requests sent over this lane that the receiving side has not processed
    /// yet.
    pub(crate) in_flight: usize,
}

impl Lane {
    /// Returns the time at which a packet arrives. Without other packets it would arrive at `at`;
    /// it arrives later if it must not overtake an earlier packet.
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

    /// Delays all packets that are sent from now on until `at`.
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

    /// Discards all packets in flight.
    pub(crate) fn purge(&mut self) {
        self.epoch += 1;
        self.latest_ns = 0;
    }
}

/// The state of one end of a connection.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) node: u32,
    /// The packets that have arrived but are not processed yet.
    pub(crate) inbox: VecDeque<Packet>,
    /// True if the last packet that this side will ever receive is in the inbox.
    pub(crate) ended: bool,
    /// True if this side will not read its inbox again.
    pub(crate) gone: bool,
    /// The regions that the peer may access.
    pub(crate) exposed: Vec<RegionEntry>,
}

impl Side {
    pub(crate) fn new(node: u32) -> Self {
        Self { node, inbox: VecDeque::new(), ended: false, gone: false, exposed: Vec::new() }
    }

    pub(crate) fn push(&mut self, packet: Packet) {
        if self.ended || self.gone {
            return;
        }
        self.ended = matches!(packet, Packet::Close(_) | Packet::Lost(_));
        self.inbox.push_back(packet);
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::{Cause, Payload};
    use super::*;
    use crate::Stag;

    fn payload() -> Payload {
        Payload::Bytes(Vec::new())
    }

    fn send() -> Packet {
        Packet::Send { sequence: 0, payload: payload(), invalidate: None, early: false }
    }

    fn write() -> Packet {
        Packet::Write { sequence: 0, payload: payload(), stag: Stag(1), address: 0, early: false }
    }

    fn read() -> Packet {
        Packet::ReadRequest { sequence: 0, stag: Stag(1), address: 0, length: 0 }
    }

    #[test]
    fn a_send_waits_for_the_writes_before_it() {
        let mut lane = Lane::default();
        assert_eq!(lane.schedule(&write(), 90), 90);
        assert_eq!(lane.schedule(&write(), 20), 20, "writes overtake each other");
        assert_eq!(lane.schedule(&read(), 30), 30, "a read waits for no write");
        assert_eq!(lane.schedule(&send(), 40), 90);
        assert_eq!(lane.schedule(&write(), 50), 90, "a write waits for the send");
        assert_eq!(lane.schedule(&read(), 60), 90);
    }

    #[test]
    fn a_close_waits_for_everything() {
        let mut lane = Lane::default();
        lane.schedule(&write(), 70);
        lane.schedule(&Packet::ReadResponse { sequence: 0, payload: payload() }, 80);
        lane.schedule(&Packet::Acknowledge { sequence: 0 }, 95);
        assert_eq!(lane.schedule(&Packet::Close(Cause::Orderly), 10), 95);
    }

    #[test]
    fn reads_and_responses_keep_their_order() {
        let mut lane = Lane::default();
        let response = Packet::ReadResponse { sequence: 0, payload: payload() };
        assert_eq!(lane.schedule(&read(), 50), 50);
        assert_eq!(lane.schedule(&read(), 10), 50);
        assert_eq!(lane.schedule(&response, 70), 70);
        assert_eq!(lane.schedule(&response, 60), 70);
        assert_eq!(lane.schedule(&send(), 40), 40, "a send waits for neither");
    }

    #[test]
    fn nothing_follows_a_close_or_a_loss() {
        let mut side = Side::new(1);
        side.push(send());
        side.push(Packet::Close(Cause::Orderly));
        side.push(send());
        assert_eq!(side.inbox.len(), 2);
        assert!(side.ended);
    }
}
