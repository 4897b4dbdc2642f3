//! Decides which paths belong to DAFS, and tracks the working directory.
//!
//! Invariant: a path belongs to DAFS if it begins with a prefix, if it is relative to a working
//! directory beneath a prefix, or if it is relative to a descriptor of a DAFS directory. `..` at
//! the root of a mount leads out of DAFS. Every other path goes to the kernel unchanged.

use std::ffi::{CString, OsStr, OsString, c_char};
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use dafs_types::FileHandle;

use crate::config;
use crate::errors::{Failure, Outcome};
use crate::guard;
use crate::state::is_ours;
use crate::user_memory;
use crate::working_directory::shown;

/// A path in DAFS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The index of the mount that contains the path.
    pub mount: usize,
    /// The names beneath the mount. They may include `..` that stays inside, but no `.` or empty
    /// names.
    pub names: Vec<OsString>,
    /// True if the path ended with a slash or a dot, so that it must name a directory.
    pub is_directory: bool,
    /// True if the path ended with `.` or `..`, which cannot be created, removed or renamed.
    pub is_dot: bool,
    /// The descriptor to which the call applies, if the path was empty.
    pub descriptor: Option<RawFd>,
    /// A directory on the path whose handle is known. The path is still found if that directory is
    /// renamed.
    pub start: Option<Box<Start>>,
}

/// A directory at which a relative path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// The number of names of the path that lead to the directory.
    pub depth: usize,
    /// The server's file handle.
    pub handle: FileHandle,
}

/// The destination of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The kernel serves the call, with the original path.
    Kernel,
    /// The kernel serves the call, with this path.
    KernelAt(CString),
    /// DAFS serves the call, at this place.
    Dafs(Place),
    /// The call fails with this error number.
    Refused(i32),
}

/// The absolute path of the working directory if it is beneath a prefix, and its handle if that is
/// known.
static DIRECTORY: RwLock<Option<(OsString, Option<FileHandle>)>> = RwLock::new(None);
static IS_INSIDE_MOUNT: AtomicBool = AtomicBool::new(false);

/// Returns the working directory, if it is beneath a prefix.
pub(crate) fn directory() -> Option<OsString> {
    if !IS_INSIDE_MOUNT.load(Ordering::Acquire) {
        return None;
    }
    working_directory().map(|(path, _)| path)
}

/// Returns the working directory and its handle, if known.
fn working_directory() -> Option<(OsString, Option<FileHandle>)> {
    DIRECTORY.read().map_or(None, |directory| directory.clone())
}

/// Sets the working directory.
pub(crate) fn set_directory(path: Option<OsString>, handle: Option<FileHandle>) {
    let is_inside = path.is_some();
    if let Ok(mut directory) = DIRECTORY.write() {
        *directory = path.map(|path| (path, handle));
    }
    IS_INSIDE_MOUNT.store(is_inside, Ordering::Release);
}

/// Decides whether DAFS or the kernel serves a call with this path.
///
/// # Safety
/// The path is null or a pointer from the program, and its text does not change during the call.
pub(crate) unsafe fn route(at: RawFd, path: *const c_char) -> Route {
    if config::get().mounts.is_empty() || guard::is_inside() {
        return Route::Kernel;
    }
    let path = if path.is_null() {
        // For some calls, a null path means that the call is for the descriptor itself.
        if !is_ours(at) {
            return Route::Kernel;
        }
        &[]
    } else {
        // SAFETY: the caller guarantees the path.
        match unsafe { user_memory::text(path) } {
            Ok(text) => text,
            Err(_) => return Route::Refused(libc::EFAULT),
        }
    };
    if path.len() >= libc::PATH_MAX as usize {
        return Route::Refused(libc::ENAMETOOLONG);
    }
    if path.first() == Some(&b'/') {
        return absolute(path);
    }
    let (base, handle) = if at == libc::AT_FDCWD {
        match IS_INSIDE_MOUNT.load(Ordering::Acquire).then(working_directory).flatten() {
            Some(working_directory) => working_directory,
            None => return Route::Kernel,
        }
    } else if is_ours(at) {
        match base_of(at, path) {
            Ok(Ok((base, handle))) => (base, Some(handle)),
            Ok(Err(place)) => return Route::Dafs(place),
            Err(Failure::Errno(errno)) => return Route::Refused(errno),
            Err(Failure::Elsewhere(_)) => return Route::Refused(libc::ENOENT),
        }
    } else {
        return Route::Kernel;
    };
    if path.is_empty() {
        return Route::Refused(libc::ENOENT);
    }
    let mut route = route_absolute(&[base.as_bytes(), b"/", path].concat());
    if let (Route::Dafs(place), Some(handle)) = (&mut route, handle)
        && let Route::Dafs(base) = route_absolute(base.as_bytes())
        && base.mount == place.mount
        && place.names.starts_with(&base.names)
    {
        place.start = Some(Box::new(Start { depth: base.names.len(), handle }));
    }
    route
}

/// Returns the absolute path and the handle of a directory's descriptor. If the path is empty,
/// returns the place of the descriptor itself instead.
fn base_of(at: RawFd, path: &[u8]) -> Outcome<Result<(OsString, FileHandle), Place>> {
    let description = guard::with(|state| {
        let description = state.get(at)?;
        let identity = &description.identity;
        Ok((identity.mount, identity.path.clone(), identity.handle))
    });
    let (mount, beneath, handle) = description?;
    if path.is_empty() {
        let names = names_of(beneath.as_bytes()).map(|name| OsStr::from_bytes(name).to_owned());
        let names = names.collect();
        let (is_directory, is_dot) = (false, false);
        let (descriptor, start) = (Some(at), None);
        return Ok(Err(Place { mount, names, is_directory, is_dot, descriptor, start }));
    }
    Ok(Ok((shown(mount, &beneath), handle)))
}

