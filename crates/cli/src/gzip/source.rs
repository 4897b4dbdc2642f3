//! What is compressed or decompressed: standard input, a local file, or one on a server.
//!
//! Invariant: what is on a server is read ahead, several blocks at once, into registered memory.

use std::fs::File as LocalFile;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use dafs_client::{File, ObjectType, OpenOptions, ReadStream, Session};
use dafs_types::Timestamp;

use super::Attributes;

/// An open input.
pub struct Source {
    kind: Kind,
    /// Its name without directories.
    pub name: Option<String>,
    pub attributes: Attributes,
    pub link_count: u64,
}

enum Kind {
    Standard,
    Local(PathBuf, LocalFile),
    Remote(Session, Box<File>),
}

impl Source {
    pub fn standard() -> Self {
        let attributes = Attributes::default();
        Self { kind: Kind::Standard, name: None, attributes, link_count: 1 }
    }

    pub fn local(path: &Path) -> Result<Self> {
        let file = LocalFile::open(path)?;
        let metadata = file.metadata()?;
        check(metadata.is_dir(), metadata.is_file())?;
        let nanoseconds = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
        let modified = Timestamp { seconds: metadata.mtime(), nanoseconds };
        Ok(Self {
            name: path.file_name().map(|name| name.to_string_lossy().into_owned()),
            kind: Kind::Local(path.to_owned(), file),
            attributes: Attributes { mode: Some(metadata.mode()), modified: Some(modified) },
            link_count: metadata.nlink(),
        })
    }

    pub fn remote(session: &Session, path: &str) -> Result<Self> {
        let metadata = session.metadata(path)?;
        let is_directory = metadata.kind == ObjectType::Directory;
        check(is_directory, metadata.kind == ObjectType::Regular)?;
        let file = session.open(path, &OpenOptions::read())?;
        let (mode, modified) = (Some(metadata.mode), Some(metadata.time_modify));
        Ok(Self {
            kind: Kind::Remote(session.clone(), Box::new(file)),
            name: path.rsplit('/').next().map(str::to_owned),
            attributes: Attributes { mode, modified },
            link_count: metadata.link_count.into(),
        })
    }

    /// Hands its octets to `body`, until somebody interrupts.
    pub fn read<T>(
        &self,
        interrupted: &AtomicBool,
        body: impl FnOnce(&mut dyn Read) -> Result<T>,
    ) -> Result<T> {
        let mut stream;
        let (mut local, mut standard);
        let inner: &mut dyn Read = match &self.kind {
            Kind::Standard => {
                standard = io::stdin().lock();
                &mut standard
            }
            Kind::Local(_, file) => {
                local = file;
                &mut local
            }
            Kind::Remote(_, file) => {
                stream = ReadStream::new(file, BLOCKS, BLOCK_BYTES)?;
                &mut stream
            }
        };
        body(&mut Interruptible { inner, interrupted })
    }

    /// Removes the file, whose output has its name.
    pub fn remove(self) -> Result<()> {
        match self.kind {
            Kind::Standard => Ok(()),
            Kind::Local(path, _) => {
                std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
            }
            Kind::Remote(session, file) => {
                let path = file.path().to_owned();
                file.close()?;
                Ok(session.remove(&path)?)
            }
        }
    }
}

fn check(is_directory: bool, is_file: bool) -> Result<()> {
    if is_directory {
        bail!("is a directory; left as it is");
    }
    if !is_file {
        bail!("is no regular file; left as it is");
    }
    Ok(())
}

struct Interruptible<'r> {
    inner: &'r mut dyn Read,
    interrupted: &'r AtomicBool,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.interrupted.load(Ordering::Relaxed) {
            // Not of the kind Interrupted, after which readers try again.
            return Err(io::Error::other("interrupted"));
        }
        self.inner.read(bytes)
    }
}

/// Blocks read ahead, and octets of each.
const BLOCKS: usize = 4;
const BLOCK_BYTES: usize = 1 << 20;
