//! The POSIX permission rules, for stores outside this crate that use only permission bits.
//!
//! Invariant: the rules are those of the stores in this crate.

use dafs_types::{Credentials, FileHandle, FileSystemAttributes, ShareAccess};

use crate::attributes::{AttributeChanges, Attributes};
use crate::error::Result;
use crate::rules::{self, Guard};

/// Checks that an object is a regular file that the caller may open.
///
/// # Errors
/// `IsDirectory`, `IsSymlink` or `BadType` if the object is not a regular file; `Access` if the
/// caller may not open it.
pub fn check_open(who: &Credentials, found: &Attributes, access: ShareAccess) -> Result<()> {
    rules::check_open(who, bits_of(found), access)
}

/// Checks that the caller may give an object another name.
///
/// # Errors
/// `IsDirectory` for a directory; `NotPermitted` if the caller may not link the object.
pub fn check_link(who: &Credentials, found: &Attributes) -> Result<()> {
    rules::check_link(who, bits_of(found))
}

/// Checks that the caller may create an object with these attributes.
///
/// # Errors
/// `NotPermitted` for an owner that the caller may not set; `Invalid` or `TooBig` for invalid
/// values.
pub fn check_new(who: &Credentials, changes: &AttributeChanges) -> Result<()> {
    rules::check_new(who, changes)
}

/// Checks that the caller may make a change of attributes, and removes mode bits that the caller
/// may not set. A change that passed this check needs no further permission.
///
/// # Errors
/// `NotPermitted` or `Access` if the caller may not make the change; `IsDirectory`, `Invalid` or
/// `TooBig` for an invalid size or time.
pub fn check_changes(
    who: &Credentials,
    found: &Attributes,
    changes: &AttributeChanges,
) -> Result<AttributeChanges> {
    rules::check_changes(who, bits_of(found), changes)
}

/// Returns the file system attributes that all stores have in common.
#[must_use]
pub fn common_fs_attributes(handle: &FileHandle) -> FileSystemAttributes {
    rules::common_fs_attributes(handle)
}

/// Returns the guard of an object that has no access control list.
fn bits_of(attributes: &Attributes) -> Guard<'_> {
    Guard::new(attributes, None)
}
