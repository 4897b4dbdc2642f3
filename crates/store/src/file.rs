//! The bytes of one open regular file.
//!
//! Invariant: permission is checked when the file is opened. A [`File`] keeps working after a
//! rename, a change of mode, and the removal of its last name.

use std::os::fd::OwnedFd;

use dafs_memory::Memory;
use dafs_types::{CloneSource, FileHandle, Timestamp};

use crate::attributes::Attributes;
use crate::error::Result;

/// Identifies an object within this process. All opens of one object have the same key, and no
/// other object ever gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey(pub u64);

/// Identifies a state of a file's data. If two versions are equal, the data has not changed between
/// them; if they differ, it may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// The size in bytes.
    pub size: u64,
    /// The time of the last change of data.
    pub time_modify: Timestamp,
    /// The time of the last change of data or attributes.
    pub time_metadata: Timestamp,
}

impl From<&Attributes> for FileVersion {
    fn from(attributes: &Attributes) -> Self {
        Self {
            size: attributes.size,
            time_modify: attributes.time_modify,
            time_metadata: attributes.time_metadata,
        }
    }
}

/// An open regular file. All calls may block.
pub trait File: Send + Sync {
    /// The key of the object in this process.
    fn key(&self) -> FileKey;

    /// The handle of the object.
    fn handle(&self) -> FileHandle;

    /// The path of the file on this machine, for messages; `None` if it is not known.
    fn place(&self) -> Option<String> {
        None
    }

    /// Reads `length` bytes from file offset `offset` to `memory_offset` of `memory`. Returns the
    /// number of bytes read, which is less only at the end of the file.
    ///
    /// # Errors
    /// `Io`, or another error of the file system.
    ///
    /// # Panics
    /// If the range is not inside the memory.
    fn read_at(
        &self,
        memory: &Memory,
        memory_offset: usize,
        length: usize,
        offset: u64,
    ) -> Result<usize>;

    /// Writes a whole range of memory at file offset `offset`.
    ///
    /// # Errors
    /// `NoSpace`, `Quota`, `TooBig`, `Io`; part of the range may have been written then.
    /// `Access` if the file was opened for reading only.
    ///
    /// # Panics
    /// If the range is not inside the memory.
    fn write_at(
        &self,
        memory: &Memory,
        memory_offset: usize,
        length: usize,
        offset: u64,
    ) -> Result<()>;

    /// Makes written data stable. With `data_only`, metadata that is not needed to find the data
    /// again is left out.
    ///
    /// # Errors
    /// `Io` and `NoSpace` if earlier writes could not be made stable.
    fn sync(&self, data_only: bool) -> Result<()>;

    /// Sets the time of the last change to now, because the content may have changed without a
    /// write. A store that cannot do this ignores the call.
    fn mark_changed(&self) {}

    /// The mode that an object with this mode has after pending writes: without set-id bits, unless
    /// only the superuser may have written.
    fn mode_behind_writes(&self, mode: u32) -> u32 {
        mode
    }

    /// Returns the present attributes.
    ///
    /// # Errors
    /// `Io` if they cannot be read.
    fn attributes(&self) -> Result<Attributes>;

    /// Truncates the file, or extends it with zeros.
    ///
    /// # Errors
    /// `TooBig`, `NoSpace`, `Access` if opened for reading only.
    fn set_size(&self, size: u64) -> Result<()>;

    /// Identifies the file system for the purpose of sharing blocks: what works for one file works
    /// for all files with the same number. Does not block.
    fn file_system(&self) -> u64 {
        0
    }

    /// Returns the file as a source for sharing blocks; `None` if blocks cannot be shared and must
    /// be copied. The data to share must have been written to the file, but need not be stable.
    ///
    /// # Errors
    /// The file system's error.
    fn clone_source(&self) -> Result<Option<Box<dyn CloneSource>>> {
        Ok(None)
    }

    /// Returns a descriptor for reading that another process may have; `None` if there is none. It
    /// is opened anew, so it only allows reading, whatever this process may do with the file.
    ///
    /// # Errors
    /// The file system's error.
    fn reader(&self) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Returns the present version.
    ///
    /// # Errors
    /// `Io` if the attributes cannot be read.
    fn version(&self) -> Result<FileVersion> {
        self.attributes().map(|attributes| FileVersion::from(&attributes))
    }
}
