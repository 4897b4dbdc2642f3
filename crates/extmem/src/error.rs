//! The errors of operations on streams.
//!
//! Invariant: an error names the file it concerns, and has the engine's error as its source.

/// The result of an operation on streams.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why an operation on streams failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An engine failed to execute an operation.
    #[error("{what}")]
    Engine {
        /// The operation and the file.
        what: String,
        /// The error of the file system or the server.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file was truncated while it was read.
    #[error("{file} was truncated: it ends at {end} bytes and was longer when it was opened")]
    Cut {
        /// The name of the file.
        file: String,
        /// The present size of the file in bytes.
        end: u64,
    },
    /// A file of fixed-size records ends within a record.
    #[error(
        "{file} has {size} bytes, which is not a multiple of {record_bytes}; check the record \
         size"
    )]
    Ragged {
        /// The name of the file.
        file: String,
        /// The size of the file in bytes.
        size: u64,
        /// The size of a record in bytes.
        record_bytes: usize,
    },
    /// A stream to be merged is not sorted.
    #[error(
        "{file} is not sorted: record {record} belongs before its predecessor; sort the file first"
    )]
    OutOfOrder {
        /// The name of the file.
        file: String,
        /// The number of the record, counted from 1.
        record: u64,
    },
    /// The limit of memory is too low for the operation.
    #[error(
        "{what} needs {needed} bytes of memory, but only {limit} are left; raise the memory limit"
    )]
    Memory {
        /// The part of the operation that needs the memory.
        what: &'static str,
        /// The least number of bytes needed.
        needed: u64,
        /// The available number of bytes.
        limit: u64,
    },
    /// The caller asked to stop ([`crate::Watch`]).
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Creates an error of an engine.
    pub fn engine(
        what: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Engine { what: what.into(), source: source.into() }
    }
}
