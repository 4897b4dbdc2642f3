//! Saves bytes of a file by sharing blocks with the file (reflinks).
//!
//! The shared bytes are in a blob of their own, at the same offsets as in the file. Frames of the
//! undo data say which of these bytes are valid.
//!
//! Invariant: a frame that refers to bytes of this blob is written only when these bytes are on
//! stable storage. So after any crash, a reader of the frame can trust the bytes. They have no
//! checksum, because computing a checksum would require reading all of them. Saved bytes are not
//! cloned again, because that would replace them with the current contents of the file.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use dafs_types::CloneSource;

use super::UndoId;
use crate::storage::{Blob, BlobName, CloneError, Storage, StorageError};
use crate::test_hooks::{Mutation, is_on};

/// A job that saves a range by sharing blocks. Any thread that may block can run it.
#[derive(Debug)]
pub struct CloneJob {
    pub(super) id: UndoId,
    pub(super) range: Range<u64>,
}

/// A range whose blocks are shared with the file and are on stable storage. It must be passed to
/// [`UndoLog::save_cloned`].
///
/// [`UndoLog::save_cloned`]: super::UndoLog::save_cloned
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cloned {
    pub(super) id: UndoId,
    pub(super) range: Range<u64>,
}

impl CloneJob {
    /// Shares the whole blocks of the file within the range, if there are any, and waits until the
    /// shared blocks are on stable storage. During the call, the file must contain the bytes to be
    /// saved.
    ///
    /// # Errors
    /// The errors of [`Blob::share_blocks`]. Nothing is saved then, and the caller must copy the
    /// bytes.
    pub fn run(
        self,
        storage: &dyn Storage,
        source: &dyn CloneSource,
    ) -> Result<Cloned, CloneError> {
        let Self { id, range } = self;
        let failed =
            |error| StorageError::from_io("look at", "the file to share blocks with", error);
        let range = whole_blocks(source, range).map_err(failed)?;
        if !range.is_empty() {
            let blob = open_or_create(storage, id)?;
            blob.share_blocks(source, range.clone())?;
            if !is_on(Mutation::SkipCloneSync) {
                blob.sync()?;
            }
        }
        Ok(Cloned { id, range })
    }
}

impl Cloned {
    /// Returns the saved range of the file.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }
}

/// Returns the part of a range of a file that consists of whole blocks.
fn whole_blocks(source: &dyn CloneSource, range: Range<u64>) -> io::Result<Range<u64>> {
    let (block, size) = (source.block_bytes()?.max(1), source.size()?);
    let start = range.start.checked_next_multiple_of(block).unwrap_or(u64::MAX);
    let end = range.end.min(size) / block * block;
    Ok(start..end.max(start))
}

fn open_or_create(storage: &dyn Storage, id: UndoId) -> Result<Arc<dyn Blob>, StorageError> {
    let name = name_of(id);
    match storage.open(&name) {
        // If the blob exists, its name was made durable by its creation or at this server's start.
        Err(StorageError::NotFound { .. }) => {
            let blob = storage.create(&name)?;
            if !is_on(Mutation::SkipNamesSync) {
                storage.sync_names()?;
            }
            Ok(blob)
        }
        opened => opened,
    }
}

/// Returns the name of the blob that shares blocks with the file.
pub(super) fn name_of(id: UndoId) -> BlobName {
    BlobName::numbered(PREFIX, id.0)
}

/// The prefix of the names of blobs that share blocks with files.
pub(super) const PREFIX: &str = "clone-";
