//! Chains: requests that are executed one after the other, each with the results of the request
//! before it (draft 4.3).
//!
//! The filer checks whether a request is at a valid position of a chain (`filer/src/chain.rs`); the
//! requests here have passed that check. A member starts when the reply to the member before it is
//! ready. While that earlier member is parked, waits for a disk, or waits for its outcome to be
//! journaled, later members are queued here, each with its own credit and stream. The reply to a
//! member is sent when the member ends. After a failed member, all later members get CHAIN_BROKEN.
//!
//! A successful member leaves these values for the next member (draft 4.1.3.1, 4.3.2):
//!
//! | member | file handle | state id |
//! |---|---|---|
//! | LOOKUP, LOOKUPP, OPENATTR, GET_ROOT_HANDLE | the object found | unchanged |
//! | CREATE | the new object | unchanged |
//! | OPEN | the file | the open's |
//! | LINK, RENAME | the target directory | unchanged |
//! | READ, WRITE, APPEND, SETATTR, LOCK, LOCKU, OPEN_DOWNGRADE, CLOSE | its own | its own |
//! | DELEGRETURN | unchanged | its own |
//! | BATCH_SUBMIT, HURRY_UP, CHECK_RESPONSE, FETCH_RESPONSE | unchanged | unchanged |
//! | DELEGPURGE, NULL | unchanged | unchanged |
//! | all other requests | its own | unchanged |
//!
//! The special state id 0 belongs to no open: after a member that uses it, the state id of the
//! member before stays in force. With FILE_HANDLE the inherited handle replaces the member's own
//! handle (for LINK and RENAME the handle of the target directory). If there is no handle to
//! inherit, the member fails with NOFILEHANDLE; if there is no state id to inherit, with
//! BAD_STATEID. Inherited values are inserted into the message before the message is decoded, so
//! that no later code (including the journal) needs to know about the chain.
//!
//! Invariants:
//! - At most one member of a chain is in progress.
//! - A chain without a member in progress has no waiting members, or is in `ready`.
//! - A chain ends with its last member or with its connection. If its connection ends, its waiting
//!   members are not executed and no results are stored for them.

use std::collections::VecDeque;

use dafs_dat::EndpointId;
use dafs_sessions::KeptSession;
use dafs_types::{FileHandle, SequenceNumber, StateId, Status, StreamId, limits};
use dafs_wire::{ChainFlags, HEADER_BYTES, Procedure, RequestHeader, Response};

use crate::reply_to::{ChainId, ReplyTo};

/// A chain that has not ended: it has members in progress, or more members are expected.
#[derive(Debug)]
struct Chain {
    endpoint: EndpointId,
    /// The member that is being executed.
    running: Option<Running>,
    /// True if the last member has arrived.
    is_whole: bool,
    /// True if a member has failed.
    is_broken: bool,
    /// The members that wait for earlier members, in the order of the chain.
    waiting: VecDeque<Waiting>,
    /// The file handle that the next member inherits. `None` if there is none.
    file: Option<FileHandle>,
    /// The state id that the next member inherits. `None` if there is none.
    state: Option<StateId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Running {
    stream: StreamId,
    sequence: SequenceNumber,
    /// True if the member finds or creates an object, whose handle in the results the next member
    /// inherits.
    finds: bool,
}

/// Combines a stream and a sequence number into one integer for comparisons. If they were compared
/// separately, the compiler could load both with one load, which stalls for 100 nanoseconds (see
/// [`dafs_dat::EndpointId`]).
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

/// All chains that have not ended. Credits and channels limit their number.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    slots: Vec<Option<Chain>>,
    free: Vec<u32>,
    /// The chains whose next member may start.
    ready: VecDeque<ChainId>,
}

