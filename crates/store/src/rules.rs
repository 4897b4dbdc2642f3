//! The permission rules of all stores: which callers may open an object or change an attribute.
//! Also the file system attributes that are the same for all stores.
//!
//! Invariant: a change that passed [`check_changes`] needs no further permission.

use dafs_types::limits::{
    APPEND_BYTES_MAX, FILE_OFFSET_MAX, MIME_TYPE_BYTES_MAX, NAME_BYTES_MAX, TRANSFER_BYTES_MAX,
};
use dafs_types::permission::{self, EXECUTE, READ, WRITE};
use dafs_types::{
    AccessMask, Credentials, FileHandle, FileSystemAttributes, NO_ID, ObjectType, SetTime,
    ShareAccess,
};

use crate::acl::{self, Lists, PosixAcl};
use crate::attributes::{AttributeChanges, Attributes, Bits};
use crate::error::{Result, StoreError};
use crate::store::ExtraChanges;
use crate::xattrs::check_xattr_object;

/// The data that decides about access to an object: its permission bits and access control list.
#[derive(Clone, Copy)]
pub(crate) struct Guard<'a> {
    bits: Bits,
    acl: Option<&'a PosixAcl>,
}

impl<'a> Guard<'a> {
    /// Creates a guard. `acl` is the access control list, or `None` if the mode expresses all of
    /// it.
    pub(crate) fn new(bits: impl Into<Bits>, acl: Option<&'a PosixAcl>) -> Self {
        Self { bits: bits.into(), acl }
    }

    /// Returns true if the caller has all of the wanted permission bits.
    pub(crate) fn allows(&self, who: &Credentials, wanted: u32) -> bool {
        let Bits { kind, uid, gid, mode } = self.bits;
        match self.acl {
            Some(list) if !who.is_superuser() => list.allows(who, uid, gid, wanted),
            Some(_) | None => permission::allows(who, kind, uid, gid, mode, wanted),
        }
    }

    /// Returns the caller's access rights to the object. Each right is checked separately.
    pub(crate) fn access(&self, who: &Credentials) -> AccessMask {
        let bits = [READ, WRITE, EXECUTE].into_iter().filter(|bit| self.allows(who, *bit));
        permission::access_of(self.bits.kind, bits.sum())
    }
}

/// Checks that an object is a regular file that the caller may open.
pub(crate) fn check_open(who: &Credentials, guard: Guard<'_>, access: ShareAccess) -> Result<()> {
    match guard.bits.kind {
        ObjectType::Regular => {}
        ObjectType::Directory => return Err(StoreError::IsDirectory),
        ObjectType::SymbolicLink => return Err(StoreError::IsSymlink),
        ObjectType::BlockDevice
        | ObjectType::CharacterDevice
        | ObjectType::Socket
        | ObjectType::Fifo
        | ObjectType::AttributeDirectory
        | ObjectType::NamedAttribute => return Err(StoreError::BadType),
    }
    check_rights(who, guard, access)
}

/// Checks that the caller has the read and write permissions that an open asks for. Execute
/// permission does not allow reading: a caller without read permission may not open a file for
/// reading even in order to execute it, because an open does not say its purpose.
pub(crate) fn check_rights(who: &Credentials, guard: Guard<'_>, access: ShareAccess) -> Result<()> {
    let read = if access.reads() { READ } else { 0 };
    let write = if access.writes() { WRITE } else { 0 };
    if guard.allows(who, read | write) { Ok(()) } else { Err(StoreError::Access) }
}

/// Checks that the caller may give an object another name, as the kernel does for local users
/// (`fs.protected_hardlinks`). The owner may, and so may callers that may read and write a regular
/// file without set-id bits. Other users may not, because another name would keep the object alive
/// at the cost of the owner's space, and could keep an old version of a program available.
pub(crate) fn check_link(who: &Credentials, guard: Guard<'_>) -> Result<()> {
    let Bits { kind, uid, mode, .. } = guard.bits;
    if kind == ObjectType::Directory {
        return Err(StoreError::IsDirectory);
    }
    let runs_as_group = mode & 0o2010 == 0o2010;
    let is_plain = kind == ObjectType::Regular && mode & 0o4000 == 0 && !runs_as_group;
    let is_own = who.is_superuser() || who.uid() == uid;
    let may = is_own || is_plain && guard.allows(who, READ | WRITE);
    if may { Ok(()) } else { Err(StoreError::NotPermitted) }
}

/// Checks the values of attributes to set, because system calls would give some values a special
/// meaning.
fn check_values(changes: &AttributeChanges) -> Result<()> {
    let is_word = |id: Option<u32>| id == Some(NO_ID);
    let is_late = |time: Option<SetTime>| match time {
        Some(SetTime::Client(time)) => time.nanoseconds >= 1_000_000_000,
        Some(SetTime::Server) | None => false,
    };
    if is_word(changes.uid) || is_word(changes.gid) {
        return Err(StoreError::Invalid);
    }
    if is_late(changes.time_access) || is_late(changes.time_modify) {
        return Err(StoreError::Invalid);
    }
    let is_too_big = changes.size.is_some_and(|size| size > FILE_OFFSET_MAX);
    if is_too_big { Err(StoreError::TooBig) } else { Ok(()) }
}

/// Checks that the caller may create objects with these attributes and this owner.
pub(crate) fn check_new(who: &Credentials, changes: &AttributeChanges) -> Result<()> {
    check_values(changes)?;
    let is_own = changes.uid.is_none_or(|uid| uid == who.uid());
    let is_in = changes.gid.is_none_or(|gid| who.in_group(gid));
    if who.is_superuser() || is_own && is_in { Ok(()) } else { Err(StoreError::NotPermitted) }
}

