//! A chain, from its first member to its last answer.
//!
//! Invariant: its answers are kept until all are there, so that it can be taken up where a
//! connection was lost (`recovery/chains.rs`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::task::Waker;

use dafs_types::{SequenceNumber, Status, StreamId};
use dafs_wire::{ChainFlags, Procedure, seal};

use crate::acting::Registrations;
use crate::chain::draft::Draft;
use crate::chain::outcome::Asked;
use crate::error::{ClientError, Result};
use crate::opens::Opens;
use crate::operation::OperationId;
use crate::recovery::delay::Delay;

/// A chain from its first member to its last answer. It is one piece, which is used again for
/// another chain: making it anew costs more than anything else that is done for a small one.
#[derive(Default)]
pub(crate) struct ChainWork {
    pub id: OperationId,
    /// Until it is put together: what is known of the next member.
    pub draft: Draft,
    /// The messages of all members, one behind the other, and room behind them.
    pub bytes: Vec<u8>,
    /// Bytes of the messages.
    pub filled: usize,
    pub members: Vec<ChainMember>,
    /// The answers that have come, one behind the other.
    pub answers: Vec<u8>,
    /// What members are called, one behind the other.
    pub names: String,
    /// The first member that may still have to be sent.
    next: usize,
    /// Some was sent, and not all.
    is_open: bool,
    /// Members without an answer.
    missing: usize,
    /// Every member has ended: whoever waits may look.
    pub is_over: bool,
    waker: Option<Waker>,
    /// The server has put it off.
    pub delay: Option<Box<Delay>>,
}

/// One of its members.
pub(crate) struct ChainMember {
    /// Where its message is.
    pub message: Range<usize>,
    pub procedure: Procedure,
    /// What is known of it when its answer comes. Its buffer is kept until the chain is over.
    pub asked: Asked,
    /// As it was put together, and as it is sent: what is known by now is not asked for.
    pub planned: ChainFlags,
    pub flags: ChainFlags,
    /// How it ended, if it has, and where its answer is.
    pub status: Option<Status>,
    pub answer: Option<Result<Range<usize>>>,
    /// What it did to opens is known where that is kept.
    pub is_noted: bool,
}

pub(crate) type SharedChain = Rc<RefCell<ChainWork>>;

/// What a stream waits for that carries a member.
pub(crate) struct Member {
    pub chain: SharedChain,
    pub number: usize,
}

/// What of a session goes into the messages of a chain when they are sent.
pub(crate) struct Stamping<'s> {
    pub opens: Option<&'s Opens>,
    pub registered: &'s Registrations,
    pub checksums: bool,
}

/// The chains of a session that are not all sent. Only the first may be open.
#[derive(Default)]
pub(crate) struct ChainQueue(VecDeque<SharedChain>);

impl ChainQueue {
    /// The one that is sent next.
    pub fn first(&self) -> Option<&SharedChain> {
        self.0.front()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Some members of the first are sent, and not all.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.0.front().is_some_and(|chain| chain.borrow().is_open)
    }

    /// The one that is open, which is to be taken up anew.
    pub fn take_open(&mut self) -> Option<SharedChain> {
        if self.is_open() { self.0.pop_front() } else { None }
    }

    pub fn push_front(&mut self, chain: SharedChain) {
        self.0.push_front(chain);
    }

    pub fn push_back(&mut self, chain: SharedChain) {
        self.0.push_back(chain);
    }

    pub fn iter(&self) -> impl Iterator<Item = &SharedChain> {
        self.0.iter()
    }

    pub fn into_iter(self) -> impl Iterator<Item = SharedChain> {
        self.0.into_iter()
    }

    /// All of it was sent.
    pub(super) fn remove_first(&mut self, chain: &SharedChain) {
        if self.0.front().is_some_and(|first| Rc::ptr_eq(first, chain)) {
            self.0.pop_front();
        }
    }
}

impl ChainWork {
    /// It is put together. True if there is anything to do.
    pub fn begin(&mut self, id: OperationId) -> bool {
        (self.id, self.missing) = (id, self.members.len());
        self.missing > 0
    }

    /// Makes it one without members. False if it has grown too large to be kept.
    pub fn clear(&mut self) -> bool {
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

    /// A member has ended. True if it was the last.
    pub fn note_answer(
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

    /// A member's answer, if it has one, be it a failure.
    pub fn answer(&self, number: usize) -> Option<&[u8]> {
        match &self.members.get(number)?.answer {
            Some(Ok(place)) => self.answers.get(place.clone()),
            Some(Err(_)) | None => None,
        }
    }

    /// Whom to wake when it is over.
    pub fn wake_with(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            None => self.waker = Some(waker.clone()),
        }
    }

    /// Nothing of it is under way any more.
    pub fn end(&mut self) {
        self.is_over = true;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Ends what has not ended of it with an error.
    pub fn fail(&mut self, error: &ClientError) {
        self.missing = 0;
        for member in &mut self.members {
            if let (None, Some(slice)) = (&member.answer, &member.asked.slice) {
                // The server may have been at work on it.
                slice.buffer.note_exposed();
            }
            member.answer.get_or_insert_with(|| Err(error.clone()));
        }
        self.end();
    }

    /// A member has no answer any more: it is asked for once more.
    pub fn forget_answer(&mut self, number: usize) {
        let member = &mut self.members[number];
        if let Some(answer) = member.answer.take() {
            self.missing += 1;
            if answer.as_ref().is_ok_and(|place| place.end == self.answers.len()) {
                self.answers.truncate(answer.map_or(0, |place| place.start));
            }
        }
        member.status = None;
    }

    /// Nothing of it was sent.
    pub(super) fn is_fresh(&self) -> bool {
        self.next == 0 && !self.is_open && self.missing == self.members.len()
    }

    /// Members without an answer.
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// From now on everything without an answer is to be sent.
    pub fn begin_anew(&mut self) {
        (self.next, self.is_open) = (0, false);
    }

    /// The next member to send.
    #[inline]
    pub(super) fn due(&mut self) -> Option<usize> {
        while self.members.get(self.next)?.answer.is_some() {
            self.next += 1;
        }
        Some(self.next)
    }

    /// Puts the next member's message in order. True if it is the last.
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
            opens.restate(message);
        }
        session.registered.name_in(message);
        message[10..12].copy_from_slice(&member.flags.0.to_ne_bytes());
        message[12..14].copy_from_slice(&stream.0.to_ne_bytes());
        message[14..16].copy_from_slice(&sequence.0.to_ne_bytes());
        // It may have been sealed for another session.
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

/// A chain that has grown larger than this is not kept for the next.
pub(crate) const SPARE_BYTES_MAX: usize = 16 << 10;

pub(crate) const SPARE_MEMBERS_MAX: usize = 16;
