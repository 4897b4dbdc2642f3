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
use dafs_sessions::KeptSession;
use dafs_types::{FileHandle, SequenceNumber, StateId, Status, StreamId, limits};
use dafs_wire::{ChainFlags, HEADER_BYTES, Procedure, RequestHeader, Response};

use crate::reply_to::{ChainId, ReplyTo};

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

/// Which of a session's requests it is. The two are compared as one number that is made of them:
/// the compiler would load both at once, and wait for 100 nanoseconds, as
/// [`dafs_dat::EndpointId`] says.
#[inline]
fn number(stream: StreamId, sequence: SequenceNumber) -> u32 {
    u32::from(stream.0) << 16 | u32::from(sequence.0)
}

#[derive(Debug)]
pub(crate) struct Waiting {
    pub answer: ReplyTo,
    pub kept: KeptSession,
    pub message: Box<[u8]>,
}

/// All chains. There are no more than credits and channels.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    slots: Vec<Option<Chain>>,
    free: Vec<u32>,
    /// Chains whose next member may begin.
    ready: VecDeque<ChainId>,
}

impl Chains {
    pub fn make(&mut self, endpoint: EndpointId) -> ChainId {
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
                number(running.stream, running.sequence) == number(answer.stream, answer.sequence)
            });
        is_its.then_some(chain)
    }

    pub fn is_busy(&self, chain: ChainId) -> bool {
        let chain = self.slots.get(chain.0 as usize).and_then(Option::as_ref);
        chain.is_some_and(|chain| chain.running.is_some() || !chain.waiting.is_empty())
    }

    pub fn note_whole(&mut self, chain: ChainId) {
        if let Some(chain) = self.get_mut(chain) {
            chain.is_whole = true;
        }
    }

    /// Puts a member behind those that wait. False if there are too many.
    pub fn wait(&mut self, answer: ReplyTo, kept: KeptSession, message: &[u8]) -> bool {
        let Some(chain) = self.get_mut(answer.chain) else { return false };
        if chain.waiting.len() >= MEMBERS_WAITING_MAX {
            return false;
        }
        chain.waiting.push_back(Waiting { answer, kept, message: message.into() });
        true
    }

    pub fn next(&mut self, chain: ChainId) -> Option<Waiting> {
        let chain = self.get_mut(chain).filter(|chain| chain.running.is_none())?;
        chain.waiting.pop_front()
    }

    /// A member begins. What it takes from those before is put into its message.
    pub fn begin(
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

    pub fn note(&mut self, answer: ReplyTo, status: Status, response: &Response<'_>) {
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
    pub fn break_off(&mut self, answer: ReplyTo) {
        let chain = self.get_mut(answer.chain);
        if let Some(chain) = chain.filter(|chain| chain.endpoint == answer.endpoint) {
            chain.is_broken = true;
        }
    }

    pub fn end(&mut self, answer: ReplyTo) {
        let Some(chain) = self.of_running(answer) else { return };
        chain.running = None;
        if chain.waiting.is_empty() {
            self.free_if_over(answer.chain);
        } else {
            self.ready.push_back(answer.chain);
        }
    }

    pub fn free_if_over(&mut self, id: ChainId) {
        let Some(chain) = self.get_mut(id) else { return };
        if chain.is_whole && chain.running.is_none() && chain.waiting.is_empty() {
            self.slots[id.0 as usize] = None;
            self.free.push(id.0);
        }
    }

    pub fn drop_of(&mut self, endpoint: EndpointId) {
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

    /// The connection that a chain came over.
    #[inline]
    pub fn endpoint_of(&self, id: ChainId) -> Option<EndpointId> {
        Some(self.slots.get(id.0 as usize)?.as_ref()?.endpoint)
    }

    /// The next member of a chain may begin.
    pub fn note_ready(&mut self, id: ChainId) {
        self.ready.push_back(id);
    }

    /// A chain whose next member may begin.
    #[inline]
    pub fn next_ready(&mut self) -> Option<ChainId> {
        self.ready.pop_front()
    }

    /// Whether no member may begin.
    #[inline]
    pub fn is_none_ready(&self) -> bool {
        self.ready.is_empty()
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

/// So many bytes of a message's arguments; `None` if it is too short, which decoding tells.
fn place_of<const N: usize>(at: Option<usize>, message: &mut [u8]) -> Option<&mut [u8; N]> {
    let at = HEADER_BYTES + at?;
    message.get_mut(at..at + N)?.try_into().ok()
}

/// Members of one chain that wait. Each holds a credit, so that no more can come.
const MEMBERS_WAITING_MAX: usize = limits::CREDITS_MAX as usize;
