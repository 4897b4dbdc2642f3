//! Requests that cannot be finished at once.
//!
//! Invariant: a task is in exactly one place: being stepped, waiting for a file,
//! waiting for room, or waiting for transfers of its own. While it waits its file stays
//! open in the cache. Tasks are bounded by the credits of all sessions, since each holds
//! one.

use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::locks::{ByteRange, LockMode};
use dafs_journal::RecordNumber;
use dafs_memory::Memory;
use dafs_ops::{AttributeSet, Close, LockSpan, Opened};
use dafs_store::AttributeChanges;
use dafs_store::cache::{CachedFile, CommitTicket, WriteToken};
use dafs_types::{CacheHint, FileHandle, QuickMap, Stability, StateId};
use dafs_wire::DirectBuffer;

use crate::batch::sealed::SealedBatch;
use crate::batch::strand::Strand;
use crate::caller::Asker;
use crate::reply_to::{ReplyTo, TaskId};
use crate::transfer::Staging;
use crate::undo::seen::UndoSeen;

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
    Octets(Box<[u8]>),
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
pub struct ReadTask {
    pub file: CachedFile,
    pub offset: u64,
    pub length: u32,
    pub done: u32,
    pub hint: CacheHint,
    pub target: ReadTarget,
    /// A file opened for this request alone (anonymous state).
    pub borrowed: bool,
}

impl ReadTask {
    /// Where in the file it goes on.
    pub fn place(&self) -> u64 {
        self.offset + u64::from(self.done)
    }
}

/// A write or append under way.
#[derive(Debug)]
pub struct WriteTask {
    pub file: CachedFile,
    pub offset: u64,
    pub length: u32,
    pub done: u32,
    pub stability: Stability,
    pub source: WriteSource,
    /// The room now being filled, and transfers into it not yet done.
    pub token: Option<WriteToken>,
    /// What it holds of the room for sealed writes.
    pub sealed_bytes: u32,
    pub transfers_left: u32,
    pub transfer_failed: bool,
    pub is_append: bool,
    /// The append has its place at the end of the file, which nobody else may take.
    pub has_place: bool,
    /// That is in the journal.
    pub has_intent: bool,
    pub borrowed: bool,
    /// Undo that was kept when it was let in.
    pub undo_seen: UndoSeen,
}

/// What a commit answers in the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CommitReply {
    Commit,
    Write {
        length: u32,
        stability: Stability,
    },
    /// With the place at the file's end, if the next append must wait for this one's outcome.
    Append {
        offset: u64,
        stability: Stability,
        has_place: bool,
    },
    Close {
        /// Not before this is durable.
        after: RecordNumber,
    },
    /// Nothing: strands of batches wait for it.
    Batches,
    /// What ends auto-recovery locks comes behind it.
    Ending(Ending),
    /// The file itself.
    HandOver(FileAsked),
}

/// A file that its reader asks for itself: under which open, and which delegation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FileAsked {
    pub file: FileHandle,
    pub state: StateId,
    pub delegation: StateId,
}

/// A request that makes final what was changed under auto-recovery locks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    Unlock(LockSpan),
    Close(Close),
}

/// Data on its way to the file or to stable storage.
#[derive(Debug)]
pub struct CommitTask {
    pub ticket: CommitTicket,
    pub file: CachedFile,
    pub reply: CommitReply,
    pub borrowed: bool,
}

/// A change of size on its way, other attributes follow.
#[derive(Debug)]
pub(crate) struct SizeTask {
    /// Who asked; the connection may be gone by the time it is done.
    pub who: Arc<Asker>,
    pub file: CachedFile,
    /// The file is open for this request alone.
    pub borrowed: bool,
    pub handle: FileHandle,
    pub size: u64,
    /// Undo that was kept when it was let in.
    pub undo_seen: UndoSeen,
    /// The job has been given away.
    pub started: bool,
    pub rest: AttributeChanges,
    pub set: AttributeSet,
    /// What to answer when the size is set: SETATTR's result, or that of an OPEN.
    pub reply: SizeReply,
}

/// Times to be set, once what was written before is in the file: its way there sets them, too.
#[derive(Debug)]
pub(crate) struct TimesTask {
    /// Who asked; the connection may be gone by the time it is done.
    pub who: Arc<Asker>,
    pub file: CachedFile,
    /// The file is open for this request alone.
    pub borrowed: bool,
    pub handle: FileHandle,
    pub ticket: CommitTicket,
    pub times: AttributeChanges,
    pub set: AttributeSet,
}