impl Chains {
    pub(crate) fn make(&mut self, endpoint: EndpointId) -> ChainId {
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

    /// Returns the chain of a member in progress. `None` if the chain ended with its connection;
    /// its slot may then already contain another chain.
    #[inline]
    fn of_running(&mut self, answer: ReplyTo) -> Option<&mut Chain> {
        let chain = self.get_mut(answer.chain)?;
        let is_its = chain.endpoint == answer.endpoint
            && chain.running.is_some_and(|running| {
                number(running.stream, running.sequence) == number(answer.stream, answer.sequence)
            });
        is_its.then_some(chain)
    }

    pub(crate) fn is_busy(&self, chain: ChainId) -> bool {
        let chain = self.slots.get(chain.0 as usize).and_then(Option::as_ref);
        chain.is_some_and(|chain| chain.running.is_some() || !chain.waiting.is_empty())
    }

    pub(crate) fn note_whole(&mut self, chain: ChainId) {
        if let Some(chain) = self.get_mut(chain) {
            chain.is_whole = true;
        }
    }

    /// Queues a member until the members before it have ended. Returns false if too many members
    /// are queued.
    pub(crate) fn wait(&mut self, answer: ReplyTo, kept: KeptSession, message: &[u8]) -> bool {
        let Some(chain) = self.get_mut(answer.chain) else { return false };
        if chain.waiting.len() >= MEMBERS_WAITING_MAX {
            return false;
        }
        chain.waiting.push_back(Waiting { answer, kept, message: message.into() });
        true
    }

    pub(crate) fn next(&mut self, chain: ChainId) -> Option<Waiting> {
        let chain = self.get_mut(chain).filter(|chain| chain.running.is_none())?;
        chain.waiting.pop_front()
    }

    /// Starts a chain member, after inserting the inherited file handle and state id into its
    /// message.
    pub(crate) fn begin(
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
            // The decoder reports the error in such a message.
            None => Ok(()),
        }
    }

    pub(crate) fn note(&mut self, answer: ReplyTo, status: Status, response: &Response<'_>) {
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

    /// Marks the chain of this member as broken.
    pub(crate) fn break_off(&mut self, answer: ReplyTo) {
        let chain = self.get_mut(answer.chain);
        if let Some(chain) = chain.filter(|chain| chain.endpoint == answer.endpoint) {
            chain.is_broken = true;
        }
    }

    pub(crate) fn end(&mut self, answer: ReplyTo) {
        let Some(chain) = self.of_running(answer) else { return };
        chain.running = None;
        if chain.waiting.is_empty() {
            self.free_if_over(answer.chain);
        } else {
            self.ready.push_back(answer.chain);
        }
    }

    pub(crate) fn free_if_over(&mut self, id: ChainId) {
        let Some(chain) = self.get_mut(id) else { return };
        if chain.is_whole && chain.running.is_none() && chain.waiting.is_empty() {
            self.slots[id.0 as usize] = None;
            self.free.push(id.0);
        }
    }

    pub(crate) fn drop_of(&mut self, endpoint: EndpointId) {
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

    /// Returns the connection of a chain. `None` if the chain has ended.
    #[inline]
    pub(crate) fn endpoint_of(&self, id: ChainId) -> Option<EndpointId> {
        Some(self.slots.get(id.0 as usize)?.as_ref()?.endpoint)
    }

    /// Records that the next member of a chain may start.
    pub(crate) fn note_ready(&mut self, id: ChainId) {
        self.ready.push_back(id);
    }

    /// Removes and returns a chain whose next member may start.
    #[inline]
    pub(crate) fn next_ready(&mut self) -> Option<ChainId> {
        self.ready.pop_front()
    }

    /// Returns true if no chain has a member that may start.
    #[inline]
    pub(crate) fn is_none_ready(&self) -> bool {
        self.ready.is_empty()
    }

    /// Returns the number of chains that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Chain {
    /// Inserts the inherited handle and state id into a member's message. Records the handle and
    /// the state id that the member uses.
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

/// Returns the `N` bytes at an offset of the message's arguments. `None` if the message is too
/// short; decoding will report that error.
fn place_of<const N: usize>(at: Option<usize>, message: &mut [u8]) -> Option<&mut [u8; N]> {
    let at = HEADER_BYTES + at?;
    message.get_mut(at..at + N)?.try_into().ok()
}

/// The maximum number of waiting members of one chain. Each waiting member uses a credit, so a
/// client cannot send more.
const MEMBERS_WAITING_MAX: usize = limits::CREDITS_MAX as usize;
