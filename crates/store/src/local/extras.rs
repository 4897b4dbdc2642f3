//! Access control lists, MIME types, and the attributes of file systems.
//!
//! Invariant: an attribute that a file system does not keep is reported as missing, and no value is
//! made up. The only exception is an access control list of three entries, because it is stored as
//! the mode.

use std::os::fd::{AsFd, BorrowedFd};

use dafs_memory::quota::Quota;
use dafs_types::limits::{ACL_ENTRIES_MAX, MIME_TYPE_BYTES_MAX, NAME_BYTES_MAX};
use dafs_types::permission::READ;
use dafs_types::{Credentials, FileHandle, FileSystemAttributes, ObjectType};
use rustix::fs::XattrFlags;

use super::node::{Node, Target};
use super::{LocalStore, sys, xattr};
use crate::acl::{self, Lists, PosixAcl};
use crate::attributes::{AttributeChanges, Attributes};
use crate::error::{Result, StoreError};
use crate::rules::{ACL_KINDS, Guard, check_extras, common_fs_attributes, set_group_left};
use crate::store::{ExtraChanges, Extras, ExtrasWanted};

/// Returns the POSIX access list of an object. `None` if the mode expresses the whole list.
pub(super) fn access_list(object: BorrowedFd<'_>) -> Result<Option<PosixAcl>> {
    list(object, ACCESS_LIST)
}

/// Returns the default list, which new objects in a directory get. `None` if there is none.
pub(super) fn default_list(object: BorrowedFd<'_>) -> Result<Option<PosixAcl>> {
    list(object, DEFAULT_LIST)
}

fn list(object: BorrowedFd<'_>, name: &[u8]) -> Result<Option<PosixAcl>> {
    match xattr::get(object, name) {
        Err(StoreError::NotSupported) | Ok(None) => Ok(None),
        // A list that cannot be parsed gives no access.
        Ok(Some(bytes)) => PosixAcl::parse(&bytes).map(Some).ok_or(StoreError::Access),
        Err(error) => Err(error),
    }
}

impl LocalStore {
    pub(super) fn node_extras(
        &self,
        who: &Credentials,
        node: &Node,
        wanted: ExtrasWanted,
    ) -> Result<Extras> {
        let found = self.live_status(node)?.attributes;
        let has_attributes = matches!(node.kind, ObjectType::Regular | ObjectType::Directory);
        let mut extras = Extras::default();
        if wanted.named_attributes {
            let any =
                has_attributes && xattr::user_names(node.fd()).is_ok_and(|names| !names.is_empty());
            extras.named_attributes = Some(any);
        }
        if wanted.acl && node.kind != ObjectType::SymbolicLink {
            // A list that is too long for the protocol is left out, so only local processes see it.
            extras.acl = lists(node, &found)?
                .map(|lists| acl::to_entries(&lists, node.kind == ObjectType::Directory))
                .filter(|list| list.len() <= ACL_ENTRIES_MAX);
        }
        if wanted.mime_type && has_attributes && self.allows(who, node, &found, READ)? {
            let value = xattr::get(node.fd(), MIME_TYPE).ok().flatten();
            let text = value.and_then(|value| String::from_utf8(value).ok());
            extras.mime_type = text.filter(|text| text.len() <= MIME_TYPE_BYTES_MAX);
        }
        Ok(extras)
    }

    pub(super) fn set_node_extras(
        &self,
        who: &Credentials,
        node: &Node,
        changes: &ExtraChanges,
    ) -> Result<()> {
        self.check_writable(node)?;
        let found = self.live_status(node)?.attributes;
        let acl = self.acl_for(who, node, &found)?;
        let lists = check_extras(who, Guard::new(&found, acl.as_ref()), changes)?;
        if let Some(lists) = lists {
            set_lists(node, &found, &lists)?;
            if set_group_left(who, &found) != found.mode & 0o2000 {
                let mode = Some(found.mode & 0o5000 | lists.access.mode());
                sys::apply(node.fd(), &AttributeChanges { mode, ..AttributeChanges::default() })?;
            }
        }
        match changes.mime_type.as_deref() {
            None => Ok(()),
            Some("") => match xattr::remove(node.fd(), MIME_TYPE) {
                Err(StoreError::NotFound) => Ok(()),
                other => other,
            },
            Some(text) => xattr::set(node.fd(), MIME_TYPE, text.as_bytes(), XattrFlags::empty()),
        }
    }

