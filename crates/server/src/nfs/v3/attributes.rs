//! The procedures GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO and PATHCONF.

use dafs_filer::FileOperation;
use dafs_files::delegations::Told;
use dafs_files::outcome::{HolderQuery, NotDone, Now, Outcome};
use dafs_nfs_wire::nfs3::{
    AccessArgs, AccessOk, AccessResult, AccessRights, FileArgs, FsInfoOk, FsInfoResult,
    FsProperties, FsStatOk, FsStatResult, GetAttrResult, Handle, PathConfOk, PathConfResult,
    SetAttrArgs, Status, Time, WccData, WccResult,
};
use dafs_ops::SetAttributes;
use dafs_types::{AccessMask, FileHandle, FileSystemAttributes, StateId, limits};

use super::{Before, Result, Service, Suspended, convert};
use crate::nfs::calls::Progress;
use crate::nfs::told;

impl Service<'_, '_, '_> {
    pub(super) fn get_attributes(&mut self, asked: &FileArgs<'_>) -> Progress {
        let found = match self.begin_get_attributes(asked.file) {
            Ok((handle, _, Some(question))) => {
                let to = self.wait_for(Suspended::GetAttributes(handle));
                self.reactor.ask_holder_for_guest(to, question);
                return Progress::Later;
            }
            Ok((handle, found, None)) => Ok(convert::shown(&handle, &found)),
            Err(status) => Err(status),
        };
        self.answer_attributes(found);
        Progress::Done
    }

    /// Returns a file and its attributes, and a question to the client that may have changed what
    /// only it knows, because it holds a delegation for writing.
    fn begin_get_attributes(
        &mut self,
        given: Handle<'_>,
    ) -> Result<(FileHandle, dafs_store::Attributes, Option<HolderQuery>)> {
        let handle = self.object(given)?;
        let found = self.own_attributes(&handle)?;
        if self.reactor.shared.filer.has_no_delegations() {
            return Ok((handle, found, None));
        }
        match self.check_delegations(&handle, true) {
            Ok(()) => Ok((handle, found, None)),
            Err(NotDone::AwaitsHolder(question)) => Ok((handle, found, Some(*question))),
            Err(why) => Err(self.not_done(why)),
        }
    }

    fn own_attributes(&mut self, handle: &FileHandle) -> Result<dafs_store::Attributes> {
        let by = self.by.clone();
        let found = self.reactor.files().attributes_of(&by, handle);
        found.map_err(|error| self.failed(handle, error))
    }

    fn check_delegations(
        &mut self,
        handle: &FileHandle,
        may_ask: bool,
    ) -> std::result::Result<(), NotDone> {
        let (by, operation) = (self.by.clone(), FileOperation::GetAttributes { may_ask });
        self.reactor.files().check_delegations(&by, handle, operation)
    }

    /// Finishes a GETATTR with what the holder of a delegation has reported. If it has reported
    /// nothing, the delegation is recalled.
    pub(super) fn finish_get_attributes(&mut self, handle: &FileHandle, told: Told) {
        let found = self.attributes_with(handle, told);
        self.answer_attributes(found.map(|found| convert::shown(handle, &found)));
    }

    fn attributes_with(
        &mut self,
        handle: &FileHandle,
        told: Told,
    ) -> Result<dafs_store::Attributes> {
        if told == Told::Nothing {
            self.check_delegations(handle, false).map_err(|why| self.not_done(why))?;
        }
        let mut found = self.own_attributes(handle)?;
        told::overlay(told, &mut found);
        Ok(found)
    }

    fn answer_attributes(&mut self, found: Result<dafs_nfs_wire::nfs3::Attributes>) {
        self.answer(&match found {
            Ok(attributes) => GetAttrResult::Ok(attributes),
            Err(status) => GetAttrResult::Fail(status),
        });
    }

    pub(super) fn set_attributes(&mut self, asked: &SetAttrArgs<'_>) -> Progress {
        let handle = match self.object(asked.file) {
            Ok(handle) => handle,
            Err(status) => {
                self.answer(&WccResult::Fail(status, WccData::default()));
                return Progress::Done;
            }
        };
        let before = self.before(&handle);
        match self.begin_set_attributes(&handle, before, asked) {
            Ok(Now::Done(outcome)) => self.finish_set_attributes(&handle, before, &outcome),
            Ok(Now::Later(left)) => {
                return self.follow(*left, Suspended::SetAttributes(handle, before));
            }
            Err(status) => {
                let changes = self.changes(&handle, before);
                self.answer(&WccResult::Fail(status, changes));
            }
        }
        Progress::Done
    }

    fn begin_set_attributes(
        &mut self,
        handle: &FileHandle,
        before: Before,
        asked: &SetAttrArgs<'_>,
    ) -> Result<Now<Outcome>> {
        if let (Some(guard), Some(before)) = (asked.guard, before)
            && guard != before.change_time
        {
            return Err(Status::NotSync);
        }
        let settings = convert::settings(&asked.attributes)?;
        let ask = SetAttributes { file: *handle, state: StateId::ANONYMOUS, attributes: settings };
        self.desk.recent.forget(self.reactor, handle);
        let by = self.by.clone();
        let set = self.reactor.files().set_attributes(&by, &ask);
        set.map_err(|why| self.not_done(why))
    }

    pub(super) fn finish_set_attributes(
        &mut self,
        handle: &FileHandle,
        before: Before,
        outcome: &Outcome,
    ) {
        let changes = self.changes(handle, before);
        self.answer(&match &outcome.result {
            Ok(_) => WccResult::Ok(changes),
            Err(_) => WccResult::Fail(convert::failure_of(outcome), changes),
        });
    }

    pub(super) fn access(&mut self, asked: &AccessArgs<'_>) {
        let granted = self.granted(asked);
        let attributes = self.attributes_of_object(asked.file);
        self.answer(&match granted {
            Ok(rights) => AccessResult::Ok(AccessOk { attributes, rights }),
            Err(status) => AccessResult::Fail(status, attributes),
        });
    }

    fn granted(&mut self, asked: &AccessArgs<'_>) -> Result<AccessRights> {
        let handle = self.object(asked.file)?;
        let by = self.by.clone();
        // The bits of both protocols are the same.
        let wanted = AccessMask(asked.rights.0) & AccessMask::ALL;
        match by.store().access(&by, &handle, wanted) {
            Ok(granted) => Ok(AccessRights(granted.0)),
            Err(error) => Err(self.failed(&handle, error)),
        }
    }

    // ---- file systems -----------------------------------------------------------------

    fn file_system(&mut self, given: Handle<'_>) -> Result<(FileHandle, FileSystemAttributes)> {
        let handle = self.object(given)?;
        let by = self.by.clone();
        match by.store().fs_attributes(&by, &handle) {
            Ok(found) => Ok((handle, found)),
            Err(error) => Err(self.failed(&handle, error)),
        }
    }

    pub(super) fn file_system_state(&mut self, asked: &FileArgs<'_>) {
        let result = match self.file_system(asked.file) {
            Ok((handle, found)) => FsStatResult::Ok(FsStatOk {
                attributes: self.attributes(&handle),
                total_bytes: found.space_total.unwrap_or(0),
                free_bytes: found.space_free.unwrap_or(0),
                available_bytes: found.space_available.unwrap_or(0),
                total_files: found.files_total.unwrap_or(0),
                free_files: found.files_free.unwrap_or(0),
                available_files: found.files_available.unwrap_or(0),
                invariant_seconds: 0,
            }),
            Err(status) => FsStatResult::Fail(status, None),
        };
        self.answer(&result);
    }

    /// Returns the maximum number of bytes that a READ or WRITE transfers by the transport of this
    /// call.
    pub(super) fn transfer_bytes_max(&self) -> u32 {
        if self.id.is_datagram { DATAGRAM_BYTES_MAX } else { TRANSFER_BYTES_MAX }
    }

    pub(super) fn file_system_limits(&mut self, asked: &FileArgs<'_>) {
        let transfer_bytes_max = self.transfer_bytes_max();
        let result = match self.file_system(asked.file) {
            Ok((handle, found)) => FsInfoResult::Ok(FsInfoOk {
                attributes: self.attributes(&handle),
                read_max: transfer_bytes_max,
                read_preferred: transfer_bytes_max,
                read_multiple: 4096,
                write_max: transfer_bytes_max,
                write_preferred: transfer_bytes_max,
                write_multiple: 4096,
                directory_preferred: transfer_bytes_max.min(DIRECTORY_BYTES),
                file_bytes_max: found.max_file_size.unwrap_or(limits::FILE_OFFSET_MAX),
                time_delta: Time { seconds: 0, nanoseconds: 1 },
                properties: FsProperties::LINK
                    .with(FsProperties::SYMLINK)
                    .with(FsProperties::HOMOGENEOUS)
                    .with(FsProperties::CANSETTIME),
            }),
            Err(status) => FsInfoResult::Fail(status, None),
        };
        self.answer(&result);
    }

    pub(super) fn path_limits(&mut self, asked: &FileArgs<'_>) {
        let result = match self.file_system(asked.file) {
            Ok((handle, found)) => PathConfResult::Ok(PathConfOk {
                attributes: self.attributes(&handle),
                link_max: found.max_link.unwrap_or(1),
                name_bytes_max: found.max_name.unwrap_or(255),
                no_trunc: true,
                chown_restricted: true,
                case_insensitive: false,
                case_preserving: true,
            }),
            Err(status) => PathConfResult::Fail(status, None),
        };
        self.answer(&result);
    }
}

/// The maximum number of bytes that one READ or WRITE transfers.
pub(super) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// The same for a call that is a datagram: with its header, the bytes fit a datagram of 65,507
/// bytes.
const DATAGRAM_BYTES_MAX: u32 = 60 << 10;
/// The preferred size of a page of a directory listing, in bytes.
const DIRECTORY_BYTES: u32 = 64 << 10;
