//! The storage of the journal: a flat directory of named blobs on stable storage.
//!
//! Invariant: bytes are on stable storage only after [`Blob::sync`] has returned, and names only
//! after [`Storage::sync_names`] has returned. Code that uses these traits assumes no more than
//! that, and [`CrashStorage`] guarantees no more.

mod crash;
mod directory;
mod name;

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use dafs_types::CloneSource;

pub use crash::{CrashStorage, Operation};
pub use directory::DirectoryStorage;
pub use name::BlobName;

/// A flat directory of named blobs. Only one process uses it at a time.
pub trait Storage: Send + Sync {
    /// Creates an empty blob. Its name is on stable storage only after [`Storage::sync_names`].
    ///
    /// # Errors
    /// [`StorageError::Exists`] if there is a blob of this name; other errors of the storage.
    fn create(&self, name: &BlobName) -> Result<Arc<dyn Blob>>;

    /// Opens a blob for reading and writing.
    ///
    /// # Errors
    /// [`StorageError::NotFound`] if there is no blob of this name; other errors of the storage.
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>>;

    /// Returns the names of all blobs, sorted. Files that are not blobs are left out.
    ///
    /// # Errors
    /// The error of the storage.
    fn list(&self) -> Result<Vec<BlobName>>;

    /// Removes a name. Before [`Storage::sync_names`], a crash may undo the removal.
    ///
    /// # Errors
    /// [`StorageError::NotFound`] if there is no blob of this name; other errors of the storage.
    fn remove(&self, name: &BlobName) -> Result<()>;

    /// Brings all names created and removed so far to stable storage. This blocks.
    ///
    /// # Errors
    /// The error of the storage. The state of these names is unknown then.
    fn sync_names(&self) -> Result<()>;

    /// Returns true if blobs may be able to share blocks with other files of the same file system.
    /// [`Blob::share_blocks`] is then worth a try. This may block.
    fn has_reflinks(&self) -> bool {
        false
    }
}

/// The bytes of one blob. Several threads may read and write concurrently.
pub trait Blob: Send + Sync {
    /// Reads bytes at `offset`. Returns the number of bytes read, which is smaller than requested
    /// only at the end of the blob.
    ///
    /// # Errors
    /// The error of the storage.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Writes all of `bytes` at `offset`. The blob grows if necessary.
    ///
    /// # Errors
    /// The error of the storage; [`StorageError::NoSpace`] if it is full. On error, any part of the
    /// bytes may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Brings all bytes written so far, and the length, to stable storage (fdatasync). This blocks.
    ///
    /// # Errors
    /// The error of the storage. Nothing that was written since the last successful sync is
    /// guaranteed then. A later successful sync does not change that, so the data must be written
    /// again.
    fn sync(&self) -> Result<()>;

    /// Makes the blob share the blocks of a range of another file, at the same offsets. The blob
    /// then has the current contents of that range, whatever happens to the other file. These
    /// contents are as durable as if they had been written. The range must lie within the source,
    /// and begin and end at multiples of [`CloneSource::block_bytes`]. This blocks.
    ///
    /// # Errors
    /// [`CloneError::Unable`] if these two files can never share blocks; [`CloneError::Failed`] for
    /// an error after which another attempt may succeed. After an error, the contents of the range
    /// in the blob are unknown.
    fn share_blocks(
        &self,
        _source: &dyn CloneSource,
        _range: Range<u64>,
    ) -> std::result::Result<(), CloneError> {
        Err(CloneError::Unable { source: io::ErrorKind::Unsupported.into() })
    }

    /// Returns the length in bytes.
    ///
    /// # Errors
    /// The error of the storage.
    fn length(&self) -> Result<u64>;

    /// Truncates the blob, or extends it with zeros that take no disk space.
    ///
    /// # Errors
    /// The error of the storage.
    fn set_length(&self, length: u64) -> Result<()>;

    /// Writes zeros to the blob from its start up to `length`, so that later writes there need
    /// neither space nor a change of metadata. This blocks.
    ///
    /// # Errors
    /// The errors of [`Blob::write_at`].
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

/// The reason why an operation on stable storage failed.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// There is no blob of this name.
    #[error("{name} does not exist in the journal's directory")]
    NotFound {
        /// The name of the blob.
        name: BlobName,
    },
    /// There is already a blob of this name.
    #[error("{name} already exists in the journal's directory")]
    Exists {
        /// The name of the blob.
        name: BlobName,
    },
    /// The storage is full.
    #[error("no space left for {name}; free space on the journal's file system")]
    NoSpace {
        /// The name of the blob that could not be created or written.
        name: String,
    },
    /// The object of this name is not a regular file.
    #[error("{name} is not a regular file; remove it from the journal's directory")]
    NotRegular {
        /// The name of the object.
        name: String,
    },
    /// The directory is already open in this or another process.
    #[error("{path} is in use by {holder}; stop that process or choose another directory")]
    InUse {
        /// The path of the directory.
        path: PathBuf,
        /// A description of the process that holds the directory's lock, as this process has
        /// written it to the lock file.
        holder: String,
        /// The process id of the lock's holder, if the description contains it. The process may
        /// have ended.
        process: Option<u32>,
    },
    /// The directory contains more names than a journal ever creates.
    #[error(
        "the journal's directory has more than {count_max} names; it must contain only the journal"
    )]
    TooManyNames {
        /// The maximum number of names that are read.
        count_max: usize,
    },
    /// The storage failed.
    #[error("cannot {action} {name}")]
    Io {
        /// The action that failed, as a verb.
        action: &'static str,
        /// The name of the blob or the directory.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}

/// The reason why blocks were not shared.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// These two files can never share blocks, because they are on different file systems or on a
    /// file system without reflinks.
    #[error("blocks cannot be shared here; they are copied")]
    Unable {
        /// The system's error.
        source: io::Error,
    },
    /// The attempt to share blocks failed, but another attempt may succeed.
    #[error("blocks could not be shared; they are copied")]
    Failed {
        /// The error of the storage.
        source: StorageError,
    },
}

impl From<StorageError> for CloneError {
    fn from(source: StorageError) -> Self {
        Self::Failed { source }
    }
}

impl StorageError {
    /// Converts an error of a system call on one name. Errors that an administrator can fix have
    /// their own variants.
    pub(crate) fn from_io(action: &'static str, name: &str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::NoSpace { name: name.to_owned() }
            }
            _ => Self::Io { action, name: name.to_owned(), source },
        }
    }
}

/// Returns an error and its causes as one line of text, for storing it.
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

/// Reads exactly `buffer.len()` bytes. Returns false if the blob has fewer bytes.
pub(crate) fn read_whole(blob: &dyn Blob, offset: u64, buffer: &mut [u8]) -> Result<bool> {
    Ok(blob.read_at(offset, buffer)? == buffer.len())
}

/// The result of an operation on stable storage.
pub type Result<T> = std::result::Result<T, StorageError>;

/// The zeros with which blobs are preallocated, one piece after the other.
static ZEROS: [u8; 1 << 18] = [0; 1 << 18];
