//! How large a log may get.
//!
//! Invariant: a configuration that [`LogConfig::check`] accepts always leaves room for a
//! checkpoint of the largest size, however many records are appended meanwhile.

use super::LogError;
use crate::group::{BLOCK_BYTES, GROUP_BYTES_MAX, HEADER_BYTES, frame_bytes_of};

/// Bounds of a [`Log`](super::Log). They may differ from one opening to the next.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Bytes of a segment, a multiple of 4096.
    pub segment_bytes: u64,
    /// Most segments on disk. Records are refused ([`LogError::Full`]) when half of them
    /// are in use; the other half is for the checkpoint.
    pub segment_count_max: u32,
    /// Segments made ready at opening and kept at hand, so that beginning one costs no
    /// writing of zeros.
    pub spare_segment_count: u32,
    /// Longest record, in bytes.
    pub record_bytes_max: usize,
    /// Most bytes that wait for the group under way; beyond, the log says
    /// [`LogError::Wait`].
    pub buffered_bytes_max: usize,
    /// After so many bytes of records a checkpoint is wanted.
    pub checkpoint_after_bytes: u64,
    /// Largest checkpoint, in bytes. It is kept in memory until it is written.
    pub checkpoint_bytes_max: usize,
    /// What of a checkpoint goes with one group, at least: larger means done sooner,
    /// smaller means that records wait less.
    pub checkpoint_chunk_bytes: usize,
}

impl Default for LogConfig {
    /// 64 segments of 16 MiB, records up to 2 MiB, a checkpoint every 32 MiB.
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            segment_count_max: 64,
            spare_segment_count: 1,
            record_bytes_max: 2 << 20,
            buffered_bytes_max: 4 << 20,
            checkpoint_after_bytes: 32 << 20,
            checkpoint_bytes_max: 32 << 20,
            checkpoint_chunk_bytes: 1 << 20,
        }
    }
}

impl LogConfig {
    /// Whether these bounds go together.
    ///
    /// # Errors
    /// [`LogError::Config`] says which do not.
    pub fn check(&self) -> Result<(), LogError> {
        let block = BLOCK_BYTES as u64;
        let wrong = if !self.segment_bytes.is_multiple_of(block) {
            "segment_bytes must be a multiple of 4096"
        } else if !(2..=SEGMENT_COUNT_LIMIT).contains(&self.segment_count_max) {
            "segment_count_max must be from 2 to 65536"
        } else if self.spare_segment_count > self.segment_count_max / 2 {
            "spare_segment_count must be at most half of segment_count_max"
        } else if self.record_bytes_max == 0 || self.buffered_bytes_max == 0 {
            "record_bytes_max and buffered_bytes_max must be above zero"
        } else if self.checkpoint_chunk_bytes == 0 || self.checkpoint_after_bytes == 0 {
            "checkpoint_chunk_bytes and checkpoint_after_bytes must be above zero"
        } else if frame_bytes_of(self.record_bytes_max) > self.buffered_bytes_max {
            "buffered_bytes_max must be above record_bytes_max"
        } else if self.group_bytes_max() > GROUP_BYTES_MAX as u64 {
            "a group could be longer than 64 MiB; lower buffered_bytes_max or record_bytes_max"
        } else if block + 2 * self.group_bytes_max() > self.segment_bytes {
            "segment_bytes must be twice what a group can be: buffered_bytes_max, \
             checkpoint_chunk_bytes and record_bytes_max together"
        } else if self.checkpoint_segment_count() + SLACK > u64::from(self.segment_count_max / 2) {
            "segment_count_max is too low for checkpoint_bytes_max"
        } else {
            return Ok(());
        };
        Err(LogError::Config { wrong })
    }

    /// Bytes of the longest group: what may be buffered, and of a checkpoint a chunk
    /// that its last record overshoots.
    fn group_bytes_max(&self) -> u64 {
        let record = frame_bytes_of(self.record_bytes_max);
        let chunk = self.checkpoint_chunk_bytes + record;
        (HEADER_BYTES + self.buffered_bytes_max + chunk).next_multiple_of(BLOCK_BYTES) as u64
    }

    /// Segments that a checkpoint can take, with all that may be appended while it is
    /// written: each group has a chunk of it, and each segment may end a group early.
    pub(super) fn checkpoint_segment_count(&self) -> u64 {
        let chunks = self.checkpoint_bytes_max.div_ceil(self.checkpoint_chunk_bytes) as u64 + 1;
        let beside = (self.buffered_bytes_max + HEADER_BYTES + BLOCK_BYTES) as u64;
        let total = self.checkpoint_bytes_max as u64 + chunks * beside;
        let useful = self.segment_bytes - BLOCK_BYTES as u64 - self.group_bytes_max();
        total.div_ceil(useful.max(1)) + 1
    }

    /// With so many segments in use no record is taken.
    pub(super) fn appending_segment_count(&self) -> usize {
        (self.segment_count_max / 2) as usize
    }
}

/// Segments that what was taken before may still need: the group under way, the one being
/// filled, and that of another opening.
const SLACK: u64 = 3;
/// No journal has more segments.
const SEGMENT_COUNT_LIMIT: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_contradict_each_other_are_refused() {
        let good = LogConfig::default;
        good().check().unwrap();
        let bad = [
            LogConfig { segment_bytes: (16 << 20) + 1, ..good() },
            LogConfig { segment_count_max: 1, ..good() },
            LogConfig { spare_segment_count: 33, ..good() },
            LogConfig { record_bytes_max: 4 << 20, ..good() },
            LogConfig { record_bytes_max: 0, ..good() },
            LogConfig { segment_bytes: 8 << 20, ..good() },
            LogConfig { buffered_bytes_max: 100 << 20, segment_bytes: 1 << 30, ..good() },
            LogConfig { checkpoint_bytes_max: 1 << 30, ..good() },
            LogConfig { checkpoint_chunk_bytes: 0, ..good() },
        ];
        for config in bad {
            assert!(matches!(config.check(), Err(LogError::Config { .. })), "{config:?}");
        }
    }
}
