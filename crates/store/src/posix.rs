//! The rules of POSIX for stores outside this crate that use permission bits only.
//!
//! Invariant: they are the same rules as those of the stores in this crate.

use dafs_types::{Credentials, FileHandle, FileSystemAttributes, ShareAccess};

use crate::attributes::{AttributeChanges, Attributes};
use crate::error::Result;
use crate::rules::{self, Guard};

/// Checks that an object is a regular file that the caller may open.
///
/// # Errors
/// `IsDirectory`, `IsSymlink` and `BadType` for other objects; `Access`.
pub fn check_open(who: &Credentials, found: &Attributes, access: ShareAccess) -> Result<()> {
    rules::check_open(who, bits_of(found), access)
}

/// Checks that the caller may give an object another name.
///
/// # Errors
/// `IsDirectory`, `NotPermitted`.
pub fn check_link(who: &Credentials, found: &Attributes) -> Result<()> {
    rules::check_link(who, bits_of(found))
}

/// Checks that the caller may create an object with these attributes.
///
/// # Errors
/// `NotPermitted` for an owner that the caller may not set; `Invalid` and `TooBig` for impossible
/// values.
pub fn check_new(who: &Credentials, changes: &AttributeChanges) -> Result<()> {
    rules::check_new(who, changes)
}

/// Checks a change of attributes, and removes mode bits that the caller may not set. A change that
/// passed needs no further permission.
///
/// # Errors
/// `NotPermitted`, `Access`; `IsDirectory`, `Invalid` and `TooBig` for an impossible size or
/// time.
pub fn check_changes(
    who: &Credentials,
    found: &Attributes,
    changes: &AttributeChanges,
) -> Result<AttributeChanges> {
    rules::check_changes(who, bits_of(found), changes)
}

/// The file system attributes that all stores have in common.
#[must_use]
pub fn common_fs_attributes(handle: &FileHandle) -> FileSystemAttributes {
    rules::common_fs_attributes(handle)
}

/// The guard of an object without an access control list.
fn bits_of(attributes: &Attributes) -> Guard<'_> {
    Guard::new(attributes, None)
}
