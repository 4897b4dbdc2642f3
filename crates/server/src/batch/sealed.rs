//! Batches of sessions with checksums. All bytes that a batch writes are fetched and verified
//! before the batch is accepted, so that no byte damaged in transit reaches a file.
//!
//! Invariant: the memory for such writes has a total limit. A batch's memory counts against the
//! limit from the start of the fetch until the batch's requests end.

use std::ops::Range;
use std::sync::Arc;

use dafs_dat::Region;
use dafs_filer::{Holder, IoKind};
use dafs_types::{SessionId, Status};
use dafs_wire::DirectBuffer;

use super::{Batch, Batches};
use crate::channel::Channels;
use crate::moving::shares::{is_plenty, is_share};
use crate::moving::sums::{SumJob, Summed};
use crate::moving::transfer::Staging;
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::{Task, Tasks, Work};

/// A batch with writes, whose bytes are being fetched from the client's memory.
#[derive(Debug)]
pub(crate) struct SealedBatch {
    session: SessionId,
    batch: Batch,
    staging: Staging,
    bytes: usize,
    pub transfers_left: u32,
    pub transfer_failed: bool,
    /// The checksums of the fetched bytes, or the error. `None` until they are computed.
    summed: Option<Result<Vec<Summed>, Status>>,
}

impl SealedBatch {
    /// Records the checksums of the fetched bytes.
    pub(crate) fn note_summed(&mut self, summed: Result<Vec<Summed>, Status>) {
        self.summed = Some(summed);
    }

    /// Returns the memory region that the bytes are fetched into.
    pub(crate) fn region(&self) -> Region {
        self.staging.region
    }

    /// Returns the batch whose bytes are being fetched.
    pub(super) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Returns an iterator over the writes of the batch. Each item is the list of the client's
    /// buffers for one write.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &[DirectBuffer]> {
        let writes = self.batch.requests.iter().filter(|wanted| wanted.kind == IoKind::Write);
        writes.map(|wanted| &wanted.buffers[..])
    }

    /// Returns true if the checksums are computed.
    pub(super) fn is_summed(&self) -> bool {
        self.summed.is_some()
    }

    /// Removes and returns the checksums. `None` until they are computed.
    pub(super) fn take_summed(&mut self) -> Option<Result<Vec<Summed>, Status>> {
        self.summed.take()
    }

    /// Creates the job that computes the checksums for the task.
    pub(super) fn sum_job(&self, task: TaskId) -> SumJob {
        let (memory, stretches) = (self.staging.memory.clone(), self.stretches());
        SumJob { task, memory, stretches, keeps: true }
    }

    /// Returns the range of the staging memory that holds the bytes of each write, in the order of
    /// the writes.
    fn stretches(&self) -> Vec<Range<usize>> {
        let mut start = 0;
        let stretch = |buffers: &[DirectBuffer]| {
            let length: usize = buffers.iter().map(|buffer| buffer.length as usize).sum();
            let stretch = start..start + length;
            start = stretch.end;
            stretch
        };
        self.buffers().map(stretch).collect()
    }

    /// Returns the number of bytes being fetched.
    pub(crate) fn bytes(&self) -> u32 {
        u32::try_from(self.bytes).unwrap_or(u32::MAX)
    }
}

impl Batch {
    /// Returns the number of bytes to fetch and verify.
    ///
    /// # Errors
    /// INVAL if the total size of a write's buffers differs from the total size of its chunks. The
    /// batch is then refused and nothing is fetched.
    pub(super) fn bytes_to_fetch(&self) -> Result<usize, Status> {
        let mut bytes = 0;
        for wanted in self.requests.iter().filter(|wanted| wanted.kind == IoKind::Write) {
            let in_file: u64 = wanted.chunks.iter().map(|chunk| u64::from(chunk.length)).sum();
            let in_memory: u64 = wanted.buffers.iter().map(|b| u64::from(b.length)).sum();
            if in_file != in_memory {
                return Err(Status::Inval);
            }
            bytes += usize::try_from(in_memory).unwrap_or(usize::MAX).min(BATCH_BYTES_MAX + 1);
        }
        Ok(bytes)
    }
}

