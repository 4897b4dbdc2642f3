//! Sockets and pipes at names in DAFS: the server stores the name, and this host's kernel transfers
//! the data.
//!
//! Invariant: only processes on the same host can connect through such a name, and for pipes only
//! processes of the same user. Other processes find no peer.

use std::hash::{DefaultHasher, Hash, Hasher};

use dafs_client::{AccessMask, Metadata, NewObject, ObjectType};
use rustix::fs::{FileType, Mode};

use crate::errors::{Failure, Outcome, fail};
use crate::opening::must_have;
use crate::route::Place;
use crate::shared::{name_of, server_of, stem};
use crate::state::State;

/// Returns the abstract kernel address of a socket in DAFS.
fn abstract_name(mount: usize, object: &Metadata) -> Vec<u8> {
    // A handle is too long for an address, but two hashes of it fit.
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, object.handle.0).hash(&mut hasher);
        hasher.finish()
    };
    let name = format!("\0dafs-{:016x}-{:016x}{:016x}", server_of(mount), hash(0), hash(1));
    name.into_bytes()
}

/// Returns the path of the kernel's pipe for a pipe in DAFS.
pub(crate) fn pipe(mount: usize, object: &Metadata) -> Outcome<String> {
    let path = format!("{}-{:016x}-{}.pipe", stem(), server_of(mount), name_of(&object.handle));
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::mknodat(rustix::fs::CWD, &*path, FileType::Fifo, mode, 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(path),
        Err(error) => Err(Failure::Errno(error.raw_os_error())),
    }
}

/// Removes the kernel's pipe after the last name of a pipe was removed.
pub(crate) fn forget_pipe(mount: usize, object: &Metadata) {
    let path = format!("{}-{:016x}-{}.pipe", stem(), server_of(mount), name_of(&object.handle));
    let _ = rustix::fs::unlink(path);
}

impl State {
    /// Makes the name of a socket in DAFS. Returns the abstract address that the kernel binds
    /// instead.
    pub(crate) fn bind(&mut self, place: &Place) -> Outcome<Vec<u8>> {
        match self.make_special(place, NewObject::Socket, 0o777) {
            Err(Failure::Errno(libc::EEXIST)) => return fail(libc::EADDRINUSE),
            made => made?,
        };
        let object = self.object(place, false)?;
        Ok(abstract_name(place.mount, &object.metadata))
    }

    /// Returns the abstract address that the kernel connects to in place of this socket's name.
    pub(crate) fn listener(&mut self, place: &Place) -> Outcome<Vec<u8>> {
        let object = self.object(place, true)?;
        let rights = AccessMask::MODIFY | AccessMask::EXTEND;
        must_have(&object.session, object.metadata.handle, rights)?;
        match object.metadata.kind {
            ObjectType::Socket => Ok(abstract_name(place.mount, &object.metadata)),
            _ => fail(libc::ECONNREFUSED),
        }
    }
}
