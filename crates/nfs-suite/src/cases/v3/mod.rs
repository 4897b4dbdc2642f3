//! Cases of NFS version 3 (RFC 1813).

mod access;
mod attributes;
mod create;
mod data;
mod directory;
mod handles;
mod names;
mod read_only;
mod repeats;
mod write;

use anyhow::{Context, Result};

use crate::bench::{Bench, same};
use crate::nfs3::{Attr, Wcc};
use crate::suite::{Case, Protocol};

/// The tables of all cases of version 3.
pub const TABLES: &[&[Case]] = &[
    attributes::CASES,
    names::CASES,
    create::CASES,
    access::CASES,
    data::CASES,
    write::CASES,
    directory::CASES,
    handles::CASES,
    read_only::CASES,
    repeats::CASES,
];

/// Creates a test case of version 3.
const fn v3(name: &'static str, run: fn(&mut Bench) -> Result<()>) -> Case {
    Case::new(Protocol::Nfs3, name, run)
}

/// Checks the attributes of a file before and after an operation in a reply. A reply need not have
/// those before it.
fn is_right(wcc: Wcc, before: &Attr, after: Attr) -> Result<()> {
    if let Some(pre) = wcc.before {
        same("before", pre, (before.size, before.mtime, before.ctime))?;
    }
    same("after", wcc.after.context("there are no attributes")?, after)
}
