//! The engine: delivers each message and event of the transport to its session.
//!
//! Invariants:
//!
//! - Every accepted operation ends exactly once, as a reply, a completion or an error. A session
//!   that ends also ends all of its operations.
//! - An operation in flight keeps all that is needed to send it again over another connection
//!   (`recovery`).
//!
//! The engine joins parts that keep their state private: [`Transport`] has the connections and
//! their receives, [`SessionTable`] the sessions and their timers, [`ResultSinks`] the callers and
//! groups that wait for results, and [`BackChannels`] the back-control channels. A reply passes
//! through the engine in this order:
//!
//! 1. `turn` (`turns.rs`) takes it from the transport.
//! 2. [`Core::take_answer`] returns its credit.
//! 3. `on_called` (`calls.rs`), `on_transferred` (`data.rs`), `on_member` (`chain/send.rs`) or
//!    `on_recovery_reply` (`recovery/questions.rs`) decodes it and ends the operation that waited
//!    for it.
//! 4. [`Core::pump`] sends what waited for the credit.

use std::rc::Rc;

use dafs_dat::{EndpointId, Event, Gather, InboxSlot, Interface, PostError};
use dafs_types::{Status, StreamId};
use dafs_wire::{ByteOrder, ResponseHeader, is_intact};

use crate::back_channels::BackChannels;
use crate::batch::table::BatchTable;
use crate::chain::work::{ChainWork, SharedChain};
use crate::disconnect_reasons::{Loss, describe};
use crate::error::Result;
use crate::ids::SessionKey;
use crate::login::identity::LAPSED;
use crate::operation::Transferred;
use crate::pending_events::PendingEvents;
use crate::result_sinks::ResultSinks;
use crate::state::Phase;
use crate::table::SessionTable;
use crate::transfer::Transfer;
use crate::transport::{Owner, Transport};
use crate::work::Pending;

/// The whole state of a client, except the buffers that its application holds.
pub(crate) struct Core {
    pub transport: Transport,
    pub sessions: SessionTable,
    pub sinks: ResultSinks,
    pub batches: BatchTable,
    pub back_channels: BackChannels,
    pub pending_events: PendingEvents,
    /// A finished chain that is kept for reuse.
    spare_chain: Option<SharedChain>,
    /// The number of turns so far, modulo 2^32.
    pub turns: u32,
}

impl Core {
    pub(crate) fn new(interface: Interface) -> Self {
        Self {
            transport: Transport::new(interface),
            sessions: SessionTable::default(),
            sinks: ResultSinks::new(),
            batches: BatchTable::default(),
            back_channels: BackChannels::default(),
            pending_events: PendingEvents::default(),
            spare_chain: None,
            turns: 0,
        }
    }

    // ---- receiving ------------------------------------------------------------------

    /// Handles the completion of a receive: passes its message to the session that it is for.
    #[inline(always)]
    pub(crate) fn on_received(&mut self, endpoint: EndpointId, length: u32, is_good: bool) {
        match self.transport.take_received(endpoint) {
            Some((Owner::Session(key), slot)) if is_good => {
                self.on_answer(key, endpoint, slot, length);
            }
            Some((Owner::BackControl(key), slot)) if is_good => {
                self.on_asked(key, endpoint, slot, length);
            }
            // The receive failed because its connection is ending, so the message is ignored.
            Some(_) | None => {}
        }
    }

    pub(crate) fn on_event(&mut self, event: Event) {
        match event {
            // Completions were handled before other events.
            Event::Completion(_) => {}
            Event::Established { endpoint, .. } => match self.transport.owner_of(endpoint) {
                Some(Owner::Session(key)) => self.on_established(key),
                Some(Owner::BackControl(key)) => self.on_back_established(key),
                None => {}
            },
            Event::Rejected { endpoint, .. } => {
                let reason = "the server refused the connection: it has reached a limit, or its \
                              rules exclude this host or user; see its log";
                self.end_connection(endpoint, reason.into());
            }
            Event::Broken { endpoint, reason } => self.end_connection(endpoint, describe(&reason)),
            Event::ConnectionRequest { pending, .. } => {
                self.transport.interface_mut().reject(pending, b"");
            }
        }
    }

    /// Handles the establishment of a session's connection.
    fn on_established(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        if matches!(session.phase, Phase::Recovering) {
            return self.on_reconnected(key);
        }
        session.phase = Phase::Open;
        if let Some(ticket) = session.connect_waiter.take() {
            self.sinks.replies.put(ticket, Ok(Vec::new()));
        }
    }

    fn end_connection(&mut self, endpoint: EndpointId, loss: Loss) {
        match self.transport.owner_of(endpoint) {
            Some(Owner::Session(key)) => self.on_connection_lost(key, loss),
            Some(Owner::BackControl(key)) => self.end_back(key, loss),
            None => {}
        }
        self.transport.release(endpoint);
    }

