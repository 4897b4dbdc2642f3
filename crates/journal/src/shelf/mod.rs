//! Where the journal keeps its bytes: a flat directory of named blobs on stable storage.
//!
//! Invariant: nothing is on stable storage before [`Blob::sync`] has returned for its
//! bytes and [`Shelf::sync_names`] for its name; whoever builds on this trait assumes no
//! more, and [`CrashShelf`] gives no more.

mod crash;
mod directory;
mod name;

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use dafs_types::CloneSource;

pub use crash::{CrashShelf, Operation};
pub use directory::DirectoryShelf;
pub use name::BlobName;

/// A flat directory of named blobs. One process uses it at a time.
pub trait Shelf: Send + Sync {
    /// Makes an empty blob. Its name is on stable storage after [`Shelf::sync_names`].
    ///
    /// # Errors
    /// [`ShelfError::Exists`] if there is one of this name, or what the storage says.
    fn create(&self, name: &BlobName) -> Result<Arc<dyn Blob>>;

    /// Opens a blob for reading and writing.
    ///
    /// # Errors
    /// [`ShelfError::NotFound`] if there is none of this name, or what the storage says.
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>>;

    /// The names of all blobs, in order. What else lies there is left out.
    ///
    /// # Errors
    /// What the storage says.
    fn list(&self) -> Result<Vec<BlobName>>;

    /// Removes a name. The removal may come undone by a crash before
    /// [`Shelf::sync_names`].
    ///
    /// # Errors
    /// [`ShelfError::NotFound`] if there is none of this name, or what the storage says.
    fn remove(&self, name: &BlobName) -> Result<()>;

    /// Brings all names made and removed so far to stable storage. Blocks.
    ///
    /// # Errors
    /// What the storage says; then nothing is known about these names.
    fn sync_names(&self) -> Result<()>;

    /// Whether blobs may share blocks with other files of the same file system, so that
    /// [`Blob::share_blocks`] is worth a try. May block.
    fn has_reflinks(&self) -> bool {
        false
    }
}

/// The bytes of one blob. Reads and writes may be made by several threads at once.
pub trait Blob: Send + Sync {
    /// Reads bytes from `offset` on; fewer than asked for only at the blob's end.
    ///
    /// # Errors
    /// What the storage says.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Writes all of `bytes` at `offset`; the blob grows if it must.
    ///
    /// # Errors
    /// What the storage says, [`ShelfError::NoSpace`] if it is full; any part of the
    /// bytes may have been written then.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Brings all bytes written so far, and the length, to stable storage (fdatasync).
    /// Blocks.
    ///
    /// # Errors
    /// What the storage says. Nothing written since the last success may be counted on
    /// then, and a later success says nothing about it: it must be written anew.
    fn sync(&self) -> Result<()>;

    /// Has the blob share the blocks of a range of another file, at the same offsets: it then
    /// holds what that file holds now, whatever becomes of that one, and is durable as if it
    /// had been written. The range begins and ends at multiples of the source's
    /// [`CloneSource::block_bytes`], and lies within it. Blocks.
    ///
    /// # Errors
    /// [`CloneError::Unable`] where these two will never share blocks, [`CloneError::Failed`]
    /// for what may go another time; nothing is known then about the range in the blob.
    fn share_blocks(
        &self,
        _source: &dyn CloneSource,
        _range: Range<u64>,
    ) -> std::result::Result<(), CloneError> {
        Err(CloneError::Unable { source: io::ErrorKind::Unsupported.into() })
    }

    /// The length in bytes.
    ///
    /// # Errors
    /// What the storage says.
    fn length(&self) -> Result<u64>;

    /// Cuts the blob off, or lengthens it by zeros that take no space.
    ///
    /// # Errors
    /// What the storage says.
    fn set_length(&self, length: u64) -> Result<()>;

    /// Writes zeros over the blob from its start up to `length`, so that later writes
    /// there need neither space nor a change of metadata. Blocks.
    ///
    /// # Errors
    /// As [`Blob::write_at`].
    fn preallocate(&self, length: u64) -> Result<()> {
        let mut offset = 0;
        while offset < length {
            let part = (length - offset).min(ZEROS.len() as u64);
            self.write_at(offset, &ZEROS[..part as usize])?;
            offset += part;
        }
        Ok(())
    }
}

/// Why an operation on stable storage failed.
#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    /// There is no blob of this name.
    #[error("{name} does not exist in the journal's directory")]
    NotFound {
        /// The blob.
        name: BlobName,
    },
    /// There is a blob of this name already.
    #[error("{name} exists already in the journal's directory")]
    Exists {
        /// The blob.
        name: BlobName,
    },
    /// The storage is full.
    #[error("no space left for {name}; free some where the journal is kept")]
    NoSpace {
        /// The blob that was to be made or written.
        name: String,
    },
    /// What has this name is no regular file.
    #[error("{name} is not a regular file; remove it from the journal's directory")]
    NotRegular {
        /// The name.
        name: String,
    },
    /// Somebody else uses the directory.
    #[error("{path} is in use by {holder}; stop that one or choose another directory")]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Who holds it, by its own words.
        holder: String,
        /// Its number, if it has said that. It may have ended since.
        process: Option<u32>,
    },
    /// The directory holds more names than any journal makes.
    #[error("the journal's directory has more than {count_max} names; it must be its own")]
    TooManyNames {
        /// How many are read.
        count_max: usize,
    },
    /// The storage failed.
    #[error("cannot {action} {name}")]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The blob or the directory.
        name: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Why blocks are not shared.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// These two never will: another file system, or one without reflinks.
    #[error("blocks cannot be shared here; they are copied")]
    Unable {
        /// What the system said.
        source: io::Error,
    },
    /// Something is in the way of it now.
    #[error("blocks could not be shared; they are copied")]
    Failed {
        /// What the storage said.
        source: ShelfError,
    },
}

impl From<ShelfError> for CloneError {
    fn from(source: ShelfError) -> Self {
        Self::Failed { source }
    }
}

impl ShelfError {
    /// An error of the system on one name, told apart where the name's owner can help.
    pub(crate) fn from_io(action: &'static str, name: &str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::NoSpace { name: name.to_owned() }
            }
            _ => Self::Io { action, name: name.to_owned(), source },
        }
    }
}

/// The error and what caused it, on one line: for those who keep it as text.
#[must_use]
pub fn chain_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Reads exactly `buffer.len()` bytes, or says that there are fewer.
pub(crate) fn read_whole(blob: &dyn Blob, offset: u64, buffer: &mut [u8]) -> Result<bool> {
    Ok(blob.read_at(offset, buffer)? == buffer.len())
}

/// What operations on stable storage yield.
pub type Result<T> = std::result::Result<T, ShelfError>;

/// What blobs are preallocated with, piece by piece.
static ZEROS: [u8; 1 << 18] = [0; 1 << 18];
