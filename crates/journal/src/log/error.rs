//! Why a log refuses.

use crate::shelf::{BlobName, ShelfError};

/// Why an operation on the log failed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The storage failed while the log was opened or read.
    #[error("the journal's storage failed")]
    Shelf {
        /// What it said.
        source: ShelfError,
    },
    /// Nothing more can be made durable. Whatever changes state must be refused.
    #[error(
        "the journal has failed and can make nothing durable any more ({cause}); changes are \
         refused until the server is started again, with its disk in order"
    )]
    Poisoned {
        /// What failed first.
        cause: String,
    },
    /// What was durable is damaged.
    #[error(
        "the journal is damaged: {name} at offset {offset}: {what}. What it held there was \
         durable, so this is no torn end: restore the directory from a copy, or move it away to \
         start without it, which forgets locks, fences and cached replies"
    )]
    Corrupt {
        /// The segment's file.
        name: BlobName,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// Two journals are mixed up.
    #[error("{name} belongs to another journal than the files beside it; put it back where it was")]
    Foreign {
        /// The file of which this was seen.
        name: BlobName,
    },
    /// Another version of this software wrote the file.
    #[error("{name} has version {version} of the journal's format, which this server cannot read")]
    Version {
        /// The file.
        name: BlobName,
        /// Its version.
        version: u32,
    },
    /// As much is buffered as may be: go on when the group under way is done.
    #[error("the journal has as much to write as it may hold; wait for the group under way")]
    Wait,
    /// All segments that records may use are in use.
    #[error(
        "the journal has {count} segments in use; a checkpoint must be made first, or \
         segment_count_max raised"
    )]
    Full {
        /// Segments in use.
        count: usize,
    },
    /// The record is too long.
    #[error("a record of {length} bytes is too long for the journal, which takes {length_max}")]
    TooLong {
        /// Its length.
        length: usize,
        /// The longest allowed.
        length_max: usize,
    },
    /// The checkpoint is too large.
    #[error("a checkpoint of more than {bytes_max} bytes; raise checkpoint_bytes_max")]
    CheckpointTooLarge {
        /// The bound.
        bytes_max: usize,
    },
    /// One checkpoint at a time.
    #[error("a checkpoint is being written already")]
    CheckpointUnderWay,
    /// The configuration contradicts itself.
    #[error("the journal's bounds do not go together: {wrong}")]
    Config {
        /// Which do not.
        wrong: &'static str,
    },
}

impl From<ShelfError> for LogError {
    fn from(source: ShelfError) -> Self {
        Self::Shelf { source }
    }
}
