//! Ends sessions, and ends requests that have no reply.
//!
//! Invariant: a session that ends also ends all of its operations in flight, each exactly once.
//! Memory that its server may still access is not used again.

use std::time::Duration;

use dafs_dat::coarse_now;
use dafs_wire::Request;
use dafs_wire::messages::Empty;

use crate::core::Core;
use crate::disconnect_reasons::Loss;
use crate::error::ClientError;
use crate::ids::SessionKey;
use crate::operation::OperationId;
use crate::state::Phase;
use crate::work::{QueuedCall, Work};

impl Core {
    /// Removes a session to which no handle refers. Its key becomes invalid.
    pub(crate) fn leave(&mut self, key: SessionKey) {
        let additional = self.sessions[key].role.additional();
        // The first channel is disconnected last, because the server then releases the client's
        // locks and opens.
        additional.iter().chain([&key]).for_each(|&key| self.send_disconnect(key));
        self.end_session(key, "its last handle was dropped".into());
        additional.iter().chain([&key]).for_each(|&key| self.sessions.remove(key));
    }

    /// Sends a disconnect request. Without it the server would keep results and open files, as it
    /// does for a session that lost its connection.
    fn send_disconnect(&mut self, key: SessionKey) {
        if !self.sessions[key].begin_to_leave() || std::thread::panicking() {
            return;
        }
        let Ok(ticket) = self.start_call(key, None, &Request::Disconnect(Empty)) else { return };
        let until = coarse_now() + LEAVE_MAX;
        while self.sinks.replies.take(ticket).is_none() {
            let left = until.saturating_sub(coarse_now());
            if left.is_zero() {
                return self.sinks.replies.abandon(ticket);
            }
            self.turn(1, Some(left));
        }
    }

    /// Ends a session, its connection and all its outstanding operations.
    pub(crate) fn end_session(&mut self, key: SessionKey, loss: Loss) {
        let Loss { text: reason, system } = loss;
        let session = &mut self.sessions[key];
        let address = session.address.clone();
        let error = match session.phase {
            Phase::Ended(_) => return,
            Phase::Connecting => ClientError::Connect { address, reason, system },
            Phase::Open | Phase::Recovering => ClientError::SessionEnded { address, reason },
        };
        session.phase = Phase::Ended(error.clone());
        let (mut in_flight, mut to_come) = session.in_flight.end();
        if let Some(machine) = session.recovery.take() {
            let (listener, interrupted, delayed) = machine.end();
            self.pending_events.retire(listener);
            in_flight.extend(interrupted);
            to_come.splice(0..0, delayed);
        }
        to_come.extend(session.role.take_held().into_iter().map(Work::Call));
        let additional = session.role.additional();
        let endpoint = session.endpoint;
        if let Some(ticket) = session.connect_waiter.take() {
            self.sinks.replies.put(ticket, Err(error.clone()));
        }
        self.end_back_of(key, &error);
        for work in in_flight {
            if let Work::Transfer(transfer) = &work {
                transfer.note_exposed();
            }
            self.fail(work, &error);
        }
        for work in to_come {
            self.fail(work, &error);
        }
        self.transport.close(endpoint);
        for key in additional {
            if let ClientError::SessionEnded { reason, .. } = &error {
                self.end_session(key, reason.clone().into());
            }
        }
    }

    /// Ends a request with an error.
    pub(crate) fn fail(&mut self, work: Work, error: &ClientError) {
        match work {
            Work::Transfer(transfer) => self.complete(&transfer, Err(error.clone())),
            Work::Call(QueuedCall { ticket: Some(ticket), .. }) => {
                self.sinks.replies.put(ticket, Err(error.clone()));
            }
            Work::Call(QueuedCall { part: Some(part), .. }) => self.batches.fail_part(&part, error),
            Work::Call(_) => {}
            Work::Member(member) => {
                let failed = Err(error.clone());
                member.chain.borrow_mut().note_answer(member.number, None, failed);
            }
            Work::Chain(chain) => chain.borrow_mut().fail(error),
        }
    }

    /// Cancels a transfer that waits for a credit; marks a transfer in flight as cancelled. Returns
    /// false if the transfer has ended.
    pub(crate) fn cancel(&mut self, operation: OperationId) -> bool {
        for key in self.sessions.keys() {
            let session = &mut self.sessions[key];
            if let Some(transfer) = session.in_flight.take_transfer(operation) {
                self.complete(&transfer, Err(ClientError::Cancelled));
                return true;
            }
            let pending = session.in_flight.pending_transfers_mut();
            let kept = session.recovery.iter_mut().flat_map(|machine| machine.transfers());
            if let Some(transfer) = pending.chain(kept).find(|t| t.id == operation) {
                transfer.is_cancelled = true;
                return true;
            }
        }
        false
    }
}

/// The longest time to wait for the server to process a disconnect request.
const LEAVE_MAX: Duration = Duration::from_millis(200);
