//! Sockets and pipes at names in DAFS: the name is the server's, what goes through is this host's
//! kernel's.
//!
//! Invariant: those who meet at a name are on one host, and for pipes one user; others find nobody
//! there.

use std::hash::{DefaultHasher, Hash, Hasher};

use dafs_client::{AccessMask, Metadata, NewObject, ObjectType};
use rustix::fs::{FileType, Mode};

use crate::errors::{Failure, Outcome, fail};
use crate::opening::must_have;
use crate::route::Place;
use crate::shared::{name_of, server_of, stem};
use crate::state::State;

/// The kernel's name, which is in no directory, of a socket in DAFS.
fn abstract_name(mount: usize, object: &Metadata) -> Vec<u8> {
    // A handle is too long for it; two hashes of it are not.
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, object.handle.0).hash(&mut hasher);
        hasher.finish()
    };
    let name = format!("\0dafs-{:016x}-{:016x}{:016x}", server_of(mount), hash(0), hash(1));
    name.into_bytes()
}

/// The kernel's pipe of a pipe in DAFS: its path.
pub fn pipe(mount: usize, object: &Metadata) -> Outcome<String> {
    let path = format!("{}-{:016x}-{}.pipe", stem(), server_of(mount), name_of(&object.handle));
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::mknodat(rustix::fs::CWD, &*path, FileType::Fifo, mode, 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(path),
        Err(error) => Err(Failure::Errno(error.raw_os_error())),
    }
}

/// A pipe has lost its last name.
pub fn forget_pipe(mount: usize, object: &Metadata) {
    let path = format!("{}-{:016x}-{}.pipe", stem(), server_of(mount), name_of(&object.handle));
    let _ = rustix::fs::unlink(path);
}

impl State {
    /// Makes the name of a socket. What the kernel is to bind instead.
    pub fn bind(&mut self, place: &Place) -> Outcome<Vec<u8>> {
        match self.make_special(place, NewObject::Socket, 0o777) {
            Err(Failure::Errno(libc::EEXIST)) => return fail(libc::EADDRINUSE),
            made => made?,
        };
        let object = self.object(place, false)?;
        Ok(abstract_name(place.mount, &object.metadata))
    }

    /// What the kernel is to connect to instead.
    pub fn listener(&mut self, place: &Place) -> Outcome<Vec<u8>> {
        let object = self.object(place, true)?;
        let rights = AccessMask::MODIFY | AccessMask::EXTEND;
        must_have(&object.session, object.metadata.handle, rights)?;
        match object.metadata.kind {
            ObjectType::Socket => Ok(abstract_name(place.mount, &object.metadata)),
            _ => fail(libc::ECONNREFUSED),
        }
    }
}
