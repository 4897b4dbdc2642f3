//! Paths and names, as callers see them and as they are encoded in messages.
//!
//! Invariant: callers see names as plain bytes. A name that was translated for a message is
//! restored exactly.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use dafs_types::FileHandle;
use dafs_types::names::{from_wire, shown, to_wire};

use crate::error::ClientError;

/// A resolved path: its parent directory and last name, or the root itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The parent directory. For the root, this is the root itself.
    pub directory: FileHandle,
    /// The last name in the path; empty for the root, whose path (`/`) contains no name.
    pub name: OsString,
}

/// Encodes a name or a path for a message.
pub(crate) fn wire(name: &OsStr) -> Cow<'_, str> {
    to_wire(name.as_bytes())
}

/// Decodes a name or a path from a message. If a server does not escape names, a name that looks
/// like an invalid escape sequence is taken literally.
pub(crate) fn unwired(text: &str) -> OsString {
    let name = from_wire(text).map_or_else(|_| text.as_bytes().to_vec(), Cow::into_owned);
    OsString::from_vec(name)
}

/// Returns a path for error messages, with bytes that are not UTF-8 written as `\xff`. The result
/// may contain control characters and cannot be converted back.
#[must_use]
pub fn shown_path<P: AsRef<OsStr> + ?Sized>(path: &P) -> Cow<'_, str> {
    label(path.as_ref())
}

/// Returns a name or a path for error messages.
pub(crate) fn label(path: &OsStr) -> Cow<'_, str> {
    shown(path.as_bytes())
}

/// Splits a path into its parent and its last name. Trailing slashes do not count: `/a/b/` gives
/// `/a` and `b`, `/a` gives an empty path and `a`, and `/` gives two empty ones.
#[must_use]
pub fn split_last(path: &OsStr) -> (&OsStr, &OsStr) {
    let bytes = path.as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let bytes = &bytes[..end];
    let (parent, name) = match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&bytes[..slash], &bytes[slash + 1..]),
        None => (&bytes[..0], bytes),
    };
    (OsStr::from_bytes(parent), OsStr::from_bytes(name))
}

/// Returns the path to which a symbolic link in `directory` leads.
pub(crate) fn link_target(directory: &OsStr, link: Vec<u8>) -> OsString {
    match link.first() {
        Some(b'/') => OsString::from_vec(link),
        _ => OsString::from_vec([directory.as_bytes(), &link].join(&b'/')),
    }
}

#[cold]
pub(crate) fn too_many_links(path: &OsStr) -> ClientError {
    ClientError::TooManyLinks(label(path).into_owned())
}
