//! Collects completions and reports them to the clients.
//!
//! Invariant: a session with collected completions is either ready, or has a time at which it will
//! become ready, so that no completion waits forever.

use dafs_base::Key;
use dafs_types::{Moment, SessionId, Status};
use dafs_wire::messages::Completion;
use dafs_wire::{Checksum, HEADER_BYTES};

use super::{BatchReply, BatchScheduler, Notice, RequestKey, Session, SessionKey};

/// The number of bytes of a completion message that come before the first completion: the header,
/// the fixed section, and the count of the array.
const MESSAGE_BYTES: usize = HEADER_BYTES + 8 + 8;
/// The number of bytes of one completion (draft 6.1.7).
const COMPLETION_BYTES: usize = 24;

/// Returns the number of completions that fit into a message of this many bytes.
#[must_use]
pub fn completions_in(message_bytes: u32) -> usize {
    let room = (message_bytes as usize).saturating_sub(MESSAGE_BYTES) / COMPLETION_BYTES;
    room.min(dafs_wire::limits::COMPLETIONS_MAX)
}

impl BatchScheduler {
    /// Completes a request after all its transfers have ended.
    pub(super) fn complete(&mut self, index: RequestKey, now: Moment) {
        self.release_transfers(index);
        let request = &mut self.requests[index];
        let (slot, batch) = (request.session, request.batch);
        if slot == Key::NULL {
            return self.forget(index);
        }
        let entry = &mut self.batches[batch];
        entry.unfinished -= 1;
        if entry.synchronous {
            if entry.unfinished == 0 {
                self.replies.push_back(batch);
            }
            return;
        }
        request.report_by = entry.due.max(now.after(self.limits.notice_delay_max));
        let session = &mut self.sessions[slot];
        session.unfinished -= 1;
        session.gathered.push_back(index);
        session.is_awaited |= request.is_awaited;
        let report_by = request.report_by;
        if session.report_by.is_none_or(|moment| report_by < moment) {
            self.set_report_by(slot, Some(report_by));
        }
        self.update_ready(slot);
    }

    pub(super) fn set_report_by(&mut self, slot: SessionKey, moment: Option<Moment>) {
        let session = &mut self.sessions[slot];
        if let Some(before) = std::mem::replace(&mut session.report_by, moment) {
            self.report_by.remove(&(before, slot));
        }
        if let Some(moment) = moment {
            self.report_by.insert((moment, slot));
        }
    }

    /// Marks a session as ready if it has completions that must be reported now.
    pub(super) fn update_ready(&mut self, slot: SessionKey) {
        let session = &self.sessions[slot];
        let gathered = session.gathered.len();
        let enough = session.completions_wanted.min(session.completions_max);
        let has_reason = session.is_awaited || session.unfinished == 0 || gathered >= enough;
        if gathered > 0 && session.completions_max > 0 && has_reason {
            self.make_ready(slot);
        }
    }

    fn make_ready(&mut self, slot: SessionKey) {
        let session = &mut self.sessions[slot];
        if !session.is_ready {
            session.is_ready = true;
            self.ready.push_back(slot);
        }
    }

    /// Removes and returns the next notice to send. The server must call this until it returns
    /// `None`, or until no back-control channel has a credit. The sessions take turns.
    pub fn poll_notice(&mut self, now: Moment) -> Option<Notice> {
        self.poll_notice_for(now, |_| true)
    }

    /// Removes and returns the next notice of a session that the closure accepts. Sessions that the
    /// closure does not accept keep their turn. See [`BatchScheduler::poll_notice`].
    pub fn poll_notice_for(
        &mut self,
        now: Moment,
        mut takes: impl FnMut(SessionId) -> bool,
    ) -> Option<Notice> {
        while let Some(&(moment, slot)) = self.report_by.first() {
            if moment > now {
                break;
            }
            self.set_report_by(slot, None);
            if self.sessions[slot].completions_max > 0 {
                self.sessions[slot].is_awaited = true;
                self.make_ready(slot);
            }
        }
        let (slot, count) = self.next_ready(&mut takes)?;
        let mut notice = Notice {
            session: self.sessions[slot].id,
            completions: Vec::with_capacity(count),
            finished: Vec::new(),
        };
        while notice.completions.len() < count
            && let Some(index) = self.sessions[slot].gathered.pop_front()
        {
            notice.completions.push(self.completion(index));
            let batch = self.requests[index].batch;
            if self.batches[batch].unreported == 1 {
                notice.finished.push(self.batches[batch].tag);
            }
            self.forget(index);
        }
        let session = &mut self.sessions[slot];
        session.is_awaited &= !session.gathered.is_empty();
        let left = session.gathered.iter().map(|&index| self.requests[index].report_by).min();
        self.set_report_by(slot, left);
        self.update_ready(slot);
        Some(notice)
    }

