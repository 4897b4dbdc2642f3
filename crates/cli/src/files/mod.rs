//! Commands on names, one file each.
//!
//! Invariant: a failure of one operand is reported and does not keep the others from being
//! processed.

pub(crate) mod cat;
pub(crate) mod df;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod mkdir;
pub(crate) mod mv;
pub(crate) mod ping;
pub(crate) mod rm;
mod show;
pub(crate) mod stat;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Result, bail};
use dafs_client::{Location, split_last};

use crate::reported::{AlreadyReported, report};

/// Runs `work` for each operand, and prints each failure immediately. Returns an error at the end
/// if at least one operand failed.
fn for_each_operand(
    operands: &[OsString],
    mut work: impl FnMut(&OsString) -> Result<()>,
) -> Result<()> {
    let mut has_failed = false;
    for operand in operands {
        has_failed |= report(work(operand))?;
    }
    if has_failed { Err(AlreadyReported.into()) } else { Ok(()) }
}

/// Returns the last component of a path, which must have one.
fn last_name(path: &OsStr) -> Result<&OsStr> {
    let (_, name) = split_last(path);
    match name.as_bytes() {
        b"" => bail!("the root of a server cannot be renamed or removed"),
        b"." | b".." => bail!("{path:?} does not end with a name"),
        _ => Ok(name),
    }
}

/// Returns the path of the second URL, which must be on the same server as the first.
fn same_server(first: &OsStr, second: &OsStr) -> Result<OsString> {
    let (first, second) = (Location::parse(first)?, Location::parse(second)?);
    if first.server != second.server {
        bail!("{} and {} are different servers; use dafs cp", first.server, second.server);
    }
    Ok(second.path)
}
