//! Calls from the server to the client on the same connection (RFC 8167).
//!
//! Invariants: callbacks have no chunks, so that they name no memory of either end. At most as many
//! callbacks are in flight as the peer has granted, the others wait, and each of them ends: by a
//! reply, by an error of the transport, or because time runs out.

use std::collections::{BTreeMap, VecDeque};

use dafs_types::Moment;

use crate::credits::Received;
use crate::header::{Body, Chunks, Direction, HEADER_BYTES_MIN, Message, Xid, direction, encode};
use crate::limits::CALLBACKS_MAX;

/// The callbacks of one connection.
#[derive(Debug)]
pub(super) struct Callbacks {
    credits: Received,
    in_flight: BTreeMap<Xid, Moment>,
    /// The encoded callbacks for which there is no credit yet, in their order, and the moments at
    /// which they run out of time.
    waiting: VecDeque<(Xid, Vec<u8>, Moment)>,
}

/// The reason why a callback cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CallbackRefused {
    /// As many callbacks as possible wait for credits of the peer.
    #[error("too many callbacks wait for credits")]
    Credits,
    /// The callback is too long for a Send.
    #[error("the callback is too long")]
    Long,
    /// The bytes are not a call with this identifier.
    #[error("the bytes are not a call with this identifier")]
    NotACall,
    /// A callback with this identifier is in flight.
    #[error("a callback with this identifier is in flight")]
    InFlight,
    /// The connection has ended.
    #[error("the connection has ended")]
    Ended,
}

impl Callbacks {
    pub(super) fn new(wanted: u32) -> Self {
        Self {
            credits: Received::new(wanted),
            in_flight: BTreeMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Queues a callback. [`Callbacks::next_message`] returns it when there is credit for it.
    pub(super) fn begin(
        &mut self,
        xid: Xid,
        rpc: &[u8],
        send_bytes: usize,
        deadline: Moment,
    ) -> Result<(), CallbackRefused> {
        if direction(rpc, xid) != Ok(Direction::Call) {
            return Err(CallbackRefused::NotACall);
        }
        if rpc.len() + HEADER_BYTES_MIN > send_bytes {
            return Err(CallbackRefused::Long);
        }
        let is_waiting = self.waiting.iter().any(|(other, ..)| *other == xid);
        if is_waiting || self.in_flight.contains_key(&xid) {
            return Err(CallbackRefused::InFlight);
        }
        if self.waiting.len() >= CALLBACKS_WAITING_MAX {
            return Err(CallbackRefused::Credits);
        }
        let body = Body::Message { chunks: Chunks::default(), rpc };
        let mut message = Vec::with_capacity(HEADER_BYTES_MIN + rpc.len());
        encode(&Message { xid, credits: self.credits.wanted(), body }, &mut message);
        self.waiting.push_back((xid, message, deadline));
        Ok(())
    }

    /// Returns the next message to send, if there is one and credit for it. The peer has until
    /// `deadline` to reply.
    pub(super) fn next_message(&mut self, deadline: Moment) -> Option<Vec<u8>> {
        if !self.credits.allows(self.in_flight.len()) {
            return None;
        }
        let (xid, message, _) = self.waiting.pop_front()?;
        self.in_flight.insert(xid, deadline);
        Some(message)
    }

    /// Takes the grant of a reply or an error. Returns false if no such callback is in flight.
    pub(super) fn end(&mut self, xid: Xid, granted: u32) -> bool {
        let is_known = self.in_flight.remove(&xid).is_some();
        if is_known {
            self.credits.take(granted);
        }
        is_known
    }

    /// Returns the next moment at which a callback runs out of time.
    pub(super) fn deadline(&self) -> Option<Moment> {
        let waiting = self.waiting.front().map(|(_, _, deadline)| deadline);
        self.in_flight.values().chain(waiting).min().copied()
    }

    /// Removes a callback whose time has run out.
    pub(super) fn overdue(&mut self, now: Moment) -> Option<Xid> {
        if self.waiting.front().is_some_and(|(_, _, deadline)| *deadline <= now) {
            return self.waiting.pop_front().map(|(xid, ..)| xid);
        }
        let xid =
            self.in_flight.iter().find(|(_, deadline)| **deadline <= now).map(|(xid, _)| *xid)?;
        self.in_flight.remove(&xid);
        Some(xid)
    }
}

/// The maximum number of callbacks that wait for credits.
const CALLBACKS_WAITING_MAX: usize = 4 * CALLBACKS_MAX as usize;
