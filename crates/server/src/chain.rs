//! Chains: requests that are carried out one behind the other, each with what the one before
//! has found (draft 4.3).
//!
//! Whether a request is well placed says the filer (`filer/src/chain.rs`); what is here has
//! passed that. A member begins when the one before it has its answer: when that is parked,
//! waits for a disk, or for its outcome to be in the journal, the members behind it wait here,
//! each under its own credit and stream. Answers go out as members end. After one that failed,
//! the rest is answered with CHAIN_BROKEN.
//!
//! What a member leaves for the next one, if it was successful (draft 4.1.3.1, 4.3.2):
//!
//! | member | file handle | state id |
//! |---|---|---|
//! | LOOKUP, LOOKUPP, OPENATTR, GET_ROOT_HANDLE | the one found | as before |
//! | CREATE | the new object | as before |
//! | OPEN | the file | the open's |
//! | LINK, RENAME | the target directory | as before |
//! | READ, WRITE, APPEND, SETATTR, LOCK, LOCKU, OPEN_DOWNGRADE, CLOSE | its own | its own |
//! | DELEGRETURN | as before | its own |
//! | BATCH_SUBMIT, HURRY_UP, CHECK_RESPONSE, FETCH_RESPONSE | as before | as before |
//! | DELEGPURGE, NULL | as before | as before |
//! | everything else | its own | as before |
//!
//! The special state id 0 is nobody's: a member that uses it leaves the one before it. With
//! FILE_HANDLE the handle goes where the member's own stands (for LINK and RENAME: the target
//! directory); without one to take, the member fails with NOFILEHANDLE, without a state id with
//! BAD_STATEID. What is taken is put into the message before it is decoded, so that nobody
//! behind (the journal among them) needs to know that there was a chain.
//!
//! Invariants: at most one member of a chain is under way; a chain that is not busy has nobody
//! waiting, or is in `ready`; a chain goes with its last member, or with its connection, which
//! leaves members that wait undone and unkept.

use std::collections::VecDeque;

use dafs_dat::EndpointId;
use dafs_filer::{Admitted, ChainPlace, KeptSession};
use dafs_types::{FileHandle, SequenceNumber, StateId, Status, StreamId, limits};
use dafs_wire::{ByteOrder, ChainFlags, HEADER_BYTES, Procedure, RequestHeader, Response};

use crate::reactor::Reactor;
use crate::respond::ReplyStatus;
use crate::task::ReplyTo;

/// Names a chain, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainId(u32);

impl ChainId {
    /// No chain.
    pub const NONE: Self = Self(u32::MAX);

    #[inline]
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }
}

/// A chain of which members are under way or still to come.
#[derive(Debug)]
struct Chain {
    endpoint: EndpointId,
    /// The member that is being carried out.
    running: Option<Running>,
    /// No member is behind the one that began last, but those that wait.
    is_whole: bool,
    /// A member has failed.
    is_broken: bool,
    /// Members that wait for it, in order.
    waiting: VecDeque<Waiting>,
    /// What members so far have left for the next one.
    file: Option<FileHandle>,
    state: Option<StateId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Running {
    stream: StreamId,
    sequence: SequenceNumber,
    /// Its results have a handle for the next member.
    finds: bool,
}

#[derive(Debug)]
struct Waiting {
    answer: ReplyTo,
    kept: KeptSession,
    message: Box<[u8]>,
}

/// All chains. There are no more than credits and channels.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    slots: Vec<Option<Chain>>,
    free: Vec<u32>,
    /// Chains whose next member may begin.
    ready: VecDeque<ChainId>,
}

impl Reactor {
    /// A member of a chain has come.
    pub(crate) fn take_member(
        &mut self,
        mut answer: ReplyTo,
        admitted: &Admitted,
        order: ByteOrder,
        header: &RequestHeader,
        message: &mut [u8],
    ) {
        let kept = admitted.kept;
        let Some(chain) = self.chain_for(answer.endpoint, admitted.place) else {
            // The filer keeps the same account.
            return self.fail(answer, Status::ChainBroken);
        };
        // In place: it was written just now, and a copy would wait for that.
        answer.chain = chain;
        if self.chains.is_busy(chain) {
            // The one before may be a transfer that waits for others to be moved with.
            self.settle();
        }
        if !self.chains.is_busy(chain) {
            self.carry_out_member(answer, kept, order, header, message);
        } else if !self.chains.wait(answer, kept, message) {
            self.chains.break_off(answer);
            self.fail(answer, Status::Resource);
        }
    }

