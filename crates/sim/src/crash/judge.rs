//! The checker of histories. It decides for each reply whether the guarantees allow it, given all
//! failures that happened before.
//!
//! Invariant: each operation begins once and ends once: by its reply, by the report that it was not
//! executed, or by being settled. An operation is settled when it can no longer be executed and its
//! outcome will never be known.

use std::collections::{BTreeMap, HashMap};

use dafs_types::{FileHandle, Stability, Status};

use super::cells::{CellRange, Cells, Tick};
use super::fences::Fences;
use super::log::{Log, PAGE_RECORDS, RECORD_BYTES, stamp_of};
use super::requests::{CELL_BYTES, File, MemberIndex, MemberRequest, Reply, SIZE_BASE};
use super::space::Space;
use crate::operation::{Answer, FileNumber, NameOperation, OperationNumber};

/// The checker of a run of the crash world.
pub(super) struct Judge {
    space: Space,
    pub cells: Cells,
    pub log: Log,
    pub fences: Fences,
    begun: BTreeMap<u64, Begun>,
    handles: Vec<FileHandle>,
    numbers: HashMap<FileHandle, FileNumber>,
    /// The numbers of the files whose creation a reply has acknowledged.
    pub made: Vec<FileNumber>,
    tick: Tick,
    /// The moment at which the previous server ended.
    crashed: Tick,
}

#[derive(Debug)]
struct Begun {
    member: MemberIndex,
    ask: MemberRequest,
    at: Tick,
}

impl Judge {
    pub(super) fn new() -> Self {
        Self {
            space: Space::new(),
            cells: Cells::default(),
            log: Log::default(),
            fences: Fences::default(),
            begun: BTreeMap::new(),
            handles: Vec::new(),
            numbers: HashMap::new(),
            made: Vec::new(),
            tick: 0,
            crashed: 0,
        }
    }

    pub(super) fn now(&self) -> Tick {
        self.tick
    }

    /// Returns the moment at which an operation in flight began.
    pub(super) fn begun_at(&self, number: u64) -> Tick {
        self.begun.get(&number).map_or(self.tick, |begun| begun.at)
    }

    pub(super) fn handle_of(&self, file: FileNumber) -> FileHandle {
        self.handles[file.0 as usize]
    }

    fn number_of(&mut self, handle: FileHandle) -> FileNumber {
        let next = FileNumber(self.handles.len() as u32);
        let number = *self.numbers.entry(handle).or_insert(next);
        if number == next {
            self.handles.push(handle);
        }
        number
    }

    /// Returns the number of changes of names of which it is not known whether they were executed.
    pub(super) fn name_changes(&self) -> usize {
        self.space.changes_under_way()
    }

    /// Records that the server has ended. `loses_power` is true if the machine has lost power too.
    pub(super) fn crash(&mut self, loses_power: bool) {
        self.tick += 1;
        self.crashed = self.tick;
        self.cells.crash(self.tick);
        self.log.crash();
        if loses_power {
            self.space.lose_power();
        }
    }

    pub(super) fn begin(&mut self, number: u64, member: MemberIndex, ask: &MemberRequest) {
        self.tick += 1;
        match ask {
            MemberRequest::Names { operation, .. } => {
                self.space.begin(OperationNumber(number), operation)
            }
            MemberRequest::Append { id } => self.log.begin(*id, member),
            MemberRequest::Write { id, run, .. } => self.cells.begin(*id, member, *run, self.tick),
            MemberRequest::SetSize { id } => self.cells.begin(*id, member, SIZE, self.tick),
            MemberRequest::Fence { file, members } => {
                self.fences.begin(*file, self.tick);
                let is_in = |member| members.is_empty() || members.contains(&member);
                match file {
                    File::Log => self.log.let_in(is_in),
                    _ => self.cells.let_in(*file, is_in),
                }
            }
            _ => {}
        }
        self.begun.insert(number, Begun { member, ask: ask.clone(), at: self.tick });
    }

