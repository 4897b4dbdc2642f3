//! Ends requests early: because they are cancelled, because their file is fenced, or because their
//! session has ended.
//!
//! Invariant: transfers that have not started are dropped immediately. Transfers in flight stay in
//! the tables, with their request, until their run is returned.

use dafs_base::Key;
use dafs_types::{Moment, RequestId, SessionId, Status};

use super::queue::{Stage, Transfer};
use super::{
    AbortScope, Aborted, BatchScheduler, Cancelled, EndedSession, RequestKey, RequestNotFound,
    SessionKey,
};

impl BatchScheduler {
    /// Cancels a request of a synchronous or asynchronous batch. Transfers that have not started
    /// are dropped. If any was dropped, the request is reported with `status`, unless it has failed
    /// for another reason. Its completion does not wait for other completions.
    ///
    /// # Errors
    /// The session has no unreported request with that id.
    pub fn cancel(
        &mut self,
        session: SessionId,
        request: RequestId,
        status: Status,
        now: Moment,
    ) -> Result<Cancelled, RequestNotFound> {
        let (slot, index) = self.find(session, request)?;
        let request = &mut self.requests[index];
        request.is_awaited = true;
        if request.unfinished == 0 {
            let is_gathered = !self.batches[request.batch].synchronous;
            self.sessions[slot].is_awaited |= is_gathered;
            self.update_ready(slot);
            return Ok(Cancelled::Ended);
        }
        self.fail(index, status, now);
        let is_over = self.requests[index].unfinished == 0;
        Ok(if is_over { Cancelled::Ended } else { Cancelled::Draining })
    }

    /// Makes a request fail with `status`, as of its first byte whose transfer has not started. Has
    /// no effect if all transfers have started.
    fn fail(&mut self, index: RequestKey, status: Status, now: Moment) {
        let waiting = self.transfers_of(index).filter(|transfer| transfer.waits());
        let Some(at) = waiting.map(|transfer| transfer.at).min() else { return };
        self.requests[index].fail(at, status);
        self.drop_transfers(index);
        if self.requests[index].unfinished == 0 {
            self.complete(index, now);
        }
    }

    /// Drops those transfers of a request that have not started, because the request has failed or
    /// its session no longer needs the result.
    pub(super) fn drop_transfers(&mut self, index: RequestKey) {
        let mut next = self.requests[index].first_transfer;
        while next != Key::NULL {
            let transfer = &self.queue.transfers[next];
            let (this, at, waits) = (next, transfer.at, transfer.waits());
            next = transfer.next;
            if waits {
                self.queue.end(this);
                let request = &mut self.requests[index];
                request.unfinished -= 1;
                request.moved = request.moved.min(at);
            }
        }
    }

    fn transfers_of(&self, index: RequestKey) -> impl Iterator<Item = &Transfer> {
        let mut next = self.requests[index].first_transfer;
        std::iter::from_fn(move || {
            if next == Key::NULL {
                return None;
            }
            let transfer = &self.queue.transfers[next];
            next = transfer.next;
            Some(transfer)
        })
    }

    /// Makes every request fail that has an unstarted transfer in `scope`. Used for fencing and
    /// when opens end. Transfers in flight finish; the caller must wait until
    /// [`BatchScheduler::is_running`] returns false. The call visits all requests, so it is meant
    /// for rare events.
    pub fn abort(&mut self, scope: &AbortScope, status: Status, now: Moment) -> Aborted {
        let mut aborted = Aborted::default();
        let indices: Vec<RequestKey> = self.requests.keys().collect();
        for index in indices {
            if !self.is_in_scope(index, scope) {
                continue;
            }
            let (mut waits, mut running) = (false, 0);
            for transfer in self.transfers_of(index).filter(|transfer| scope.covers(transfer)) {
                waits |= transfer.waits();
                running += u32::from(transfer.stage == Stage::Running);
            }
            aborted.running += running;
            if waits {
                aborted.requests += 1;
                self.fail(index, status, now);
            }
        }
        aborted
    }

    /// Returns true if a transfer in `scope` is in flight or may still be started.
    #[must_use]
    pub fn is_running(&self, scope: &AbortScope) -> bool {
        self.requests.keys().filter(|&index| self.is_in_scope(index, scope)).any(|index| {
            let mut transfers = self.transfers_of(index);
            transfers.any(|transfer| transfer.stage != Stage::Done && scope.covers(transfer))
        })
    }

    fn is_in_scope(&self, index: RequestKey, scope: &AbortScope) -> bool {
        let request = &self.requests[index];
        let is_of_session = scope.session.is_none_or(|id| request.session_id == id);
        is_of_session && scope.state.is_none_or(|state| request.state == state)
    }

    /// Drops the asynchronous batches of a session whose back-control channel has ended, because
    /// their completions can no longer be delivered. Transfers in flight finish, but are not
    /// reported. Synchronous batches continue.
    pub fn drop_asynchronous(&mut self, session: SessionId) -> EndedSession {
        let mut ended = EndedSession::default();
        let Some(&slot) = self.by_id.get(&session) else { return ended };
        self.ready.retain(|&other| other != slot);
        self.set_report_by(slot, None);
        let state = &mut self.sessions[slot];
        (state.is_ready, state.is_awaited, state.unfinished) = (false, false, 0);
        state.gathered.clear();
        for index in self.requests_of(slot) {
            let batch = self.requests[index].batch;
            if !self.batches[batch].synchronous {
                self.end_silently(index, slot, &mut ended);
            }
        }
        ended
    }

    fn requests_of(&self, slot: SessionKey) -> Vec<RequestKey> {
        let of_session = (slot, RequestId(0))..=(slot, RequestId(u64::MAX));
        self.names.range(of_session).map(|(_, &index)| index).collect()
    }

    /// Ends a request whose completion will not be reported to any client.
    fn end_silently(&mut self, index: RequestKey, slot: SessionKey, ended: &mut EndedSession) {
        ended.requests += 1;
        self.drop_transfers(index);
        if self.requests[index].unfinished == 0 {
            self.release_transfers(index);
            return self.forget(index);
        }
        ended.running += 1;
        let request = &mut self.requests[index];
        let (name, transfers, bytes) = (request.name, request.transfers, request.bytes);
        request.session = Key::NULL;
        self.names.remove(&(slot, name));
        // The request counts against the common limits until its last run is returned.
        let load = &mut self.sessions[slot].load;
        load.requests -= 1;
        load.transfers -= transfers;
        load.bytes -= bytes;
    }

    /// Drops all batches of a session that ends. Transfers in flight finish, but are not reported.
    /// Has no effect for an unknown session.
    pub fn close_session(&mut self, session: SessionId) -> EndedSession {
        let mut ended = EndedSession::default();
        let Some(slot) = self.by_id.remove(&session) else { return ended };
        let indices = self.requests_of(slot);
        self.replies.retain(|&batch| {
            let entry = &self.batches[batch];
            let (is_of_session, is_empty) = (entry.session == slot, entry.first == Key::NULL);
            if is_of_session && is_empty {
                self.batches.remove(batch);
            }
            !is_of_session
        });
        self.ready.retain(|&other| other != slot);
        self.set_report_by(slot, None);
        for index in indices {
            self.end_silently(index, slot, &mut ended);
        }
        self.sessions.remove(slot);
        ended
    }
}

impl AbortScope {
    fn covers(&self, transfer: &Transfer) -> bool {
        self.file.is_none_or(|file| file == transfer.file)
            && transfer.touches(self.offset, self.length)
    }
}
