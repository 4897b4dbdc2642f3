//! The rules of POSIX for stores that are kept elsewhere and go by permission bits alone.
//!
//! Invariant: the same rules as in the stores here.

use dafs_types::{Credentials, FileHandle, FileSystemAttributes, ShareAccess};

use crate::attributes::{AttributeChanges, Attributes};
use crate::error::Result;
use crate::rules::{self, Guard};

/// Checks that an object is a regular file and open to the asker.
///
/// # Errors
/// `IsDirectory`, `IsSymlink` and `BadType` for other things; `Access`.
pub fn check_open(who: &Credentials, found: &Attributes, access: ShareAccess) -> Result<()> {
    rules::check_open(who, bits_of(found), access)
}

/// Checks that the asker may give an object another name.
///
/// # Errors
/// `IsDirectory`, `NotPermitted`.
pub fn check_link(who: &Credentials, found: &Attributes) -> Result<()> {
    rules::check_link(who, bits_of(found))
}

/// Checks that the asker may make an object with these attributes.
///
/// # Errors
/// `NotPermitted` for an owner that could not be given; `Invalid` and `TooBig` for what cannot be.
pub fn check_new(who: &Credentials, changes: &AttributeChanges) -> Result<()> {
    rules::check_new(who, changes)
}

/// Checks a change of attributes, and takes away what the asker's identity does not carry.
/// A change that passed needs no further permission.
///
/// # Errors
/// `NotPermitted`, `Access`; `IsDirectory`, `Invalid` and `TooBig` for a size or a time
/// that cannot be.
pub fn check_changes(
    who: &Credentials,
    found: &Attributes,
    changes: &AttributeChanges,
) -> Result<AttributeChanges> {
    rules::check_changes(who, bits_of(found), changes)
}

/// What all stores say of themselves.
#[must_use]
pub fn common_fs_attributes(handle: &FileHandle) -> FileSystemAttributes {
    rules::common_fs_attributes(handle)
}

/// An object without an access control list.
fn bits_of(attributes: &Attributes) -> Guard<'_> {
    Guard::new(attributes, None)
}
