//! The working directory, and paths as the program sees them.
//!
//! Invariant: while the program's working directory is beneath a prefix, the kernel's working
//! directory stays unchanged, and no path is resolved relative to it.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

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
    let value = path.as_ref().and_then(|path| CString::new(path.as_bytes()).ok());
    // SAFETY: both texts end with a zero. As for every change of the environment, the program must
    // ensure that no other thread reads it meanwhile. A program that changes its working directory
    // must take the same care already.
    unsafe {
        match value {
            Some(value) => libc::setenv(DIRECTORY.as_ptr(), value.as_ptr(), 1),
            None => libc::unsetenv(DIRECTORY.as_ptr()),
        };
    }
    route::set_directory(path, handle);
}

/// The value of [`config::DIRECTORY`] as a C string.
const DIRECTORY: &CStr = c"DAFS_PRELOAD_DIRECTORY";
