//! One end of a copy: a local path, or a path on a server.
//!
//! Invariant: beneath the top of a local target no symbolic link is followed, so that a
//! server cannot have files written elsewhere.

use std::collections::HashMap;
use std::fs::File as LocalFile;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dafs_client::{File, ObjectType, OpenOptions, Session, Status};
use dafs_types::FileHandle;
use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use super::mover::BLOCK_BYTES;
use super::walk::{Item, walk_local, walk_remote};

/// One end of a copy.
#[derive(Clone)]
pub enum Side {
    Local(PathBuf),
    Remote(Session, String),
}

/// Directories of a target on a server, by their paths beneath the top.
pub type Directories = HashMap<String, FileHandle>;

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
            Side::Local(path) => path
                .canonicalize()
                .with_context(|| path.display().to_string())?
                .file_name()
                .map(|name| name.to_string_lossy().into_owned()),
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

    /// Everything at and below the top, directories before what is in them.
    pub fn items(&self) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        match self {
            Side::Local(top) => walk_local(top, "", &mut items)?,
            Side::Remote(session, top) => {
                let metadata = session.metadata(top)?;
                walk_remote(session, top, "", &metadata, &mut items)?;
            }
        }
        Ok(items)
    }

    pub fn make_directory(&self, item: &Item) -> Result<()> {
        // Usable while it is being filled; its own mode comes with its times.
        let mode = 0o700 | item.mode;
        match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                match std::fs::create_dir(&path) {
                    Err(_) if is_directory_at(&path, item.path.is_empty()) => Ok(()),
                    other => other.with_context(|| format!("making {}", path.display())),
                }
            }
            Side::Remote(session, top) => {
                let path = join(top, &item.path);
                match session.create_dir(&path, mode) {
                    Err(error) if error.status() == Some(Status::Exist) => {
                        let there = if item.path.is_empty() {
                            session.metadata(&path)?
                        } else {
                            session.symlink_metadata(&path)?
                        };
                        if there.kind == ObjectType::Directory { Ok(()) } else { Err(error.into()) }
                    }
                    // The root is always there and never made.
                    Err(error) if error.status() == Some(Status::Inval) && is_root(&path) => Ok(()),
                    other => Ok(other?),
                }
            }
        }
    }

    pub fn make_link(&self, item: &Item) -> Result<()> {
        match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                // What is not there need not go; what stays makes the next call fail.
                let _ = std::fs::remove_file(&path);
                std::os::unix::fs::symlink(&item.link, &path)
                    .with_context(|| format!("making {}", path.display()))
            }
            Side::Remote(session, top) => {
                let path = join(top, &item.path);
                match session.symlink(&item.link, &path) {
                    Err(error) if error.status() == Some(Status::Exist) => {
                        session.remove(&path)?;
                        Ok(session.symlink(&item.link, &path)?)
                    }
                    other => Ok(other?),
                }
            }
        }
    }

    pub fn read_link(&self, path: &str) -> Result<String> {
        match self {
            Side::Local(top) => {
                let path = join_local(top, path);
                let text = path.read_link().with_context(|| path.display().to_string())?;
                Ok(text.to_string_lossy().into_owned())
            }
            Side::Remote(session, top) => Ok(session.read_link(&join(top, path))?),
        }
    }

    /// Opens one of this side's files. One of a server that is small and whose handle is
    /// known needs no open.
    pub fn open_to_read(&self, item: &Item, handle: Option<FileHandle>) -> Result<Open> {
        Ok(match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                let file = LocalFile::open(&path);
                Open::Local(file.with_context(|| format!("opening {}", path.display()))?)
            }
            Side::Remote(session, top) => {
                let path = join(top, &item.path);
                Open::Remote(Box::new(match handle {
                    Some(handle) if item.size < BLOCK_BYTES as u64 => session.reader(handle, &path),
                    _ => session.open(&path, &OpenOptions::read())?,
                }))
            }
        })
    }

    pub fn open_to_write(&self, item: &Item, known: &mut Directories) -> Result<Open> {
        // Writable for its owner until it is complete.
        let mode = item.mode & 0o777 | 0o200;
        Ok(match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                let file = open_local(&path, mode, item.path.is_empty());
                Open::Local(file.with_context(|| format!("opening {}", path.display()))?)
            }
            Side::Remote(session, top) => {
                let options = OpenOptions { truncate: true, mode, ..OpenOptions::write() };
                Open::Remote(Box::new(open_remote(session, top, item, &options, known)?))
            }
        })
    }

    /// Closes a file that was written, and gives it the mode and times of its source.
    /// Returns its handle on a server.
    pub fn complete(&self, item: &Item, written: Open, sync: bool) -> Result<Option<FileHandle>> {
        match written {
            Open::Local(file) => {
                if sync {
                    file.sync_all()?;
                }
                file.set_permissions(std::fs::Permissions::from_mode(item.mode))?;
                rustix::fs::futimens(&file, &times(item))?;
                Ok(None)
            }
            Open::Remote(file) => {
                if sync {
                    file.commit()?;
                }
                let (session, handle) = (file.session().clone(), file.handle());
                let path = file.path().to_owned();
                // First: what the server still writes would change the time again.
                file.close()?;
                session.set_attributes_by_handle(handle, &item.attributes(), &path)?;
                Ok(Some(handle))
            }
        }
    }

    /// Mode and modification time as those of the source, for a directory.
    pub fn set_attributes(&self, item: &Item) -> Result<()> {
        match self {
            Side::Local(top) => {
                let path = join_local(top, &item.path);
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(item.mode))?;
                Ok(rustix::fs::utimensat(CWD, &path, &times(item), AtFlags::empty())?)
            }
            Side::Remote(session, top) => {
                Ok(session.set_attributes(&join(top, &item.path), &item.attributes())?)
            }
        }
    }
}

/// Opens a target on a server; a link in its place gives way, unless it is the top.
fn open_remote(
    session: &Session,
    top: &str,
    item: &Item,
    options: &OpenOptions,
    known: &mut Directories,
) -> Result<File> {
    let path = join(top, &item.path);
    if item.path.is_empty() {
        return Ok(session.open(&path, options)?);
    }
    let (directory, name) = item.path.rsplit_once('/').unwrap_or(("", &item.path));
    let handle = match known.get(directory) {
        Some(handle) => *handle,
        None => {
            let handle = session.metadata(&join(top, directory))?.handle;
            known.insert(directory.to_owned(), handle);
            handle
        }
    };
    match session.open_in(handle, name, &path, options) {
        Err(error) if error.status() == Some(Status::Symlink) => {
            session.remove(&path)?;
            Ok(session.open_in(handle, name, &path, options)?)
        }
        other => Ok(other?),
    }
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
