//! Requests that cannot be finished immediately.
//!
//! Invariants:
//! - A task is in exactly one state: it is being stepped, or it waits for one event ([`Wait`]).
//! - While a task waits, its file stays open in the cache.
//! - Each task holds a credit, so the credits of all sessions limit the number of tasks.

use dafs_dat::EndpointId;
use dafs_files::hand_over::HandOverRequest;
use dafs_files::left::{CommitTask, GrantTask, RemainingWork, SizeTask, TimesTask};
use dafs_files::ranges::RangeTask;
use dafs_files::reading::Reading;
use dafs_files::under_way::{Reach, UnderWay};
use dafs_files::writing::Writing;
use dafs_memory::Memory;
use dafs_store::cache::{CachedFile, CommitTicket};
use dafs_types::{FileHandle, QuickMap};
use dafs_wire::DirectBuffer;

use crate::batch::sealed::SealedBatch;
use crate::batch::strand::Strand;
use crate::moving::transfer::Staging;
use crate::reply_to::{ReplyTo, TaskId};

/// The client's buffers for direct data. Nearly always there is only one.
#[derive(Clone, Debug)]
pub(crate) enum Buffers {
    One(DirectBuffer),
    Many(Box<[DirectBuffer]>),
}

impl Buffers {
    pub(crate) fn as_slice(&self) -> &[DirectBuffer] {
        match self {
            Buffers::One(buffer) => std::slice::from_ref(buffer),
            Buffers::Many(buffers) => buffers,
        }
    }
}

/// The destination of a read's bytes.
#[derive(Clone, Debug)]
pub(crate) enum ReadTarget {
    Inline,
    /// The code of a guest's protocol, which sends the bytes itself.
    Guest {
        /// The number of times that the read has started over because bytes were not cached.
        looks: u32,
    },
    Direct(Buffers),
    /// The client's buffers, and the bytes gathered so far, in a session with checksums. The bytes
    /// are gathered before the transfer, because a write could change the cached bytes between the
    /// checksum and the transfer.
    Sealed(Buffers, Vec<u8>),
}

/// The source of a write's bytes.
#[derive(Clone, Debug)]
pub(crate) enum WriteSource {
    /// The bytes are in memory, because they arrived with the request.
    Bytes(Box<[u8]>),
    /// The bytes are fetched from the client's buffers directly into the cache.
    Direct(Buffers),
    /// The bytes have a checksum, so they are fetched and verified before they enter the cache.
    Sealed {
        buffers: Buffers,
        expected: dafs_wire::Checksum,
        /// The memory that the bytes are fetched into. `None` until the fetch has started.
        staging: Option<Staging>,
    },
    /// The bytes are fetched, and their checksum is being computed.
    Fetched {
        memory: Memory,
        expected: dafs_wire::Checksum,
        /// The computed checksum, or the error. `None` until it is computed.
        sum: Option<Result<dafs_wire::Checksum, dafs_types::Status>>,
    },
    /// The memory with the bytes, which are fetched and verified.
    Good(Memory),
}

/// A read in progress.
#[derive(Debug)]
pub(crate) struct ReadTask {
    pub reading: Reading,
    pub target: ReadTarget,
}

/// A write or append in progress.
#[derive(Debug)]
pub(crate) struct WriteTask {
    pub writing: Writing,
    pub source: WriteSource,
    /// The number of bytes that this write uses of the memory for checksummed writes.
    pub sealed_bytes: u32,
    /// The number of transfers into the write's cache space that are not complete.
    pub transfers_left: u32,
    pub transfer_failed: bool,
}

impl WriteTask {
    /// Creates a write that has not started.
    pub(crate) fn new(writing: Writing, source: WriteSource) -> Self {
        Self { writing, source, sealed_bytes: 0, transfers_left: 0, transfer_failed: false }
    }
}

/// A task that writes dirty data to the file or to stable storage, so that the request that waits
/// for it can continue.
#[derive(Debug)]
pub(crate) struct FlushTask {
    pub ticket: CommitTicket,
    pub file: CachedFile,
    pub whose: FlushOf,
}

/// The work that continues after a flush.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FlushOf {
    /// Transfers of batches, which wait for the flush.
    Batches,
    /// The request of a client that waits for the hand-over of the file.
    HandOver(HandOverRequest),
}

/// A task that fetches a part of the request's arguments from the client's memory (SETATTR_DIRECT).
#[derive(Debug)]
pub(crate) struct FetchTask {
    pub staging: Staging,
    pub transfers_left: u32,
    pub failed: bool,
    pub handle: FileHandle,
    pub state: dafs_types::StateId,
    pub checksum: dafs_wire::Checksum,
    pub length: u32,
}

/// A request that could not be finished immediately: the work that remains, and the destination of
/// the reply.
#[derive(Debug)]
pub(crate) struct Task {
    pub reply_to: ReplyTo,
    pub work: Work,
}

