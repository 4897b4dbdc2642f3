//! The write-ahead log: records, written in groups, and periodic checkpoints.
//!
//! Invariants:
//!
//! - A record number is reported as durable only after a sync that followed its write has
//!   succeeded.
//! - At most one group is in flight, so each group found on disk proves that all groups before it
//!   were durable.
//! - After any failure, nothing more is reported as durable. The reason is that it is unknown what
//!   a failed sync left unwritten, and the next sync would not report that.
//!
//! The log makes no blocking calls itself. [`Log::append`] buffers a record, [`Log::take_group`]
//! returns a group to write, [`GroupJob::run`] writes it on any thread that may block, and
//! [`Log::on_group_done`] takes the result. The owner keeps the state that results from the
//! records. When [`Log::wants_checkpoint`] is true, the owner passes that state to the log as
//! records.

mod config;
#[cfg(test)]
mod crash_tests;
mod error;
mod job;
mod open;
mod recovered;
mod scan;
mod segment;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::group::{BLOCK_BYTES, GroupBuffer, frame_bytes_at, frame_bytes_of, push_frame};
use crate::storage::{Blob, BlobName, Storage, chain_of};
use crate::test_hooks::{Mutation, is_on};
pub use config::LogConfig;
pub use error::LogError;
pub use job::{GroupDone, GroupJob};
use job::{Place, SlotBlob};
pub use recovered::{Origin, Record, Recovered};
use segment::SegmentHeader;

/// The number of a record. Numbers start at 1 and have no gaps. A durable number is never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordNumber(pub u64);

/// The kind of a record, which only the log's owner interprets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKind(pub u16);

/// Identifies a journal. It is drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JournalId(pub u64);

/// A write-ahead log. See the [module](self).
pub struct Log {
    storage: Arc<dyn Storage>,
    config: LogConfig,
    journal: JournalId,
    /// The segments in use, oldest first. Groups are written to the last segment.
    chain: Vec<Segment>,
    /// The offset of the next group in the last segment.
    position: u64,
    /// Free blobs for further segments.
    free: Vec<Slot>,
    /// The slot numbers of all existing blobs.
    slots: BTreeSet<u64>,
    next_record: u64,
    durable: u64,
    /// The number of the first record in `filling`.
    filling_first: u64,
    filling: GroupBuffer,
    /// The second group buffer. While a group is in flight, the job has it and this buffer is
    /// empty.
    spare: GroupBuffer,
    in_flight: Option<InFlight>,
    checkpoint: Option<Checkpoint>,
    bytes_since_checkpoint: u64,
    last_checkpoint_bytes: u64,
    poison: Option<String>,
}

impl Log {
    /// Buffers a record whose bytes are the concatenation of `parts`. The record is durable when
    /// [`Log::on_group_done`] reports its number or a later number.
    ///
    /// # Errors
    /// [`LogError::Wait`] or [`LogError::Full`] say what must happen first; [`LogError::TooLong`];
    /// [`LogError::Poisoned`]. On error, the record is not buffered.
    pub fn append(&mut self, kind: RecordKind, parts: &[&[u8]]) -> Result<RecordNumber, LogError> {
        self.check_poison()?;
        let length = self.check_length(parts)?;
        if self.filling.frame_bytes() + frame_bytes_of(length) > self.config.buffered_bytes_max {
            return Err(LogError::Wait);
        }
        let is_full = self.chain.len() >= self.config.appending_segment_count();
        if is_full && self.checkpoint.is_none() {
            return Err(LogError::Full { count: self.chain.len() });
        }
        let number = self.next_record;
        self.filling.push(kind.0, 0, number, parts);
        self.next_record += 1;
        self.bytes_since_checkpoint += frame_bytes_of(length) as u64;
        Ok(RecordNumber(number))
    }

    /// Returns true if there is anything to write.
    #[inline]
    #[must_use]
    pub fn has_some(&self) -> bool {
        !self.filling.is_empty() || self.checkpoint.is_some()
    }

