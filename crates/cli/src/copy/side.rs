//! One end of a copy: a local path, or a path on a server.
//!
//! Invariant: beneath the top of a local target no symbolic link is followed, so that a
//! server cannot have files written elsewhere.

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
pub enum Side {
    Local(PathBuf),
    Remote(Session, OsString),
}

/// What came of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// Nothing: it failed, or is of no kind that is copied.
    No,
    Local,
    /// This object of a server.
    Remote(FileHandle),
}

/// What came of making a file whole, in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// It is there and complete.
    Made(Copied),
    /// It was not made: something has its name, or it must be made step by step.
    NotMade,
    /// It was made, and does not hold all that it should: whatever has its name now is this copy.
    Unfinished,
}

/// Whose mode a copy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// That of what was there.
    Kept,
    /// What it was made with, unless it was made writable for the time being.
    Given,
    /// Its source's, whatever it was made with.
    ToBeSet,
}

impl Side {
    pub fn below(self, name: &OsStr) -> Self {
        match self {
            Side::Local(path) => Side::Local(path.join(name)),
            Side::Remote(session, path) => Side::Remote(session, join(&path, name)),
        }
    }

    /// Whether its name says that it is a directory.
    pub fn ends_as_directory(&self) -> bool {
        let name = match self {
            Side::Local(path) => path.as_os_str(),
            Side::Remote(_, path) => path,
        };
        name.as_bytes().ends_with(b"/")
    }

    /// The name that a copy in a directory gets.
    pub fn last_name(&self) -> Result<OsString> {
        let name = match self {
            Side::Local(path) => {
                let path = path.canonicalize().with_context(|| path.display().to_string())?;
                path.file_name().unwrap_or_default().to_owned()
            }
            Side::Remote(_, path) => split_last(path).1.to_owned(),
        };
        match name.as_bytes() {
            b"" | b"." | b".." => {
                bail!("{} has no name of its own; name the copy", self.name(OsStr::new("")))
            }
            _ => Ok(name),
        }
    }

    /// The place of an item, to be read.
    pub fn name(&self, path: &OsStr) -> String {
        let place = match self {
            Side::Local(top) => join_local(top, path).into_os_string(),
            Side::Remote(_, top) => join(top, path),
        };
        shown_path(&place).into_owned()
    }

    pub fn is_directory(&self) -> bool {
        match self {
            Side::Local(path) => path.is_dir(),
            Side::Remote(session, path) => {
                session.metadata(path).is_ok_and(|m| m.kind == ObjectType::Directory)
            }
        }
    }

    /// Whether both lead to one object. A copy would empty it before it is read.
    pub fn is_same(&self, other: &Self) -> bool {
        let both = self.identity().zip(other.identity());
        both.is_some_and(|(own, others)| own.is_same(&others))
    }

    fn identity(&self) -> Option<Identity> {
        match self {
            Side::Local(path) => Some(Identity::of_local(&path.metadata().ok()?)),
            Side::Remote(session, path) => Some(Identity::of_remote(&session.metadata(path).ok()?)),
        }
    }

    /// Whether this is a place beneath a directory: whoever copies that into it has no end.
    pub fn is_beneath(&self, directory: &Self) -> bool {
        self.directories_above().iter().any(|above| above.is_same(directory))
    }

    /// The directories that a place is in, as far as they are there.
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

    /// Everything at and below the top, directories before what is in them.
    pub fn walk(&self, client: &Client) -> Result<Tree> {
        match self {
            Side::Local(top) => walk_local(top),
            Side::Remote(session, top) => walk_remote(client, session, top),
        }
    }

