//! Why undo data cannot be kept or read.

use crate::shelf::{BlobName, ShelfError};

/// Why an operation on undo data failed.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The storage failed while undo data was made, opened or read.
    #[error("the storage of undo data failed")]
    Shelf {
        /// What it said.
        source: ShelfError,
    },
    /// Nothing more can be saved: changes under this lock must be refused.
    #[error("what a change would overwrite cannot be saved any more ({cause}); it is refused")]
    Poisoned {
        /// What failed first.
        cause: String,
    },
    /// As much is buffered as may be: go on when the group under way is done.
    #[error("as much is waiting to be saved as may be; wait for the group under way")]
    Wait,
    /// The undo data is as large as it may get. What is saved stays good.
    #[error("undo data would exceed {bytes_max} bytes; the change is refused")]
    Full {
        /// The bound.
        bytes_max: u64,
    },
    /// The file was changed in more places than are kept track of.
    #[error("undo data would be of more than {count_max} places; the change is refused")]
    TooScattered {
        /// The bound.
        count_max: usize,
    },
    /// More bytes at once than a piece may have.
    #[error("{length} bytes are too many to save at once; {length_max} are the most")]
    TooLong {
        /// How many were given.
        length: usize,
        /// How many may be.
        length_max: usize,
    },
    /// The making of this undo data was not finished, so nothing was changed under it.
    #[error("{name} was not finished when the server stopped; nothing was changed under it")]
    Unfinished {
        /// The file.
        name: BlobName,
    },
    /// What was durable is damaged.
    #[error(
        "undo data is damaged: {name} at offset {offset}: {what}; what was changed under its lock \
         cannot be taken back"
    )]
    Corrupt {
        /// The file.
        name: BlobName,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// Another version of this software wrote the file.
    #[error("{name} has version {version} of the format of undo data, which this server lacks")]
    Version {
        /// The file.
        name: BlobName,
        /// Its version.
        version: u32,
    },
    /// The configuration contradicts itself.
    #[error("the bounds of undo data do not go together: {wrong}")]
    Config {
        /// Which do not.
        wrong: &'static str,
    },
}

impl From<ShelfError> for UndoError {
    fn from(source: ShelfError) -> Self {
        Self::Shelf { source }
    }
}
