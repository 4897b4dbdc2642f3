//! Computes checksums of fetched bytes on a worker thread.
//!
//! Invariant: the memory with the bytes belongs to the server, and no other code writes to it
//! during the computation.

use std::ops::Range;
use std::sync::Arc;

use dafs_memory::Memory;
use dafs_types::Status;
use dafs_wire::{Checksum, DirectChecksum};

use crate::reply_to::TaskId;

/// A job that computes the checksums of ranges of a task's memory.
#[derive(Debug)]
pub(crate) struct SumJob {
    pub task: TaskId,
    pub memory: Memory,
    pub stretches: Vec<Range<usize>>,
    /// True if the result also contains a copy of each range.
    pub keeps: bool,
}

/// The checksum of one range of memory.
#[derive(Clone, Debug)]
pub(crate) struct Summed {
    pub sum: Checksum,
    /// A copy of the range's bytes. `None` unless [`SumJob::keeps`] is set.
    pub bytes: Option<Arc<[u8]>>,
}

/// The result of a [`SumJob`]: the checksums in the order of the ranges, or an error.
#[derive(Debug)]
pub(crate) struct SumDone {
    pub task: TaskId,
    pub result: Result<Vec<Summed>, Status>,
}

impl SumJob {
    /// Runs the job. `pause` is called before each chunk of a long range.
    pub(crate) fn run_in_parts(self, pause: impl Fn()) -> SumDone {
        let Self { task, memory, stretches, keeps } = self;
        let summed = stretches.into_iter().map(|stretch| {
            let sum = sum_of(&memory, stretch.clone(), &pause);
            let bytes = keeps.then(|| memory.to_vec(stretch.start, stretch.len()).into());
            Summed { sum, bytes }
        });
        SumDone { task, result: Ok(summed.collect()) }
    }

    /// Returns the result for a job that could not be completed.
    pub(crate) fn failed(&self) -> SumDone {
        SumDone { task: self.task, result: Err(Status::ServerFault) }
    }
}

/// Computes the checksum of a range of memory, one chunk at a time. `pause` is called before each
/// chunk.
pub(crate) fn sum_of(memory: &Memory, stretch: Range<usize>, pause: impl Fn()) -> Checksum {
    let mut part = vec![0; stretch.len().min(PART_BYTES)];
    let mut sum = DirectChecksum::new();
    let mut at = stretch.start;
    while at < stretch.end {
        pause();
        let length = (stretch.end - at).min(PART_BYTES);
        memory.read(at, &mut part[..length]);
        sum.update(&part[..length]);
        at += length;
    }
    sum.finish()
}

/// The maximum number of bytes whose checksum the reactor computes itself. An inline message has at
/// most this size.
pub(crate) const IN_PLACE_BYTES_MAX: usize = 64 << 10;
/// The size of a chunk in bytes. A chunk fits into the processor's cache while it is checksummed.
const PART_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_that_is_read_in_parts_has_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..300_001u32).map(|n| (n * 7 + n / 251) as u8).collect();
        let memory = Memory::from_heap(bytes.clone().into());
        for stretch in [0..0, 0..1, 5..300_001, 1..PART_BYTES + 2, 0..2 * PART_BYTES] {
            assert_eq!(sum_of(&memory, stretch.clone(), || ()), Checksum::of(&bytes[stretch]));
        }
        let stretches = vec![3..70_000, 70_000..300_001];
        let job = SumJob { task: TaskId(4), memory, stretches: stretches.clone(), keeps: true };
        let summed = job.run_in_parts(|| ()).result.unwrap();
        for (summed, stretch) in summed.iter().zip(stretches) {
            assert_eq!(summed.sum, Checksum::of(&bytes[stretch.clone()]));
            assert_eq!(summed.bytes.as_deref(), Some(&bytes[stretch]));
        }
    }
}
