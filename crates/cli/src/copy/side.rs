//! One end of a copy: a local path, or a path on a server.
//!
//! Invariant: beneath the top of a local target no symbolic link is followed, so that a
//! server cannot have files written elsewhere.

use std::ffi::OsStr;
use std::fs::File as LocalFile;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dafs_client::{Client, File, ObjectType, OpenOptions, Session, Status, Timestamp};
use dafs_types::FileHandle;
use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use super::mover::BLOCK_BYTES;
use super::walk::{Item, Tree, walk_local, walk_remote};

/// One end of a copy.
#[derive(Clone)]
pub enum Side {
    Local(PathBuf),
    Remote(Session, String),
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

/// An open file of either.
pub enum Open {
    Local(LocalFile),
    Remote(Box<File>),
}

impl Side {
    pub fn below(self, name: String) -> Self {
        match self {
            Side::Local(path) => Side::Local(path.join(name)),
            Side::Remote(session, path) => Side::Remote(session, join(&path, &name)),
        }
    }

    /// The name that a copy in a directory gets.
    pub fn last_name(&self) -> Result<String> {
        let name = match self {
            Side::Local(path) => {
                let path = path.canonicalize().with_context(|| path.display().to_string())?;
                match path.file_name().map(|name| name.to_str()) {
                    Some(None) => bail!("{path:?}: the name is not UTF-8; name the copy"),
                    name => name.flatten().map(str::to_owned),
                }
            }
            Side::Remote(_, path) => {
                path.trim_end_matches('/').rsplit('/').next().map(str::to_owned)
            }
        };
        match name.filter(|name| !matches!(name.as_str(), "" | "." | "..")) {
            Some(name) => Ok(name),
            None => bail!("{} has no name of its own; name the copy", self.name("")),
        }
    }

    pub fn name(&self, path: &str) -> String {
        match self {
            Side::Local(top) => join_local(top, path).display().to_string(),
            Side::Remote(_, top) => join(top, path),
        }
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
        self.identity().is_some_and(|own| other.identity() == Some(own))
    }

    /// What an object has alone and shows alike here and through any of its servers: its
    /// number, and when anything of it was changed last.
    fn identity(&self) -> Option<(u64, Timestamp)> {
        match self {
            Side::Local(path) => {
                let found = path.metadata().ok()?;
                let nanoseconds = u32::try_from(found.ctime_nsec()).ok()?;
                Some((found.ino(), Timestamp { seconds: found.ctime(), nanoseconds }))
            }
            Side::Remote(session, path) => {
                let found = session.metadata(path).ok()?;
                Some((found.file_id, found.time_metadata))
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
    pub async fn make_directory(&self, item: &Item, parent: Copied) -> Result<Copied> {
        // Usable while it is being filled; its own mode comes with its times.
        let mode = 0o700 | item.mode;
        match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                match std::fs::create_dir(&path) {
                    Err(_) if is_directory_at(&path, item.path.is_empty()) => {}
                    other => other.with_context(|| format!("making {}", path.display()))?,
                }
                Ok(Copied::Local)
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
                        if is_directory { Ok(Copied::Remote(there)) } else { Err(error.into()) }
                    }
                    other => Ok(Copied::Remote(other?)),
                }
            }
        }
    }

    pub async fn make_link(&self, item: &Item, parent: Copied) -> Result<Copied> {
        match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                // What is not there need not go; what stays makes the next call fail.
                let _ = std::fs::remove_file(&path);
                std::os::unix::fs::symlink(OsStr::from_bytes(&item.link), &path)
                    .with_context(|| format!("making {}", path.display()))?;
                Ok(Copied::Local)
            }
            Side::Remote(session, top) => {
                let path = join(top, &item.path);
                let directory = parent.handle().context("a link has a directory")?;
                let (name, text) = (item.name(), item.link.as_slice());
                let made = match session.symlink_in_async(directory, name, &path, text).await {
                    Err(error) if error.status() == Some(Status::Exist) => {
                        session.remove_in_async(directory, name, &path).await?;
                        session.symlink_in_async(directory, name, &path, text).await
                    }
                    other => other,
                };
                Ok(Copied::Remote(made?))
            }
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

