//! The errors of the log.

use crate::storage::{BlobName, StorageError};

/// The reason why an operation on the log failed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The storage failed while the log was opened or read.
    #[error("the journal's storage failed")]
    Storage {
        /// The error of the storage.
        source: StorageError,
    },
    /// The log has failed, so that nothing more can be made durable. Every change of state must be
    /// refused.
    #[error(
        "the journal has failed and cannot make anything durable ({cause}); changes are refused \
         until the disk is repaired and the server restarted"
    )]
    Poisoned {
        /// The text of the first failure.
        cause: String,
    },
    /// Data that was durable is damaged.
    #[error(
        "the journal is damaged: {name} at offset {offset}: {what}. The data there was \
         durable, so this is not a torn end: restore the directory from a copy, or move it away \
         to start without it, which forgets locks, fences and cached replies"
    )]
    Corrupt {
        /// The file of the segment.
        name: BlobName,
        /// The offset of the damage in the file.
        offset: u64,
        /// A description of the damage.
        what: &'static str,
    },
    /// The directory contains files of two journals.
    #[error(
        "{name} belongs to another journal than the files next to it; move it back to where it was"
    )]
    Foreign {
        /// The file that belongs to another journal.
        name: BlobName,
    },
    /// Another version of this software wrote the file.
    #[error("{name} has version {version} of the journal's format, which this server cannot read")]
    Version {
        /// The name of the file.
        name: BlobName,
        /// The version in the file.
        version: u32,
    },
    /// The buffer is full. The caller must try again when the group in flight is durable.
    #[error("the journal's buffer is full; wait for the group in flight")]
    Wait,
    /// All segments that records may use are in use. The caller must make a checkpoint first.
    #[error(
        "the journal has {count} segments in use; make a checkpoint first, or raise \
         segment_count_max"
    )]
    Full {
        /// The number of segments in use.
        count: usize,
    },
    /// The record is too long.
    #[error("a record of {length} bytes exceeds the journal's limit of {length_max} bytes")]
    TooLong {
        /// The length of the record in bytes.
        length: usize,
        /// The maximum length in bytes.
        length_max: usize,
    },
    /// The checkpoint exceeds its limit.
    #[error("a checkpoint exceeds the limit of {bytes_max} bytes; raise checkpoint_bytes_max")]
    CheckpointTooLarge {
        /// The maximum size in bytes.
        bytes_max: usize,
    },
    /// Another checkpoint is still being written.
    #[error("another checkpoint is still being written")]
    CheckpointUnderWay,
    /// The values of the configuration contradict each other.
    #[error("the journal's configuration is inconsistent: {wrong}")]
    Config {
        /// A description of the contradiction.
        wrong: &'static str,
    },
}

impl From<StorageError> for LogError {
    fn from(source: StorageError) -> Self {
        Self::Storage { source }
    }
}