    /// Records that an operation was not executed.
    pub(super) fn cancel(&mut self, number: u64) -> Result<(), String> {
        let Some(begun) = self.begun.remove(&number) else { return Ok(()) };
        self.tick += 1;
        let judged = match &begun.ask {
            MemberRequest::Names { operation, .. } => {
                self.space.cancel(OperationNumber(number), operation)
            }
            MemberRequest::Append { id } => self.log.cancel(*id, self.tick),
            // A write whose connection broke may have been executed in part.
            MemberRequest::Write { id, .. } | MemberRequest::SetSize { id } => {
                self.cells.close(*id, self.tick);
                Ok(())
            }
            _ => Ok(()),
        };
        judged.map_err(|what| format!("{:?} was reported as not executed: {what}", begun.ask))
    }

    /// Records that an operation can no longer be executed, and that its outcome will never be
    /// known.
    pub(super) fn settle(&mut self, number: u64) -> Result<(), String> {
        let Some(begun) = self.begun.remove(&number) else { return Ok(()) };
        self.tick += 1;
        match &begun.ask {
            MemberRequest::Names { operation, .. } => {
                self.space.settle(OperationNumber(number), operation)
            }
            MemberRequest::Write { id, .. } | MemberRequest::SetSize { id } => {
                self.cells.close(*id, self.tick);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Ends an operation and checks its reply.
    pub(super) fn end(&mut self, number: u64, reply: &Reply) -> Result<(), String> {
        if *reply == Reply::Status(Status::Grace) {
            return self.refuse(number);
        }
        let Some(begun) = self.begun.remove(&number) else { return Ok(()) };
        self.tick += 1;
        let judged = match &begun.ask {
            MemberRequest::Names { operation, .. } => {
                self.end_names(number, operation, begun.at, reply)
            }
            MemberRequest::Append { .. }
            | MemberRequest::Write { .. }
            | MemberRequest::SetSize { .. }
            | MemberRequest::Commit { .. }
            | MemberRequest::Read { .. }
            | MemberRequest::ReadLog { .. }
            | MemberRequest::Size => self.end_content(&begun, reply),
            MemberRequest::Fence { file, members } => self.end_fence(*file, members, reply),
            _ => Ok(()),
        };
        judged.map_err(|what| format!("{:?} of member {}: {what}", begun.ask, begun.member))
    }

    /// Records that an operation was refused before it began.
    fn refuse(&mut self, number: u64) -> Result<(), String> {
        let write = self.begun.get(&number).and_then(|begun| match begun.ask {
            MemberRequest::Write { id, .. } | MemberRequest::SetSize { id } => Some(id),
            _ => None,
        });
        self.cancel(number)?;
        if let Some(id) = write {
            self.cells.refuse(id, self.tick);
        }
        Ok(())
    }

    fn end_names(
        &mut self,
        number: u64,
        operation: &NameOperation,
        begun: Tick,
        reply: &Reply,
    ) -> Result<(), String> {
        let answer = match reply {
            Reply::Status(status) => Answer::Status(*status),
            Reply::File(handle, _) => Answer::File(self.number_of(*handle)),
            Reply::Names(names) => {
                let number = |(name, handle): &(_, _)| (*name, self.number_of(*handle));
                Answer::Names(names.iter().map(number).collect())
            }
            Reply::Done => Answer::Done,
            other => return Err(format!("no answer to that: {other:?}")),
        };
        let number = OperationNumber(number);
        // A failure describes the state of the previous server, which may be lost with that server.
        let is_success = operation.changes() && !matches!(answer, Answer::Status(_));
        if begun < self.crashed && !is_success {
            return self.space.end_blindly(number, operation);
        }
        self.space.end(number, operation, &answer)?;
        if let (NameOperation::Create { .. }, Answer::File(file)) = (operation, answer) {
            self.made.push(file);
        }
        Ok(())
    }

    fn end_content(&mut self, begun: &Begun, reply: &Reply) -> Result<(), String> {
        let (now, at, member) = (self.tick, begun.at, begun.member);
        let file = match &begun.ask {
            MemberRequest::Write { run, .. } | MemberRequest::Read { run } => run.file,
            MemberRequest::Append { .. } | MemberRequest::ReadLog { .. } => File::Log,
            MemberRequest::Commit { file } => *file,
            _ => File::Data,
        };
        if let Reply::Status(status) = reply {
            return self.refuse_content(begun, file, *status);
        }
        // A successful reply of the previous server counts as much as one of the current server.
        self.fences.judge(file, member, at, true)?;
        match (&begun.ask, reply) {
            (MemberRequest::Append { id }, Reply::Offset(offset)) => {
                self.log.end(*id, *offset, now)
            }
            (MemberRequest::Write { id, run, stability, .. }, Reply::Written(length, verifier)) => {
                if *length as usize != usize::from(run.count) * CELL_BYTES {
                    return Err(format!("{length} bytes were written instead of all"));
                }
                let is_stable = *stability != Stability::Unstable;
                self.cells.end(*id, Some(*verifier), is_stable, now);
                Ok(())
            }
            (MemberRequest::SetSize { id }, Reply::Done) => {
                self.cells.end(*id, None, true, now);
                Ok(())
            }
            (MemberRequest::Commit { file }, Reply::Written(_, verifier)) => {
                self.cells.commit(*file, *verifier, at);
                Ok(())
            }
            (MemberRequest::Read { run }, Reply::Bytes(bytes)) => self.see_cells(run, bytes, at),
            (MemberRequest::Read { run }, Reply::FirstBytes(bytes)) => {
                self.see_cells(&run.first_of(bytes.len())?, bytes, at)
            }
            (MemberRequest::ReadLog { from }, Reply::Bytes(bytes)) => {
                let wanted = PAGE_RECORDS as usize * RECORD_BYTES;
                self.log.see(*from, bytes, wanted, at, now)
            }
            (MemberRequest::Size, Reply::Size(size)) => self.see_size(*size, at),
            (_, other) => Err(format!("no answer to that: {other:?}")),
        }
    }

    fn refuse_content(&mut self, begun: &Begun, file: File, status: Status) -> Result<(), String> {
        let (now, at, member) = (self.tick, begun.at, begun.member);
        let is_expected = match status {
            Status::Access => {
                self.fences.judge(file, member, at, false)?;
                true
            }
            Status::Locked | Status::StaleStateId => file == File::Locked,
            _ => false,
        };
        if !is_expected {
            return Err(format!("answered {status:?}"));
        }
        let was_out = self.fences.was_in(file, member, at) == Some(false);
        match &begun.ask {
            MemberRequest::Append { id } => self.log.cancel(*id, now),
            MemberRequest::Write { id, .. } | MemberRequest::SetSize { id }
                if status != Status::Access || was_out =>
            {
                self.cells.refuse(*id, now);
                Ok(())
            }
            MemberRequest::Write { id, .. } | MemberRequest::SetSize { id } => {
                self.cells.close(*id, now);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end_fence(
        &mut self,
        file: File,
        members: &[MemberIndex],
        reply: &Reply,
    ) -> Result<(), String> {
        match reply {
            Reply::Done => {}
            // The previous change of the list is still in flight.
            Reply::Status(Status::Delay) => return Ok(()),
            other => return Err(format!("answered {other:?}")),
        }
        let now = self.tick;
        self.fences.end(file, members.to_vec(), now);
        let is_out = |member| !members.is_empty() && !members.contains(&member);
        match file {
            File::Log => self.log.shut_out(is_out, now),
            _ => self.cells.shut_out(file, is_out, now),
        }
        Ok(())
    }

    /// Checks cells that were read between `begin` and now.
    pub(super) fn see_cells(
        &mut self,
        run: &CellRange,
        bytes: &[u8],
        begin: Tick,
    ) -> Result<(), String> {
        if begin < self.crashed {
            return Ok(());
        }
        if bytes.len() != usize::from(run.count) * CELL_BYTES {
            return Err(format!("{} bytes were read", bytes.len()));
        }
        for (index, bytes) in bytes.chunks(CELL_BYTES).enumerate() {
            let cell = run.first + index as u8;
            let id = stamp_of(bytes).ok_or_else(|| format!("cell {cell} is torn"))?;
            self.cells.see(run.file, cell, id, begin, self.tick)?;
        }
        Ok(())
    }

    /// Checks a size that was read between `begin` and now.
    pub(super) fn see_size(&mut self, size: u64, begin: Tick) -> Result<(), String> {
        if begin < self.crashed {
            return Ok(());
        }
        let id = size.checked_sub(SIZE_BASE).ok_or_else(|| format!("{size} bytes are left"))?;
        self.cells.see(SIZE.file, SIZE.first, id, begin, self.tick)
    }
}

/// A range of cells that stands for the size of the file of cells. The checker treats the size as
/// an additional cell.
const SIZE: CellRange = CellRange { file: File::Data, first: super::requests::CELLS, count: 1 };
