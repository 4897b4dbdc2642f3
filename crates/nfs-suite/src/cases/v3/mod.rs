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

use anyhow::Result;

use crate::bench::Bench;
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