impl Batches {
    /// Returns true if the bytes of a batch may be fetched now, false if the batch must wait until
    /// memory is released.
    ///
    /// # Errors
    /// RESOURCE if the batch is larger than the limit.
    pub(super) fn has_room_for(
        &mut self,
        channels: &Channels,
        tasks: &Tasks,
        to: ReplyTo,
        bytes: usize,
    ) -> Result<bool, Status> {
        if bytes > BATCH_BYTES_MAX {
            return Err(Status::Resource);
        }
        self.held.retain(|(kept, _)| kept.strong_count() > 0);
        let held: usize = self.held.iter().map(|(_, length)| length).sum();
        let held = held + self.fetching_bytes;
        if held != 0 && held + bytes > HELD_BYTES_MAX {
            return Ok(false);
        }
        Ok(is_plenty(held + bytes, HELD_BYTES_MAX) || {
            let own = fetched_for(channels, tasks, channels.holder_of(to.endpoint));
            own == 0 || is_share(own + bytes, held + bytes, HELD_BYTES_MAX)
        })
    }

    /// Starts the fetch of a batch's bytes. Later batches of the session wait until the fetch ends.
    pub(super) fn begin_fetch(
        &mut self,
        session: SessionId,
        batch: Batch,
        staging: Staging,
        bytes: usize,
    ) -> SealedBatch {
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.is_fetching = true;
        }
        self.fetching_bytes += bytes;
        let (transfers_left, transfer_failed, summed) = (0, false, None);
        SealedBatch { session, batch, staging, bytes, transfers_left, transfer_failed, summed }
    }

    /// Ends the fetch of a batch's bytes. Returns the session of the batch.
    pub(super) fn end_fetch(&mut self, sealed: &SealedBatch) -> SessionId {
        self.fetching_bytes -= sealed.bytes;
        if let Some(entry) = self.sessions.get_mut(&sealed.session) {
            entry.is_fetching = false;
        }
        sealed.session
    }

    /// Compares the computed checksums with the client's, and refuses the writes whose checksums
    /// differ.
    pub(super) fn judge_sums(&mut self, sealed: &mut SealedBatch, summed: Vec<Summed>) {
        let writes = sealed.batch.requests.iter_mut().filter(|it| it.kind == IoKind::Write);
        for (wanted, Summed { sum, bytes }) in writes.zip(summed) {
            let Some(bytes) = bytes else { continue };
            if !bytes.is_empty() && sum != wanted.checksum {
                wanted.refused = Some(Status::Chksum);
                continue;
            }
            self.held.push((Arc::downgrade(&bytes), bytes.len()));
            wanted.data = Some(bytes);
        }
    }

    /// Returns true if so much memory is in use that further batches may be refused with a status
    /// that asks the client to retry. While this is true, the clients whose bytes are being fetched
    /// have a deadline for progress.
    pub(crate) fn is_crowded(&self) -> bool {
        !is_plenty(self.fetching_bytes, HELD_BYTES_MAX)
    }
}

/// Returns the number of bytes being fetched for the batches of one holder (a local user or an
/// address).
fn fetched_for(channels: &Channels, tasks: &Tasks, holder: Holder) -> usize {
    let is_its = |task: &Task| channels.holder_of(task.reply_to.endpoint) == holder;
    let bytes = tasks.with_transfers().filter_map(|(_, task)| match &task.work {
        Work::SealedBatch(sealed) if is_its(task) => Some(sealed.bytes),
        _ => None,
    });
    bytes.sum()
}

/// The maximum number of bytes that one batch may write in a session with checksums.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// The limit on the number of bytes held for the checksummed writes of all batches, in total.
const HELD_BYTES_MAX: usize = 256 << 20;
