//! One end of a copy: a local path, or a path on a server.
//!
//! Invariant: below the top of a local target, no symbolic link is followed, so a server cannot
//! make this program write files elsewhere.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File as LocalFile};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, bail};
use dafs_client::{
    Client, ClientError, NewFile, NewObject, ObjectType, OpenOptions, Session, SetAttributes,
    ShareAccess, Slice, Status, shown_path, split_last,
};
use dafs_types::FileHandle;
use rustix::fs::{CWD, FileType, OFlags, Timespec, Timestamps, UTIME_OMIT, mknodat};
use rustix::io::Errno;

use super::mover::BLOCK_BYTES;
use super::open::{Identity, Open};
use super::walk::{Item, Tree, walk_local, walk_remote};
use crate::place::below;

/// One end of a copy.
#[derive(Clone)]
pub(crate) enum Side {
    Local(PathBuf),
    Remote(Session, OsString),
}

/// The result of copying one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// Nothing was made: the item failed, or its kind is not copied.
    No,
    Local,
    /// The copy is an object with this handle on a server.
    Remote(FileHandle),
}

/// The result of making a complete file with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// The file was made, and all its data is written.
    Made(Copied),
    /// No file was made: the name is taken, or this file needs several requests.
    NotMade,
    /// The file was made, but its data is incomplete. The file that has the name now is this copy.
    Unfinished,
}

/// The way in which a copied file gets its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The target file existed before, and keeps its mode.
    Kept,
    /// The file gets its mode when it is created. If owner write permission was added for the time
    /// of the copy, the mode is set again without it.
    Given,
    /// The mode of the source is set explicitly when the file is complete.
    ToBeSet,
}

impl Side {
    pub(crate) fn below(self, name: &OsStr) -> Self {
        match self {
            Side::Local(path) => Side::Local(path.join(name)),
            Side::Remote(session, path) => Side::Remote(session, join(&path, name)),
        }
    }

    /// True if the path ends with a slash.
    pub(crate) fn ends_as_directory(&self) -> bool {
        let name = match self {
            Side::Local(path) => path.as_os_str(),
            Side::Remote(_, path) => path,
        };
        name.as_bytes().ends_with(b"/")
    }

    /// Returns the name that a copy into a directory gets.
    pub(crate) fn last_name(&self) -> Result<OsString> {
        let name = match self {
            Side::Local(path) => {
                let path = path.canonicalize().with_context(|| path.display().to_string())?;
                path.file_name().unwrap_or_default().to_owned()
            }
            Side::Remote(_, path) => split_last(path).1.to_owned(),
        };
        match name.as_bytes() {
            b"" | b"." | b".." => {
                bail!("{} has no name; give a name for the copy", self.name(OsStr::new("")))
            }
            _ => Ok(name),
        }
    }

    /// Returns the full name of an item for messages. `path` is relative to the top.
    pub(crate) fn name(&self, path: &OsStr) -> String {
        let place = match self {
            Side::Local(top) => join_local(top, path).into_os_string(),
            Side::Remote(_, top) => join(top, path),
        };
        shown_path(&place).into_owned()
    }

    pub(crate) fn is_directory(&self) -> bool {
        match self {
            Side::Local(path) => path.is_dir(),
            Side::Remote(session, path) => {
                session.metadata(path).is_ok_and(|m| m.kind == ObjectType::Directory)
            }
        }
    }

