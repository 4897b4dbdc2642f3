//! Batches of sessions with checksums: what is to be written is fetched and looked at as a whole
//! before the batch is accepted, so that the file never has a byte that was damaged on its way.
//!
//! Invariant: what is held of such writes, from the fetch to the end of their request, stays below
//! a bound for all.

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

/// A batch whose writes are being fetched.
#[derive(Debug)]
pub struct SealedBatch {
    session: SessionId,
    batch: Batch,
    staging: Staging,
    bytes: usize,
    pub transfers_left: u32,
    pub transfer_failed: bool,
    /// What was fetched sums up to, once that is known.
    summed: Option<Result<Vec<Summed>, Status>>,
}

impl SealedBatch {
    /// What was fetched is summed.
    pub fn note_summed(&mut self, summed: Result<Vec<Summed>, Status>) {
        self.summed = Some(summed);
    }

    /// Where it is fetched to.
    pub fn region(&self) -> Region {
        self.staging.region
    }

    /// The batch.
    pub(super) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Where each write's bytes are at the client.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &[DirectBuffer]> {
        let writes = self.batch.requests.iter().filter(|wanted| wanted.kind == IoKind::Write);
        writes.map(|wanted| &wanted.buffers[..])
    }

    /// Whether it has been summed.
    pub(super) fn is_summed(&self) -> bool {
        self.summed.is_some()
    }

    /// What it sums up to, once that is known.
    pub(super) fn take_summed(&mut self) -> Option<Result<Vec<Summed>, Status>> {
        self.summed.take()
    }

    /// Has it summed for its task.
    pub(super) fn sum_job(&self, task: TaskId) -> SumJob {
        let (memory, stretches) = (self.staging.memory.clone(), self.stretches());
        SumJob { task, memory, stretches, keeps: true }
    }

    /// Where in the memory each write's bytes lie.
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

    /// How much is being fetched.
    pub fn bytes(&self) -> u32 {
        u32::try_from(self.bytes).unwrap_or(u32::MAX)
    }
}

impl Batch {
    /// Bytes that are to be fetched and looked at.
    ///
    /// # Errors
    /// INVAL if buffers and chunks differ: it is refused with nothing fetched.
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
    /// Whether a batch may be fetched now, or has to wait for others.
    ///
    /// # Errors
    /// RESOURCE if it may never be.
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

    /// A batch begins to be fetched. Others of its session wait for that.
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

    /// A batch is not fetched any more. Whose it was.
    pub(super) fn end_fetch(&mut self, sealed: &SealedBatch) -> SessionId {
        self.fetching_bytes -= sealed.bytes;
        if let Some(entry) = self.sessions.get_mut(&sealed.session) {
            entry.is_fetching = false;
        }
        sealed.session
    }

    /// Compares what was fetched with what was promised. What was damaged is refused.
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

    /// Whether so much is being fetched for batches that others may be told to come again. They
    /// do not wait here; so whoever has batches fetched must get on.
    pub(crate) fn is_crowded(&self) -> bool {
        !is_plenty(self.fetching_bytes, HELD_BYTES_MAX)
    }
}

/// Bytes that are being fetched for batches of a holder.
fn fetched_for(channels: &Channels, tasks: &Tasks, holder: Holder) -> usize {
    let is_its = |task: &Task| channels.holder_of(task.reply_to.endpoint) == holder;
    let bytes = tasks.with_transfers().filter_map(|(_, task)| match &task.work {
        Work::SealedBatch(sealed) if is_its(task) => Some(sealed.bytes),
        _ => None,
    });
    bytes.sum()
}

/// Bytes that one batch may write in a session with checksums.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// Bytes that all such writes hold together.
const HELD_BYTES_MAX: usize = 256 << 20;