/// The work that remains to be done for a task.
#[derive(Debug)]
pub(crate) enum Work {
    Read(ReadTask),
    Write(WriteTask),
    Commit(CommitTask),
    Flush(FlushTask),
    Size(SizeTask),
    Times(TimesTask),
    Fetch(FetchTask),
    Grant(GrantTask),
    Range(Box<RangeTask>),
    Strand(Box<Strand>),
    SealedBatch(Box<SealedBatch>),
}

impl Task {
    #[inline]
    pub(crate) fn new(reply_to: ReplyTo, work: Work) -> Self {
        Self { reply_to, work }
    }
}

impl Task {
    /// Returns the connection that carries the task's transfers. The task is stepped by the reactor
    /// that owns that connection.
    #[inline]
    pub(crate) fn moves_over(&self) -> EndpointId {
        match &self.work {
            Work::Strand(strand) if strand.is_read() => strand.over,
            _ => self.reply_to.endpoint,
        }
    }
}

impl Work {
    /// Returns the file that the task works on. `None` for a task without a file.
    pub(crate) fn file(&self) -> Option<CachedFile> {
        match self {
            Work::Read(task) => Some(task.reading.file),
            Work::Write(task) => Some(task.writing.file),
            Work::Commit(task) => Some(task.file),
            Work::Flush(task) => Some(task.file),
            Work::Size(task) => Some(task.file),
            Work::Times(task) => Some(task.file),
            Work::Range(task) => Some(task.file()),
            Work::Strand(strand) => Some(strand.file),
            Work::Fetch(_) | Work::Grant(_) | Work::SealedBatch(_) => None,
        }
    }

    /// Returns all files that the task works on.
    pub(crate) fn files(&self) -> impl Iterator<Item = CachedFile> + use<> {
        let [first, second] = match self {
            Work::Range(task) => task.files(),
            other => [other.file(), None],
        };
        first.into_iter().chain(second)
    }

    /// Returns the range of the file that the task may still access while it waits. `None` if the
    /// task accesses no range.
    fn reach(&self) -> Option<Reach> {
        match self {
            Work::Read(ReadTask { reading, .. }) => {
                Some(Reach::of(reading.file, (reading.offset, reading.length), None))
            }
            Work::Write(task) => Some(task.writing.reach()),
            Work::Size(task) => Some(task.reach()),
            Work::Range(task) => task.reach(),
            Work::Strand(strand) => Some(strand.reach()),
            // The writes of a batch repeat all checks after the verification of their bytes.
            Work::SealedBatch(_)
            | Work::Commit(_)
            | Work::Flush(_)
            | Work::Times(_)
            | Work::Fetch(_)
            | Work::Grant(_) => None,
        }
    }
}

impl From<RemainingWork> for Work {
    fn from(left: RemainingWork) -> Self {
        match left {
            RemainingWork::Commit(task) => Self::Commit(task),
            RemainingWork::Size(task) => Self::Size(task),
            RemainingWork::Times(task) => Self::Times(task),
            RemainingWork::Grant(task) => Self::Grant(task),
            RemainingWork::Range(task) => Self::Range(task),
        }
    }
}

/// The event that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The task waits for progress on this file.
    File(CachedFile),
    /// The task waits for free cache space. Progress on any file wakes it, because progress may
    /// free space.
    Room,
    /// The task waits for the completion of its own transfers.
    Transfers,
    /// The task waits until the journal record of its intent is durable.
    Journal,
    /// The task waits until its written data is on stable storage.
    Commit,
    /// The task waits until the undo data for its range is saved.
    Undo,
    /// The task waits for the checksum of its fetched bytes.
    Sum,
    /// The task waits for the result of its own job.
    Job,
    /// The task waits for the reactor that owns its connection, which must step it.
    Reactor,
}

/// A transfer that one reactor executes while other reactors take turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub id: TaskId,
    pub endpoint: EndpointId,
    pub file: CachedFile,
}

/// The table of parked tasks.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    slots: Vec<Option<Task>>,
    under_way: UnderWay,
    /// The transfers that reactors execute while other reactors take turns.
    moves: Vec<Move>,
    free: Vec<u32>,
    by_file: QuickMap<CachedFile, Vec<TaskId>>,
    for_room: Vec<TaskId>,
    /// For each slot, the serial number that its task got when it began to wait for transfers; 0 if
    /// it does not wait for transfers.
    began: Vec<u64>,
    last_began: u64,
}