    /// Returns a job that writes the buffered records. Returns `None` if there are no such records,
    /// if a group is in flight, or if the log has failed. The caller must run the job and pass the
    /// result to [`Log::on_group_done`].
    pub fn take_group(&mut self) -> Option<GroupJob> {
        if self.poison.is_some() || self.in_flight.is_some() {
            return None;
        }
        let begins_checkpoint = self.checkpoint.as_ref().is_some_and(|c| c.start.is_none());
        let ends_checkpoint = self.fill_from_checkpoint();
        if self.filling.is_empty() {
            return None;
        }
        let length = self.filling.padded_length();
        let turns_over = begins_checkpoint || self.position + length > self.config.segment_bytes;
        let (header, place) = if turns_over {
            let header = self.next_header(begins_checkpoint);
            (header, Place::New(self.take_slot()?))
        } else {
            let last = self.last();
            (last.header, Place::Here(last.blob.clone()))
        };
        let offset = if turns_over { BLOCK_BYTES as u64 } else { self.position };
        self.in_flight = Some(InFlight {
            last_record: self.next_record - 1,
            end: offset + length,
            ends_checkpoint,
        });
        if begins_checkpoint && let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.start = Some(header.number);
            if is_on(Mutation::RecycleEarly) {
                self.recycle_before(header.number);
            }
        }
        let buffer = std::mem::replace(&mut self.filling, std::mem::take(&mut self.spare));
        let first_record = std::mem::replace(&mut self.filling_first, self.next_record);
        let storage = self.storage.clone();
        Some(GroupJob { storage, place, header, offset, first_record, buffer })
    }

    /// Takes the result of a job. All records up to the returned number are durable.
    ///
    /// # Errors
    /// [`LogError::Poisoned`] if the write or the sync has failed. No further record can become
    /// durable after that.
    ///
    /// # Panics
    /// Panics if the result does not belong to the job of this log that is in flight.
    pub fn on_group_done(&mut self, done: GroupDone) -> Result<RecordNumber, LogError> {
        let in_flight = self.in_flight.take().expect("a group that this log has handed out");
        self.spare = done.buffer;
        self.spare.clear();
        match done.result {
            Ok(None) => (),
            Ok(Some(slot)) => self.chain.push(Segment { slot, header: done.header }),
            Err(error) => {
                self.poison = Some(chain_of(&error));
                self.check_poison()?;
            }
        }
        self.position = in_flight.end;
        self.durable = in_flight.last_record;
        if in_flight.ends_checkpoint
            && let Some(checkpoint) = self.checkpoint.take()
            && let Some(start) = checkpoint.start
        {
            self.last_checkpoint_bytes = checkpoint.frames.len() as u64;
            self.recycle_before(start);
        }
        Ok(self.durable())
    }

    /// Returns true if so much was appended since the last checkpoint that another checkpoint is
    /// due.
    #[must_use]
    pub fn wants_checkpoint(&self) -> bool {
        // Due when as much was appended as a checkpoint writes, but before records are refused.
        let due = self.config.checkpoint_after_bytes.max(self.last_checkpoint_bytes);
        let is_short = self.chain.len() + 1 >= self.config.appending_segment_count();
        self.poison.is_none()
            && self.checkpoint.is_none()
            && (self.bytes_since_checkpoint > due || is_short)
    }

    /// Begins a checkpoint. `records` describe the state that results from all records appended so
    /// far. These records are written together with the next groups. Once the last of them is
    /// durable, recovery returns them in place of the records that were appended before, and the
    /// segments of the latter become free.
    ///
    /// # Errors
    /// [`LogError::CheckpointUnderWay`]; [`LogError::CheckpointTooLarge`]; [`LogError::TooLong`];
    /// [`LogError::Full`] if there is no space even for a checkpoint; [`LogError::Poisoned`]. On
    /// error, no checkpoint has begun.
    pub fn begin_checkpoint<'a>(
        &mut self,
        records: impl IntoIterator<Item = (RecordKind, &'a [u8])>,
    ) -> Result<(), LogError> {
        self.check_poison()?;
        if self.checkpoint.is_some() {
            return Err(LogError::CheckpointUnderWay);
        }
        let room = u64::from(self.config.segment_count_max).saturating_sub(self.chain.len() as u64);
        if room < self.config.checkpoint_segment_count() {
            return Err(LogError::Full { count: self.chain.len() });
        }
        let bytes_max = self.config.checkpoint_bytes_max;
        let (mut frames, mut count) = (Vec::new(), 0u64);
        for (kind, bytes) in records {
            let length = self.check_length(&[bytes])?;
            if frames.len() + frame_bytes_of(length) + END_FRAME_BYTES > bytes_max {
                return Err(LogError::CheckpointTooLarge { bytes_max });
            }
            push_frame(&mut frames, kind.0, FLAG_CHECKPOINT, count, &[bytes]);
            count += 1;
        }
        push_frame(&mut frames, 0, FLAG_CHECKPOINT | FLAG_END, count, &[]);
        self.checkpoint = Some(Checkpoint { frames, at: 0, start: None, below: self.next_record });
        self.bytes_since_checkpoint = 0;
        Ok(())
    }

    /// Returns true if a checkpoint has begun and is not durable yet.
    #[must_use]
    pub fn is_checkpoint_under_way(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Returns the number of the last durable record; 0 if there is none.
    #[must_use]
    pub fn durable(&self) -> RecordNumber {
        RecordNumber(self.durable)
    }

    /// Returns the number of the last appended record; 0 if there is none.
    #[must_use]
    pub fn last_appended(&self) -> RecordNumber {
        RecordNumber(self.next_record - 1)
    }

    /// Returns true if the log has failed permanently.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }

    /// Returns the random number that identifies the journal.
    #[must_use]
    pub fn journal(&self) -> JournalId {
        self.journal
    }

    /// Returns the number of segments in use.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.chain.len()
    }

    /// Adds the next chunk of a checkpoint to the group. Returns true if it was the last chunk.
    fn fill_from_checkpoint(&mut self) -> bool {
        let Some(checkpoint) = &mut self.checkpoint else { return false };
        let end = checkpoint.at + self.config.checkpoint_chunk_bytes;
        while checkpoint.at < checkpoint.frames.len().min(end) {
            let length = frame_bytes_at(&checkpoint.frames, checkpoint.at);
            self.filling.push_encoded(&checkpoint.frames[checkpoint.at..checkpoint.at + length]);
            checkpoint.at += length;
        }
        checkpoint.at == checkpoint.frames.len()
    }

    /// Creates the header of the segment that will follow the last segment.
    fn next_header(&self, begins_checkpoint: bool) -> SegmentHeader {
        let last = self.last().header;
        let below = self.checkpoint.as_ref().map(|checkpoint| checkpoint.below);
        SegmentHeader {
            journal: self.journal,
            number: last.number + 1,
            previous: last.number,
            previous_end: self.position,
            first_record: self.filling_first,
            segment_bytes: self.config.segment_bytes,
            checkpoint_below: below.filter(|_| begins_checkpoint),
        }
    }

    /// Returns a blob for another segment. If there is none, the log fails permanently; the limits
    /// on appends and checkpoints ensure that there always is one.
    fn take_slot(&mut self) -> Option<SlotBlob> {
        if let Some(slot) = self.free.pop() {
            return Some(SlotBlob::Ready(slot));
        }
        if self.slots.len() as u64 >= u64::from(self.config.segment_count_max) {
            self.poison = Some("no segment is left within segment_count_max".to_owned());
            return None;
        }
        let number = lowest_unused(&self.slots);
        self.slots.insert(number);
        Some(SlotBlob::Make(slot_name(number)))
    }

    fn recycle_before(&mut self, number: u64) {
        let kept = self.chain.partition_point(|segment| segment.header.number < number);
        self.free.extend(self.chain.drain(..kept).map(|segment| segment.slot));
    }

    fn last(&self) -> LastSegment<'_> {
        let segment = self.chain.last().expect("a log has a segment to write to");
        LastSegment { header: segment.header, blob: &segment.slot.blob }
    }

    fn check_poison(&self) -> Result<(), LogError> {
        match &self.poison {
            Some(cause) => Err(LogError::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    fn check_length(&self, parts: &[&[u8]]) -> Result<usize, LogError> {
        let length = parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()));
        let length_max = self.config.record_bytes_max;
        if length > length_max {
            return Err(LogError::TooLong { length, length_max });
        }
        Ok(length)
    }
}

