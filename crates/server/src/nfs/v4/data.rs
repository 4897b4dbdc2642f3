//! The operations READ, WRITE and COMMIT.

use dafs_filer::IoKind;
use dafs_files::io::{IoFile, check_range};
use dafs_files::outcome::{Ended, Now, Outcome};
use dafs_files::reading::Reading;
use dafs_nfs_wire::nfs4::data::{CommitArgs, ReadArgs, ReadDone, WriteArgs, WriteDone};
use dafs_nfs_wire::nfs4::types::{Stability as Asked, Verifier};
use dafs_nfs_wire::nfs4::{Answer, Reply, Status};
use dafs_nfs_wire::xdr::{PAYLOADS_MAX, Payload};
use dafs_ops::Commit;
use dafs_store::Attributes;
use dafs_types::{CacheHint, FileHandle, ObjectType, Stability, StateId};

use super::attributes::TRANSFER_BYTES_MAX;
use super::compound::Service;
use super::convert;
use super::fault::{Result, failed, not_done};
use super::waiting::{Awaits, Did};
use crate::guests::GuestRead;

impl Service<'_, '_, '_> {
    pub(super) fn read(&mut self, asked: &ReadArgs) -> Result<Did> {
        if self.c.reads.len() >= PAYLOADS_MAX {
            return Err(Status::RepTooBig);
        }
        let handle = self.regular_file()?;
        let state = self.io_state(&asked.state, &handle)?;
        let room = self.desk.writer.room().saturating_sub(READ_HEAD_BYTES);
        let count = asked.count.min(TRANSFER_BYTES_MAX);
        let count = count.min(u32::try_from(room).unwrap_or(u32::MAX));
        let io = self.file_for(&handle, state, IoKind::Read, (asked.offset, count))?;
        let to = self.wait_for(Awaits::Read);
        let reading = Reading::new(io, asked.offset, count, CacheHint(0));
        self.reactor.read_for_guest(to, reading);
        Ok(Did::Later)
    }

    pub(super) fn end_read(&mut self, found: GuestRead) -> Status {
        let data = Payload::Elsewhere(found.length() as usize);
        let done = ReadDone { is_end: found.is_end, data };
        let _ = self.push(&Answer::Read(Reply::Ok(done)));
        self.c.reads.push(found);
        Status::Ok
    }

    /// Returns the current file handle. Fails if its object is not a regular file.
    pub(super) fn regular_file(&mut self) -> Result<FileHandle> {
        let handle = self.current()?;
        self.check_regular(&handle)?;
        Ok(handle)
    }

    /// Fails if an object is not a regular file.
    pub(super) fn check_regular(&mut self, handle: &FileHandle) -> Result<()> {
        check_regular_type(self.kind_of(handle)?)
    }

    /// Returns the current file handle, the attributes of its file, and the number of bytes that
    /// the file occupies without dirty data in the cache. Fails if it is no regular file.
    pub(super) fn regular_file_and_space(&mut self) -> Result<(FileHandle, Attributes, u64)> {
        let (handle, by) = (self.current()?, self.by()?);
        let (found, space_used) = match self.reactor.files().attributes_and_space(&by, &handle) {
            Ok(found) => found,
            Err(error) => return Err(failed(self.reactor, &handle, error)),
        };
        check_regular_type(found.kind)?;
        Ok((handle, found, space_used))
    }

    /// Checks whether a READ or WRITE is allowed, and returns its file.
    pub(super) fn file_for(
        &mut self,
        handle: &FileHandle,
        state: StateId,
        kind: IoKind,
        (offset, length): (u64, u32),
    ) -> Result<IoFile> {
        // READ has no status for an offset that no file can have (RFC 8881 section 15.2).
        check_range(offset, length).map_err(|fault| match kind {
            IoKind::Read => Status::Inval,
            IoKind::Write => convert::status_of(fault),
        })?;
        let by = self.by()?;
        let reach = (offset, u64::from(length));
        let mut files = self.reactor.files();
        files.check_fence(&by, handle).map_err(convert::status_of)?;
        files.check_locks(state, handle, reach, kind).map_err(convert::status_of)?;
        let opened = files.opened_file(by.party, state, handle, kind);
        if let Some(recent) = opened.map_err(convert::status_of)? {
            let seen = self.reactor.undo_seen();
            return Ok(recent.opened(seen));
        }
        let found = self.reactor.files().unopened_file(&by, state, handle, kind);
        found.map_err(|why| not_done(self.reactor, why))
    }

    pub(super) fn write(&mut self, asked: &WriteArgs<'_>) -> Result<Did> {
        let handle = self.regular_file()?;
        let state = self.io_state(&asked.state, &handle)?;
        let Payload::Here(bytes) = asked.data else { return Err(Status::ServerFault) };
        let bytes = &bytes[..bytes.len().min(TRANSFER_BYTES_MAX as usize)];
        let length = bytes.len() as u32;
        self.reactor.shared.meter.count_nfs_write(&mut self.c.id.to.note, bytes.len());
        let io = self.file_for(&handle, state, IoKind::Write, (asked.offset, length))?;
        let stability = match asked.stability {
            Asked::Unstable => Stability::Unstable,
            Asked::DataSync => Stability::DataSync,
            Asked::FileSync => Stability::FileSync,
        };
        let (calls, id) = (&mut *self.desk.calls, self.c.id);
        let start = || calls.reserve(id);
        let written = self.reactor.write_for_guest(io, asked.offset, bytes, stability, start);
        match written {
            Some(outcome) => self.follow(Awaits::Write, Now::Done(outcome)),
            None => {
                self.c.awaits = Some(Awaits::Write);
                Ok(Did::Later)
            }
        }
    }

    pub(super) fn end_write(&mut self, outcome: &Outcome) -> Status {
        let Ok(Ended::Written(written)) = &outcome.result else {
            return convert::failure_of(outcome);
        };
        let done = WriteDone {
            count: written.length,
            committed: match written.committed {
                Stability::Unstable => Asked::Unstable,
                Stability::DataSync => Asked::DataSync,
                Stability::FileSync => Asked::FileSync,
            },
            verifier: Verifier(written.verifier.0),
        };
        let _ = self.push(&Answer::Write(Reply::Ok(done)));
        Status::Ok
    }

    pub(super) fn commit(&mut self, asked: &CommitArgs) -> Result<Did> {
        let handle = self.regular_file()?;
        let (offset, length) = (asked.offset, u64::from(asked.count));
        if offset.checked_add(length).is_none() {
            return Err(Status::Inval);
        }
        let by = self.by()?;
        match self.reactor.files().commit(&by, &Commit { file: handle, offset, length }) {
            Ok(started) => self.follow(Awaits::Commit, started),
            Err(fault) => Err(failed(self.reactor, &handle, fault)),
        }
    }

    pub(super) fn end_commit(&mut self, outcome: &Outcome) -> Status {
        let Ok(Ended::Committed(committed)) = &outcome.result else {
            return convert::failure_of(outcome);
        };
        let _ = self.push(&Answer::Commit(Reply::Ok(Verifier(committed.verifier.0))));
        Status::Ok
    }
}

fn check_regular_type(kind: ObjectType) -> Result<()> {
    match kind {
        ObjectType::Regular | ObjectType::NamedAttribute => Ok(()),
        ObjectType::Directory | ObjectType::AttributeDirectory => Err(Status::IsDir),
        ObjectType::SymbolicLink => Err(Status::Symlink),
        _ => Err(Status::WrongType),
    }
}

/// The number of bytes of the result of a READ without the data: operation number, status,
/// end-of-file flag, length and padding.
const READ_HEAD_BYTES: usize = 20;
