//! The bytes of one open regular file.
//!
//! Invariant: permission is checked when the file is opened. A [`File`] keeps working after a
//! rename, a change of mode, and the removal of its last name.

use std::os::fd::OwnedFd;

use dafs_memory::Memory;
use dafs_ops::SeekFor;
use dafs_types::{CloneSource, FileHandle, Timestamp};

use crate::attributes::Attributes;
use crate::error::{Result, StoreError};

/// Identifies an object within this process. All opens of one object have the same key, and no
/// other object ever gets the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey(pub u64);

/// Identifies a state of a file's data. If two versions are equal, the data has not changed between
/// them; if they differ, the data may have changed.
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

/// A range of one file, and the place in another file to which it is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySpan {
    /// The offset in the source of the first byte.
    pub source_offset: u64,
    /// The offset in the target of the first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

/// An open regular file. All calls may block.
pub trait File: Send + Sync {
    /// Returns the key of the object in this process.
    fn key(&self) -> FileKey;

    /// Returns the handle of the object.
    fn handle(&self) -> FileHandle;

    /// Returns the path of the file on this machine, for use in messages. `None` if it is not
    /// known.
    fn place(&self) -> Option<String> {
        None
    }

    /// Reads `length` bytes from file offset `offset` into `memory` at `memory_offset`. Returns the
    /// number of bytes read, which is less than `length` only at the end of the file.
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

    /// Writes `length` bytes of `memory` from `memory_offset` to file offset `offset`.
    ///
    /// # Errors
    /// `NoSpace`, `Quota`, `TooBig` or `Io`. After such an error, part of the range may have been
    /// written. `Access` if the file was opened for reading only.
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

    /// Makes written data stable. With `data_only`, metadata such as times, which is not needed to
    /// read the data again, need not become stable.
    ///
    /// # Errors
    /// `Io` and `NoSpace` if earlier writes could not be made stable.
    fn sync(&self, data_only: bool) -> Result<()>;

    /// Sets the file's time of the last change to the current time, because its content may have
    /// changed without a write. A store that cannot set this time ignores the call.
    fn mark_changed(&self) {}

    /// Returns the mode that the object will have after pending writes, if its mode is `mode` now.
    /// The writes clear the set-id bits, unless only the superuser can have written.
    fn mode_behind_writes(&self, mode: u32) -> u32 {
        mode
    }

    /// Returns the current attributes.
    ///
    /// # Errors
    /// `Io` if the attributes cannot be read.
    fn attributes(&self) -> Result<Attributes>;

    /// Truncates the file, or extends it with zeros.
    ///
    /// # Errors
    /// `TooBig`, `NoSpace`, `Access` if opened for reading only.
    fn set_size(&self, size: u64) -> Result<()>;

    /// Reserves storage for a range, so that later writes to it do not fail for lack of space. If
    /// the range ends after the end of the file, the file becomes longer. The content stays.
    ///
    /// # Errors
    /// `NoSpace`, `Quota`, `TooBig`, `Access` if opened for reading only, `NotSupported` if the
    /// file system cannot do it.
    fn allocate(&self, _offset: u64, _length: u64) -> Result<()> {
        Err(StoreError::NotSupported)
    }

    /// Frees the storage of a range, which then reads as zeros. The size stays.
    ///
    /// # Errors
    /// See [`File::allocate`].
    fn deallocate(&self, _offset: u64, _length: u64) -> Result<()> {
        Err(StoreError::NotSupported)
    }

    /// Returns the offset of the first data, or of the first hole, at or after `offset`. The end of
    /// the file counts as a hole. A file system that knows no holes reports all bytes as data.
    ///
    /// # Errors
    /// `NoDevice` if `offset` is not before the end of the file, or if there is no data after it.
    fn seek(&self, offset: u64, what: SeekFor) -> Result<u64> {
        let size = self.version()?.size;
        match (offset < size, what) {
            (false, _) => Err(StoreError::NoDevice),
            (true, SeekFor::Data) => Ok(offset),
            (true, SeekFor::Hole) => Ok(size),
        }
    }

    /// Makes a range share the storage of a range of another file. Both files must be on the same
    /// file system.
    ///
    /// # Errors
    /// `NotSupported` if the file system cannot share storage, `CrossDevice` for files on two file
    /// systems, `Invalid` if the range does not consist of whole blocks or exceeds the source, and
    /// the errors of a write.
    fn clone_range(&self, _source: &dyn File, _span: CopySpan) -> Result<()> {
        Err(StoreError::NotSupported)
    }

    /// Copies a range of another file with the help of the file system. Returns the number of bytes
    /// copied, which is less than requested only at the end of the source.
    ///
    /// # Errors
    /// `NotSupported` if the bytes must be read and written instead, and the errors of a write.
    fn copy_range(&self, _source: &dyn File, _span: CopySpan) -> Result<u64> {
        Err(StoreError::NotSupported)
    }

    /// Returns an identifier of the file system for sharing blocks: if blocks can be shared between
    /// two files, they can be shared between all files with the same identifier. Does not block.
    fn file_system(&self) -> u64 {
        0
    }

    /// Returns the file as a source for sharing blocks. Returns `None` if blocks cannot be shared
    /// and must be copied. The data to share must have been written to the file, but need not be
    /// stable.
    ///
    /// # Errors
    /// The file system's error.
    fn clone_source(&self) -> Result<Option<Box<dyn CloneSource>>> {
        Ok(None)
    }

    /// Returns a descriptor for reading that can be passed to another process. `None` if the store
    /// does not support this. The file is opened again for the descriptor, so that the descriptor
    /// allows only reading, whatever access this process has to the file.
    ///
    /// # Errors
    /// The file system's error.
    fn reader(&self) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Returns the current version of the file's data.
    ///
    /// # Errors
    /// `Io` if the attributes cannot be read.
    fn version(&self) -> Result<FileVersion> {
        self.attributes().map(|attributes| FileVersion::from(&attributes))
    }
}
