//! Requests that cannot be finished at once.
//!
//! Invariant: a task is in exactly one place: being stepped, waiting for a file,
//! waiting for room, or waiting for transfers of its own. While it waits its file stays
//! open in the cache. Tasks are bounded by the credits of all sessions, since each holds
//! one.

use dafs_dat::EndpointId;
use dafs_files::handing::FileAsked;
use dafs_files::left::{CommitTask, GrantTask, Left, SizeTask, TimesTask};
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

/// The client's buffers for direct data. Nearly always one.
#[derive(Clone, Debug)]
pub enum Buffers {
    One(DirectBuffer),
    Many(Box<[DirectBuffer]>),
}

impl Buffers {
    pub fn as_slice(&self) -> &[DirectBuffer] {
        match self {
            Buffers::One(buffer) => std::slice::from_ref(buffer),
            Buffers::Many(buffers) => buffers,
        }
    }
}

/// Where the bytes of a read go.
#[derive(Clone, Debug)]
pub enum ReadTarget {
    Inline,
    Direct(Buffers),
    /// By RDMA with a checksum: the bytes are gathered first, since where they lie a
    /// write may change them between the sum and the transfer.
    Sealed(Buffers, Vec<u8>),
}

/// Where the bytes of a write come from.
#[derive(Clone, Debug)]
pub enum WriteSource {
    /// They are here: they came with the request, or were fetched and looked at.
    Bytes(Box<[u8]>),
    /// They are fetched into the cache.
    Direct(Buffers),
    /// They have a checksum, and are looked at before the cache has them.
    Sealed {
        buffers: Buffers,
        expected: dafs_wire::Checksum,
        /// Where they are fetched to, once they are.
        staging: Option<Staging>,
    },
    /// They are here, and are being looked at.
    Fetched {
        memory: Memory,
        expected: dafs_wire::Checksum,
        /// What they sum up to, once that is known.
        sum: Option<Result<dafs_wire::Checksum, dafs_types::Status>>,
    },
    /// They are here, and as they should be.
    Good(Memory),
}

/// A read under way.
#[derive(Debug)]
pub(crate) struct ReadTask {
    pub reading: Reading,
    pub target: ReadTarget,
}

/// A write or append under way.
#[derive(Debug)]
pub(crate) struct WriteTask {
    pub writing: Writing,
    pub source: WriteSource,
    /// What it holds of the room for sealed writes.
    pub sealed_bytes: u32,
    /// Transfers into its room that are not done yet.
    pub transfers_left: u32,
    pub transfer_failed: bool,
}

impl WriteTask {
    /// One that has not begun.
    pub fn new(writing: Writing, source: WriteSource) -> Self {
        Self { writing, source, sealed_bytes: 0, transfers_left: 0, transfer_failed: false }
    }
}

/// Data on its way to the file or to stable storage, for somebody here who goes on then.
#[derive(Debug)]
pub(crate) struct FlushTask {
    pub ticket: CommitTicket,
    pub file: CachedFile,
    pub whose: FlushOf,
}

/// Who waits for data to be in its file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FlushOf {
    /// Strands of batches.
    Batches,
    /// Whoever is to get the file itself.
    HandOver(FileAsked),
}

/// Client data fetched before a request can be understood (SETATTR_DIRECT).
#[derive(Debug)]
pub struct FetchTask {
    pub staging: Staging,
    pub transfers_left: u32,
    pub failed: bool,
    pub handle: FileHandle,
    pub state: dafs_types::StateId,
    pub checksum: dafs_wire::Checksum,
    pub length: u32,
}

/// A request that could not be finished at once: what is left to do of it, and where its reply
/// goes.
#[derive(Debug)]
pub(crate) struct Task {
    pub reply_to: ReplyTo,
    pub work: Work,
}

/// What is left to do.
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
    Strand(Box<Strand>),
    SealedBatch(Box<SealedBatch>),
}

impl Task {
    #[inline]
    pub fn new(reply_to: ReplyTo, work: Work) -> Self {
        Self { reply_to, work }
    }
}

impl Task {
    /// The connection that its transfers go over: whose reactor steps it.
    #[inline]
    pub fn moves_over(&self) -> EndpointId {
        match &self.work {
            Work::Strand(strand) if strand.is_read() => strand.over,
            _ => self.reply_to.endpoint,
        }
    }
}

impl Work {
    /// The file it works on.
    pub fn file(&self) -> Option<CachedFile> {
        match self {
            Work::Read(task) => Some(task.reading.file),
            Work::Write(task) => Some(task.writing.file),
            Work::Commit(task) => Some(task.file),
            Work::Flush(task) => Some(task.file),
            Work::Size(task) => Some(task.file),
            Work::Times(task) => Some(task.file),
            Work::Strand(strand) => Some(strand.file),
            Work::Fetch(_) | Work::Grant(_) | Work::SealedBatch(_) => None,
        }
    }

    /// What it may yet do to its file while it waits.
    fn reach(&self) -> Option<Reach> {
        match self {
            Work::Read(ReadTask { reading, .. }) => {
                Some(Reach::of(reading.file, (reading.offset, reading.length), None))
            }
            Work::Write(task) => Some(task.writing.reach()),
            Work::Size(task) => Some(task.reach()),
            Work::Strand(strand) => Some(strand.reach()),
            // What a batch writes passes everything again once it has been looked at.
            Work::SealedBatch(_)
            | Work::Commit(_)
            | Work::Flush(_)
            | Work::Times(_)
            | Work::Fetch(_)
            | Work::Grant(_) => None,
        }
    }
}