    /// True if both sides are the same object. Copying an object onto itself would truncate the
    /// object before it is read.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let both = self.identity().zip(other.identity());
        both.is_some_and(|(own, others)| own.is_same(&others))
    }

    fn identity(&self) -> Option<Identity> {
        match self {
            Side::Local(path) => Some(Identity::of_local(&path.metadata().ok()?)),
            Side::Remote(session, path) => Some(Identity::of_remote(&session.metadata(path).ok()?)),
        }
    }

    /// True if this side is inside `directory`. Copying the directory into itself would never end.
    pub(crate) fn is_beneath(&self, directory: &Self) -> bool {
        self.directories_above().iter().any(|above| above.is_same(directory))
    }

    /// Returns the existing directories that contain this side.
    fn directories_above(&self) -> Vec<Self> {
        match self {
            Side::Local(path) => {
                let is_there = path.ancestors().skip(1).find_map(|above| {
                    let here = Path::new(".");
                    let above = if above.as_os_str().is_empty() { here } else { above };
                    above.canonicalize().ok()
                });
                let is_there = is_there.unwrap_or_default();
                is_there.ancestors().map(|above| Side::Local(above.to_owned())).collect()
            }
            Side::Remote(session, path) => {
                let mut names: Vec<&[u8]> = Vec::new();
                for name in path.as_bytes().split(|byte| *byte == b'/') {
                    match name {
                        b"" | b"." => {}
                        b".." => drop(names.pop()),
                        name => names.push(name),
                    }
                }
                let above =
                    |count| OsString::from_vec([b"/", &*names[..count].join(&b'/')].concat());
                (0..names.len()).map(|count| Side::Remote(session.clone(), above(count))).collect()
            }
        }
    }

    /// Lists everything at and below the top, each directory before its contents.
    pub(crate) fn walk(&self, client: &Client) -> Result<Tree> {
        match self {
            Side::Local(top) => walk_local(top),
            Side::Remote(session, top) => walk_remote(client, session, top),
        }
    }

    /// Makes a directory. Returns the new directory, and true if it was created now. Here and in
    /// the other calls, `parent` is the copy of the directory that contains the item.
    pub(crate) async fn make_directory(
        &self,
        item: &Item,
        parent: Copied,
    ) -> Result<(Copied, bool)> {
        // Add owner access while the directory is being filled. The item's own mode is set together
        // with its times.
        let mode = 0o700 | item.mode;
        match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                match DirBuilder::new().mode(mode).create(&path) {
                    Err(_) if is_directory_at(&path, item.path.is_empty()) => {
                        Ok((Copied::Local, false))
                    }
                    made => {
                        made.with_context(|| format!("making {}", path.display()))?;
                        Ok((Copied::Local, true))
                    }
                }
            }
            Side::Remote(session, top) => {
                let path = join(top, &item.path);
                let Some(directory) = parent.handle() else {
                    return make_top(session, &path, mode);
                };
                let name = item.name();
                match session.create_dir_in_async(directory, name, &path, mode).await {
                    Err(error) if error.status() == Some(Status::Exist) => {
                        let there = session.lookup_in_async(directory, name, &path).await?;
                        let metadata = session.metadata_async(there, &path).await?;
                        let is_directory = metadata.kind == ObjectType::Directory;
                        let there = (Copied::Remote(there), false);
                        if is_directory { Ok(there) } else { Err(error.into()) }
                    }
                    made => Ok((Copied::Remote(made?), true)),
                }
            }
        }
    }

    /// Makes a symbolic link. Replaces an existing object with the link's name, except a directory
    /// or the link that is being copied.
    pub(crate) async fn make_link(
        &self,
        item: &Item,
        parent: Copied,
        source: &Self,
    ) -> Result<Copied> {
        match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                let text = OsStr::from_bytes(&item.link);
                let make = |path: &Path| Ok(std::os::unix::fs::symlink(text, path)?);
                let is_led_to = || self.at(&item.path).is_same(&source.at(&item.path));
                if path.symlink_metadata().is_ok_and(|there| there.is_file()) && is_led_to() {
                    return Err(same_file(source, self, &item.path));
                }
                make_over_local(&path, make)
                    .with_context(|| format!("making {}", path.display()))?;
                Ok(Copied::Local)
            }
            Side::Remote(session, top) => {
                let path = join(top, &item.path);
                let directory = parent.handle().context("a link has a directory")?;
                let (name, text) = (item.name(), item.link.as_slice());
                match session.symlink_in_async(directory, name, &path, text).await {
                    Err(error) if error.status() == Some(Status::Exist) => {}
                    made => return Ok(Copied::Remote(made?)),
                }
                let there = session.lookup_in_async(directory, name, &path).await?;
                let there = session.metadata_async(there, &path).await?;
                let is_led_to = || self.at(&item.path).is_same(&source.at(&item.path));
                if there.kind == ObjectType::Regular && is_led_to() {
                    return Err(same_file(source, self, &item.path));
                }
                let new = beside();
                let made = session.symlink_in_async(directory, &new, &path, text).await?;
                replace(session, directory, (&new, name), &path).await?;
                Ok(Copied::Remote(made))
            }
        }
    }

    /// Makes a named pipe or a socket.
    pub(crate) async fn make_special(&self, item: &Item, parent: Copied) -> Result<Copied> {
        match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                let kind = match item.kind {
                    ObjectType::Socket => FileType::Socket,
                    _ => FileType::Fifo,
                };
                let make = |path: &Path| Ok(mknodat(CWD, path, kind, item.mode.into(), 0)?);
                make_over_local(&path, make)
                    .with_context(|| format!("making {}", path.display()))?;
                Ok(Copied::Local)
            }
            Side::Remote(session, top) => {
                let path = join(top, &item.path);
                let (directory, name) = match parent.handle() {
                    Some(directory) => (directory, item.name().to_owned()),
                    None => {
                        let parent = session.resolve_parent_async(&path).await?;
                        (parent.directory, parent.name)
                    }
                };
                let kind = match item.kind {
                    ObjectType::Socket => NewObject::Socket,
                    _ => NewObject::Fifo,
                };
                let wanted = SetAttributes { mode: Some(item.mode), ..SetAttributes::default() };
                let made = session.create_in_async(directory, &name, &path, kind, &wanted).await;
                match made {
                    Err(error) if error.status() == Some(Status::Exist) => {}
                    made => return Ok(Copied::Remote(made?)),
                }
                let new = beside();
                let made = session.create_in_async(directory, &new, &path, kind, &wanted).await?;
                replace(session, directory, (&new, &name), &path).await?;
                Ok(Copied::Remote(made))
            }
        }
    }

    /// Returns the side for an item below this one. `path` is relative to this side.
    fn at(&self, path: &OsStr) -> Self {
        match self {
            Side::Local(top) => Side::Local(join_local(top, path)),
            Side::Remote(session, top) => Side::Remote(session.clone(), join(top, path)),
        }
    }

    pub(crate) async fn read_link(&self, item: &Item, copied: Copied) -> Result<Vec<u8>> {
        match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                let text = path.read_link().with_context(|| path.display().to_string())?;
                Ok(text.into_os_string().into_vec())
            }
            Side::Remote(session, top) => {
                let handle = copied.handle().context("a copied link has a handle")?;
                Ok(session.read_link_async(handle, &join(top, &item.path)).await?)
            }
        }
    }

    /// Opens a file to read. A file on a server is opened by its handle and the handle of its
    /// directory. A small file on a server is read without an open.
    pub(crate) async fn open_to_read(
        &self,
        item: &Item,
        handle: Option<FileHandle>,
        directory: Option<FileHandle>,
    ) -> Result<Open> {
        Ok(match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                let opened = open_local_to_read(&path, item.path.is_empty());
                opened.with_context(|| format!("opening {}", path.display()))?
            }
            Side::Remote(session, top) => {
                let (path, options) = (join(top, &item.path), OpenOptions::read());
                Open::Remote(Box::new(match (handle, directory) {
                    (Some(handle), _) if item.size < BLOCK_BYTES as u64 => {
                        session.reader(handle, &path)
                    }
                    (_, Some(directory)) if !item.path.is_empty() => {
                        session.open_in_async(directory, item.name(), &path, &options).await?
                    }
                    _ => session.open(&path, &options)?,
                }))
            }
        })
    }

    /// Creates the target file of a copy. Returns `None` if the name is taken.
    pub(crate) async fn create(&self, item: &Item, parent: Copied) -> Result<Option<Open>> {
        let mode = early_mode(item);
        match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                let made = LocalFile::options().write(true).create_new(true).mode(mode).open(&path);
                match made {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
                    made => {
                        let file = made.with_context(|| format!("opening {}", path.display()))?;
                        Ok(Some(Open::Local(file)))
                    }
                }
            }
            Side::Remote(session, top) => {
                let path = join(top, &item.path);
                let options = writing().create_new(true).mode(mode);
                let made = match parent.handle() {
                    Some(directory) => {
                        session.open_in_async(directory, item.name(), &path, &options).await
                    }
                    None => session.open(&path, &options),
                };
                match made {
                    Err(error) if error.status() == Some(Status::Exist) => Ok(None),
                    made => Ok(Some(Open::Remote(Box::new(made?)))),
                }
            }
        }
    }

    /// Creates a complete file on a server from the data in memory.
    pub(crate) async fn make_whole(
        &self,
        item: &Item,
        parent: Copied,
        content: Option<Slice>,
        sync: bool,
        mode: Mode,
    ) -> Result<Whole> {
        let (Side::Remote(session, top), Some(directory)) = (self, parent.handle()) else {
            return Ok(Whole::NotMade);
        };
        let (path, name) = (join(top, &item.path), item.name());
        let (attributes, last) = in_two(lacking(item, mode));
        let (path, mode, is_stable) = (path.as_os_str(), early_mode(item), sync);
        let new = NewFile { directory, name, path, mode, content, is_stable, attributes };
        let made = match session.make_file_async(&new).await {
            Err(error) if error.status() == Some(Status::Exist) => return Ok(Whole::NotMade),
            Err(ClientError::DataLost { .. }) | Ok(None) => return Ok(Whole::Unfinished),
            Ok(Some(made)) => made,
            Err(error) => return Err(error.into()),
        };
        if let Some(last) = last {
            session.set_attributes_async(made, &last, path).await?;
        }
        Ok(Whole::Made(Copied::Remote(made)))
    }

    /// Opens the existing object at the target place without truncating it.
    pub(crate) async fn open_there(&self, item: &Item, parent: Copied) -> Result<Open> {
        match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                let opened = open_local_there(&path, item.path.is_empty());
                opened.with_context(|| format!("opening {}", path.display()))
            }
            Side::Remote(session, top) => {
                let (path, options) = (join(top, &item.path), writing());
                let Some(directory) = parent.handle() else {
                    return Ok(Open::Remote(Box::new(session.open(&path, &options)?)));
                };
                let name = item.name();
                let opened = session.open_in_async(directory, name, &path, &options).await;
                Ok(Open::Remote(Box::new(match opened {
                    // A symbolic link at this place is replaced.
                    Err(error) if error.status() == Some(Status::Symlink) => {
                        session.remove_in_async(directory, name, &path).await?;
                        let mode = early_mode(item);
                        let options = options.create_new(true).mode(mode);
                        session.open_in_async(directory, name, &path, &options).await?
                    }
                    other => other?,
                })))
            }
        }
    }

    /// Closes a written file, and sets the times of its source. Sets the mode too, unless the file
    /// already has it.
    pub(crate) async fn complete(
        &self,
        item: &Item,
        written: Open,
        sync: bool,
        mode: Mode,
    ) -> Result<Copied> {
        match written {
            Open::Local(file) => {
                if sync {
                    file.sync_all()?;
                }
                if let Some(mode) = lacking(item, mode).mode {
                    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
                }
                rustix::fs::futimens(&file, &times(item))?;
                Ok(Copied::Local)
            }
            Open::Stream(_) => Ok(Copied::Local),
            Open::Remote(file) => {
                if sync {
                    let done = file.commit_async().await?;
                    file.note_unstable(done.verifier)?;
                }
                let (session, handle) = (file.session().clone(), file.handle());
                let path = file.path().to_owned();
                // Close first: data that the server writes later would change the time again.
                file.close_async().await?;
                session.set_attributes_async(handle, &lacking(item, mode), &path).await?;
                Ok(Copied::Remote(handle))
            }
        }
    }

    /// Sets the mode and modification time of a directory to those of the source.
    pub(crate) async fn set_attributes(&self, item: &Item, copied: Copied) -> Result<()> {
        match (self, copied) {
            // The directory could not be made, and that failure was reported.
            (_, Copied::No) => Ok(()),
            (Side::Local(top), _) => {
                let path = join_local(top, &item.path);
                let mut flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
                // The top may be a symbolic link.
                flags.set(OFlags::NOFOLLOW, !item.path.is_empty());
                let directory = rustix::fs::open(&path, flags, rustix::fs::Mode::empty())?;
                rustix::fs::fchmod(&directory, item.mode.into())?;
                Ok(rustix::fs::futimens(&directory, &times(item))?)
            }
            (Side::Remote(session, top), Copied::Remote(handle)) => {
                let path = join(top, &item.path);
                Ok(session.set_attributes_async(handle, &item.attributes(), &path).await?)
            }
            (Side::Remote(..), Copied::Local) => bail!("a directory without a handle"),
        }
    }
}

