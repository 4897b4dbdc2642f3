//! Rules that hold in every store: who may open what, who may change which attribute,
//! and what a store says of itself.
//!
//! Invariant: a change that passed [`check_changes`] needs no further permission.

use dafs_types::limits::{APPEND_BYTES_MAX, FILE_OFFSET_MAX, NAME_BYTES_MAX, TRANSFER_BYTES_MAX};
use dafs_types::permission::{self, EXECUTE, READ, WRITE};
use dafs_types::{Credentials, FileHandle, FileSystemAttributes, ObjectType, SetTime, ShareAccess};

use crate::attributes::{AttributeChanges, Attributes};
use crate::error::{Result, StoreError};

/// Checks that an object is a regular file and open to the asker.
pub(crate) fn check_open(who: &Credentials, found: &Attributes, access: ShareAccess) -> Result<()> {
    match found.kind {
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
    let bits = permission::granted(who, found.kind, found.uid, found.gid, found.mode);
    // Who may execute a file may read it: clients read what they execute.
    let may_read = bits & (READ | EXECUTE) != 0;
    if access.reads() && !may_read || access.writes() && bits & WRITE == 0 {
        return Err(StoreError::Access);
    }
    Ok(())
}

/// Checks a change of attributes against the rules of POSIX, and takes away what the
/// asker's identity does not carry.
pub(crate) fn check_changes(
    who: &Credentials,
    found: &Attributes,
    changes: &AttributeChanges,
) -> Result<AttributeChanges> {
    let is_owner = who.is_superuser() || who.uid == found.uid;
    let may_write = permission::allows(who, found.kind, found.uid, found.gid, found.mode, WRITE);
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
    if changes.uid.is_some_and(|uid| uid != found.uid) && !who.is_superuser() {
        return Err(StoreError::NotPermitted);
    }
    if let Some(gid) = changes.gid {
        let may = who.is_superuser() || is_owner && (gid == found.gid || who.in_group(gid));
        if !may {
            return Err(StoreError::NotPermitted);
        }
    }
    if let Some(size) = changes.size {
        if found.kind == ObjectType::Directory {
            return Err(StoreError::IsDirectory);
        }
        if found.kind != ObjectType::Regular {
            return Err(StoreError::Invalid);
        }
        if size > FILE_OFFSET_MAX {
            return Err(StoreError::TooBig);
        }
        if !may_write {
            return Err(StoreError::Access);
        }
        // The owner of set-id bits is about to be written over.
        let set_id = found.mode & 0o6000;
        if !who.is_superuser() && set_id != 0 && changes.mode.is_none() {
            allowed.mode = Some(found.mode & !0o6000);
        }
    }
    for time in [changes.time_access, changes.time_modify].into_iter().flatten() {
        match time {
            SetTime::Client(_) if !is_owner => return Err(StoreError::NotPermitted),
            SetTime::Client(time) if time.nanoseconds >= 1_000_000_000 => {
                return Err(StoreError::Invalid);
            }
            SetTime::Server if !is_owner && !may_write => return Err(StoreError::Access),
            SetTime::Client(_) | SetTime::Server => {}
        }
    }
    if found.kind == ObjectType::SymbolicLink && changes.mode.is_some() {
        allowed.mode = None;
    }
    Ok(allowed)
}

/// What all our stores say of themselves.
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