    /// Returns the attributes of the file system that contains an object.
    pub(super) fn file_system(
        &self,
        who: &Credentials,
        handle: &FileHandle,
    ) -> Result<FileSystemAttributes> {
        let node = match self.resolve(handle)? {
            Target::Virtual(_) => self.exports[0].root.clone(),
            Target::Node(node) | Target::Attributes(node) | Target::Attribute(node, _) => node,
        };
        // Query a directory of the file system, because a symbolic link yields fewer attributes.
        let mount = self.mount_of(node.export, node.file_system).ok();
        let mount = mount.as_ref().map_or(node.fd(), |mount| mount.as_fd());
        let space = rustix::fs::fstatvfs(mount)?;
        let magic = rustix::fs::fstatfs(mount)?.f_type;
        let quota = Quota::of_user(mount, who.uid()).ok();
        let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        let name_bytes = u32::try_from(space.f_namemax).unwrap_or(u32::MAX);
        let directory = if node.kind == ObjectType::Directory { node.fd() } else { mount };
        let keeps_lists = match xattr::get(mount, ACCESS_LIST) {
            Err(StoreError::NotSupported) => 0,
            Ok(_) | Err(_) => ACL_KINDS,
        };
        Ok(FileSystemAttributes {
            acl_support: Some(keeps_lists),
            case_insensitive: Some(is_case_insensitive(directory)),
            max_link: link_count_max(magic as u64),
            max_name: Some(name_bytes.min(NAME_BYTES_MAX as u32)),
            files_available: Some(space.f_favail),
            files_free: Some(space.f_ffree),
            files_total: Some(space.f_files),
            quota_hard: quota.and_then(|quota| left(quota.hard, quota.used)),
            quota_soft: quota.and_then(|quota| left(quota.soft, quota.used)),
            quota_used: quota.map(|quota| quota.used),
            space_available: Some(space.f_bavail.saturating_mul(space.f_frsize)),
            space_free: Some(space.f_bfree.saturating_mul(space.f_frsize)),
            space_total: Some(space.f_blocks.saturating_mul(space.f_frsize)),
            ..common_fs_attributes(handle)
        })
    }
}

/// Returns the access control lists of an object. `None` if one of them cannot be parsed.
fn lists(node: &Node, found: &Attributes) -> Result<Option<Lists>> {
    let read = |read: Result<Option<PosixAcl>>| match read {
        Err(StoreError::Access) => Ok(Err(())),
        other => other.map(Ok),
    };
    let Ok(access) = read(access_list(node.fd()))? else { return Ok(None) };
    let access = access.unwrap_or_else(|| PosixAcl::of_mode(found.mode));
    if node.kind != ObjectType::Directory {
        return Ok(Some(Lists { access, default: None }));
    }
    let default = read(default_list(node.fd()))?;
    Ok(default.ok().map(|default| Lists { access, default }))
}

/// Sets both lists of an object. The default list is set first, because setting it can fail even if
/// the access list is only a mode.
fn set_lists(node: &Node, found: &Attributes, lists: &Lists) -> Result<()> {
    let fd = node.fd();
    match &lists.default {
        Some(default) => xattr::set(fd, DEFAULT_LIST, &default.encode(), XattrFlags::empty())?,
        None if node.kind == ObjectType::Directory => match xattr::remove(fd, DEFAULT_LIST) {
            Ok(()) | Err(StoreError::NotFound | StoreError::NotSupported) => {}
            Err(error) => return Err(error),
        },
        None => {}
    }
    match xattr::set(fd, ACCESS_LIST, &lists.access.encode(), XattrFlags::empty()) {
        Err(StoreError::NotSupported) if lists.access.is_mode() => {
            let mode = Some(found.mode & 0o7000 | lists.access.mode());
            sys::apply(fd, &AttributeChanges { mode, ..AttributeChanges::default() })
        }
        other => other,
    }
}

/// Returns true if names in a directory are compared without regard to case (ext4 and f2fs:
/// casefold).
fn is_case_insensitive(directory: BorrowedFd<'_>) -> bool {
    let flags = sys::open_directory(directory).map(rustix::fs::ioctl_getflags);
    matches!(flags, Ok(Ok(flags)) if flags.bits() & CASEFOLD != 0)
}

/// Returns the maximum number of hard links of a file, as `pathconf` reports it. The number is
/// taken from the kernel's sources, because the kernel does not report it.
fn link_count_max(magic: u64) -> Option<u32> {
    match magic {
        EXT4 => Some(65_000),
        XFS => Some(i32::MAX as u32),
        BTRFS => Some(65_535),
        _ => None,
    }
}

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";
/// The extended attribute for the MIME type, which desktop environments use too.
const MIME_TYPE: &[u8] = b"user.mime_type";
/// The kernel's flag `FS_CASEFOLD_FL`: names in the directory are compared without regard to case.
const CASEFOLD: u32 = 0x4000_0000;
const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
