//! The input to compress or decompress: standard input, a local file, or a file on a server.
//!
//! Invariant: a file on a server is read ahead into registered memory, several blocks concurrently.

use std::ffi::{OsStr, OsString};
use std::fs::File as LocalFile;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use dafs_client::{File, ObjectType, OpenOptions, ReadStream, Session, split_last};
use dafs_types::Timestamp;

use super::Attributes;
use crate::copy::read_next;

/// An input that is open for reading.
pub(super) struct Source {
    kind: Kind,
    /// The file name without directories.
    pub name: Option<OsString>,
    pub attributes: Attributes,
    pub link_count: u64,
    /// The reason why the output must not replace this input.
    pub hindrance: Option<&'static str>,
}

enum Kind {
    Standard,
    Local(PathBuf, LocalFile),
    Remote(Session, Box<File>, OsString),
}

impl Source {
    pub(super) fn standard() -> Self {
        let attributes = Attributes::default();
        Self { kind: Kind::Standard, name: None, attributes, link_count: 1, hindrance: None }
    }

    /// Opens a local file. A pipe is opened only if `may_wait` is set, because opening a pipe
    /// blocks until another process writes to it.
    pub(super) fn local(path: &Path, may_wait: bool) -> Result<Self> {
        let kind = path.metadata()?.file_type();
        if kind.is_dir() {
            return Err(PassedOver(IS_DIRECTORY).into());
        }
        if !kind.is_file() && !may_wait {
            return Err(PassedOver(IS_NO_FILE).into());
        }
        let file = LocalFile::open(path)?;
        let metadata = file.metadata()?;
        let is_link = path.symlink_metadata()?.is_symlink();
        let nanoseconds = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
        let modified = Timestamp { seconds: metadata.mtime(), nanoseconds };
        Ok(Self {
            name: path.file_name().map(OsStr::to_owned),
            kind: Kind::Local(path.to_owned(), file),
            attributes: Attributes { mode: Some(metadata.mode()), modified: Some(modified) },
            link_count: metadata.nlink(),
            hindrance: hindrance(is_link, metadata.is_file(), metadata.mode()),
        })
    }

    pub(super) fn remote(session: &Session, path: &OsStr) -> Result<Self> {
        let named = session.symlink_metadata(path)?;
        let is_link = named.kind == ObjectType::SymbolicLink;
        let metadata = if is_link { session.metadata(path)? } else { named };
        let is = |kind| metadata.kind == kind;
        if is(ObjectType::Directory) {
            return Err(PassedOver(IS_DIRECTORY).into());
        }
        let file = session.open(path, &OpenOptions::read())?;
        let (mode, modified) = (Some(metadata.mode), Some(metadata.time_modify));
        Ok(Self {
            kind: Kind::Remote(session.clone(), Box::new(file), path.to_owned()),
            name: Some(split_last(path).1.to_owned()),
            attributes: Attributes { mode, modified },
            link_count: metadata.link_count.into(),
            hindrance: hindrance(is_link, is(ObjectType::Regular), metadata.mode),
        })
    }

    /// Calls `body` with a reader of the input. The reader fails after an interruption.
    pub(super) fn read<T>(
        &self,
        interrupted: &AtomicBool,
        body: impl FnOnce(&mut dyn Read) -> Result<T>,
    ) -> Result<T> {
        let mut stream;
        let (mut local, standard, mut waiting);
        let inner: &mut dyn Read = match &self.kind {
            Kind::Standard => {
                let input = io::stdin().as_fd().try_clone_to_owned();
                standard = LocalFile::from(input.context("the standard input")?);
                waiting = Waiting { file: &standard, interrupted };
                &mut waiting
            }
            Kind::Local(_, file) if !file.metadata()?.is_file() => {
                waiting = Waiting { file, interrupted };
                &mut waiting
            }
            Kind::Local(_, file) => {
                local = file;
                &mut local
            }
            Kind::Remote(_, file, _) => {
                stream = ReadStream::new(file, BLOCKS, BLOCK_BYTES)?;
                &mut stream
            }
        };
        body(&mut Interruptible { inner, interrupted })
    }

    /// Removes the input file after its output got its name.
    pub(super) fn remove(self) -> Result<()> {
        match self.kind {
            Kind::Standard => Ok(()),
            Kind::Local(path, _) => {
                std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
            }
            Kind::Remote(session, file, path) => {
                file.close()?;
                Ok(session.remove(&path)?)
            }
        }
    }
}

/// Returns the reason why an output must not replace its input by the rules of gzip(1), if there is
/// one.
fn hindrance(is_link: bool, is_file: bool, mode: u32) -> Option<&'static str> {
    match () {
        () if !is_file => Some(IS_NO_FILE),
        () if is_link => Some(IS_LINK),
        () if mode & 0o4000 != 0 => Some("runs as its owner (set-user-ID); left as it is"),
        () if mode & 0o2000 != 0 => Some("runs as its group (set-group-ID); left as it is"),
        () if mode & 0o1000 != 0 => Some(IS_STICKY),
        () => None,
    }
}

/// The warning for a skipped file.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct PassedOver(pub &'static str);

const IS_DIRECTORY: &str = "is a directory; left as it is";
const IS_NO_FILE: &str = "is not a regular file; left as it is";
/// The reason for skipping a symbolic link, which --force overrides.
pub(super) const IS_LINK: &str = "is a symbolic link; give --force to process its target";
/// The reason for skipping a file with the sticky bit, which --force overrides.
pub(super) const IS_STICKY: &str = "has the sticky bit; give --force to process it";

/// An input whose bytes arrive when another process writes them, possibly never.
struct Waiting<'r> {
    file: &'r LocalFile,
    interrupted: &'r AtomicBool,
}

impl Read for Waiting<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let idle = || Ok(go_on(self.interrupted)?);
        read_next(self.file, bytes, idle).map_err(|error| match error.downcast() {
            Ok(error) => error,
            Err(error) => io::Error::other(error),
        })
    }
}

struct Interruptible<'r> {
    inner: &'r mut dyn Read,
    interrupted: &'r AtomicBool,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        go_on(self.interrupted)?;
        self.inner.read(bytes)
    }
}

fn go_on(interrupted: &AtomicBool) -> io::Result<()> {
    if interrupted.load(Ordering::Relaxed) {
        // Do not use `ErrorKind::Interrupted`, because readers retry after it.
        return Err(io::Error::other("interrupted"));
    }
    Ok(())
}

/// The number of blocks read ahead.
const BLOCKS: usize = 4;
/// The size of a block in bytes.
const BLOCK_BYTES: usize = 1 << 20;