impl Copied {
    pub(crate) fn handle(self) -> Option<FileHandle> {
        match self {
            Copied::Remote(handle) => Some(handle),
            Copied::No | Copied::Local => None,
        }
    }
}

/// Makes the top directory of a copy on a server. Follows a symbolic link at that path.
fn make_top(session: &Session, path: &OsStr, mode: u32) -> Result<(Copied, bool)> {
    let is_new = match session.create_dir(path, mode) {
        Ok(()) => true,
        Err(error) if error.status() == Some(Status::Exist) => {
            if session.metadata(path)?.kind != ObjectType::Directory {
                return Err(error.into());
            }
            false
        }
        // The root directory always exists and is never made.
        Err(error) if error.status() == Some(Status::Inval) && is_root(path) => false,
        Err(error) => return Err(error.into()),
    };
    Ok((Copied::Remote(session.metadata(path)?.handle), is_new))
}

fn is_directory_at(path: &Path, is_top: bool) -> bool {
    if is_top { path.is_dir() } else { path.symlink_metadata().is_ok_and(|m| m.is_dir()) }
}

fn is_root(path: &OsStr) -> bool {
    path.as_bytes().iter().all(|byte| *byte == b'/')
}

/// Returns the mode that a file is created with: writable for its owner until it is complete.
fn early_mode(item: &Item) -> u32 {
    item.mode & 0o777 | OWNER_WRITES
}

