//! Checksums of what was fetched, made by whoever may take the time.
//!
//! Invariant: what is summed is memory of our own, which nobody writes any more.

use std::ops::Range;
use std::sync::Arc;

use dafs_memory::Memory;
use dafs_types::Status;
use dafs_wire::{Checksum, DirectChecksum};

use crate::reply_to::TaskId;

/// Stretches of a task's memory that are to be summed.
#[derive(Debug)]
pub struct SumJob {
    pub task: TaskId,
    pub memory: Memory,
    pub stretches: Vec<Range<usize>>,
    /// Whether a copy of each is wanted, too.
    pub keeps: bool,
}

/// A stretch that was summed.
#[derive(Clone, Debug)]
pub struct Summed {
    pub sum: Checksum,
    /// The copy, if one was wanted.
    pub bytes: Option<Arc<[u8]>>,
}

/// What came of a [`SumJob`]: each stretch in its turn, or that it failed.
#[derive(Debug)]
pub struct SumDone {
    pub task: TaskId,
    pub result: Result<Vec<Summed>, Status>,
}

impl SumJob {
    /// Does it, with a pause before each part of what takes long.
    pub fn run_in_parts(self, pause: impl Fn()) -> SumDone {
        let Self { task, memory, stretches, keeps } = self;
        let summed = stretches.into_iter().map(|stretch| {
            let sum = sum_of(&memory, stretch.clone(), &pause);
            let bytes = keeps.then(|| memory.to_vec(stretch.start, stretch.len()).into());
            Summed { sum, bytes }
        });
        SumDone { task, result: Ok(summed.collect()) }
    }

    /// What it comes to if it cannot be finished.
    pub fn failed(&self) -> SumDone {
        SumDone { task: self.task, result: Err(Status::ServerFault) }
    }
}

/// The checksum of a stretch of memory, which is read in parts.
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

/// Bytes that are summed by the thread that serves: what a message could hold anyway.
pub(crate) const IN_PLACE_BYTES_MAX: usize = 64 << 10;
/// Bytes that are read at a time: they stay in the processor's cache for the sum.
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
