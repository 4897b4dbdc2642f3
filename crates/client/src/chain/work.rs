//! A chain from its first member to its last reply.
//!
//! Invariant: replies are kept until all have arrived, so that the chain can be resumed after a
//! lost connection (`recovery/chains.rs`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::task::Waker;

use dafs_types::{SequenceNumber, Status, StreamId};
use dafs_wire::{ChainFlags, Procedure, seal};

use crate::chain::draft::Draft;
use crate::chain::outcome::MemberDetails;
use crate::error::{ClientError, Result};
use crate::impersonation::Registrations;
use crate::opens::Opens;
use crate::operation::OperationId;
use crate::recovery::delay::Delay;

/// A chain from its first member to its last reply. The object is reused for later chains:
/// allocating a new one would cost more than all other work for a small chain.
#[derive(Default)]
pub(crate) struct ChainWork {
    pub id: OperationId,
    /// The state that the next member depends on, while the chain is being built.
    pub draft: Draft,
    /// The messages of all members, one after the other, followed by unused space.
    pub bytes: Vec<u8>,
    /// The total size in bytes of the messages at the start of `bytes`.
    pub filled: usize,
    pub members: Vec<ChainMember>,
    /// The replies that have arrived, one after the other.
    pub answers: Vec<u8>,
    /// The names of the members' objects for error messages, one after the other.
    pub names: String,
    /// The index of the first member that may still have to be sent.
    next: usize,
    /// True if some but not all members of the chain were sent.
    is_open: bool,
    /// The number of members without a reply.
    missing: usize,
    /// True if every member has ended, so that the future is ready.
    pub is_over: bool,
    waker: Option<Waker>,
    /// Set if the server delayed the chain, so that it must be sent again.
    pub delay: Option<Box<Delay>>,
}

pub(crate) struct ChainMember {
    /// The range of the member's message in the chain's bytes.
    pub message: Range<usize>,
    pub procedure: Procedure,
    /// The data needed to decode the reply. Its buffer is kept until the chain has ended.
    pub asked: MemberDetails,
    /// The member's flags from when the chain was built. After an interruption they differ from
    /// `flags`, because known handles and state ids are then written into the message.
    pub planned: ChainFlags,
    /// The member's flags to send.
    pub flags: ChainFlags,
    /// The status in the member's reply; `None` until the reply has arrived.
    pub status: Option<Status>,
    /// The range of the member's reply in the chain's `answers`, or the error that ended the
    /// member.
    pub answer: Option<Result<Range<usize>>>,
    /// True if the member's effect on the session's opens has been recorded.
    pub is_noted: bool,
}

pub(crate) type SharedChain = Rc<RefCell<ChainWork>>;

/// The chain member that a reply on a stream belongs to.
pub(crate) struct Member {
    pub chain: SharedChain,
    pub number: usize,
}

/// The session state that is written into a chain's messages when they are sent.
pub(crate) struct Stamping<'s> {
    pub opens: Option<&'s Opens>,
    pub registered: &'s Registrations,
    pub checksums: bool,
}

/// The chains of a session of which not all members were sent. Only the first one may be open.
#[derive(Default)]
pub(crate) struct ChainQueue(VecDeque<SharedChain>);

impl ChainQueue {
    /// Returns the chain that is sent next.
    pub(crate) fn first(&self) -> Option<&SharedChain> {
        self.0.front()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if some members of the first chain were sent, but not all.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.0.front().is_some_and(|chain| chain.borrow().is_open)
    }

    /// Removes and returns the open chain, so that it can be resumed.
    pub(crate) fn take_open(&mut self) -> Option<SharedChain> {
        if self.is_open() { self.0.pop_front() } else { None }
    }

    pub(crate) fn push_front(&mut self, chain: SharedChain) {
        self.0.push_front(chain);
    }

