//! Chains on their way out, and the answers that have come.
//!
//! Invariant: from a chain's first member to its last nothing else is sent in its session
//! (draft 4.3.3): while one is open, [`Credits`](crate::credits::Credits) gives its credits to
//! members alone, and whatever else asks for one waits behind it. A chain that is longer than
//! the credits there are goes on as its first members are answered. Its answers are kept
//! until all are there, so that it can be taken up where a connection was lost
//! (`recovery/chains.rs`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::task::Waker;

use dafs_dat::{Forecast, Gather};
use dafs_types::{SequenceNumber, Status, StreamId};
use dafs_wire::{ChainFlags, OPEN_ANSWER_BYTES as OPEN_BYTES, Procedure, ResponseHeader, seal};

use super::outcome::Asked;
use super::plan::Draft;
use crate::core::{Core, OperationId, Pending, SessionState};
use crate::credits::Holder;
use crate::data::ANSWER_BYTES;
use crate::error::{ClientError, Result};
use crate::recovery::Delay;

/// A chain from its first member to its last answer. It is one piece, which is used again for
/// another chain: making it anew costs more than anything else that is done for a small one.
#[derive(Default)]
pub(crate) struct ChainWork {
    pub id: OperationId,
    /// Until it is put together: what is known of the next member.
    pub draft: Draft,
    /// The messages of all members, one behind the other, and room behind them.
    pub octets: Vec<u8>,
    /// Octets of the messages.
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

/// The chains of a session that are not all sent. Only the first may be open.
#[derive(Default)]
pub(crate) struct ChainQueue(VecDeque<SharedChain>);

impl ChainQueue {
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
    fn remove_first(&mut self, chain: &SharedChain) {
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
        let Self { octets, members, answers, names, .. } = self;
        if octets.capacity() + answers.capacity() + names.capacity() > SPARE_BYTES_MAX
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
        member.answer = Some(answer.map(|octets| {
            let start = self.answers.len();
            self.answers.extend_from_slice(octets);
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
    fn end(&mut self) {
        self.is_over = true;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
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
    fn is_fresh(&self) -> bool {
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
    fn due(&mut self) -> Option<usize> {
        while self.members.get(self.next)?.answer.is_some() {
            self.next += 1;
        }
        Some(self.next)
    }

    /// Puts the next member's message in order. True if it is the last.
    fn stamp(
        &mut self,
        number: usize,
        stream: StreamId,
        sequence: SequenceNumber,
        session: &SessionState,
    ) -> bool {
        let member = &self.members[number];
        let is_last = !member.flags.contains(ChainFlags::FORWARD);
        let message = &mut self.octets[member.message.clone()];
        if let Some(keeper) = &session.keeper {
            keeper.opens.restate(message);
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
    fn reads_directly(&self) -> bool {
        self.procedure == Procedure::ReadDirect
    }
}

impl SessionState {
    /// Whether a chain is what must be sent next.
    #[inline]
    pub fn owes_a_chain(&self) -> bool {
        !self.chains.is_empty() && (self.calls.is_empty() || self.chains.is_open())
    }
}

impl Core {
    /// A chain without members.
    pub fn new_chain(&mut self) -> SharedChain {
        self.spare_chain.take().unwrap_or_default()
    }

    /// Nobody looks at a chain any more.
    pub fn leave_chain(&mut self, mut chain: SharedChain) {
        if Rc::get_mut(&mut chain).is_some_and(|chain| chain.get_mut().clear()) {
            self.spare_chain = Some(chain);
        }
    }

    /// Takes a chain in, and sends what there are credits for.
    pub fn start_chain(&mut self, index: usize, chain: &SharedChain) -> Result<()> {
        self.check_open(index)?;
        self.note_changes(index);
        let id = self.next_id();
        if !chain.borrow_mut().begin(id) {
            chain.borrow_mut().end();
            return Ok(());
        }
        self.sessions[index].chains.push_back(chain.clone());
        if self.sessions[index].owes_a_chain() {
            self.send_chains(index);
        }
        let outstanding = self.sessions[index].credits.outstanding();
        if usize::from(outstanding) == chain.borrow().members.len() {
            self.interface.await_alone(false);
        }
        Ok(())
    }

    /// Sends members as long as there are credits. True if it was all of them.
    pub fn send_chains(&mut self, index: usize) -> bool {
        while let Some(chain) = self.sessions[index].chains.0.front().cloned() {
            if !self.send_members(index, &chain) {
                return false;
            }
            // Gone already if the connection was lost over it.
            self.sessions[index].chains.remove_first(&chain);
        }
        true
    }

    /// Sends the members of a chain. False if there are not credits enough for the rest.
    fn send_members(&mut self, index: usize, shared: &SharedChain) -> bool {
        // Of one that was sent in part before, or is taken up, some may be answered already.
        let is_fresh = shared.borrow().is_fresh();
        loop {
            let mut chain = shared.borrow_mut();
            let Some(number) = chain.due() else { return true };
            let session = &mut self.sessions[index];
            let Some((stream, sequence)) = session.credits.take_for_member() else { return false };
            let is_last = chain.stamp(number, stream, sequence, session);
            session.credits.hold(if is_last { Holder::Anybody } else { Holder::Members });
            let message = &chain.octets[chain.members[number].message.clone()];
            let posted = self.post_octets(index, &[Gather::Bytes(message)]);
            // A connection that is lost over this takes the chain up.
            drop(chain);
            let member = Member { chain: shared.clone(), number };
            self.note_posted(index, stream, Pending::Member(member), posted);
            if is_last {
                self.foretell(index, &shared.borrow(), is_fresh);
                return true;
            }
        }
    }

    /// Tells the transport what the answers to a chain are likely to be. They come together,
    /// where nothing keeps the server from it: one is what is waited for.
    fn foretell(&mut self, index: usize, chain: &ChainWork, is_fresh: bool) {
        let endpoint = self.sessions[index].endpoint;
        let found = match &chain.members[..] {
            [read, behind @ ..] if read.reads_directly() => Some((0, read, behind.len())),
            [open, read, behind @ ..]
                if open.procedure == Procedure::Open && read.reads_directly() =>
            {
                Some((OPEN_ANSWER_BYTES, read, behind.len()))
            }
            _ => None,
        };
        let found = found.filter(|_| is_fresh);
        let known = found.and_then(|(before, read, behind)| {
            Some((before, read.asked.slice.as_ref()?, u32::try_from(behind).ok()?))
        });
        let Some((before, slice, behind)) = known else {
            return self.interface.expect(endpoint, &Forecast::answer(&[], 0));
        };
        let (offset, length) = (slice.offset as u64, slice.length);
        let writes = [self.interface.remote(endpoint, &slice.buffer.region, offset, length)];
        let forecast = Forecast { before, writes: &writes, message: ANSWER_BYTES, behind };
        self.interface.expect(endpoint, &forecast);
    }

    /// The answer to a member came.
    pub fn on_member(
        &mut self,
        index: usize,
        member: &Member,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        let session = &mut self.sessions[index];
        if session.is_frail {
            session.note_progress();
        }
        let status = Some(header.status);
        if member.chain.borrow_mut().note_answer(member.number, status, Ok(message)) {
            self.end_chain(index, &member.chain);
        }
    }

    /// Every member has ended.
    pub fn end_chain(&mut self, index: usize, shared: &SharedChain) {
        if self.put_off_chain(index, shared) {
            return;
        }
        let mut chain = shared.borrow_mut();
        if let Some(keeper) = &mut self.sessions[index].keeper {
            chain.note(&mut keeper.opens);
        }
        chain.end();
    }

    /// Ends what has not ended of a chain with an error.
    pub fn fail_chain(&mut self, shared: &SharedChain, error: &ClientError) {
        let mut chain = shared.borrow_mut();
        chain.missing = 0;
        for member in &mut chain.members {
            if let (None, Some(slice)) = (&member.answer, &member.asked.slice) {
                // The server may have been at work on it.
                slice.buffer.note_exposed();
            }
            member.answer.get_or_insert_with(|| Err(error.clone()));
        }
        chain.end();
    }
}

/// An OPEN's answer without a delegation.
const OPEN_ANSWER_BYTES: u32 = OPEN_BYTES as u32;
/// A chain that has grown larger than this is not kept for the next.
const SPARE_BYTES_MAX: usize = 16 << 10;
const SPARE_MEMBERS_MAX: usize = 16;
