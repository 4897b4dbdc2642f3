//! One regular file's bytes, opened.
//!
//! Invariant: permission was checked when the file was opened; a [`File`] goes on
//! working after a rename, a change of mode and a removal of its last name.

use std::os::fd::OwnedFd;

use dafs_memory::Memory;
use dafs_types::{CloneSource, FileHandle, Timestamp};

use crate::attributes::Attributes;
use crate::error::Result;

/// Names an object in this process: all opens of one object have the same key, and
/// no other object ever gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey(pub u64);

/// What tells one state of a file's data from another. Equal versions mean that
/// nobody has changed the data between; differing ones that somebody may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// Bytes.
    pub size: u64,
    /// Last change of data.
    pub time_modify: Timestamp,
    /// Last change of anything.
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
    /// The object's key.
    fn key(&self) -> FileKey;

    /// The object's handle.
    fn handle(&self) -> FileHandle;

    /// Where it lies on this machine, for people; `None` if that is not known.
    fn place(&self) -> Option<String> {
        None
    }

    /// Reads `length` bytes from file offset `offset` to `memory_offset` of `memory`.
    /// Returns the bytes read, fewer only at the end of the file.
    ///
    /// # Errors
    /// `Io`, or what the file system says.
    ///
    /// # Panics
    /// If the memory range is not inside.
    fn read_at(
        &self,
        memory: &Memory,
        memory_offset: usize,
        length: usize,
        offset: u64,
    ) -> Result<usize>;

    /// Writes a range of memory at file offset `offset`, whole.
    ///
    /// # Errors
    /// `NoSpace`, `Quota`, `TooBig`, `Io`; some part may have been written then.
    /// `Access` if the file was opened for reading only.
    ///
    /// # Panics
    /// If the memory range is not inside.
    fn write_at(
        &self,
        memory: &Memory,
        memory_offset: usize,
        length: usize,
        offset: u64,
    ) -> Result<()>;

    /// Brings what was written to stable storage; `data_only` leaves out metadata
    /// that is not needed to find the data again.
    ///
    /// # Errors
    /// `Io` and `NoSpace` if earlier writes could not be made stable.
    fn sync(&self, data_only: bool) -> Result<()>;

    /// Stamps the file as changed just now: what it holds may be another content, though nobody
    /// has written. Whoever cannot leaves it.
    fn mark_changed(&self) {}

    /// The mode that an object of this one has once what is to be written has been: without set-id
    /// bits, where somebody other than the superuser may have written it.
    fn mode_behind_writes(&self, mode: u32) -> u32 {
        mode
    }

    /// Present attributes.
    ///
    /// # Errors
    /// `Io`.
    fn attributes(&self) -> Result<Attributes>;

    /// Truncates, or extends with zeros.
    ///
    /// # Errors
    /// `TooBig`, `NoSpace`, `Access` if opened for reading only.
    fn set_size(&self, size: u64) -> Result<()>;

    /// Which file system it is on, as far as sharing blocks goes: what one file of it may or
    /// may not, all may or may not. Does not block.
    fn file_system(&self) -> u64 {
        0
    }

    /// The file for whoever shares blocks with it; `None` where that is not possible: copy.
    /// Whatever is to be shared must have been written to the file; stable it need not be.
    ///
    /// # Errors
    /// What the file system says.
    fn clone_source(&self) -> Result<Option<Box<dyn CloneSource>>> {
        Ok(None)
    }

    /// A descriptor for reading that others may have: opened anew, so that it is for reading
    /// whatever this process itself may do with the file. `None` where there is none.
    ///
    /// # Errors
    /// What the file system says.
    fn reader(&self) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Present version.
    ///
    /// # Errors
    /// `Io`.
    fn version(&self) -> Result<FileVersion> {
        self.attributes().map(|attributes| FileVersion::from(&attributes))
    }
}
