//! NFSACL version 3: POSIX access control lists.
//!
//! The store keeps POSIX lists, but shows them as lists of the protocol DAFS
//! (`docs/spec/acl.md`), which have no mask. So a list is shown with the permissions that the mask
//! leaves, and with the smallest mask that contains them.

use dafs_files::outcome::{Now, Outcome};
use dafs_nfs_wire::nfs3::Status;
use dafs_nfs_wire::nfsacl3::{
    Acl, AclEntry, AclKind, AclMask, Arguments, DEFAULT_ENTRY, ENTRIES_MAX, GetAclArgs, GetAclOk,
    GetAclResult, Procedure, SetAclArgs, SetAclResult,
};
use dafs_nfs_wire::rpc;
use dafs_nfs_wire::xdr::{List, Reader};
use dafs_ops::SetAttributes;
use dafs_store::acl::{Lists, PosixAcl, from_entries, to_entries};
use dafs_store::{Attributes, ExtrasWanted};
use dafs_types::{FileHandle, ObjectType, StateId};

use super::{Result, Service, Suspended, convert};
use crate::nfs::calls::{self, CallId, Desk, Progress};
use crate::reactor::Reactor;

/// Executes a call of NFSACL version 3.
pub(in crate::nfs) fn serve(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    id: CallId,
    procedure: u32,
    reader: &mut Reader<'_>,
) -> Progress {
    let Some(procedure) = Procedure::from_number(procedure) else {
        calls::fail(desk.writer, id.xid, rpc::Outcome::ProcUnavail);
        return Progress::Done;
    };
    let Ok(arguments) = Arguments::decode(procedure, reader) else {
        calls::fail(desk.writer, id.xid, rpc::Outcome::GarbageArgs);
        return Progress::Done;
    };
    let Some(by) = reactor.shared.channels.guests().get(id.user).map(|guest| guest.caller()) else {
        calls::fail(desk.writer, id.xid, rpc::Outcome::SystemErr);
        return Progress::Done;
    };
    calls::begin(desk.writer, id.xid);
    let mut service = Service { desk, reactor, id, by };
    match arguments {
        Arguments::Null(()) => {}
        Arguments::GetAcl(asked) => service.get_acl(&asked),
        Arguments::SetAcl(asked) => return service.set_acl(&asked),
    }
    Progress::Done
}

impl Service<'_, '_, '_> {
    fn get_acl(&mut self, asked: &GetAclArgs<'_>) {
        let found = self.object(asked.file).and_then(|handle| {
            let (attributes, lists) = self.lists(&handle)?;
            let acl = shown(asked.mask, &attributes, &lists);
            Ok(GetAclOk { attributes: Some(convert::shown(&handle, &attributes)), acl })
        });
        self.answer(&match found {
            Ok(found) => GetAclResult::Ok(found),
            Err(status) => GetAclResult::Fail(status, None),
        });
    }

    /// Returns the attributes and the lists of an object.
    fn lists(&mut self, handle: &FileHandle) -> Result<(Attributes, Lists)> {
        let by = self.by.clone();
        let found = self.reactor.files().attributes_of(&by, handle);
        let found = found.map_err(|error| self.failed(handle, error))?;
        let wanted = ExtrasWanted { acl: true, ..ExtrasWanted::default() };
        let extras = by.store().extras(&by, handle, wanted);
        let extras = extras.map_err(|error| self.failed(handle, error))?;
        let lists = match extras.acl {
            Some(entries) => {
                let is_directory = found.kind == ObjectType::Directory;
                from_entries(&entries, is_directory, found.uid).map_err(convert::status_of)?
            }
            None => Lists { access: PosixAcl::of_mode(found.mode), default: None },
        };
        Ok((found, lists))
    }

    fn set_acl(&mut self, asked: &SetAclArgs<'_>) -> Progress {
        let handle = match self.object(asked.file) {
            Ok(handle) => handle,
            Err(status) => {
                self.answer(&SetAclResult::Fail(status, None));
                return Progress::Done;
            }
        };
        match self.begin_set_acl(&handle, &asked.acl) {
            Ok(Now::Done(outcome)) => self.finish_set_acl(&handle, &outcome),
            Ok(Now::Later(left)) => {
                return self.follow(*left, Suspended::SetAcl(handle));
            }
            Err(status) => {
                let attributes = self.attributes(&handle);
                self.answer(&SetAclResult::Fail(status, attributes));
            }
        }
        Progress::Done
    }

    fn begin_set_acl(&mut self, handle: &FileHandle, asked: &Acl) -> Result<Now<Outcome>> {
        let (attributes, mut lists) = self.lists(handle)?;
        let is_directory = attributes.kind == ObjectType::Directory;
        if asked.mask.contains(AclMask::ACL) {
            lists.access = list_of(&asked.access.0, 0)?.ok_or(Status::Inval)?;
        }
        if asked.mask.contains(AclMask::DEFAULT) {
            lists.default = list_of(&asked.default.0, DEFAULT_ENTRY)?;
            if lists.default.is_some() && !is_directory {
                return Err(Status::Inval);
            }
        }
        let attributes = dafs_types::SetAttributes {
            acl: Some(to_entries(&lists, is_directory)),
            ..dafs_types::SetAttributes::default()
        };
        let ask = SetAttributes { file: *handle, state: StateId::ANONYMOUS, attributes };
        self.desk.recent.forget(self.reactor, handle);
        let by = self.by.clone();
        let set = self.reactor.files().set_attributes(&by, &ask);
        set.map_err(|why| self.not_done(why))
    }

    pub(super) fn finish_set_acl(&mut self, handle: &FileHandle, outcome: &Outcome) {
        let attributes = self.attributes(handle);
        self.answer(&match &outcome.result {
            Ok(_) => SetAclResult::Ok(attributes),
            Err(_) => SetAclResult::Fail(convert::failure_of(outcome), attributes),
        });
    }
}

