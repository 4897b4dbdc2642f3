//! Bytes that are saved by sharing blocks with the file they are of (reflinks).
//!
//! They lie in a blob of their own, at the offsets that they have in the file; which of them
//! are good, frames of the undo data say.
//!
//! Invariant: a frame that names bytes of this blob is written when they are on stable
//! storage there, and never before. So whoever reads the frame, after whatever crash, may
//! believe the bytes: no checksum could be had without reading them all. And what was saved
//! is not cloned again, which would put what the file holds now in its place.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use dafs_types::CloneSource;

use super::UndoId;
use crate::shelf::{Blob, BlobName, CloneError, Shelf, ShelfError};
use crate::test_hooks::{Mutation, is_on};

/// What is to be saved by sharing blocks, by whichever thread may block.
#[derive(Debug)]
pub struct CloneJob {
    pub(super) id: UndoId,
    pub(super) range: Range<u64>,
}

/// Bytes that are shared with the file, on stable storage; for [`UndoLog::save_cloned`].
///
/// [`UndoLog::save_cloned`]: super::UndoLog::save_cloned
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cloned {
    pub(super) id: UndoId,
    pub(super) range: Range<u64>,
}

impl CloneJob {
    /// Shares as much of the range as lies in whole blocks of the file, if any does, and waits
    /// until that is on stable storage. What the file holds in the range must be what is to be
    /// saved, all the while.
    ///
    /// # Errors
    /// As [`Blob::share_blocks`]. Nothing is saved then: copy.
    pub fn run(self, shelf: &dyn Shelf, source: &dyn CloneSource) -> Result<Cloned, CloneError> {
        let Self { id, range } = self;
        let failed = |error| ShelfError::from_io("look at", "the file to share blocks with", error);
        let range = whole_blocks(source, range).map_err(failed)?;
        if !range.is_empty() {
            let blob = open_or_create(shelf, id)?;
            blob.share_blocks(source, range.clone())?;
            if !is_on(Mutation::SkipCloneSync) {
                blob.sync()?;
            }
        }
        Ok(Cloned { id, range })
    }
}

impl Cloned {
    /// Which bytes of the file.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }
}

/// The part of a range that is whole blocks of a file.
fn whole_blocks(source: &dyn CloneSource, range: Range<u64>) -> io::Result<Range<u64>> {
    let (block, size) = (source.block_bytes()?.max(1), source.size()?);
    let start = range.start.checked_next_multiple_of(block).unwrap_or(u64::MAX);
    let end = range.end.min(size) / block * block;
    Ok(start..end.max(start))
}

fn open_or_create(shelf: &dyn Shelf, id: UndoId) -> Result<Arc<dyn Blob>, ShelfError> {
    let name = name_of(id);
    match shelf.open(&name) {
        // Its name was made durable then, or at the start of this server.
        Err(ShelfError::NotFound { .. }) => {
            let blob = shelf.create(&name)?;
            if !is_on(Mutation::SkipNamesSync) {
                shelf.sync_names()?;
            }
            Ok(blob)
        }
        opened => opened,
    }
}

/// The blob of undo data that shares blocks with the file.
pub(super) fn name_of(id: UndoId) -> BlobName {
    BlobName::numbered(PREFIX, id.0)
}

/// What the names of such blobs begin with.
pub(super) const PREFIX: &str = "clone-";