    /// The chain a member belongs to.
    fn chain_for(&mut self, endpoint: EndpointId, place: ChainPlace) -> Option<ChainId> {
        let channel = self.channels.get_mut(endpoint)?;
        match place {
            ChainPlace::Alone => None,
            ChainPlace::First => {
                let chain = self.chains.make(endpoint);
                channel.open_chain = chain;
                Some(chain)
            }
            ChainPlace::Middle => Some(channel.open_chain).filter(|chain| chain.is_some()),
            ChainPlace::Last => {
                let chain = std::mem::replace(&mut channel.open_chain, ChainId::NONE);
                Some(chain).filter(|chain| chain.is_some())
            }
        }
    }

    /// A request was refused before its place was of any matter: if its channel has a chain to
    /// which members could come, none will.
    #[cold]
    pub(crate) fn end_open_chain(&mut self, endpoint: EndpointId) {
        if let Some(channel) = self.channels.get_mut(endpoint) {
            let chain = std::mem::replace(&mut channel.open_chain, ChainId::NONE);
            self.chains.note_whole(chain);
            self.chains.free_if_over(chain);
        }
    }

    #[inline(never)]
    fn carry_out_member(
        &mut self,
        answer: ReplyTo,
        kept: KeptSession,
        order: ByteOrder,
        header: &RequestHeader,
        message: &mut [u8],
    ) {
        match self.chains.begin(answer, header, message) {
            Ok(()) => self.carry(answer, kept, order, header, message),
            Err(status) => self.fail(answer, status),
        }
    }

    /// A member's answer is made. It ends with it, unless the journal must have
    /// something first.
    #[inline(never)]
    pub(crate) fn note_member(
        &mut self,
        answer: ReplyTo,
        told: ReplyStatus,
        response: &Response<'_>,
    ) {
        self.chains.note(answer, told.status, response);
        if !told.may_wait(answer) {
            self.end_member(answer);
        }
    }

    /// A member's answer could not be made, and a failure is sent instead.
    #[cold]
    pub(crate) fn break_chain(&mut self, answer: ReplyTo) {
        self.chains.break_off(answer);
    }

    /// A member is over: the next one may begin.
    #[inline]
    pub(crate) fn end_member(&mut self, answer: ReplyTo) {
        if answer.chain.is_some() {
            self.chains.end(answer);
        }
    }

    /// Begins every member that waits for nothing any more. Called between events: a member
    /// that ends within another's end would pile them up on the stack.
    #[inline]
    pub(crate) fn push_chains(&mut self) {
        while let Some(chain) = self.chains.ready.pop_front() {
            self.begin_next(chain);
            self.follow_up();
            if self.chains.ready.is_empty() {
                // What was begun may be a transfer that waits for others to be moved with.
                self.settle();
            }
        }
    }

    fn begin_next(&mut self, chain: ChainId) {
        let Some(Waiting { answer, kept, mut message }) = self.chains.next(chain) else { return };
        let Some(order) = self.order_of(answer.endpoint) else { return };
        match RequestHeader::decode(order, &message) {
            Ok(header) => self.carry_out_member(answer, kept, order, &header, &mut message),
            // It was decoded when it came.
            Err(error) => self.fail(answer, error.status()),
        }
    }

    /// A connection is gone: so are its chains. Members under way come to their end alone.
    pub(crate) fn drop_chains(&mut self, endpoint: EndpointId) {
        self.chains.drop_of(endpoint);
    }
}

