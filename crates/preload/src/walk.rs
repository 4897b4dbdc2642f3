//! Resolves a place to an object. Symbolic links are followed as the program sees them: an absolute
//! link starts at the program's own root, not at the server's.
//!
//! Invariant: the result includes the object's path without symbolic links and `..`. A path that
//! leaves its mount is reported as [`Failure::Elsewhere`], so that the caller can route it again.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use dafs_client::{Metadata, ObjectType, Outcome as Brought, Session, Status};
use dafs_types::FileHandle;

use crate::errors::{Failure, Outcome, fail};
use crate::route::{LINKS_MAX, Place, Route, names_of, route_absolute};
use crate::state::State;
use crate::waiting::{wait, wait_result};
use crate::working_directory::shown;

/// An existing object with its path.
#[derive(Clone)]
pub(crate) struct Object {
    /// The session with the server of the object.
    pub session: Session,
    /// The index of the mount that contains the object.
    pub mount: usize,
    /// The attributes of the object.
    pub metadata: Metadata,
    /// The path of the object beneath the mount; empty for the root of the mount.
    pub path: OsString,
}

/// A name in a directory, which may or may not exist.
#[derive(Clone)]
pub(crate) struct Slot {
    /// The session with the server of the directory.
    pub session: Session,
    /// The index of the mount that contains the directory.
    pub mount: usize,
    /// The handle of the directory.
    pub directory: FileHandle,
    /// The name; empty for the root of the mount.
    pub name: OsString,
    /// The path of the name beneath the mount.
    pub path: OsString,
    /// True if the object with the name must be a directory, because the path ended with a slash.
    pub is_directory: bool,
}

impl State {
    /// Returns the object at a place. Follows a symbolic link at the end if `follow` is set.
    pub(crate) fn object(&mut self, place: &Place, follow: bool) -> Outcome<Object> {
        if let Some(number) = place.descriptor {
            let description = self.get(number)?;
            let metadata = self.metadata_of(&description)?;
            let path = description.identity.path.clone();
            let (session, _) = self.connection.mount(place.mount)?;
            return Ok(Object { session, mount: place.mount, metadata, path });
        }
        let follow = follow || place.is_directory;
        let (session, root) = self.connection.mount(place.mount)?;
        let mut walk = Walk::new(session.clone(), root, place);
        let metadata = match walk.at_once(follow)? {
            Some(metadata) => metadata,
            None => match walk.step_by_step(follow)? {
                Some(metadata) => metadata,
                None => return fail(libc::ENOENT),
            },
        };
        let must_be = place.is_directory || walk.leads_to_directory;
        if must_be && metadata.kind != ObjectType::Directory {
            return fail(libc::ENOTDIR);
        }
        let path = walk.path();
        Ok(Object { session, mount: place.mount, metadata, path })
    }

    /// Returns the slot for creating, removing or renaming a name. Fails with the error `dots` for
    /// `.` and `..`.
    pub(crate) fn named_slot(&mut self, place: &Place, dots: i32) -> Outcome<Slot> {
        if place.is_dot {
            // If the object does not exist, report that first.
            self.object(place, true)?;
            return fail(dots);
        }
        self.slot(place)
    }

    /// Returns the last name of a place with its directory.
    pub(crate) fn slot(&mut self, place: &Place) -> Outcome<Slot> {
        if place.descriptor.is_some() {
            return fail(libc::ENOENT);
        }
        let (session, root) = self.connection.mount(place.mount)?;
        let Some((name, before)) = place.names.split_last() else {
            let (name, path) = (OsString::new(), OsString::new());
            let (mount, is_directory) = (place.mount, true);
            return Ok(Slot { session, mount, directory: root, name, path, is_directory });
        };
        if name == ".." {
            return fail(libc::ENOTEMPTY);
        }
        if name.len() > NAME_BYTES_MAX {
            return fail(libc::ENAMETOOLONG);
        }
        let start = place.start.clone().filter(|start| start.depth <= before.len());
        let names = before.to_vec();
        let parent = Place { names, is_directory: true, descriptor: None, start, ..*place };
        // If the path leaves the mount, this name must be appended to the new path.
        let mut walk = Walk::new(session.clone(), root, &parent);
        walk.suffix = name.clone();
        if place.is_directory {
            walk.suffix.push("/");
        }
        let metadata = match walk.at_once(true)? {
            Some(metadata) => Some(metadata),
            None => walk.step_by_step(true)?,
        };
        let Some(metadata) = metadata else { return fail(libc::ENOENT) };
        if metadata.kind != ObjectType::Directory {
            return fail(libc::ENOTDIR);
        }
        let path = beneath(walk.path(), name);
        let (mount, is_directory) = (place.mount, place.is_directory);
        let (directory, name) = (metadata.handle, name.clone());
        Ok(Slot { session, mount, directory, name, path, is_directory })
    }
}

