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

use crate::bench::{Bench, USER};
use crate::nfs4::{Session, Set, StateId, ops};
use crate::rpc::Auth;
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

/// Creates the file `f` with the text "hello" and a mode in a session of user 0. Returns this
/// session, a session of another user, and the handle.
fn as_user(b: &mut Bench, mode: u32) -> Result<(Session, Session, Vec<u8>)> {
    let mut root = b.session()?;
    let fh = root.file("f", b"hello")?;
    let set = ops::setattr(StateId::ANONYMOUS, &Set::new().mode(mode));
    root.ok(&[ops::putfh(&fh), set])?;
    Ok((root, b.session_as(Auth::user(USER))?, fh))
}