impl From<Left> for Work {
    fn from(left: Left) -> Self {
        match left {
            Left::Commit(task) => Self::Commit(task),
            Left::Size(task) => Self::Size(task),
            Left::Times(task) => Self::Times(task),
            Left::Grant(task) => Self::Grant(task),
        }
    }
}

/// Why a task stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until something moves on this file.
    File(CachedFile),
    /// Until something moves anywhere.
    Room,
    /// Until its own transfers are done.
    Transfers,
    /// Until the journal has its intent.
    Journal,
    /// Until what it has written is stable.
    Commit,
    /// Until what it overwrites is saved.
    Undo,
    /// Until what was fetched for it is summed.
    Sum,
    /// Until the reactor that has its connection goes on with it.
    Reactor,
}

/// A transfer that a reactor carries out while others have their turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub id: TaskId,
    pub endpoint: EndpointId,
    pub file: CachedFile,
}

/// All parked tasks.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    slots: Vec<Option<Task>>,
    under_way: UnderWay,
    /// Transfers that a reactor carries out while others have their turns.
    moves: Vec<Move>,
    free: Vec<u32>,
    by_file: QuickMap<CachedFile, Vec<TaskId>>,
    for_room: Vec<TaskId>,
    /// By slot, of those that wait for transfers: which has waited longer. 0 for all others.
    began: Vec<u64>,
    last_began: u64,
}

impl Tasks {
    /// A name for a task that is about to be parked.
    pub fn reserve(&mut self) -> TaskId {
        TaskId(self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.began.push(0);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        }))
    }

    /// Gives an unused name back.
    pub fn forget(&mut self, id: TaskId) {
        self.free.push(id.0);
    }

    /// A transfer goes on while others have their turns: they find it as if it were parked.
    pub fn begin_move(&mut self, endpoint: EndpointId, reach: Reach) -> TaskId {
        let id = self.reserve();
        self.under_way.enter(id, Some(reach));
        self.moves.push(Move { id, endpoint, file: reach.file });
        id
    }

    /// A transfer is over.
    pub fn end_move(&mut self, id: TaskId) {
        if let Some(place) = self.moves.iter().position(|other| other.id == id) {
            self.moves.remove(place);
        }
        self.under_way.leave(id);
        self.forget(id);
    }

    /// Transfers that go on while others have their turns.
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// A parked task.
    pub fn get(&self, id: TaskId) -> Option<&Task> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    /// Every parked task.
    pub fn iter(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        let named = |(index, task): (usize, _)| (TaskId(index as u32), task);
        self.slots.iter().enumerate().map(named).filter_map(|(id, task)| Some((id, task.as_ref()?)))
    }

    /// Takes a parked task's name out of what progress wakes. False if it waits for
    /// something else, which will come.
    pub fn unlist(&mut self, id: TaskId) -> bool {
        let Some(file) = self.get(id).map(|task| task.work.file()) else { return false };
        let take = |list: &mut Vec<TaskId>| {
            let place = list.iter().position(|other| *other == id);
            place.map(|place| list.swap_remove(place)).is_some()
        };
        let for_file = file.and_then(|file| self.by_file.get_mut(&file));
        for_file.is_some_and(take) || take(&mut self.for_room)
    }

    /// Parks a task under its name.
    pub fn park(&mut self, id: TaskId, task: Task, wait: Wait) {
        self.under_way.enter(id, task.work.reach());
        self.slots[id.0 as usize] = Some(task);
        match wait {
            Wait::File(file) => self.by_file.entry(file).or_default().push(id),
            Wait::Room => self.for_room.push(id),
            Wait::Transfers => {
                self.last_began += 1;
                self.began[id.0 as usize] = self.last_began;
            }
            Wait::Journal | Wait::Commit | Wait::Undo | Wait::Sum | Wait::Reactor => {}
        }
    }

    /// Tasks that wait for transfers of their own, each with a number that is higher than those
    /// of tasks that began to wait before.
    pub fn with_transfers(&self) -> impl Iterator<Item = (u64, &Task)> {
        let slots = self.began.iter().zip(&self.slots).filter(|(began, _)| **began > 0);
        slots.filter_map(|(began, task)| Some((*began, task.as_ref()?)))
    }

    /// Whether others than this connection wait for room, or for something to move on a file.
    pub fn is_awaited(&self, file: Option<CachedFile>, endpoint: EndpointId) -> bool {
        let is_other =
            |id: &TaskId| self.get(*id).is_some_and(|task| task.reply_to.endpoint != endpoint);
        let for_file = file.and_then(|file| self.by_file.get(&file));
        for_file.is_some_and(|waiters| waiters.iter().any(is_other))
            || self.for_room.iter().any(is_other)
    }

    /// Takes a task to step it; its name stays reserved.
    pub fn take(&mut self, id: TaskId) -> Option<Task> {
        if let Some(began) = self.began.get_mut(id.0 as usize) {
            *began = 0;
        }
        self.under_way.leave(id);
        self.slots.get_mut(id.0 as usize)?.take()
    }

    /// A parked task that waits for transfers.
    pub fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// Whether anything would be tried again after progress on some file.
    #[inline]
    pub fn await_progress(&self) -> bool {
        !(self.by_file.is_empty() & self.for_room.is_empty())
    }

    /// Everything to be tried again after progress on a file: what waits for the file, and
    /// what waits for room.
    pub fn woken_by(&mut self, file: CachedFile) -> [Vec<TaskId>; 2] {
        let for_file = self.by_file.remove(&file).unwrap_or_default();
        [for_file, std::mem::take(&mut self.for_room)]
    }

    /// What parked tasks may yet do to files.
    #[inline]
    pub fn under_way(&self) -> &UnderWay {
        &self.under_way
    }

    /// Tasks parked now.
    pub fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
