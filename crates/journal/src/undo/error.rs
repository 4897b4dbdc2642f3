//! The errors of undo data.

use crate::storage::{BlobName, StorageError};

/// The reason why an operation on undo data failed.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The storage failed while undo data was created, opened or read.
    #[error("the storage of undo data failed")]
    Storage {
        /// The error of the storage.
        source: StorageError,
    },
    /// The undo data has failed, so that nothing more can be saved. Changes under its lock must be
    /// refused.
    #[error("a change is refused, because the data it overwrites can no longer be saved ({cause})")]
    Poisoned {
        /// The text of the first failure.
        cause: String,
    },
    /// The buffer is full. The caller must try again when the group in flight is durable.
    #[error("the buffer of undo data is full; wait for the group in flight")]
    Wait,
    /// The undo data has reached its size limit. The data that is already saved stays valid.
    #[error("undo data would exceed {bytes_max} bytes; the change is refused")]
    Full {
        /// The limit in bytes.
        bytes_max: u64,
    },
    /// The file was changed in so many separate ranges that they can no longer be tracked.
    #[error("undo data would have more than {count_max} ranges; the change is refused")]
    TooScattered {
        /// The maximum number of ranges.
        count_max: usize,
    },
    /// One call saves more bytes than a piece may have.
    #[error("{length} bytes exceed the limit of {length_max} bytes saved at once")]
    TooLong {
        /// The number of bytes in the call.
        length: usize,
        /// The maximum number of bytes in one call.
        length_max: usize,
    },
    /// The undo data was not completely created. So no change was made under its lock.
    #[error("{name} was not complete when the server stopped; nothing was changed under its lock")]
    Unfinished {
        /// The name of the undo data's file.
        name: BlobName,
    },
    /// Data that was durable is damaged.
    #[error(
        "undo data is damaged: {name} at offset {offset}: {what}; the changes made under its lock \
         cannot be rolled back"
    )]
    Corrupt {
        /// The name of the file.
        name: BlobName,
        /// The offset of the damage in the file.
        offset: u64,
        /// A description of the damage.
        what: &'static str,
    },
    /// Another version of this software wrote the file.
    #[error("{name} has version {version} of the undo data format, which this server cannot read")]
    Version {
        /// The name of the file.
        name: BlobName,
        /// The version in the file.
        version: u32,
    },
    /// The values of the configuration contradict each other.
    #[error("the configuration of undo data is inconsistent: {wrong}")]
    Config {
        /// A description of the contradiction.
        wrong: &'static str,
    },
}

impl From<StorageError> for UndoError {
    fn from(source: StorageError) -> Self {
        Self::Storage { source }
    }
}