    /// Handles a reply in an inbox slot.
    #[inline]
    fn on_answer(
        &mut self,
        key: SessionKey,
        endpoint: EndpointId,
        mut slot: InboxSlot,
        length: u32,
    ) {
        self.take_answer(key, slot.message(length));
        self.transport.give_back(endpoint, slot);
    }

    #[inline]
    fn take_answer(&mut self, key: SessionKey, message: &[u8]) {
        let session = &mut self.sessions[key];
        let Ok(header) = ResponseHeader::decode(ByteOrder::NATIVE, message) else {
            return self.end_for_violation(key, "a reply with an invalid header");
        };
        if session.terms.checksums && !is_intact(message) {
            return self.end_for_violation(key, "a reply with a wrong checksum");
        }
        if !session.in_flight.credits.is_newest(header.stream, header.sequence) {
            return self.end_for_violation(key, "a reply with an unexpected sequence number");
        }
        let Some(pending) = session.in_flight.take_pending(header.stream) else {
            return self.end_for_violation(key, "a reply without a request");
        };
        session.in_flight.credits.give(header.stream, header.target_credits);
        session.has_spoken = true;
        if header.status == Status::NotAuthenticated && session.has_lapsed(&pending) {
            session.in_flight.set_pending(header.stream, pending);
            return self.on_connection_lost(key, LAPSED.into());
        }
        match pending {
            Pending::Ignored => {}
            Pending::Call(call) => self.on_called(key, call, &header, message),
            Pending::Member(member) => self.on_member(key, &member, &header, message),
            Pending::Transfer(transfer) => {
                session.note_progress();
                self.on_transferred(key, transfer, &header, message);
            }
            Pending::Recovery(question) => self.on_recovery_reply(key, question, &header, message),
        }
        self.pump(key);
    }

    fn end_for_violation(&mut self, key: SessionKey, what: &str) {
        self.on_connection_lost(key, format!("server broke the protocol: {what}").into());
    }

    // ---- sending --------------------------------------------------------------------

    /// Sends requests that wait for credits, and returns credits that the server has revoked.
    #[inline]
    pub(crate) fn pump(&mut self, key: SessionKey) {
        loop {
            let in_flight = &mut self.sessions[key].in_flight;
            if !in_flight.has_waiting() {
                if in_flight.credits.should_shrink() {
                    self.send_null(key);
                }
                return;
            }
            if in_flight.owes_a_chain() {
                if !self.send_chains(key) {
                    return;
                }
                continue;
            }
            let Some((stream, sequence)) = in_flight.credits.take() else { return };
            if let Some(call) = in_flight.next_call() {
                self.send_call(key, stream, sequence, call);
            } else if let Some(transfer) = in_flight.next_transfer() {
                self.send_transfer(key, stream, sequence, transfer);
            }
        }
    }

    /// Sends a request over a session's connection, and then records the operation that waits for
    /// its reply. The request is sent first, so that the server works while the client does its
    /// bookkeeping.
    #[inline]
    pub(crate) fn post(
        &mut self,
        (key, endpoint): (SessionKey, EndpointId),
        stream: StreamId,
        pending: Pending,
        gather: &[Gather<'_>],
    ) {
        let posted = self.transport.post(endpoint, gather);
        self.note_posted(key, stream, pending, posted);
    }

    #[inline]
    pub(crate) fn note_posted(
        &mut self,
        key: SessionKey,
        stream: StreamId,
        pending: Pending,
        posted: std::result::Result<(), PostError>,
    ) {
        self.sessions[key].in_flight.set_pending(stream, pending);
        if let Err(error) = posted {
            self.lose_by_post(key, &error);
        }
    }

    /// Handles a message that the connection refused. Usually the connection has ended, and a
    /// pending event contains the reason.
    #[cold]
    fn lose_by_post(&mut self, key: SessionKey, error: &PostError) {
        let end = self.transport.interface().end_of(self.sessions[key].endpoint);
        let loss = end.map_or_else(|| format!("sending failed: {error}").into(), describe);
        self.on_connection_lost(key, loss);
    }

    /// Ends a transfer and delivers its result to its group or ticket.
    #[inline]
    pub(crate) fn complete(&mut self, transfer: &Transfer, result: Result<Transferred>) {
        transfer.note_over();
        self.sinks.end_transfer(transfer.destination, transfer.id, transfer.context, result);
    }

    // ---- chains ---------------------------------------------------------------------

    /// Returns an empty chain, reusing a finished one if possible.
    pub(crate) fn new_chain(&mut self) -> SharedChain {
        self.spare_chain.take().unwrap_or_default()
    }

    /// Takes back a chain whose owner dropped it, for reuse unless it has grown too large.
    pub(crate) fn leave_chain(&mut self, mut chain: SharedChain) {
        if Rc::get_mut(&mut chain).is_some_and(|chain| ChainWork::clear(chain.get_mut())) {
            self.spare_chain = Some(chain);
        }
    }
}