impl Slot {
    /// Returns the attributes of the object in the slot; `None` if there is none.
    pub(crate) fn look(&self) -> Outcome<Option<Metadata>> {
        if self.name.is_empty() {
            return attributes(&self.session, self.directory).map(Some);
        }
        look(&self.session, self.directory, &self.name)
    }

    /// Fails if the path of a new object that is not a directory has a trailing slash.
    pub(crate) fn must_not_be_directory(&self) -> Outcome<()> {
        if !self.is_directory {
            return Ok(());
        }
        fail(if self.look()?.is_some() { libc::EEXIST } else { libc::ENOENT })
    }

    /// Fails with `errno` at the root of the mount, which has no name.
    pub(crate) fn must_have_name(&self, errno: i32) -> Outcome<()> {
        if self.name.is_empty() { fail(errno) } else { Ok(()) }
    }
}

/// Returns the attributes of a name in a directory; `None` if it does not exist.
pub(crate) fn look(
    session: &Session,
    directory: FileHandle,
    name: &OsStr,
) -> Outcome<Option<Metadata>> {
    let asking = session.chain().at(directory).lookup(name).getattr().run_async();
    match wait(&session.client(), asking) {
        Ok(brought) => last_metadata(&brought).map(Some),
        Err(failure) if failure.error.status() == Some(Status::NoEnt) => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

/// Returns the attributes of an object.
pub(crate) fn attributes(session: &Session, handle: FileHandle) -> Outcome<Metadata> {
    let asking = session.chain().at(handle).getattr().run_async();
    last_metadata(&wait_result(&session.client(), asking)?)
}

fn last_metadata(brought: &[Brought]) -> Outcome<Metadata> {
    match brought.last() {
        Some(Brought::Metadata(metadata)) => Ok((**metadata).clone()),
        _ => fail(libc::EIO),
    }
}

/// The state of resolving a path.
struct Walk<'p> {
    session: Session,
    root: FileHandle,
    place: &'p Place,
    /// The resolved names, without symbolic links, and their handles.
    resolved: Vec<(OsString, FileHandle)>,
    /// The number of `resolved` names up to the directory at which the path begins. Of these names,
    /// only the handle of the last one is known.
    unknown_count: usize,
    /// A name to append if the path leaves the mount.
    suffix: OsString,
    /// True if the last symbolic link ended with a slash, so its target must be a directory.
    leads_to_directory: bool,
}

impl<'p> Walk<'p> {
    fn new(session: Session, root: FileHandle, place: &'p Place) -> Self {
        let unknown_count = place.start.as_ref().map_or(0, |start| start.depth);
        let resolved = place.names[..unknown_count].iter().cloned();
        let handle = place.start.as_ref().map_or(root, |start| start.handle);
        let resolved = resolved.map(|name| (name, handle)).collect();
        let suffix = OsString::new();
        Self { session, root, place, resolved, unknown_count, suffix, leads_to_directory: false }
    }

    fn path(&self) -> OsString {
        self.resolved.iter().fold(OsString::new(), |path, (name, _)| beneath(path, name))
    }

    /// Resolves all names in one round trip. Returns `None` if the path contains a symbolic link or
    /// `..`.
    fn at_once(&mut self, follow: bool) -> Outcome<Option<Metadata>> {
        let names = &self.place.names[self.unknown_count..];
        if names.is_empty() {
            return attributes(&self.session, self.here()).map(Some);
        }
        if names.len() > NAMES_AT_ONCE || names.iter().any(|name| name == "..") {
            return Ok(None);
        }
        if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
            return fail(libc::ENAMETOOLONG);
        }
        let chain =
            self.session.chain().at(self.here()).lookup(names.join(OsStr::new("/"))).getattr();
        match wait(&self.session.client(), chain.run_async()) {
            Ok(brought) => {
                let metadata = last_metadata(&brought)?;
                if follow && metadata.kind == ObjectType::SymbolicLink {
                    return Ok(None);
                }
                let more = names.iter().map(|name| (name.clone(), metadata.handle));
                self.resolved.extend(more);
                Ok(Some(metadata))
            }
            // A symbolic link in the path, or more names than one request can contain.
            Err(failure)
                if matches!(
                    failure.error.status(),
                    Some(Status::Symlink | Status::NameTooLong)
                ) =>
            {
                Ok(None)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// Resolves name by name. Returns `None` if the last name does not exist.
    fn step_by_step(&mut self, follow: bool) -> Outcome<Option<Metadata>> {
        let names = &self.place.names[self.unknown_count..];
        let mut left: Vec<OsString> = names.iter().rev().cloned().collect();
        let (mut links, mut last) = (0, None);
        while let Some(name) = left.pop() {
            if name == ".." {
                let Some((_, handle)) = self.resolved.pop() else {
                    return Err(self.leaves_mount("/..", &left));
                };
                self.look_up_parent(handle)?;
                last = None;
                continue;
            }
            if name.len() > NAME_BYTES_MAX {
                return fail(libc::ENAMETOOLONG);
            }
            let Some(metadata) = look(&self.session, self.here(), &name)? else {
                return if left.is_empty() { Ok(None) } else { fail(libc::ENOENT) };
            };
            let is_last = left.is_empty();
            if metadata.kind == ObjectType::SymbolicLink && (!is_last || follow) {
                links += 1;
                if links > LINKS_MAX {
                    return fail(libc::ELOOP);
                }
                self.follow_link(&metadata, &mut left)?;
                last = None;
                continue;
            }
            if metadata.kind != ObjectType::Directory && !is_last {
                return fail(libc::ENOTDIR);
            }
            self.resolved.push((name, metadata.handle));
            last = Some(metadata);
        }
        match last {
            Some(metadata) => Ok(Some(metadata)),
            None => attributes(&self.session, self.here()).map(Some),
        }
    }

    /// Queries the server for the parent after `..`, if the path did not come through the parent.
    fn look_up_parent(&mut self, from: FileHandle) -> Outcome<()> {
        if self.resolved.len() >= self.unknown_count {
            return Ok(());
        }
        self.unknown_count = self.resolved.len();
        if let Some((_, handle)) = self.resolved.last_mut() {
            let asking = self.session.chain().at(from).parent().getattr().run_async();
            *handle = last_metadata(&wait_result(&self.session.client(), asking)?)?.handle;
        }
        Ok(())
    }

    fn here(&self) -> FileHandle {
        self.resolved.last().map_or(self.root, |(_, handle)| *handle)
    }

    /// Puts the text of a symbolic link in front of the remaining names.
    fn follow_link(&mut self, link: &Metadata, left: &mut Vec<OsString>) -> Outcome<()> {
        let asking = self.session.chain().at(link.handle).read_link().run_async();
        let brought = wait_result(&self.session.client(), asking)?;
        let Some(Brought::LinkText(text)) = brought.into_iter().last() else {
            return fail(libc::EIO);
        };
        if text.is_empty() {
            return fail(libc::ENOENT);
        }
        if left.is_empty() {
            self.leads_to_directory |= text.ends_with(b"/") || text.ends_with(b"/.");
        }
        if text.starts_with(b"/") {
            match route_absolute(&text) {
                Route::Dafs(place) if place.mount == self.place.mount => {
                    self.resolved.clear();
                    self.unknown_count = 0;
                    left.extend(place.names.into_iter().rev());
                    return Ok(());
                }
                _ => return Err(self.elsewhere(OsString::from_vec(text), left)),
            }
        }
        left.extend(names_of(&text).map(|name| OsStr::from_bytes(name).to_owned()).rev());
        Ok(())
    }

    /// Returns the failure for a path that leaves the mount, with the absolute path it leads to.
    fn leaves_mount(&self, path: &str, left: &[OsString]) -> Failure {
        self.elsewhere(shown(self.place.mount, OsStr::new(path)), left)
    }

    fn elsewhere(&self, start: OsString, left: &[OsString]) -> Failure {
        let mut path = left.iter().rev().fold(start, |path, name| beneath(path, name));
        if !self.suffix.is_empty() {
            path = beneath(path, &self.suffix);
        } else if self.place.is_directory && !path.as_bytes().ends_with(b"/") {
            path.push("/");
        }
        Failure::Elsewhere(path)
    }
}

/// Appends a name, or several, to a path.
fn beneath(mut path: OsString, name: &OsStr) -> OsString {
    path.push("/");
    path.push(name);
    path
}

const NAME_BYTES_MAX: usize = 255;
/// The maximum number of names in one request.
const NAMES_AT_ONCE: usize = 12;
