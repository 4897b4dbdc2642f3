//! Batches of sessions with checksums: what is to be written is fetched and looked at as a whole
//! before the batch is accepted, so that the file never has an octet that was damaged on its way.
//!
//! Invariant: what is held of such writes, from the fetch to the end of their request, stays below
//! a bound for all.

mod steps;

use std::ops::Range;

use dafs_filer::IoKind;
use dafs_types::{SessionId, Status};
use dafs_wire::DirectBuffer;

use super::Batch;
use crate::sums::Summed;
use crate::transfer::Staging;

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

    /// Where in the memory each write's octets lie.
    fn stretches(&self) -> Vec<Range<usize>> {
        let mut start = 0;
        let writes = self.batch.requests.iter().filter(|wanted| wanted.kind == IoKind::Write);
        let stretch = |buffers: &[DirectBuffer]| {
            let length: usize = buffers.iter().map(|buffer| buffer.length as usize).sum();
            let stretch = start..start + length;
            start = stretch.end;
            stretch
        };
        writes.map(|wanted| &wanted.buffers[..]).map(stretch).collect()
    }

    /// How much is being fetched.
    pub fn octets(&self) -> u32 {
        u32::try_from(self.bytes).unwrap_or(u32::MAX)
    }
}

/// Octets that one batch may write in a session with checksums.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// Octets that all such writes hold together.
const HELD_BYTES_MAX: usize = 256 << 20;