/// A blob for a segment, with its name.
#[derive(Clone)]
struct Slot {
    name: BlobName,
    blob: Arc<dyn Blob>,
}

/// A segment in use.
struct Segment {
    slot: Slot,
    header: SegmentHeader,
}

struct LastSegment<'a> {
    header: SegmentHeader,
    blob: &'a Arc<dyn Blob>,
}

/// The changes to make to the log's state when the group in flight has become durable.
struct InFlight {
    last_record: u64,
    /// The offset of the end of the group in flight, at which the next group begins.
    end: u64,
    ends_checkpoint: bool,
}

/// A checkpoint that is being written.
struct Checkpoint {
    frames: Vec<u8>,
    /// The number of bytes of `frames` that were already added to groups.
    at: usize,
    /// The number of the segment in which the checkpoint begins. `None` until its first chunk was
    /// added.
    start: Option<u64>,
    /// The number of the first record that the checkpoint does not replace. The checkpoint replaces
    /// all records below this number.
    below: u64,
}

fn slot_name(number: u64) -> BlobName {
    BlobName::numbered(SLOT_PREFIX, number)
}

fn lowest_unused(slots: &BTreeSet<u64>) -> u64 {
    (0..).zip(slots).find(|(number, slot)| number != *slot).map_or(slots.len() as u64, |(n, _)| n)
}

/// The prefix of the names of segments.
const SLOT_PREFIX: &str = "log-";
/// The flag of a frame that belongs to a checkpoint. The numbers of such frames start at 0.
const FLAG_CHECKPOINT: u16 = 1;
/// The flag of the frame after the last frame of a checkpoint. The number in that frame is the
/// count of the checkpoint's frames.
const FLAG_END: u16 = 2;
const END_FRAME_BYTES: usize = frame_bytes_of(0);
