//! Operations and completions, as the application sees them.
//!
//! Invariant: operation ids are unique in a client.

use dafs_types::Verifier;

use crate::error::Result;

/// The id of an operation, unique in its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(pub(crate) u64);

/// The result of a successful operation.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transferred {
    /// The number of bytes moved.
    pub length: u32,
    /// For a read: true if the file ends after these bytes.
    pub end_of_file: bool,
    /// For a write or commit: the server's write verifier. It changes when unstable data may have
    /// been lost.
    pub verifier: Verifier,
}

/// Reports that an operation has ended.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The operation that has ended.
    pub operation: OperationId,
    /// The caller's own value, given when the operation was submitted.
    pub context: u64,
    /// The result of the operation, or its error.
    pub result: Result<Transferred>,
}
