//! The working directory, and paths as the program sees them.
//!
//! Invariant: while the program's working directory is beneath a prefix, the kernel's working
//! directory stays unchanged, and no path is resolved relative to it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU8, Ordering};

use dafs_client::{AccessMask, ObjectType};
use dafs_types::FileHandle;

use crate::config;
use crate::errors::{Outcome, fail};
use crate::opening::must_have;
use crate::page::Kind;
use crate::route::{self, Place};
use crate::state::{Description, State};

impl State {
    /// Changes the working directory to a place.
    pub(crate) fn change_directory(&mut self, place: &Place) -> Outcome<i32> {
        let object = self.object(place, true)?;
        if object.metadata.kind != ObjectType::Directory {
            return fail(libc::ENOTDIR);
        }
        must_have(&object.session, object.metadata.handle, AccessMask::LOOKUP)?;
        set_working_directory(
            Some(shown(object.mount, &object.path)),
            Some(object.metadata.handle),
        );
        Ok(0)
    }

    /// Changes the working directory to an open directory.
    pub(crate) fn change_directory_to(&mut self, of: &Description) -> Outcome<i32> {
        let identity = &of.identity;
        let is_directory = match identity.kind {
            Kind::Directory => true,
            Kind::File => false,
            Kind::Object => self.metadata_of(of)?.kind == ObjectType::Directory,
        };
        if !is_directory {
            return fail(libc::ENOTDIR);
        }
        set_working_directory(Some(shown(identity.mount, &identity.path)), Some(identity.handle));
        Ok(0)
    }

    /// Returns the path of a place without symbolic links, as the program sees it.
    pub(crate) fn real_path(&mut self, place: &Place) -> Outcome<OsString> {
        let object = self.object(place, true)?;
        Ok(shown(object.mount, &object.path))
    }
}

/// Returns the path by which the program names an object: the prefix of the mount, followed by the
/// object's path beneath that prefix.
pub(crate) fn shown(mount: usize, beneath: &OsStr) -> OsString {
    let mut path = config::get().mounts[mount].prefix.clone();
    path.push(beneath);
    path
}

/// Sets the working directory to a path beneath a prefix; `None` means that the kernel's working
/// directory applies. The directory is also set in the environment, for started programs, including
/// those to which the C library itself passes the environment (`system`, `popen`).
pub(crate) fn set_working_directory(path: Option<OsString>, handle: Option<FileHandle>) {
    if route::directory() == path {
        route::set_directory(path, handle);
        return;
    }
    put_value(path.as_deref().unwrap_or_default().as_bytes());
    route::set_directory(path, handle);
}

/// Puts the variable [`config::DIRECTORY`] into the environment, without a value. Called once,
/// before the program runs. Later only the bytes of the value change, in place: another thread may
/// read the environment at any time, because programs may change their working directory in one
/// thread while others call `getenv`.
pub(crate) fn prepare_environment() {
    for (to, from) in ENTRY.iter().zip(config::DIRECTORY.as_bytes().iter().chain(b"=")) {
        to.store(*from, Ordering::Relaxed);
    }
    // SAFETY: the entry lives as long as the process, and its last byte stays zero. The program has
    // not begun, so no thread of its own reads the environment.
    unsafe { libc::putenv(ENTRY.as_ptr().cast_mut().cast()) };
}

/// Changes the value of the variable. A value that is too long is left out.
fn put_value(value: &[u8]) {
    let (_, room) = ENTRY.split_at(config::DIRECTORY.len() + 1);
    let value = if value.len() < room.len() { value } else { &[] };
    for (to, from) in room.iter().zip(value.iter().chain([&0])) {
        to.store(*from, Ordering::Relaxed);
    }
}

/// The variable's entry in the environment: name, equals sign, value and zeros.
static ENTRY: [AtomicU8; ENTRY_BYTES] = [const { AtomicU8::new(0) }; ENTRY_BYTES];
/// Room for a path that is much longer than PATH_MAX: a working directory may be, because it can be
/// entered step by step. The kernel's limit for one variable is higher.
const ENTRY_BYTES: usize = 64 << 10;
