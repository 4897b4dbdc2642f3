//! What can go wrong with streams.
//!
//! Invariant: an error names the file it is about; what an engine says of it is its source.

/// Result of an operation on streams.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on streams failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An engine could not do what it was asked for.
    #[error("{what}")]
    Engine {
        /// What was tried, with the file.
        what: String,
        /// What the file system or the server said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file became shorter while it was read.
    #[error("{file} ends at {end} bytes, and had more when it was opened; somebody has cut it")]
    Cut {
        /// Which file.
        file: String,
        /// Where it ends now.
        end: u64,
    },
    /// A file of records with a fixed size ends within one.
    #[error(
        "{file} has {size} bytes, which is no whole number of records of {record_bytes}; \
         check the record size"
    )]
    Ragged {
        /// Which file.
        file: String,
        /// Its bytes.
        size: u64,
        /// Bytes of a record.
        record_bytes: usize,
    },
    /// What is to be merged is not sorted.
    #[error("{file} is not sorted: record {record} belongs before the one in front of it; sort it")]
    OutOfOrder {
        /// Which file.
        file: String,
        /// Which record, counted from 1.
        record: u64,
    },
    /// The limit of memory is too low for what is to be done.
    #[error("{what} needs {needed} bytes of memory, and {limit} are left of the limit; raise it")]
    Memory {
        /// What needs it.
        what: &'static str,
        /// Bytes that are needed at least.
        needed: u64,
        /// Bytes there are.
        limit: u64,
    },
    /// Somebody asked for the end ([`crate::Watch`]).
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// A failure of an engine.
    pub fn engine(
        what: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Engine { what: what.into(), source: source.into() }
    }
}
