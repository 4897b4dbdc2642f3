//! Paths and names, as callers know them and as they go on the wire.
//!
//! Invariant: callers know names as bytes alone; a name that was translated for the wire comes back
//! as it was.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use dafs_types::FileHandle;
use dafs_types::names::{from_wire, shown, to_wire};

use crate::error::ClientError;

/// Where a path leads: its parent directory and last name, or the root itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The parent; the root for the root itself.
    pub directory: FileHandle,
    /// The last name; empty for a path that ends in a directory without a name (`/`).
    pub name: OsString,
}

/// A name or a path in the form that it has on the wire.
pub(crate) fn wire(name: &OsStr) -> Cow<'_, str> {
    to_wire(name.as_bytes())
}

/// The name or the path that a string of the wire stands for. A server that escapes nothing may
/// have a name that looks like a bad escape: that is the name.
pub(crate) fn unwired(text: &str) -> OsString {
    let name = from_wire(text).map_or_else(|_| text.as_bytes().to_vec(), Cow::into_owned);
    OsString::from_vec(name)
}

/// A path as this library's messages show it: bytes that are no UTF-8 are spelled out (`\xff`). It
/// may still hold control characters, and it cannot be turned back.
#[must_use]
pub fn shown_path<P: AsRef<OsStr> + ?Sized>(path: &P) -> Cow<'_, str> {
    label(path.as_ref())
}

/// A name or a path as messages show it.
pub(crate) fn label(path: &OsStr) -> Cow<'_, str> {
    shown(path.as_bytes())
}

/// What leads to a path's last name, and that name. Slashes at its end do not count: `/a/b/` gives
/// `/a` and `b`, `/a` gives nothing and `a`, and `/` gives nothing twice.
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

/// Where a link leads that is in a directory.
pub(crate) fn beside(directory: &OsStr, link: Vec<u8>) -> OsString {
    match link.first() {
        Some(b'/') => OsString::from_vec(link),
        _ => OsString::from_vec([directory.as_bytes(), &link].join(&b'/')),
    }
}

#[cold]
pub(crate) fn too_many_links(path: &OsStr) -> ClientError {
    ClientError::TooManyLinks(label(path).into_owned())
}
