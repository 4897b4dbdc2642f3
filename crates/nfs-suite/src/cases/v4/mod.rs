//! Cases of NFS versions 4.1 (RFC 8881) and 4.2 (RFC 7862, RFC 8276).

mod attributes;
mod client;
mod compound;
mod copies;
mod data;
mod delegations;
mod directory;
mod errors;
mod locks;
mod names;
mod opens;
mod samples;
mod session;
mod shares;
mod sparse;
mod states;
mod xattrs;

use anyhow::Result;

use crate::bench::Bench;
use crate::suite::{Case, Protocol};

/// The tables of all cases of version 4.
pub const TABLES: &[&[Case]] = &[
    compound::CASES,
    client::CASES,
    session::CASES,
    attributes::CASES,
    names::CASES,
    directory::CASES,
    opens::CASES,
    shares::CASES,
    data::CASES,
    locks::CASES,
    states::CASES,
    delegations::CASES,
    errors::CASES,
    sparse::CASES,
    copies::CASES,
    xattrs::CASES,
];

/// Creates a test case of version 4.1.
const fn v41(name: &'static str, run: fn(&mut Bench) -> Result<()>) -> Case {
    Case::new(Protocol::Nfs41, name, run)
}

/// Creates a test case of version 4.2.
const fn v42(name: &'static str, run: fn(&mut Bench) -> Result<()>) -> Case {
    Case::new(Protocol::Nfs42, name, run)
}
