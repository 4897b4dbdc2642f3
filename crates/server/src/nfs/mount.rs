//! MOUNT version 3: a client sends the path of an export, and gets the export's file handle.
//!
//! Invariant: a client gets a handle only for a directory that the access rules let it see.

use std::os::unix::ffi::OsStringExt;

use dafs_nfs_wire::mount3::{Arguments, Export, MountResult, MountStatus, Mounted, Procedure};
use dafs_nfs_wire::rpc::{Outcome, flavor};
use dafs_nfs_wire::xdr::{Chain, Inline, Opaque, Reader, Writer, Xdr};
use dafs_store::{PathLookup, StoreError};
use dafs_types::{FileHandle, ObjectType};

use super::calls::{self, CallId, Desk, Progress};
use crate::access::exports::flavors::Flavor;
use crate::access::exports::rules::NfsPeer;
use crate::reactor::Reactor;

/// Executes a call of MOUNT. `peer` is the client, for calls with any flavor.
pub(super) fn serve(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    (id, peer): (CallId, &NfsPeer),
    procedure: u32,
    reader: &mut Reader<'_>,
) -> Progress {
    let Some(procedure) = Procedure::from_number(procedure) else {
        calls::fail(desk.writer, id.xid, Outcome::ProcUnavail);
        return Progress::Done;
    };
    let Ok(arguments) = Arguments::decode(procedure, reader) else {
        calls::fail(desk.writer, id.xid, Outcome::GarbageArgs);
        return Progress::Done;
    };
    calls::begin(desk.writer, id.xid);
    match arguments {
        Arguments::Mnt(path) => match find(reactor, (id, peer), path.0) {
            Ok(handle) => {
                let flavors = reactor.shared.entrance.flavors_of(peer, &handle);
                let numbers: Vec<u32> = flavors.into_iter().map(number_of).collect();
                let flavors = Inline::new(&numbers).unwrap_or_default();
                let mounted = Mounted { handle: Opaque(&handle.0), flavors };
                MountResult::Ok(mounted).encode(desk.writer);
            }
            Err(status) => MountResult::Fail(status).encode(desk.writer),
        },
        // The server does not record which clients have mounted an export. Such records become
        // wrong, because clients that crash do not unmount.
        Arguments::Dump(()) => Chain::<(), 0>::default().encode(desk.writer),
        // EXPORT is answered by `list_exports`, because every client may use it.
        Arguments::Export(())
        | Arguments::Null(())
        | Arguments::Umnt(_)
        | Arguments::UmntAll(()) => {}
    }
    Progress::Done
}

/// Returns the handle of the directory at a path, which starts at the root of the exports that the
/// user sees.
fn find(
    reactor: &mut Reactor<'_>,
    (id, peer): (CallId, &NfsPeer),
    path: &[u8],
) -> Result<FileHandle, MountStatus> {
    let guest = reactor.shared.channels.guests().get(id.user).ok_or(MountStatus::Acces)?;
    let by = guest.caller();
    let root = by.store().root(&by).map_err(status_of)?;
    let names: Vec<&[u8]> =
        path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    if names.len() > COMPONENTS_MAX {
        return Err(MountStatus::NameTooLong);
    }
    let PathLookup { handle, attributes, error, .. } =
        reactor.files().walk(&by, &root.handle, &names);
    if let Some(error) = error {
        if names.first().is_some_and(|name| reactor.shared.entrance.hides(name, peer)) {
            return Err(MountStatus::Acces);
        }
        return Err(status_of(error));
    }
    let kind = attributes.map_or(ObjectType::Directory, |attributes| attributes.kind);
    if kind == ObjectType::Directory { Ok(handle) } else { Err(MountStatus::NotDir) }
}

/// Returns the number by which MOUNT names a flavor.
const fn number_of(of: Flavor) -> u32 {
    match of {
        Flavor::Sys => flavor::SYS,
        Flavor::Krb5 => flavor::KRB5,
        Flavor::Krb5i => flavor::KRB5I,
        Flavor::Krb5p => flavor::KRB5P,
    }
}

fn status_of(error: StoreError) -> MountStatus {
    match error {
        StoreError::NotFound => MountStatus::NoEnt,
        StoreError::Access | StoreError::NotPermitted => MountStatus::Acces,
        StoreError::NotDirectory | StoreError::IsSymlink => MountStatus::NotDir,
        StoreError::NameTooLong => MountStatus::NameTooLong,
        StoreError::Invalid => MountStatus::Inval,
        StoreError::Io => MountStatus::Io,
        _ => MountStatus::ServerFault,
    }
}

/// Writes the reply to EXPORT: the exports that a client sees, each with the clients that the rule
/// for it names. The rules about other clients are not shown.
pub(super) fn list_exports(
    writer: &mut Writer,
    reactor: &Reactor<'_>,
    xid: u32,
    peer: Option<&NfsPeer>,
) {
    calls::begin(writer, xid);
    // The port of the client and the protection of the connection do not matter for the list.
    let peer = peer.map(NfsPeer::at_best);
    let entrance = &reactor.shared.entrance;
    let terms = peer.as_ref().and_then(|peer| entrance.judge_nfs(peer).ok()).unwrap_or_default();
    let rules = entrance.rules();
    let mut shown: Vec<(Vec<u8>, String)> = Vec::new();
    let exports = entrance.exports().zip(&terms);
    for ((name, path), _) in exports.filter(|(_, terms)| terms.is_visible) {
        let entry = name.to_str().zip(peer.as_ref());
        let entry = entry.and_then(|(name, peer)| rules.nfs.entry(name, peer));
        let clients = entry.map_or(String::new(), |entry| entry.clients.clone());
        shown.push((path.clone().into_vec(), clients));
    }
    let all: Vec<Export<'_>> = shown
        .iter()
        .map(|(path, clients)| Export {
            directory: Opaque(path),
            groups: Chain(vec![Opaque(clients.as_bytes())]),
        })
        .collect();
    Chain::<_, EXPORTS_MAX>(all).encode(writer);
}

/// The number of the procedure EXPORT.
pub(super) const EXPORT: u32 = Procedure::Export as u32;
/// The maximum number of names in a path to mount.
const COMPONENTS_MAX: usize = 1024;
/// The maximum number of exports in a reply.
const EXPORTS_MAX: usize = 65_536;