    /// Opens one of this side's files; on a server it and its directory are known by
    /// their handles. One that is small needs no open there.
    pub async fn open_to_read(
        &self,
        item: &Item,
        handle: Option<FileHandle>,
        directory: Option<FileHandle>,
    ) -> Result<Open> {
        Ok(match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                let file = LocalFile::open(&path);
                Open::Local(file.with_context(|| format!("opening {}", path.display()))?)
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

    pub async fn open_to_write(&self, item: &Item, parent: Copied) -> Result<Open> {
        // Writable for its owner until it is complete.
        let mode = item.mode & 0o777 | 0o200;
        Ok(match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                let file = open_local(&path, mode, item.path.is_empty());
                Open::Local(file.with_context(|| format!("opening {}", path.display()))?)
            }
            Side::Remote(session, top) => {
                let path = join(top, &item.path);
                let options = OpenOptions { truncate: true, mode, ..OpenOptions::write() };
                let Some(directory) = parent.handle() else {
                    return Ok(Open::Remote(Box::new(session.open(&path, &options)?)));
                };
                let name = item.name();
                let opened = session.open_in_async(directory, name, &path, &options).await;
                Open::Remote(Box::new(match opened {
                    // A link in its place gives way.
                    Err(error) if error.status() == Some(Status::Symlink) => {
                        session.remove_in_async(directory, name, &path).await?;
                        session.open_in_async(directory, name, &path, &options).await?
                    }
                    other => other?,
                }))
            }
        })
    }

    /// Closes a file that was written, and gives it the mode and times of its source.
    pub async fn complete(&self, item: &Item, written: Open, sync: bool) -> Result<Copied> {
        match written {
            Open::Local(file) => {
                if sync {
                    file.sync_all()?;
                }
                file.set_permissions(std::fs::Permissions::from_mode(item.mode))?;
                rustix::fs::futimens(&file, &times(item))?;
                Ok(Copied::Local)
            }
            Open::Remote(file) => {
                if sync {
                    let done = file.commit_async().await?;
                    file.note_unstable(done.verifier)?;
                }
                let (session, handle) = (file.session().clone(), file.handle());
                let path = file.path().to_owned();
                // First: what the server still writes would change the time again.
                file.close_async().await?;
                session.set_attributes_async(handle, &item.attributes(), &path).await?;
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
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(item.mode))?;
                Ok(rustix::fs::utimensat(CWD, &path, &times(item), AtFlags::empty())?)
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
fn make_top(session: &Session, path: &str, mode: u32) -> Result<Copied> {
    match session.create_dir(path, mode) {
        Ok(()) => {}
        Err(error) if error.status() == Some(Status::Exist) => {
            if session.metadata(path)?.kind != ObjectType::Directory {
                return Err(error.into());
            }
        }
        // The root is always there and never made.
        Err(error) if error.status() == Some(Status::Inval) && is_root(path) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Copied::Remote(session.metadata(path)?.handle))
}

fn is_directory_at(path: &Path, is_top: bool) -> bool {
    if is_top { path.is_dir() } else { path.symlink_metadata().is_ok_and(|m| m.is_dir()) }
}

fn is_root(path: &str) -> bool {
    path.trim_matches('/').is_empty()
}

/// Opens a local target; a link in its place gives way, unless it is the top.
fn open_local(path: &Path, mode: u32, is_top: bool) -> std::io::Result<LocalFile> {
    let mut options = LocalFile::options();
    options.write(true).create(true).truncate(true).mode(mode);
    if is_top {
        return options.open(path);
    }
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    match options.open(path) {
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            std::fs::remove_file(path)?;
            options.open(path)
        }
        other => other,
    }
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

pub fn join(top: &str, path: &str) -> String {
    if path.is_empty() { top.to_owned() } else { format!("{}/{path}", top.trim_end_matches('/')) }
}

pub fn join_local(top: &Path, path: &str) -> PathBuf {
    if path.is_empty() { top.to_path_buf() } else { top.join(path) }
}