/// Who asked for a change of size.
#[derive(Clone, Debug)]
pub enum SizeReply {
    SetAttributes,
    Open(Box<(Opened, RecordNumber)>),
}

/// A granted lock whose answer waits for what others have under way.
#[derive(Debug)]
pub struct GrantTask {
    pub file: Option<CachedFile>,
    pub range: ByteRange,
    pub mode: LockMode,
    pub after: RecordNumber,
}

impl GrantTask {
    /// Whether somebody else's transfers are under way in the range.
    pub fn waits(&self, tasks: &Tasks) -> bool {
        self.file.is_some_and(|file| tasks.has_conflicting(file, self.range, self.mode))
    }
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

impl Work {
    /// The file it works on.
    pub fn file(&self) -> Option<CachedFile> {
        match self {
            Work::Read(task) => Some(task.file),
            Work::Write(task) => Some(task.file),
            Work::Commit(task) => Some(task.file),
            Work::Size(task) => Some(task.file),
            Work::Times(task) => Some(task.file),
            Work::Strand(strand) => Some(strand.file),
            Work::Fetch(_) | Work::Grant(_) | Work::SealedBatch(_) => None,
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
}

/// All parked tasks.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    slots: Vec<Option<Task>>,
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
        self.slots[id.0 as usize] = Some(task);
        match wait {
            Wait::File(file) => self.by_file.entry(file).or_default().push(id),
            Wait::Room => self.for_room.push(id),
            Wait::Transfers => {
                self.last_began += 1;
                self.began[id.0 as usize] = self.last_began;
            }
            Wait::Journal | Wait::Commit | Wait::Undo | Wait::Sum => {}
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

    /// Whether a read or write is parked that a lock stands against.
    pub fn has_conflicting(&self, file: CachedFile, range: ByteRange, mode: LockMode) -> bool {
        let meets = |offset: u64, length: u32| {
            let reach = ByteRange::new(offset, u64::from(length.max(1)));
            reach.is_none_or(|reach| reach.overlaps(range))
        };
        self.slots.iter().flatten().any(|task| match &task.work {
            Work::Read(read) => {
                read.file == file && mode == LockMode::Write && meets(read.offset, read.length)
            }
            Work::Write(write) if write.is_append && !write.has_place => write.file == file,
            Work::Write(write) => write.file == file && meets(write.offset, write.length),
            Work::Strand(strand) => {
                let minds = !strand.is_read() || mode == LockMode::Write;
                strand.file == file && minds && meets(strand.offset, strand.length)
            }
            Work::Size(size) => size.file == file && size.size <= range.last(),
            Work::Commit(_)
            | Work::Times(_)
            | Work::Fetch(_)
            | Work::Grant(_)
            | Work::SealedBatch(_) => false,
        })
    }

    /// Whether a change of a range is parked that has seen such undo when it was let in.
    pub fn has_change(
        &self,
        file: CachedFile,
        range: ByteRange,
        has_seen: impl Fn(UndoSeen) -> bool,
    ) -> bool {
        let meets = |offset: u64, length: u32| {
            let reach = ByteRange::new(offset, u64::from(length.max(1)));
            reach.is_none_or(|reach| reach.overlaps(range))
        };
        self.slots.iter().flatten().any(|task| match &task.work {
            Work::Write(write) => {
                let is_anywhere = write.is_append && !write.has_place;
                write.file == file
                    && has_seen(write.undo_seen)
                    && (is_anywhere || meets(write.offset, write.length))
            }
            Work::Strand(strand) => {
                !strand.is_read()
                    && strand.file == file
                    && has_seen(strand.undo_seen)
                    && meets(strand.offset, strand.length)
            }
            Work::Size(size) => {
                size.file == file && has_seen(size.undo_seen) && size.size <= range.last()
            }
            Work::Read(_)
            | Work::Commit(_)
            | Work::Times(_)
            | Work::Fetch(_)
            | Work::Grant(_)
            | Work::SealedBatch(_) => false,
        })
    }

    /// Whether something is parked that may yet change a file.
    pub fn is_changing(&self, file: CachedFile) -> bool {
        self.slots.iter().flatten().any(|task| match &task.work {
            Work::Write(write) => write.file == file,
            Work::Size(size) => size.file == file,
            Work::Strand(strand) => strand.file == file && !strand.is_read(),
            // Its octets pass everything again once they have been looked at.
            Work::SealedBatch(_) => false,
            Work::Read(_) | Work::Commit(_) | Work::Times(_) | Work::Fetch(_) | Work::Grant(_) => {
                false
            }
        })
    }

    /// Tasks parked now.
    pub fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
