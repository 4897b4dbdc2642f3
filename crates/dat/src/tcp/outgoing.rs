//! The bytes that are framed but not yet accepted by the socket, and the framed work that is not
//! completed.
//!
//! Invariants:
//!
//! - The queue of bytes contains whole frames.
//! - A completion is reported when the socket has accepted all bytes of the work and of all earlier
//!   work.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use dafs_iwarp::{READ_REQUEST_FPDU_BYTES, ReadyToReceive, Receiver, Transmitter};
use dafs_memory::Memory;

use super::establish::io_reason;
use super::receive::refused;
use super::segments::SegmentList;
use super::transmit::Answer;
use crate::connection::Context;
use crate::stream::StreamQueue;
use crate::{BreakReason, CompletionStatus, Operation, Signal};

/// The outgoing queue of one connection.
#[derive(Default)]
pub(super) struct Outgoing {
    stream: StreamQueue,
    /// The framed work that is not reported yet, in the order posted.
    ledger: VecDeque<Entry>,
    /// The scatter lists of this side's reads in flight, oldest first.
    pub reads: VecDeque<SegmentList>,
    /// The total number of reads requested since the connection began.
    requested_total: u64,
    /// The total number of reads completed since the connection began.
    answered_total: u64,
    /// The peer's reads that have no response yet, oldest first.
    pub answers: VecDeque<Answer>,
}

/// One work request between framing and completion.
struct Entry {
    operation: Operation,
    cookie: u64,
    length: u32,
    signal: Signal,
    due: Due,
}

/// The condition under which a work request is complete.
enum Due {
    /// The work is complete when the socket has accepted this total number of bytes.
    Sent(u64),
    /// The work is complete when this total number of reads has completed.
    Answered(u64),
}

impl Outgoing {
    /// Frames the ready-to-receive indication, the empty message by which an initiator shows
    /// readiness.
    pub(super) fn ready_to_receive(
        &mut self,
        transmitter: &mut Transmitter,
        receiver: &mut Receiver,
    ) -> Result<(), BreakReason> {
        if transmitter.ready_to_receive_pending() == Some(ReadyToReceive::Read) {
            // The response to the indication is counted like those to the user's reads.
            self.reads.push_back(SegmentList::new(&[]));
            self.requested_total += 1;
        }
        let mut bytes = [0; READ_REQUEST_FPDU_BYTES];
        let length = transmitter.ready_to_receive(receiver, &mut bytes).map_err(|e| refused(&e))?;
        self.put(&bytes[..length]);
        Ok(())
    }

    /// Returns true if so much is framed that further work must wait.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.stream.is_full()
    }

    /// Returns true if the socket has accepted all framed bytes.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.stream.is_empty()
    }

    /// Returns the number of framed work requests that are not reported.
    #[inline]
    pub(super) fn unreported(&self) -> usize {
        self.ledger.len()
    }

    /// Appends a copy of bytes to send.
    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.stream.put(bytes);
    }

    /// Appends the first `count` of the given bytes.
    #[inline]
    pub(super) fn put_first<const N: usize>(&mut self, bytes: &[u8; N], count: usize) {
        self.stream.put_first(bytes, count);
    }

    /// Appends space for `count` bytes to send, and returns the space.
    #[inline]
    pub(super) fn room(&mut self, count: usize) -> &mut [u8] {
        self.stream.room(count)
    }

    /// Returns the `count` bytes that were appended most recently.
    pub(super) fn last(&self, count: usize) -> &[u8] {
        self.stream.last(count)
    }

    /// Adds bytes of registered memory to send, without copying them.
    #[inline]
    pub(super) fn name(&mut self, memory: &Memory, offset: usize, length: usize) {
        self.stream.name(memory, offset, length);
    }

    /// Records work whose frames have all been made.
    #[inline]
    pub(super) fn enter(&mut self, operation: Operation, cookie: u64, length: u32, signal: Signal) {
        let due = Due::Sent(self.stream.queued_total());
        self.ledger.push_back(Entry { operation, cookie, length, signal, due });
    }

    /// Records a read whose request has been framed.
    pub(super) fn enter_read(&mut self, cookie: u64, length: u32, scatter: SegmentList) {
        self.reads.push_back(scatter);
        self.requested_total += 1;
        let due = Due::Answered(self.requested_total);
        let (operation, signal) = (Operation::RdmaRead, Signal::Always);
        self.ledger.push_back(Entry { operation, cookie, length, signal, due });
    }

    /// Returns the STag of the next read's sink, which has a meaning only on this side.
    pub(super) fn next_sink(&self) -> u32 {
        (self.requested_total as u32 & SINK_MASK) + 1
    }

    /// Completes the oldest read, whose response has arrived.
    pub(super) fn read_answered(&mut self, context: &mut Context<'_>) {
        self.reads.pop_front();
        self.answered_total += 1;
        self.report(context);
    }

    /// Writes until the socket has accepted all bytes or accepts no more. Returns true if it
    /// accepts no more.
    pub(super) fn write(&mut self, socket: &OwnedFd) -> Result<bool, BreakReason> {
        self.stream.write(socket.as_fd()).map_err(|error| {
            match rustix::io::Errno::from_io_error(&error) {
                Some(errno) => io_reason(errno),
                None => super::system(error),
            }
        })
    }

    /// Copies the next bytes of the stream into `room` and returns their number. The bytes count as
    /// accepted by the socket, so the caller must send them before anything else.
    pub(super) fn take(&mut self, room: &mut [u8]) -> usize {
        self.stream.take(room)
    }

    /// Reports completed work, in the order posted.
    #[inline]
    pub(super) fn report(&mut self, context: &mut Context<'_>) {
        while let Some(entry) = self.ledger.front() {
            let is_due = match entry.due {
                Due::Sent(total) => total <= self.stream.sent_total(),
                Due::Answered(total) => total <= self.answered_total,
            };
            if !is_due {
                break;
            }
            if entry.signal == Signal::Always {
                let success = CompletionStatus::Success;
                context.complete(entry.operation, entry.cookie, success, entry.length);
            }
            self.ledger.pop_front();
        }
    }

    /// Reports all framed work as flushed.
    pub(super) fn abandon(&mut self, context: &mut Context<'_>) {
        for entry in self.ledger.drain(..) {
            context.complete(entry.operation, entry.cookie, CompletionStatus::Flushed, 0);
        }
        *self = Self::default();
    }
}

/// The mask for sink STags. It allows more STags than there can be open reads. No sink has the STag
/// zero.
const SINK_MASK: u32 = 0x00ff_ffff;
