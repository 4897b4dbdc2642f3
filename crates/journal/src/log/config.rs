//! The size limits of a log.
//!
//! Invariant: a configuration that [`LogConfig::check`] accepts always leaves room for a checkpoint
//! of the greatest size, however many records are appended meanwhile.

use super::LogError;
use crate::group::{BLOCK_BYTES, GROUP_BYTES_MAX, HEADER_BYTES, frame_bytes_of};

/// The limits of a [`Log`](super::Log). They may be different each time the log is opened.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// The size of a segment in bytes, a multiple of 4096.
    pub segment_bytes: u64,
    /// The maximum number of segments on disk. Records are refused ([`LogError::Full`]) when half
    /// of the segments are in use; the other half is reserved for a checkpoint.
    pub segment_count_max: u32,
    /// The number of free segments that are prepared when the log is opened, so that no zeros need
    /// to be written when a new segment is started.
    pub spare_segment_count: u32,
    /// The maximum length of a record in bytes.
    pub record_bytes_max: usize,
    /// The maximum number of bytes that may be buffered while a group is in flight. At this limit,
    /// the log returns [`LogError::Wait`].
    pub buffered_bytes_max: usize,
    /// The number of bytes of records after which a checkpoint is due.
    pub checkpoint_after_bytes: u64,
    /// The maximum size of a checkpoint in bytes. A checkpoint is kept in memory until it is
    /// written.
    pub checkpoint_bytes_max: usize,
    /// The minimum number of bytes of a checkpoint that are written with one group. With a larger
    /// value the checkpoint is complete sooner; with a smaller value records wait less.
    pub checkpoint_chunk_bytes: usize,
}

impl Default for LogConfig {
    /// Returns limits of 64 segments of 16 MiB, records up to 2 MiB, and a checkpoint every 32 MiB.
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
    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`LogError::Config`] says which values are inconsistent.
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

    /// Returns the size in bytes of the longest possible group. It contains the full buffer, and a
    /// chunk of a checkpoint whose last record exceeds the chunk size.
    fn group_bytes_max(&self) -> u64 {
        let record = frame_bytes_of(self.record_bytes_max);
        let chunk = self.checkpoint_chunk_bytes + record;
        (HEADER_BYTES + self.buffered_bytes_max + chunk).next_multiple_of(BLOCK_BYTES) as u64
    }

    /// Returns the number of segments that a checkpoint can take, including the records that may be
    /// appended meanwhile. The reason is that each group contains a chunk of the checkpoint, and a
    /// segment may end before it is full.
    pub(super) fn checkpoint_segment_count(&self) -> u64 {
        let chunks = self.checkpoint_bytes_max.div_ceil(self.checkpoint_chunk_bytes) as u64 + 1;
        let beside = (self.buffered_bytes_max + HEADER_BYTES + BLOCK_BYTES) as u64;
        let total = self.checkpoint_bytes_max as u64 + chunks * beside;
        let useful = self.segment_bytes - BLOCK_BYTES as u64 - self.group_bytes_max();
        total.div_ceil(useful.max(1)) + 1
    }

    /// Returns the number of segments in use at which no more records are accepted.
    pub(super) fn appending_segment_count(&self) -> usize {
        (self.segment_count_max / 2) as usize
    }
}

/// The number of segments that records may need besides the checkpoint: for the group in flight,
/// for the group that is being filled, and for the next opening of the log.
const SLACK: u64 = 3;
/// The largest value that may be configured for the number of segments.
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
