//! The operations of version 4.2 on ranges of files: ALLOCATE, DEALLOCATE, SEEK, CLONE, COPY and
//! IO_ADVISE.
//!
//! A COPY copies in ascending order. A short one is complete before its reply; a long one may
//! continue after it (see `offload.rs`). The server uses no hint of IO_ADVISE.

use dafs_files::left::RemainingWork;
use dafs_files::outcome::{Ended, NotDone, Now, Outcome};
use dafs_nfs_wire::nfs4::copy::{CloneArgs, CopyArgs, CopyDone, CopyRequirements, CopyResult};
use dafs_nfs_wire::nfs4::data::{IoAdviseArgs, RangeArgs, SeekArgs, SeekDone};
use dafs_nfs_wire::nfs4::types::{Content, Stability as Shown, Verifier, WriteResponse};
use dafs_nfs_wire::nfs4::{Answer, Bitmap, OperationKind, Reply, StateId as Wire, Status};
use dafs_ops::{Copied, CopyRange, FileRange, Seek, SeekFor, Sought};
use dafs_types::{FileHandle, Stability, StateId};

use super::compound::Service;
use super::convert;
use super::fault::{Result, not_done};
use super::waiting::{Awaits, Did};

impl Service<'_, '_, '_> {
    pub(super) fn allocate(&mut self, asked: &RangeArgs) -> Result<Did> {
        let (by, ask) = (self.by()?, self.file_range(asked)?);
        let started = self.reactor.files().allocate(&by, &ask);
        self.follow_range(OperationKind::Allocate, started)
    }

    pub(super) fn deallocate(&mut self, asked: &RangeArgs) -> Result<Did> {
        let (by, ask) = (self.by()?, self.file_range(asked)?);
        let started = self.reactor.files().deallocate(&by, &ask);
        self.follow_range(OperationKind::Deallocate, started)
    }

    fn file_range(&mut self, asked: &RangeArgs) -> Result<FileRange> {
        let file = self.regular_file()?;
        let state = self.io_state(&asked.state, &file)?;
        // A client that has just seen the file through another request must see its new size.
        self.desk.recent.forget(self.reactor, &file);
        Ok(FileRange { file, state, offset: asked.offset, length: asked.length })
    }

    pub(super) fn seek(&mut self, asked: &SeekArgs) -> Result<Did> {
        let file = self.regular_file()?;
        let state = self.io_state(&asked.state, &file)?;
        let what = match asked.content {
            Content::Data => SeekFor::Data,
            Content::Hole => SeekFor::Hole,
            Content::Other(_) => return Err(Status::UnionNotSupp),
        };
        let by = self.by()?;
        let ask = Seek { file, state, offset: asked.offset, what };
        let started = self.reactor.files().seek(&by, &ask);
        self.follow_range(OperationKind::Seek, started)
    }

    pub(super) fn clone_range(&mut self, asked: &CloneArgs) -> Result<Did> {
        let offsets = (asked.source_offset, asked.target_offset);
        let states = (&asked.source_state, &asked.target_state);
        let (by, ask) = (self.by()?, self.copy_of(states, offsets, asked.count)?);
        let started = self.reactor.files().clone_range(&by, &ask);
        self.follow_range(OperationKind::Clone, started)
    }

    pub(super) fn copy_range(&mut self, asked: &CopyArgs<'_>) -> Result<Did> {
        if !asked.source_servers.is_empty() {
            return Err(Status::NotSupp);
        }
        let offsets = (asked.source_offset, asked.target_offset);
        let states = (&asked.source_state, &asked.target_state);
        let (by, ask) = (self.by()?, self.copy_of(states, offsets, asked.count)?);
        let started = self.reactor.files().copy_range(&by, &ask);
        match started {
            Ok(Now::Later(left)) if !asked.synchronous => match *left {
                RemainingWork::Range(task) => self.offload(task, ask.file).or_else(|task| {
                    let left = Box::new(RemainingWork::Range(task));
                    self.follow_range(OperationKind::Copy, Ok(Now::Later(left)))
                }),
                left => self.follow_range(OperationKind::Copy, Ok(Now::later(left))),
            },
            started => self.follow_range(OperationKind::Copy, started),
        }
    }

    /// Builds the request for a copy from the saved file to the current one.
    fn copy_of(
        &mut self,
        (source_state, state): (&Wire, &Wire),
        (source_offset, offset): (u64, u64),
        length: u64,
    ) -> Result<CopyRange> {
        let source = self.saved()?;
        let file = self.regular_file()?;
        self.check_regular(&source)?;
        let source_state = self.saved_io_state(source_state, &source)?;
        let state = self.io_state(state, &file)?;
        self.desk.recent.forget(self.reactor, &file);
        Ok(CopyRange { source, file, source_state, state, source_offset, offset, length })
    }

    pub(super) fn advise(&mut self, asked: &IoAdviseArgs) -> Result<Did> {
        let file = self.regular_file()?;
        self.io_state(&asked.state, &file)?;
        self.push(&Answer::IoAdvise(Reply::Ok(Bitmap::default())))
    }

    /// Ends an operation that has ended already, or makes the compound wait for the end.
    fn follow_range(
        &mut self,
        kind: OperationKind,
        started: std::result::Result<Now<Outcome>, NotDone>,
    ) -> Result<Did> {
        let started = started.map_err(|why| not_done(self.reactor, why))?;
        self.follow(Awaits::Range(kind), started)
    }

    /// Writes the result of an operation of this file that has ended. Returns its status.
    pub(super) fn end_range(&mut self, kind: OperationKind, outcome: &Outcome) -> Status {
        let answer = match &outcome.result {
            Ok(Ended::Ranged) => match kind {
                OperationKind::Allocate => Answer::Allocate(Status::Ok),
                OperationKind::Deallocate => Answer::Deallocate(Status::Ok),
                OperationKind::OffloadCancel => Answer::OffloadCancel(Status::Ok),
                _ => Answer::Clone(Status::Ok),
            },
            Ok(Ended::Sought(Sought { offset, is_end })) => {
                Answer::Seek(Reply::Ok(SeekDone { is_end: *is_end, offset: *offset }))
            }
            Ok(Ended::Copied(copied)) => Answer::Copy(CopyResult::Started(done_of(copied))),
            _ => return convert::failure_of(outcome),
        };
        let _ = self.push(&answer);
        Status::Ok
    }

    /// Returns the filer's state id for reading the saved file.
    fn saved_io_state(&mut self, given: &Wire, file: &FileHandle) -> Result<StateId> {
        // In the state id of the source, the special id stands for the saved state id.
        let current = std::mem::replace(&mut self.c.current_state, self.c.saved_state);
        let state = self.io_state(given, file);
        self.c.current_state = current;
        state
    }
}

fn done_of(copied: &Copied) -> CopyDone {
    let response = WriteResponse {
        callback: None,
        count: copied.length,
        committed: match copied.committed {
            Stability::Unstable => Shown::Unstable,
            Stability::DataSync => Shown::DataSync,
            Stability::FileSync => Shown::FileSync,
        },
        verifier: Verifier(copied.verifier.0),
    };
    CopyDone { response, requirements: CopyRequirements { consecutive: true, synchronous: true } }
}