    pub(crate) fn push_back(&mut self, chain: SharedChain) {
        self.0.push_back(chain);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SharedChain> {
        self.0.iter()
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = SharedChain> {
        self.0.into_iter()
    }

    /// Removes a chain of which all members were sent.
    pub(super) fn remove_first(&mut self, chain: &SharedChain) {
        if self.0.front().is_some_and(|first| Rc::ptr_eq(first, chain)) {
            self.0.pop_front();
        }
    }
}

impl ChainWork {
    /// Starts a chain to which all members were added. Returns true if the chain has members.
    pub(crate) fn begin(&mut self, id: OperationId) -> bool {
        (self.id, self.missing) = (id, self.members.len());
        self.missing > 0
    }

    /// Empties the chain for reuse. Returns false if it has grown too large to be kept.
    pub(crate) fn clear(&mut self) -> bool {
        let Self { bytes, members, answers, names, .. } = self;
        if bytes.capacity() + answers.capacity() + names.capacity() > SPARE_BYTES_MAX
            || members.capacity() > SPARE_MEMBERS_MAX
        {
            return false;
        }
        members.clear();
        answers.clear();
        names.clear();
        self.filled = 0;
        (self.next, self.is_open, self.missing) = (0, false, 0);
        (self.is_over, self.waker, self.delay) = (false, None, None);
        true
    }

    /// Records the reply to a member. Returns true if it was the last missing reply.
    pub(crate) fn note_answer(
        &mut self,
        number: usize,
        status: Option<Status>,
        answer: Result<&[u8]>,
    ) -> bool {
        let Some(member) = self.members.get_mut(number) else { return false };
        if member.answer.is_some() {
            return false;
        }
        member.status = status;
        member.answer = Some(answer.map(|bytes| {
            let start = self.answers.len();
            self.answers.extend_from_slice(bytes);
            start..self.answers.len()
        }));
        self.missing -= 1;
        self.missing == 0
    }

    /// Returns the bytes of a member's reply, whatever its status.
    pub(crate) fn answer(&self, number: usize) -> Option<&[u8]> {
        match &self.members.get(number)?.answer {
            Some(Ok(place)) => self.answers.get(place.clone()),
            Some(Err(_)) | None => None,
        }
    }

    /// Sets the waker to call when the chain has ended.
    pub(crate) fn wake_with(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            None => self.waker = Some(waker.clone()),
        }
    }

    /// Marks the chain as ended and wakes its future.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Ends, with an error, all members that have no reply.
    pub(crate) fn fail(&mut self, error: &ClientError) {
        self.missing = 0;
        for member in &mut self.members {
            if let (None, Some(slice)) = (&member.answer, &member.asked.slice) {
                // The server may still be accessing the memory.
                slice.buffer.note_exposed();
            }
            member.answer.get_or_insert_with(|| Err(error.clone()));
        }
        self.end();
    }

    /// Discards the reply of a member, so that it is sent again.
    pub(crate) fn forget_answer(&mut self, number: usize) {
        let member = &mut self.members[number];
        if let Some(answer) = member.answer.take() {
            self.missing += 1;
            if answer.as_ref().is_ok_and(|place| place.end == self.answers.len()) {
                self.answers.truncate(answer.map_or(0, |place| place.start));
            }
        }
        member.status = None;
    }

    /// Returns true if no member was sent.
    pub(super) fn is_fresh(&self) -> bool {
        self.next == 0 && !self.is_open && self.missing == self.members.len()
    }

    /// Returns the number of members without a reply.
    pub(crate) fn missing(&self) -> usize {
        self.missing
    }

    /// Marks all members without a reply as due to be sent.
    pub(crate) fn restart_sending(&mut self) {
        (self.next, self.is_open) = (0, false);
    }

    /// Returns the index of the next member to send.
    #[inline]
    pub(super) fn due(&mut self) -> Option<usize> {
        while self.members.get(self.next)?.answer.is_some() {
            self.next += 1;
        }
        Some(self.next)
    }

    /// Completes the next member's message for sending. Returns true if it is the last member.
    pub(super) fn stamp(
        &mut self,
        number: usize,
        stream: StreamId,
        sequence: SequenceNumber,
        session: &Stamping<'_>,
    ) -> bool {
        let member = &self.members[number];
        let is_last = !member.flags.contains(ChainFlags::FORWARD);
        let message = &mut self.bytes[member.message.clone()];
        if let Some(opens) = session.opens {
            opens.rewrite_state_ids(message);
        }
        session.registered.fill_in_handle(message);
        message[10..12].copy_from_slice(&member.flags.0.to_ne_bytes());
        message[12..14].copy_from_slice(&stream.0.to_ne_bytes());
        message[14..16].copy_from_slice(&sequence.0.to_ne_bytes());
        // The message may contain the checksum of an earlier session.
        message[24..28].fill(0);
        if session.checksums {
            seal(message, &[]);
        }
        self.next = number + 1;
        self.is_open = !is_last;
        is_last
    }
}

impl ChainMember {
    pub(super) fn reads_directly(&self) -> bool {
        self.procedure == Procedure::ReadDirect
    }
}

/// The capacity in bytes above which a finished chain is not kept for reuse.
pub(crate) const SPARE_BYTES_MAX: usize = 16 << 10;

pub(crate) const SPARE_MEMBERS_MAX: usize = 16;