/// Converts lists to the parts that a client asks for.
fn shown(mask: AclMask, attributes: &Attributes, lists: &Lists) -> Acl {
    let part = |list: Option<&PosixAcl>, bit: u32, entries: AclMask, count: AclMask| {
        let all = list.map_or_else(Vec::new, |list| entries_of(list, attributes, bit));
        let is_counted = mask.contains(entries) || mask.contains(count);
        let length = if is_counted { all.len() as u32 } else { 0 };
        (length, List::<_, ENTRIES_MAX>(if mask.contains(entries) { all } else { Vec::new() }))
    };
    let (access_count, access) = part(Some(&lists.access), 0, AclMask::ACL, AclMask::ACL_COUNT);
    let default = lists.default.as_ref();
    let (default_count, default) =
        part(default, DEFAULT_ENTRY, AclMask::DEFAULT, AclMask::DEFAULT_COUNT);
    Acl { mask, access_count, access, default_count, default }
}

/// Converts a list to entries, which always have a mask.
fn entries_of(list: &PosixAcl, attributes: &Attributes, bit: u32) -> Vec<AclEntry> {
    let entry =
        |kind: AclKind, id, permissions| AclEntry { kind: AclKind(kind.0 | bit), id, permissions };
    let mut entries = vec![entry(AclKind::USER_OBJECT, attributes.uid, list.owner)];
    entries.extend(list.users.iter().map(|(id, bits)| entry(AclKind::USER, *id, *bits)));
    entries.push(entry(AclKind::GROUP_OBJECT, attributes.gid, list.group));
    entries.extend(list.groups.iter().map(|(id, bits)| entry(AclKind::GROUP, *id, *bits)));
    entries.push(entry(AclKind::CLASS_OBJECT, 0, list.mask.unwrap_or(list.group)));
    entries.push(entry(AclKind::OTHER_OBJECT, 0, list.other));
    entries
}

/// Converts entries to a list. `None` if there are no entries.
fn list_of(entries: &[AclEntry], bit: u32) -> Result<Option<PosixAcl>> {
    if entries.is_empty() {
        return Ok(None);
    }
    let (mut owner, mut group, mut other, mut mask) = (None, None, None, None);
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    for entry in entries {
        let (bits, kind) = (entry.permissions, AclKind(entry.kind.0 & !bit));
        if bits > 7 {
            return Err(Status::Inval);
        }
        let single = match kind {
            AclKind::USER => {
                users.push((entry.id, bits));
                continue;
            }
            AclKind::GROUP => {
                groups.push((entry.id, bits));
                continue;
            }
            AclKind::USER_OBJECT => &mut owner,
            AclKind::GROUP_OBJECT => &mut group,
            AclKind::CLASS_OBJECT => &mut mask,
            AclKind::OTHER_OBJECT => &mut other,
            _ => return Err(Status::Inval),
        };
        if single.replace(bits).is_some() {
            return Err(Status::Inval);
        }
    }
    let (Some(owner), Some(group), Some(other)) = (owner, group, other) else {
        return Err(Status::Inval);
    };
    if users.is_empty() && groups.is_empty() {
        // Clients send a mask even with a list that needs none.
        let group = group & mask.unwrap_or(7);
        return Ok(Some(PosixAcl { owner, users, group, groups, mask: None, other }));
    }
    mask.ok_or(Status::Inval)?;
    Ok(Some(PosixAcl { owner, users, group, groups, mask, other }))
}