impl Tasks {
    /// Reserves an id for a task that will be parked.
    pub(crate) fn reserve(&mut self) -> TaskId {
        TaskId(self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.began.push(0);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        }))
    }

    /// Releases an id that was reserved and is not used.
    pub(crate) fn forget(&mut self, id: TaskId) {
        self.free.push(id.0);
    }

    /// Adds an entry for a transfer that is executed while other reactors take turns. The other
    /// reactors treat the entry like a parked task.
    pub(crate) fn begin_move(&mut self, endpoint: EndpointId, reach: Reach) -> TaskId {
        let id = self.reserve();
        self.under_way.enter(id, Some(reach));
        self.moves.push(Move { id, endpoint, file: reach.file });
        id
    }

    /// Removes the entry of a transfer that has finished.
    pub(crate) fn end_move(&mut self, id: TaskId) {
        if let Some(place) = self.moves.iter().position(|other| other.id == id) {
            self.moves.remove(place);
        }
        self.under_way.leave(id);
        self.forget(id);
    }

    /// Returns the transfers that are executed while other reactors take turns.
    pub(crate) fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// Returns the parked task with this id. `None` if there is none.
    pub(crate) fn get(&self, id: TaskId) -> Option<&Task> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    /// Iterates over all parked tasks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        let named = |(index, task): (usize, _)| (TaskId(index as u32), task);
        self.slots.iter().enumerate().map(named).filter_map(|(id, task)| Some((id, task.as_ref()?)))
    }

    /// Removes a parked task from the lists of tasks that progress on a file wakes. Returns false
    /// if the task is in none of these lists, because it waits for an event that is certain to
    /// happen.
    pub(crate) fn unlist(&mut self, id: TaskId) -> bool {
        let Some(file) = self.get(id).map(|task| task.work.file()) else { return false };
        let take = |list: &mut Vec<TaskId>| {
            let place = list.iter().position(|other| *other == id);
            place.map(|place| list.swap_remove(place)).is_some()
        };
        let for_file = file.and_then(|file| self.by_file.get_mut(&file));
        for_file.is_some_and(take) || take(&mut self.for_room)
    }

    /// Parks a task under a reserved id.
    pub(crate) fn park(&mut self, id: TaskId, task: Task, wait: Wait) {
        self.under_way.enter(id, task.work.reach());
        if let Work::Range(range) = &task.work
            && let Some(reach) = range.source_reach()
        {
            self.under_way.enter_source(id, reach);
        }
        self.slots[id.0 as usize] = Some(task);
        match wait {
            Wait::File(file) => self.by_file.entry(file).or_default().push(id),
            Wait::Room => self.for_room.push(id),
            Wait::Transfers => {
                self.last_began += 1;
                self.began[id.0 as usize] = self.last_began;
            }
            Wait::Journal | Wait::Commit | Wait::Undo | Wait::Sum | Wait::Job | Wait::Reactor => {}
        }
    }

    /// Returns the tasks that wait for their own transfers, each with a serial number. A task that
    /// began to wait later has a higher number.
    pub(crate) fn with_transfers(&self) -> impl Iterator<Item = (u64, &Task)> {
        let slots = self.began.iter().zip(&self.slots).filter(|(began, _)| **began > 0);
        slots.filter_map(|(began, task)| Some((*began, task.as_ref()?)))
    }

    /// Returns true if tasks of other connections wait for cache space, or for progress on this
    /// file.
    pub(crate) fn is_awaited(&self, file: Option<CachedFile>, endpoint: EndpointId) -> bool {
        let is_other =
            |id: &TaskId| self.get(*id).is_some_and(|task| task.reply_to.endpoint != endpoint);
        let for_file = file.and_then(|file| self.by_file.get(&file));
        for_file.is_some_and(|waiters| waiters.iter().any(is_other))
            || self.for_room.iter().any(is_other)
    }

    /// Removes and returns a task to step it. The id stays reserved.
    pub(crate) fn take(&mut self, id: TaskId) -> Option<Task> {
        if let Some(began) = self.began.get_mut(id.0 as usize) {
            *began = 0;
        }
        self.under_way.leave(id);
        self.slots.get_mut(id.0 as usize)?.take()
    }

    /// Returns the parked task with this id for changes. `None` if there is none.
    pub(crate) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// Returns true if any task waits for progress on a file or for cache space.
    #[inline]
    pub(crate) fn await_progress(&self) -> bool {
        !(self.by_file.is_empty() & self.for_room.is_empty())
    }

    /// Removes and returns the ids of the tasks to retry after progress on a file: first those that
    /// wait for the file, then those that wait for cache space.
    pub(crate) fn woken_by(&mut self, file: CachedFile) -> [Vec<TaskId>; 2] {
        let for_file = self.by_file.remove(&file).unwrap_or_default();
        [for_file, std::mem::take(&mut self.for_room)]
    }

    /// Returns the ranges of files that parked tasks may still access.
    #[inline]
    pub(crate) fn under_way(&self) -> &UnderWay {
        &self.under_way
    }

    /// Returns the number of parked tasks.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
