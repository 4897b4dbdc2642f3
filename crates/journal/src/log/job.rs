//! The blocking part of the log: one write and one sync.
//!
//! Invariant: a job writes only to positions after all durable data. The blob, name and header of a
//! new segment are on stable storage before its first group is written.

use std::sync::Arc;

use super::Slot;
use super::segment::SegmentHeader;
use crate::group::GroupBuffer;
use crate::storage::{Blob, BlobName, Result, Storage, StorageError};
use crate::test_hooks::{Mutation, is_on};

/// A job that writes a group and makes it durable. Any thread that may block can run it.
pub struct GroupJob {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) place: Place,
    /// The header of the segment to which the group belongs.
    pub(super) header: SegmentHeader,
    pub(super) offset: u64,
    pub(super) first_record: u64,
    pub(super) buffer: GroupBuffer,
}

/// The result of a job, to be passed to [`Log::on_group_done`](super::Log::on_group_done).
pub struct GroupDone {
    pub(super) header: SegmentHeader,
    pub(super) buffer: GroupBuffer,
    /// The blob of the new segment if the job has created one, or else `None`.
    pub(super) result: Result<Option<Slot>>,
}

/// Where a group must be written.
pub(super) enum Place {
    Here(Arc<dyn Blob>),
    New(SlotBlob),
}

/// The blob of a new segment.
pub(super) enum SlotBlob {
    Ready(Slot),
    Make(BlobName),
}

impl GroupJob {
    /// Writes the group and waits until it is on stable storage.
    #[must_use = "the log waits for it"]
    pub fn run(mut self) -> GroupDone {
        let result = self.write();
        GroupDone { header: self.header, buffer: self.buffer, result }
    }

    /// Returns the result of a job that could not be run. After that, no record becomes durable any
    /// more.
    #[must_use = "the log waits for it"]
    pub fn failed(&self, why: &'static str) -> GroupDone {
        let error = StorageError::from_io("write", "a group", std::io::Error::other(why));
        GroupDone { header: self.header, buffer: GroupBuffer::default(), result: Err(error) }
    }

    fn write(&mut self) -> Result<Option<Slot>> {
        let (blob, new) = match &self.place {
            Place::Here(blob) => (blob.clone(), None),
            Place::New(place) => {
                let slot = match place {
                    SlotBlob::Ready(slot) => slot.clone(),
                    SlotBlob::Make(name) => {
                        make_slot(&*self.storage, name, self.header.segment_bytes)?
                    }
                };
                write_header(&*slot.blob, &self.header)?;
                (slot.blob.clone(), Some(slot))
            }
        };
        let bytes = self.buffer.seal(self.header.lineage(), self.offset, self.first_record);
        blob.write_at(self.offset, bytes)?;
        if !is_on(Mutation::SkipGroupSync) {
            let synced = blob.sync();
            if is_on(Mutation::RetrySync) && synced.is_err() {
                blob.sync()?;
            } else {
                synced?;
            }
        }
        Ok(new)
    }
}

/// Creates a blob that is filled with zeros, so that a later append neither needs space nor changes
/// metadata.
pub(super) fn make_slot(storage: &dyn Storage, name: &BlobName, length: u64) -> Result<Slot> {
    let blob = storage.create(name)?;
    blob.preallocate(length)?;
    blob.sync()?;
    if !is_on(Mutation::SkipNamesSync) {
        storage.sync_names()?;
    }
    Ok(Slot { name: name.clone(), blob })
}

/// Writes a segment header to a blob and makes it durable.
pub(super) fn write_header(blob: &dyn Blob, header: &SegmentHeader) -> Result<()> {
    blob.write_at(0, &header.encode()[..])?;
    if is_on(Mutation::SkipHeaderSync) {
        return Ok(());
    }
    blob.sync()
}
