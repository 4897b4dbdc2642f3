//! Extended attributes of an object that is open as an `O_PATH` descriptor.
//!
//! Invariant: every call uses the kernel's own link to the descriptor, so that no name is resolved.
//! The results distinguish a missing attribute from an object that cannot have attributes.

use std::os::fd::BorrowedFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::sys::magic_path;
use crate::error::{Result, StoreError};

/// Returns the value of an attribute, if it exists.
pub(super) fn get(object: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let path = magic_path(object);
    let mut room = VALUE_BYTES_USUAL;
    loop {
        let mut value = Vec::with_capacity(room);
        let spare = rustix::buffer::spare_capacity(&mut value);
        match rustix::fs::getxattr(path.as_str(), name, spare) {
            Ok(_) => return Ok(Some(value)),
            Err(Errno::RANGE) if room < VALUE_BYTES_MAX => room = VALUE_BYTES_MAX,
            Err(Errno::NODATA) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the length of an attribute's value in bytes, if it exists.
pub(super) fn size(object: BorrowedFd<'_>, name: &[u8]) -> Result<Option<usize>> {
    match rustix::fs::getxattr_query(magic_path(object), name) {
        Ok(size) => Ok(Some(size)),
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sets an attribute: always, only if it does not exist, or only if it exists.
///
/// # Errors
/// `Exists` or `NotFound` if `how` forbids the call; `TooBig` if the value exceeds the limit of
/// Linux; `NoSpace` or `Quota` if the file system has no room.
pub(super) fn set(
    object: BorrowedFd<'_>,
    name: &[u8],
    value: &[u8],
    how: XattrFlags,
) -> Result<()> {
    match rustix::fs::setxattr(magic_path(object), name, value, how) {
        Err(Errno::NODATA) => Err(StoreError::NotFound),
        Err(Errno::TOOBIG | Errno::RANGE) => Err(StoreError::TooBig),
        other => Ok(other?),
    }
}

/// Removes an attribute. Fails with `NotFound` if it does not exist.
pub(super) fn remove(object: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    match rustix::fs::removexattr(magic_path(object), name) {
        Err(Errno::NODATA) => Err(StoreError::NotFound),
        other => Ok(other?),
    }
}

/// Returns the names of all user attributes, without their prefix.
pub(super) fn user_names(object: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>> {
    let path = magic_path(object);
    let mut list = Vec::new();
    loop {
        let size = rustix::fs::listxattr_query(path.as_str())?;
        if size == 0 {
            return Ok(Vec::new());
        }
        list.reserve_exact(size);
        // If the list has grown since its size was queried, the call is repeated.
        match rustix::fs::listxattr(path.as_str(), rustix::buffer::spare_capacity(&mut list)) {
            Ok(_) => break,
            Err(Errno::RANGE) if size < LIST_BYTES_MAX => {}
            Err(error) => return Err(error.into()),
        }
    }
    let names = list.split(|byte| *byte == 0).filter_map(|name| name.strip_prefix(USER_PREFIX));
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// The prefix of user attributes. Attributes with other prefixes belong to the system.
pub(super) const USER_PREFIX: &[u8] = b"user.";
/// A valid attribute name, with which a query shows whether a file system supports attributes.
pub(super) const SOME_NAME: &[u8] = b"user.mime_type";
/// The maximum length in bytes of an attribute's value on Linux (`XATTR_SIZE_MAX`).
pub(super) const VALUE_BYTES_MAX: usize = 65_536;
const VALUE_BYTES_USUAL: usize = 512;
/// The maximum total length in bytes of the names of an object's attributes on Linux
/// (`XATTR_LIST_MAX`).
const LIST_BYTES_MAX: usize = 65_536;