    /// Removes from the queue and returns the next session whose notice the closure accepts, and
    /// the number of completions to send.
    fn next_ready(
        &mut self,
        takes: &mut impl FnMut(SessionId) -> bool,
    ) -> Option<(SessionKey, usize)> {
        for _ in 0..self.ready.len() {
            let slot = self.ready.pop_front()?;
            let session = &mut self.sessions[slot];
            let count = session.notice_size();
            if count > 0 && !takes(session.id) {
                self.ready.push_back(slot);
                continue;
            }
            session.is_ready = false;
            // The channel of the session may have ended while the session was in the queue.
            if count > 0 {
                return Some((slot, count));
            }
        }
        None
    }

    /// Removes and returns the next reply to a synchronous batch, in the order of completion.
    pub fn poll_reply(&mut self) -> Option<BatchReply> {
        let batch = self.replies.pop_front()?;
        let entry = &self.batches[batch];
        let mut reply = BatchReply {
            session: self.sessions[entry.session].id,
            tag: entry.tag,
            completions: Vec::with_capacity(entry.unreported as usize),
        };
        let mut index = entry.first;
        if index == Key::NULL {
            self.batches.remove(batch);
        }
        while index != Key::NULL {
            reply.completions.push(self.completion(index));
            let next = self.requests[index].next_of_batch;
            self.forget(index);
            index = next;
        }
        Some(reply)
    }

    fn completion(&self, index: RequestKey) -> Completion {
        let request = &self.requests[index];
        Completion {
            request: request.name,
            status: request.failure.map_or(Status::Ok, |failure| failure.status),
            length: request.moved,
            checksum: if request.sums.is_empty() {
                Checksum::NONE
            } else {
                Checksum::of_parts(request.moved, &request.sums)
            },
        }
    }

    /// Returns the time at which the next batch or notice becomes due. At that time the server must
    /// poll for runs and notices again. `None` if nothing is delayed.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        let report_by = self.report_by.first().map(|&(moment, _)| moment);
        [self.queue.next_due(), report_by].into_iter().flatten().min()
    }

    /// Subtracts a request from the load that counts against the limits, after all its transfers
    /// have ended.
    pub(super) fn release_transfers(&mut self, index: RequestKey) {
        let request = &mut self.requests[index];
        let first = std::mem::replace(&mut request.first_transfer, Key::NULL);
        let transfers = std::mem::take(&mut request.transfers);
        let bytes = std::mem::take(&mut request.bytes);
        self.load.transfers -= transfers;
        self.load.bytes -= bytes;
        if let Some(session) = self.sessions.get_mut(request.session) {
            session.load.transfers -= transfers;
            session.load.bytes -= bytes;
        }
        self.queue.free(first);
    }

    /// Removes a request that was reported or whose session has ended.
    pub(super) fn forget(&mut self, index: RequestKey) {
        let request = self.requests.remove(index).expect("a request is forgotten once");
        self.load.requests -= 1;
        if let Some(session) = self.sessions.get_mut(request.session) {
            session.load.requests -= 1;
            self.names.remove(&(request.session, request.name));
        }
        let batch = &mut self.batches[request.batch];
        batch.unreported -= 1;
        if batch.unreported == 0 {
            self.batches.remove(request.batch);
        }
    }
}

impl Session {
    /// Returns the number of completions in the next notice: the number that the client has
    /// requested, or as many as fit if it has requested none.
    fn notice_size(&self) -> usize {
        let most = self.completions_max.min(self.gathered.len());
        if self.completions_wanted == 0 { most } else { self.completions_wanted.min(most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dafs_types::{RequestId, SequenceNumber, StreamId};
    use dafs_wire::messages::Completions;
    use dafs_wire::{ByteOrder, Request, RequestHeader, encode_request};

    fn message_bytes(count: usize) -> usize {
        let completion = Completion {
            request: RequestId(1),
            status: Status::Ok,
            length: 1,
            checksum: Checksum::default(),
        };
        let completions = vec![completion; count];
        let message = Completions { completions: completions[..].into() };
        let request = Request::BcBatchCompletion(message);
        let header = RequestHeader::new(StreamId(0), SequenceNumber(0));
        let mut buffer = vec![0; 1 << 17];
        encode_request(ByteOrder::Little, &header, &request, &mut buffer).unwrap()
    }

    #[test]
    fn a_message_carries_exactly_the_number_of_completions_that_fit() {
        assert_eq!(completions_in(0), 0);
        for size in [64, 79, 80, 512, 1000, 4096, 8191, 8192] {
            let count = completions_in(size);
            assert!(message_bytes(count) <= size as usize);
            assert!(message_bytes(count + 1) > size as usize);
        }
        assert_eq!(completions_in(u32::MAX), dafs_wire::limits::COMPLETIONS_MAX);
    }
}