/// Returns the attributes that a copy still lacks when all of its bytes are written. The mode is
/// left out if the file was created with it, because the umask or the directory's default access
/// list was applied then, and that effect must stay, as with cp. A change of only the times also
/// needs no journal record.
fn lacking(item: &Item, mode: Mode) -> SetAttributes {
    let wanted = item.attributes();
    let has_it = match mode {
        Mode::Kept => true,
        Mode::Given => item.mode == early_mode(item),
        Mode::ToBeSet => false,
    };
    SetAttributes { mode: wanted.mode.filter(|_| !has_it), ..wanted }
}

/// Splits the attributes into those for the creating request and those to set after the file is
/// complete. A mode without owner write permission is in the second group, because the incomplete
/// file may have to be opened again for writing: by handle after a server restart, or by name.
fn in_two(wanted: SetAttributes) -> (SetAttributes, Option<SetAttributes>) {
    match wanted.mode {
        Some(mode) if mode & OWNER_WRITES == 0 => {
            let last = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
            (SetAttributes { mode: None, ..wanted }, Some(last))
        }
        _ => (wanted, None),
    }
}

/// Returns the options to open an existing file for writing, without truncation.
fn writing() -> OpenOptions {
    OpenOptions::read().access(ShareAccess::Write)
}

/// Opens a local source. A file below the top must still be a regular file, as it was when it was
/// listed, and neither a symbolic link nor a pipe, on which the open would block.
fn open_local_to_read(path: &Path, is_top: bool) -> Result<Open> {
    if is_top {
        return Ok(Open::of_local(LocalFile::open(path)?)?);
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = LocalFile::options().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    match Open::of_local(file?)? {
        Open::Stream(_) => bail!("it was a regular file when it was listed, and no longer is"),
        file => Ok(file),
    }
}

/// Opens the existing object at a local target place. A symbolic link is replaced, unless it is the
/// top.
fn open_local_there(path: &Path, is_top: bool) -> Result<Open> {
    if is_top {
        return Ok(Open::of_local(LocalFile::options().write(true).open(path)?)?);
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = LocalFile::options().write(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = match file {
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            std::fs::remove_file(path)?;
            LocalFile::options().write(true).create_new(true).mode(0o600).open(path)?
        }
        other => other?,
    };
    match Open::of_local(file)? {
        Open::Stream(_) => bail!("the target exists and is not a regular file"),
        file => Ok(file),
    }
}

/// Makes an object with `make`. If the name is taken, makes the object under a temporary name and
/// renames it, which replaces the existing object. A directory is not replaced.
fn make_over_local(path: &Path, make: impl Fn(&Path) -> Result<()>) -> Result<()> {
    let is_there = |error: &anyhow::Error| {
        let io = error.downcast_ref().map(std::io::Error::kind);
        let errno = error.downcast_ref().copied();
        io == Some(ErrorKind::AlreadyExists) || errno == Some(Errno::EXIST)
    };
    match make(path) {
        Err(error) if is_there(&error) => {}
        other => return other,
    }
    let new = path.with_file_name(beside());
    make(&new)?;
    let replaced = std::fs::rename(&new, path);
    if replaced.is_err() {
        // Ignore this error: the original error says more.
        let _ = std::fs::remove_file(&new);
    }
    Ok(replaced?)
}

/// Renames one entry of a directory over another. A directory is not replaced.
async fn replace(
    session: &Session,
    directory: FileHandle,
    (new, name): (&OsStr, &OsStr),
    path: &OsStr,
) -> Result<()> {
    let renamed = session.rename_in_async((directory, new), (directory, name), path).await;
    if renamed.is_err() {
        // Ignore this error: the original error says more.
        let _ = session.remove_in_async(directory, new, path).await;
    }
    Ok(renamed?)
}

/// Returns a random name for a temporary object.
fn beside() -> OsString {
    format!(".dafs-cp-{:016x}", RandomState::new().build_hasher().finish()).into()
}

/// Returns the error for a source and target that are the same object, which is left unchanged.
pub(super) fn same_file(source: &Side, target: &Side, path: &OsStr) -> Error {
    anyhow!("'{}' and '{}' are the same file", source.name(path), target.name(path))
}

fn times(item: &Item) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: item.modified.seconds,
            tv_nsec: item.modified.nanoseconds.into(),
        },
    }
}

const OWNER_WRITES: u32 = 0o200;

pub(super) fn join(top: &OsStr, path: &OsStr) -> OsString {
    if path.is_empty() { top.to_owned() } else { below(top, path) }
}

pub(super) fn join_local(top: &Path, path: &OsStr) -> PathBuf {
    if path.is_empty() { top.to_path_buf() } else { top.join(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_that_lets_its_owner_not_write_is_set_when_the_file_is_whole() {
        let time_modify = Some(dafs_types::SetTime::Server);
        let times = SetAttributes { time_modify, ..SetAttributes::default() };
        let with = |mode| SetAttributes { mode: Some(mode), ..times.clone() };
        assert_eq!(in_two(with(0o644)), (with(0o644), None));
        let last = SetAttributes { mode: Some(0o444), ..SetAttributes::default() };
        assert_eq!(in_two(with(0o444)), (times.clone(), Some(last)));
        assert_eq!(in_two(times.clone()), (times, None));
    }
}