impl Chains {
    fn make(&mut self, endpoint: EndpointId) -> ChainId {
        let chain = Chain {
            endpoint,
            running: None,
            is_whole: false,
            is_broken: false,
            waiting: VecDeque::new(),
            file: None,
            state: None,
        };
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = Some(chain);
            return ChainId(index);
        }
        self.slots.push(Some(chain));
        ChainId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
    }

    #[inline]
    fn get_mut(&mut self, chain: ChainId) -> Option<&mut Chain> {
        self.slots.get_mut(chain.0 as usize)?.as_mut()
    }

    /// The chain of a member that is under way. A slot may be another chain's by the time a
    /// member ends whose connection is gone.
    #[inline]
    fn of_running(&mut self, answer: ReplyTo) -> Option<&mut Chain> {
        let chain = self.get_mut(answer.chain)?;
        let is_its = chain.endpoint == answer.endpoint
            && chain.running.is_some_and(|running| {
                (running.stream, running.sequence) == (answer.stream, answer.sequence)
            });
        is_its.then_some(chain)
    }

    fn is_busy(&self, chain: ChainId) -> bool {
        let chain = self.slots.get(chain.0 as usize).and_then(Option::as_ref);
        chain.is_some_and(|chain| chain.running.is_some() || !chain.waiting.is_empty())
    }

    fn note_whole(&mut self, chain: ChainId) {
        if let Some(chain) = self.get_mut(chain) {
            chain.is_whole = true;
        }
    }

    /// Puts a member behind those that wait. False if there are too many.
    fn wait(&mut self, answer: ReplyTo, kept: KeptSession, message: &[u8]) -> bool {
        let Some(chain) = self.get_mut(answer.chain) else { return false };
        if chain.waiting.len() >= MEMBERS_WAITING_MAX {
            return false;
        }
        chain.waiting.push_back(Waiting { answer, kept, message: message.into() });
        true
    }

    fn next(&mut self, chain: ChainId) -> Option<Waiting> {
        let chain = self.get_mut(chain).filter(|chain| chain.running.is_none())?;
        chain.waiting.pop_front()
    }

    /// A member begins. What it takes from those before is put into its message.
    fn begin(
        &mut self,
        answer: ReplyTo,
        header: &RequestHeader,
        message: &mut [u8],
    ) -> Result<(), Status> {
        let chain = self.get_mut(answer.chain).ok_or(Status::ChainBroken)?;
        let procedure = Procedure::from_number(header.procedure);
        let (stream, sequence) = (answer.stream, answer.sequence);
        chain.is_whole |= !header.chain_flags.contains(ChainFlags::FORWARD);
        chain.running =
            Some(Running { stream, sequence, finds: procedure.is_some_and(Procedure::finds) });
        if chain.is_broken {
            return Err(Status::ChainBroken);
        }
        match procedure {
            Some(procedure) => chain.pass_on(procedure, header.chain_flags, message),
            // Its decoder refuses it.
            None => Ok(()),
        }
    }

    fn note(&mut self, answer: ReplyTo, status: Status, response: &Response<'_>) {
        let Some(chain) = self.of_running(answer) else { return };
        if status != Status::Ok {
            chain.is_broken = true;
            return;
        }
        if chain.running.is_some_and(|running| running.finds) {
            if let Some(file) = response.found() {
                chain.file = Some(file);
            }
            if let Response::Open(opened) = response {
                chain.state = Some(opened.state);
            }
        }
    }

    /// The chain of this member goes no further.
    fn break_off(&mut self, answer: ReplyTo) {
        let chain = self.get_mut(answer.chain);
        if let Some(chain) = chain.filter(|chain| chain.endpoint == answer.endpoint) {
            chain.is_broken = true;
        }
    }

    fn end(&mut self, answer: ReplyTo) {
        let Some(chain) = self.of_running(answer) else { return };
        chain.running = None;
        if chain.waiting.is_empty() {
            self.free_if_over(answer.chain);
        } else {
            self.ready.push_back(answer.chain);
        }
    }

    fn free_if_over(&mut self, id: ChainId) {
        let Some(chain) = self.get_mut(id) else { return };
        if chain.is_whole && chain.running.is_none() && chain.waiting.is_empty() {
            self.slots[id.0 as usize] = None;
            self.free.push(id.0);
        }
    }

    fn drop_of(&mut self, endpoint: EndpointId) {
        if self.count() == 0 {
            return;
        }
        for (index, slot) in (0..).zip(&mut self.slots) {
            if slot.as_ref().is_some_and(|chain| chain.endpoint == endpoint) {
                *slot = None;
                self.free.push(index);
            }
        }
    }

    /// Chains there are.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Chain {
    /// Puts what a member takes into its message, and remembers what it uses.
    fn pass_on(
        &mut self,
        procedure: Procedure,
        flags: ChainFlags,
        message: &mut [u8],
    ) -> Result<(), Status> {
        if let Some(place) = place_of::<64>(procedure.chained_handle_at(), message) {
            if flags.contains(ChainFlags::FILE_HANDLE) {
                place.copy_from_slice(&self.file.ok_or(Status::NoFileHandle)?.0);
            }
            self.file = Some(FileHandle(*place));
        }
        if let Some(place) = place_of::<8>(procedure.chained_state_at(), message) {
            if flags.contains(ChainFlags::STATE_ID) {
                *place = self.state.ok_or(Status::BadStateId)?.0.to_le_bytes();
            }
            let state = StateId(u64::from_le_bytes(*place));
            if state != StateId::ANONYMOUS {
                self.state = Some(state);
            }
        }
        Ok(())
    }
}

/// So many octets of a message's arguments; `None` if it is too short, which decoding tells.
fn place_of<const N: usize>(at: Option<usize>, message: &mut [u8]) -> Option<&mut [u8; N]> {
    let at = HEADER_BYTES + at?;
    message.get_mut(at..at + N)?.try_into().ok()
}

/// Members of one chain that wait. Each holds a credit, so that no more can come.
const MEMBERS_WAITING_MAX: usize = limits::CREDITS_MAX as usize;
