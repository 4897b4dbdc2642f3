//! Exports to NFS clients: the file of exports(5), and the rules that it is compiled into.
//!
//! - `parse`: the lines of a file.
//! - `options`: the options of a client.
//! - `clients`: the names of clients.
//! - `flavors`: how the calls of clients are authenticated.
//! - `compile`: from lines to rules. Looks up hosts and netgroups.
//! - `describe`: the rules as text.
//! - `rules`: the rules that the server applies.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

pub(crate) mod clients;
pub(crate) mod compile;
pub(crate) mod describe;
pub(crate) mod flavors;
pub(crate) mod options;
pub(crate) mod parse;
pub(crate) mod rules;

/// Returns the path by which NFS clients mount one of `count` exports. A single export whose name
/// has no slash is the root itself.
#[must_use]
pub fn export_path(name: &OsStr, count: usize) -> PathBuf {
    match count == 1 && !name.as_bytes().contains(&b'/') {
        true => PathBuf::from("/"),
        false => [OsStr::new("/"), name].into_iter().collect::<OsString>().into(),
    }
}