/// Routes an absolute path of the program.
fn absolute(path: &[u8]) -> Route {
    match mount_of(path) {
        Some(MountMatch::Beneath(place)) => Route::Dafs(place),
        Some(MountMatch::Out(path)) => outside(path),
        None if has_parents(path) => match mount_of(normal(path).as_bytes()) {
            // The path reaches the prefix only through `..` after other names. These names are
            // removed by their text, without resolving symbolic links.
            Some(MountMatch::Beneath(place)) => Route::Dafs(place),
            _ => Route::Kernel,
        },
        None => Route::Kernel,
    }
}

/// Routes an absolute path that this library has composed.
pub(crate) fn route_absolute(path: &[u8]) -> Route {
    match absolute(path) {
        Route::Kernel => outside(OsStr::from_bytes(path).to_owned()),
        route => route,
    }
}

fn outside(path: OsString) -> Route {
    match mount_of(path.as_bytes()) {
        Some(MountMatch::Beneath(place)) => Route::Dafs(place),
        _ => CString::new(path.into_vec()).map_or(Route::Refused(libc::EINVAL), Route::KernelAt),
    }
}

enum MountMatch {
    Beneath(Place),
    /// The path begins with a prefix and leads out again, to this path.
    Out(OsString),
}

/// Returns the mount that an absolute path is beneath, if there is one.
fn mount_of(path: &[u8]) -> Option<MountMatch> {
    'mounts: for (mount, entry) in config::get().mounts.iter().enumerate() {
        let mut names = names_of(path);
        for wanted in names_of(entry.prefix.as_bytes()) {
            if names.next() != Some(wanted) {
                continue 'mounts;
            }
        }
        return Some(beneath(mount, path, names));
    }
    None
}

fn beneath<'p>(mount: usize, path: &[u8], names: impl Iterator<Item = &'p [u8]>) -> MountMatch {
    let (mut depth, mut found) = (0_i64, Vec::new());
    for name in names {
        depth += if name == b".." { -1 } else { 1 };
        if depth < 0 {
            return MountMatch::Out(normal(path));
        }
        found.push(OsStr::from_bytes(name).to_owned());
    }
    let ends = [&b"/"[..], b"/.", b"/.."];
    let is_directory = ends.iter().any(|end| path.ends_with(end));
    let last = path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty());
    let is_dot = matches!(last, Some(b"." | b".."));
    let (descriptor, start) = (None, None);
    MountMatch::Beneath(Place { mount, names: found, is_directory, is_dot, descriptor, start })
}

/// Returns the names of a path, without `.` and empty ones.
pub(crate) fn names_of(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."))
}

fn has_parents(path: &[u8]) -> bool {
    path.windows(3).any(|three| three == b"/..")
}

/// Removes `.` and `..` from a path, without resolving links.
fn normal(path: &[u8]) -> OsString {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in names_of(path) {
        if name == b".." {
            names.pop();
        } else {
            names.push(name);
        }
    }
    OsString::from_vec([b"/", &*names.join(&b'/')].concat())
}

/// Resolves a path that the kernel did not find. The path may lead through a symbolic link on a
/// local file system to a place beneath a prefix.
///
/// # Safety
/// The same as for [`route`].
pub(crate) unsafe fn through_kernel_links(at: RawFd, path: *const c_char) -> Option<Place> {
    if path.is_null() || config::get().mounts.is_empty() || guard::is_inside() {
        return None;
    }
    // SAFETY: the caller guarantees the path.
    let path = unsafe { user_memory::text(path) }.ok()?;
    let base = match (path.starts_with(b"/"), at) {
        (true, _) => Vec::new(),
        (false, libc::AT_FDCWD) => rustix::process::getcwd(Vec::new()).ok()?.into_bytes(),
        (false, at) => {
            let link = format!("/proc/self/fd/{at}");
            rustix::fs::readlink(link, Vec::new()).ok()?.into_bytes()
        }
    };
    let mut left = names_backwards(&[&*base, path].join(&b'/'));
    let (mut here, mut links) = (Vec::new(), 0);
    while let Some(name) = left.pop() {
        if name == b".." {
            let slash = here.iter().rposition(|byte| *byte == b'/');
            here.truncate(slash.unwrap_or(0));
            continue;
        }
        let next = [&*here, &*name].join(&b'/');
        if let Some(MountMatch::Beneath(_)) = mount_of(&next) {
            let rest = left.iter().rev().fold(next, |path, name| [&*path, name].join(&b'/'));
            let end: &[u8] = if path.ends_with(b"/") { b"/" } else { b"" };
            return match absolute(&[&*rest, end].concat()) {
                Route::Dafs(place) => Some(place),
                _ => None,
            };
        }
        match rustix::fs::readlink(&*next, Vec::new()) {
            Ok(target) => {
                links += 1;
                if links > LINKS_MAX {
                    return None;
                }
                let target = target.into_bytes();
                if target.starts_with(b"/") {
                    here.clear();
                }
                left.extend(names_backwards(&target));
            }
            Err(_) => here = next,
        }
    }
    None
}

fn names_backwards(path: &[u8]) -> Vec<Vec<u8>> {
    names_of(path).map(<[u8]>::to_vec).rev().collect()
}

/// The maximum number of symbolic links in a path. A path with more fails with ELOOP.
pub(crate) const LINKS_MAX: u32 = 40;
