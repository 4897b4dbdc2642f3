//! MOUNT version 3: a client sends the path of an export, and gets the export's file handle.
//!
//! Invariant: a client gets a handle only for a directory that the access rules let it see.

use dafs_nfs_wire::mount3::{Arguments, Export, MountResult, MountStatus, Mounted, Procedure};
use dafs_nfs_wire::rpc::{Outcome, flavor};
use dafs_nfs_wire::xdr::{Chain, Inline, Opaque, Reader, Xdr};
use dafs_store::{PathLookup, StoreError};
use dafs_types::{FileHandle, ObjectType};

use super::calls::{self, CallId, Desk, Progress};
use crate::reactor::Reactor;

/// Executes a call of MOUNT.
pub(super) fn serve(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    id: CallId,
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
        Arguments::Mnt(path) => match find(reactor, id, path.0) {
            Ok(handle) => {
                let flavors = Inline::new(&[flavor::SYS]).unwrap_or_default();
                let mounted = Mounted { handle: Opaque(&handle.0), flavors };
                MountResult::Ok(mounted).encode(desk.writer);
            }
            Err(status) => MountResult::Fail(status).encode(desk.writer),
        },
        // The server does not record which clients have mounted an export. Such records become
        // wrong, because clients that crash do not unmount.
        Arguments::Dump(()) => Chain::<(), 0>::default().encode(desk.writer),
        Arguments::Export(()) => exports(reactor).encode_into(desk),
        Arguments::Null(()) | Arguments::Umnt(_) | Arguments::UmntAll(()) => {}
    }
    Progress::Done
}

/// Returns the handle of the directory at a path, which starts at the root of the exports that the
/// user sees.
fn find(reactor: &mut Reactor<'_>, id: CallId, path: &[u8]) -> Result<FileHandle, MountStatus> {
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
        return Err(status_of(error));
    }
    let kind = attributes.map_or(ObjectType::Directory, |attributes| attributes.kind);
    if kind == ObjectType::Directory { Ok(handle) } else { Err(MountStatus::NotDir) }
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

/// The paths of the exports.
struct Exports(Vec<Vec<u8>>);

fn exports(reactor: &Reactor<'_>) -> Exports {
    let names = reactor.shared.whole_store.export_names();
    let path = |name: std::ffi::OsString| {
        let name = std::os::unix::ffi::OsStringExt::into_vec(name);
        [b"/".as_slice(), &name].concat()
    };
    Exports(match names.len() {
        0 | 1 => vec![b"/".to_vec()],
        _ => names.into_iter().map(path).collect(),
    })
}

impl Exports {
    fn encode_into(&self, desk: &mut Desk<'_>) {
        let export = |path| Export { directory: Opaque(path), groups: Chain::default() };
        let all: Vec<_> = self.0.iter().map(|path| export(path.as_slice())).collect();
        Chain::<_, EXPORTS_MAX>(all).encode(desk.writer);
    }
}

/// The maximum number of names in a path to mount.
const COMPONENTS_MAX: usize = 1024;
/// The maximum number of exports in a reply.
const EXPORTS_MAX: usize = 65_536;
