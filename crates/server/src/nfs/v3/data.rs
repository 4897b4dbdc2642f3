//! The procedures READ, WRITE, COMMIT and READLINK.

use dafs_filer::IoKind;
use dafs_files::io::{IoFile, check_range};
use dafs_files::outcome::{Ended, Outcome};
use dafs_files::reading::Reading;
use dafs_nfs_wire::nfs3::{
    CommitArgs, CommitOk, CommitResult, FileArgs, ReadArgs, ReadLinkOk, ReadLinkResult, ReadOk,
    ReadResult, Stability as Asked, Status, WccData, WriteArgs, WriteOk, WriteResult,
};
use dafs_nfs_wire::xdr::{Opaque, Payload};
use dafs_ops::Commit;
use dafs_types::{CacheHint, FileHandle, Stability, StateId};

use super::attributes::TRANSFER_BYTES_MAX;
use super::{Before, Result, Service, Suspended, convert};
use crate::guests::GuestRead;
use crate::nfs::calls::{self, Progress};

impl Service<'_, '_, '_> {
    pub(super) fn read(&mut self, asked: &ReadArgs<'_>) -> Progress {
        let count = asked.count.min(self.transfer_bytes_max());
        let io = self.object(asked.file).and_then(|handle| {
            Ok((handle, self.file_for(&handle, IoKind::Read, (asked.offset, count))?))
        });
        let (handle, io) = match io {
            Ok(found) => found,
            Err(status) => {
                let attributes = self.attributes_of_object(asked.file);
                self.answer(&ReadResult::Fail(status, attributes));
                return Progress::Done;
            }
        };
        let to = self.wait_for(Suspended::Read(handle));
        let reading = Reading::new(io, asked.offset, count, CacheHint(0));
        self.reactor.read_for_guest(to, reading);
        Progress::Later
    }

    pub(super) fn finish_read(&mut self, handle: &FileHandle, found: &GuestRead) {
        let length = found.length();
        let attributes = self.recent_attributes(handle);
        let data = Payload::Elsewhere(length as usize);
        self.answer(&ReadResult::Ok(ReadOk { attributes, count: length, eof: found.is_end, data }));
    }

    pub(super) fn fail_read(&mut self, handle: &FileHandle, status: Status) {
        let attributes = self.attributes(handle);
        self.answer(&ReadResult::Fail(status, attributes));
    }

    /// Checks whether a READ or WRITE that no fence blocks is allowed, and returns its file.
    fn file_for(
        &mut self,
        handle: &FileHandle,
        kind: IoKind,
        (offset, length): (u64, u32),
    ) -> Result<IoFile> {
        // READ has no status for an offset that no file can have (RFC 1813 section 3.3.6).
        check_range(offset, length).map_err(|fault| match kind {
            IoKind::Read => Status::Inval,
            IoKind::Write => convert::status_of(fault),
        })?;
        let by = self.by.clone();
        let reach = (offset, u64::from(length));
        let checked = self.reactor.files().check_locks(StateId::ANONYMOUS, handle, reach, kind);
        checked.map_err(convert::status_of)?;
        let who = (&by, self.id.user);
        let found = self.desk.recent.file_for(self.reactor, who, handle, kind);
        found.map_err(|why| match self.not_done(why) {
            // READ and WRITE have no status of their own for pipes, sockets and devices.
            Status::BadType => Status::Inval,
            status => status,
        })
    }

    pub(super) fn write(&mut self, asked: &WriteArgs<'_>) -> Progress {
        let handle = match self.object(asked.file) {
            Ok(handle) => handle,
            Err(status) => {
                self.answer(&WriteResult::Fail(status, WccData::default()));
                return Progress::Done;
            }
        };
        let before = self.before(&handle);
        match self.begin_write(&handle, before, asked) {
            Ok(Some(outcome)) => self.finish_write(&handle, before, &outcome),
            Ok(None) => return Progress::Later,
            Err(status) => {
                let changes = self.changes(&handle, before);
                self.answer(&WriteResult::Fail(status, changes));
            }
        }
        Progress::Done
    }

    /// Starts a write. Returns the outcome if the write is already complete; `None` if the call
    /// must wait.
    fn begin_write(
        &mut self,
        handle: &FileHandle,
        before: Before,
        asked: &WriteArgs<'_>,
    ) -> Result<Option<Outcome>> {
        let Payload::Here(bytes) = asked.data else { return Err(Status::ServerFault) };
        // The count must be the length of the data (RFC 1813 section 3.3.7).
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length == asked.count);
        let length = length.filter(|length| *length <= TRANSFER_BYTES_MAX).ok_or(Status::Inval)?;
        self.reactor.shared.meter.count_nfs_write(&mut self.id.to.note, bytes.len());
        let io = self.file_for(handle, IoKind::Write, (asked.offset, length))?;
        let stability = match asked.stable {
            Asked::Unstable => Stability::Unstable,
            Asked::DataSync => Stability::DataSync,
            Asked::FileSync => Stability::FileSync,
        };
        let what = calls::Suspended::V3(self.by.clone(), Suspended::Write(*handle, before));
        let (calls, id) = (&mut *self.desk.calls, self.id);
        let start = || calls.start(id, what);
        Ok(self.reactor.write_for_guest(io, asked.offset, bytes, stability, start))
    }

    pub(super) fn finish_write(&mut self, handle: &FileHandle, before: Before, outcome: &Outcome) {
        let file = self.changes(handle, before);
        self.answer(&match &outcome.result {
            Ok(Ended::Written(written)) => WriteResult::Ok(WriteOk {
                file,
                count: written.length,
                committed: match written.committed {
                    Stability::Unstable => Asked::Unstable,
                    Stability::DataSync => Asked::DataSync,
                    Stability::FileSync => Asked::FileSync,
                },
                verifier: written.verifier.0,
            }),
            _ => WriteResult::Fail(convert::failure_of(outcome), file),
        });
    }

    pub(super) fn commit(&mut self, asked: &CommitArgs<'_>) -> Progress {
        let handle = match self.object(asked.file) {
            Ok(handle) => handle,
            Err(status) => {
                self.answer(&CommitResult::Fail(status, WccData::default()));
                return Progress::Done;
            }
        };
        let before = self.before(&handle);
        let (offset, length) = (asked.offset, u64::from(asked.count));
        let by = self.by.clone();
        let committed = self.reactor.files().commit(&by, &Commit { file: handle, offset, length });
        match committed {
            Ok(dafs_files::outcome::Now::Done(outcome)) => {
                self.finish_commit(&handle, before, &outcome);
            }
            Ok(dafs_files::outcome::Now::Later(left)) => {
                return self.follow(*left, Suspended::Commit(handle, before));
            }
            Err(fault) => {
                let status = self.failed(&handle, fault);
                let changes = self.changes(&handle, before);
                self.answer(&CommitResult::Fail(status, changes));
            }
        }
        Progress::Done
    }

    pub(super) fn finish_commit(&mut self, handle: &FileHandle, before: Before, outcome: &Outcome) {
        let file = self.changes(handle, before);
        self.answer(&match &outcome.result {
            Ok(Ended::Committed(committed)) => {
                CommitResult::Ok(CommitOk { file, verifier: committed.verifier.0 })
            }
            _ => CommitResult::Fail(convert::failure_of(outcome), file),
        });
    }

    pub(super) fn read_link(&mut self, asked: &FileArgs<'_>) {
        let text = self.object(asked.file).and_then(|handle| {
            let by = self.by.clone();
            let text = by.store().readlink(&by, &handle);
            text.map_err(|error| self.failed(&handle, error))
        });
        let attributes = self.attributes_of_object(asked.file);
        self.answer(&match &text {
            Ok(text) => ReadLinkResult::Ok(ReadLinkOk { attributes, target: Opaque(text) }),
            Err(status) => ReadLinkResult::Fail(*status, attributes),
        });
    }
}
