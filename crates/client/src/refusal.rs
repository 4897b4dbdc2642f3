//! Turns refusals of a server, and local refusals, into errors.
//!
//! Invariant: every error names the object of the request.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use dafs_types::{SetAttributes, Status};
use dafs_wire::ByteOrder;
use dafs_wire::attributes::FileAttributeBlock;

use crate::error::{ClientError, Result};
use crate::path::{label, wire};

/// Encodes attributes to be set.
pub(crate) fn encode_set<'b>(
    wanted: &SetAttributes,
    buffer: &'b mut [u8],
    path: &OsStr,
) -> Result<FileAttributeBlock<'b>> {
    FileAttributeBlock::encode_set(ByteOrder::NATIVE, wanted, buffer)
        .map_err(|error| failed(path, error.status()))
}

pub(crate) fn done(path: &(impl AsRef<OsStr> + ?Sized), status: Status) -> Result<()> {
    if status == Status::Ok { Ok(()) } else { Err(failed(path, status)) }
}

pub(crate) fn failed(path: &(impl AsRef<OsStr> + ?Sized), status: Status) -> ClientError {
    match status {
        // The reply belongs to another procedure; decoding has already ruled this out.
        Status::Ok => failed(path, Status::ServerFault),
        status => ClientError::Status { what: label(path.as_ref()).into_owned(), status },
    }
}

/// Encodes the last name of a path for a message. Fails for the root, which has no name.
pub(crate) fn name_of<'n>(name: &'n OsStr, path: &OsStr) -> Result<Cow<'n, str>> {
    match name.as_bytes() {
        b"" | b"." | b".." => Err(failed(path, Status::Inval)),
        _ => Ok(wire(name)),
    }
}