/// Checks that the caller may make a change of attributes by the rules of POSIX, and removes mode
/// bits that the caller may not set.
pub(crate) fn check_changes(
    who: &Credentials,
    guard: Guard<'_>,
    changes: &AttributeChanges,
) -> Result<AttributeChanges> {
    check_values(changes)?;
    let found = guard.bits;
    let is_owner = who.is_superuser() || who.uid() == found.uid;
    let may_write = guard.allows(who, WRITE);
    let mut allowed = *changes;
    if let Some(mode) = changes.mode {
        if !is_owner {
            return Err(StoreError::NotPermitted);
        }
        let gid = changes.gid.unwrap_or(found.gid);
        if !who.is_superuser() && !who.in_group(gid) && found.kind != ObjectType::Directory {
            allowed.mode = Some(mode & !0o2000);
        }
    }
    // The owner may set the current owner again. Other callers may not, although that would change
    // no owner, because each such call clears set-id bits and capabilities and updates the time.
    if changes.uid.is_some_and(|uid| !is_owner || uid != found.uid) && !who.is_superuser() {
        return Err(StoreError::NotPermitted);
    }
    if let Some(gid) = changes.gid {
        let may = who.is_superuser() || is_owner && (gid == found.gid || who.in_group(gid));
        if !may {
            return Err(StoreError::NotPermitted);
        }
    }
    if changes.size.is_some() {
        if found.kind == ObjectType::Directory {
            return Err(StoreError::IsDirectory);
        }
        if found.kind != ObjectType::Regular {
            return Err(StoreError::Invalid);
        }
        if !may_write {
            return Err(StoreError::Access);
        }
        // A change of size overwrites data, so it clears the set-id bits as a write does.
        let left = without_set_ids(found.mode);
        if !who.is_superuser() && left != found.mode && changes.mode.is_none() {
            allowed.mode = Some(left);
        }
    }
    for time in [changes.time_access, changes.time_modify].into_iter().flatten() {
        match time {
            SetTime::Client(_) if !is_owner => return Err(StoreError::NotPermitted),
            SetTime::Server if !is_owner && !may_write => return Err(StoreError::Access),
            SetTime::Client(_) | SetTime::Server => {}
        }
    }
    if found.kind == ObjectType::SymbolicLink && changes.mode.is_some() {
        allowed.mode = None;
    }
    Ok(allowed)
}

/// Returns the mode after a write by a caller other than the superuser. A set-group-id bit without
/// execute permission for the group has another meaning and stays.
pub(crate) fn without_set_ids(mode: u32) -> u32 {
    mode & !(if mode & 0o010 != 0 { 0o6000 } else { 0o4000 })
}

/// Checks a change of an access control list or a MIME type. Returns the lists that result from the
/// change.
pub(crate) fn check_extras(
    who: &Credentials,
    guard: Guard<'_>,
    changes: &ExtraChanges,
) -> Result<Option<Lists>> {
    let found = guard.bits;
    if let Some(text) = &changes.mime_type {
        if text.len() > MIME_TYPE_BYTES_MAX {
            return Err(StoreError::Invalid);
        }
        if !matches!(found.kind, ObjectType::Regular | ObjectType::Directory) {
            return Err(StoreError::NotSupported);
        }
        if !guard.allows(who, WRITE) {
            return Err(StoreError::Access);
        }
        check_xattr_object(who, found, true)?;
    }
    let Some(entries) = &changes.acl else { return Ok(None) };
    if !who.is_superuser() && who.uid() != found.uid {
        return Err(StoreError::NotPermitted);
    }
    if found.kind == ObjectType::SymbolicLink {
        return Err(StoreError::NotSupported);
    }
    let is_directory = found.kind == ObjectType::Directory;
    acl::from_entries(entries, is_directory, found.uid).map(Some)
}

/// Returns the set-group-id bit if the object keeps it after this caller has set a list, else 0.
pub(crate) fn set_group_left(who: &Credentials, found: &Attributes) -> u32 {
    let keeps =
        who.is_superuser() || who.in_group(found.gid) || found.kind == ObjectType::Directory;
    if keeps { found.mode & 0o2000 } else { 0 }
}

/// Returns the file system attributes that all stores have in common.
pub(crate) fn common_fs_attributes(handle: &FileHandle) -> FileSystemAttributes {
    FileSystemAttributes {
        link_support: Some(true),
        symlink_support: Some(true),
        can_set_time: Some(true),
        case_insensitive: Some(false),
        case_preserving: Some(true),
        chown_restricted: Some(true),
        homogeneous: Some(true),
        no_trunc: Some(true),
        unique_handle: Some(true),
        max_name: Some(NAME_BYTES_MAX as u32),
        max_file_size: Some(FILE_OFFSET_MAX),
        max_read: Some(TRANSFER_BYTES_MAX.into()),
        max_write: Some(TRANSFER_BYTES_MAX.into()),
        max_append: Some(APPEND_BYTES_MAX.into()),
        fs_handle: Some(handle.fs()),
        preferred_io_size: Some(256 << 10),
        handle_expire_type: Some(0),
        ..FileSystemAttributes::default()
    }
}

/// The bits for the kinds of list entries that the stores support: allow and deny.
pub(crate) const ACL_KINDS: u32 = 1 | 2;