    /// `parent` is what came of the directory an item is in, for this call and the others.
    /// Whether it was made, or there, comes with it.
    pub async fn make_directory(&self, item: &Item, parent: Copied) -> Result<(Copied, bool)> {
        // Usable while it is being filled; its own mode comes with its times.
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

    /// What is in the link's place gives way to it when it is there, unless it is a directory, or
    /// what the link leads to.
    pub async fn make_link(&self, item: &Item, parent: Copied, source: &Self) -> Result<Copied> {
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

    /// A named pipe or a socket.
    pub async fn make_special(&self, item: &Item, parent: Copied) -> Result<Copied> {
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

    /// The place of an item.
    fn at(&self, path: &OsStr) -> Self {
        match self {
            Side::Local(top) => Side::Local(join_local(top, path)),
            Side::Remote(session, top) => Side::Remote(session.clone(), join(top, path)),
        }
    }

    pub async fn read_link(&self, item: &Item, copied: Copied) -> Result<Vec<u8>> {
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

    /// Opens one of this side's files; on a server it and its directory are known by their
    /// handles. One that is small needs no open there.
    pub async fn open_to_read(
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

    /// Makes the file that a copy goes to; `None` if something has its name already.
    pub async fn create(&self, item: &Item, parent: Copied) -> Result<Option<Open>> {
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
                let options = OpenOptions { create_new: true, mode, ..writing() };
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

    /// Makes a file on a server that holds what is here, and is complete.
    pub async fn make_whole(
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

    /// Opens what is in the place of a copy, as it is.
    pub async fn open_there(&self, item: &Item, parent: Copied) -> Result<Open> {
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
                    // A link in its place gives way.
                    Err(error) if error.status() == Some(Status::Symlink) => {
                        session.remove_in_async(directory, name, &path).await?;
                        let mode = early_mode(item);
                        let options = OpenOptions { create_new: true, mode, ..options };
                        session.open_in_async(directory, name, &path, &options).await?
                    }
                    other => other?,
                })))
            }
        }
    }

    /// Closes a file that was written, and gives it the times of its source, and its mode if it
    /// has not got it yet.
    pub async fn complete(
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
                // First: what the server still writes would change the time again.
                file.close_async().await?;
                session.set_attributes_async(handle, &lacking(item, mode), &path).await?;
                Ok(Copied::Remote(handle))
            }
        }
    }

    /// Mode and modification time as those of the source, for a directory.
    pub async fn set_attributes(&self, item: &Item, copied: Copied) -> Result<()> {
        match (self, copied) {
            // It could not be made, which was told.
            (_, Copied::No) => Ok(()),
            (Side::Local(top), _) => {
                let path = join_local(top, &item.path);
                let mut flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
                // The top may be a link.
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
    pub fn handle(self) -> Option<FileHandle> {
        match self {
            Copied::Remote(handle) => Some(handle),
            Copied::No | Copied::Local => None,
        }
    }
}

/// The top of a copy on a server; a link there is followed.
fn make_top(session: &Session, path: &OsStr, mode: u32) -> Result<(Copied, bool)> {
    let is_new = match session.create_dir(path, mode) {
        Ok(()) => true,
        Err(error) if error.status() == Some(Status::Exist) => {
            if session.metadata(path)?.kind != ObjectType::Directory {
                return Err(error.into());
            }
            false
        }
        // The root is always there and never made.
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

/// What a file is made with: writable for its owner until it is complete.
fn early_mode(item: &Item) -> u32 {
    item.mode & 0o777 | OWNER_WRITES
}

/// What a copy lacks when all of its bytes are there. Its mode is not among that if it was made
/// with it: the umask has been taken away already, and what else its directory's default list takes
/// away is to stay away, as with cp. And a change of times alone needs no journal.
fn lacking(item: &Item, mode: Mode) -> SetAttributes {
    let wanted = item.attributes();
    let has_it = match mode {
        Mode::Kept => true,
        Mode::Given => item.mode == early_mode(item),
        Mode::ToBeSet => false,
    };
    SetAttributes { mode: wanted.mode.filter(|_| !has_it), ..wanted }
}

/// What the request that makes a file may set already, and what only another one may, once the
/// file is whole. A mode that lets its owner not write is such: until the file is whole, it may
/// have to be opened again to be written, by its handle when its server has restarted, or by its
/// name.
fn in_two(wanted: SetAttributes) -> (SetAttributes, Option<SetAttributes>) {
    match wanted.mode {
        Some(mode) if mode & OWNER_WRITES == 0 => {
            let last = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
            (SetAttributes { mode: None, ..wanted }, Some(last))
        }
        _ => (wanted, None),
    }
}

/// What an existing file is opened with: nothing of it goes.
fn writing() -> OpenOptions {
    OpenOptions { access: ShareAccess::Write, ..OpenOptions::read() }
}

/// Opens a local source. What is beneath the top is still the file that was listed: no link, and
/// no pipe, which nobody would write to.
fn open_local_to_read(path: &Path, is_top: bool) -> Result<Open> {
    if is_top {
        return Ok(Open::of_local(LocalFile::open(path)?)?);
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = LocalFile::options().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    match Open::of_local(file?)? {
        Open::Stream(_) => bail!("it was a file when it was listed, and is none now"),
        file => Ok(file),
    }
}

/// Opens what is in the place of a local target; a link gives way, unless it is the top.
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
        Open::Stream(_) => bail!("there is something that is no file"),
        file => Ok(file),
    }
}

/// Makes something, under another name first if there is something. A directory stays.
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
        // What the failure was tells more than why the new one would not go.
        let _ = std::fs::remove_file(&new);
    }
    Ok(replaced?)
}

/// Puts what has one name in a directory in the place of another. A directory stays.
async fn replace(
    session: &Session,
    directory: FileHandle,
    (new, name): (&OsStr, &OsStr),
    path: &OsStr,
) -> Result<()> {
    let renamed = session.rename_in_async((directory, new), (directory, name), path).await;
    if renamed.is_err() {
        // As above.
        let _ = session.remove_in_async(directory, new, path).await;
    }
    Ok(renamed?)
}

/// A name that nobody has.
fn beside() -> OsString {
    format!(".dafs-cp-{:016x}", RandomState::new().build_hasher().finish()).into()
}

/// Nothing was touched.
pub fn same_file(source: &Side, target: &Side, path: &OsStr) -> Error {
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

pub fn join(top: &OsStr, path: &OsStr) -> OsString {
    if path.is_empty() { top.to_owned() } else { below(top, path) }
}

pub fn join_local(top: &Path, path: &OsStr) -> PathBuf {
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
